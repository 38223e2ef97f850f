"""A client of a broker: hands on what its application asks for, and sees that no number is missing."""

from seriatim.model import APPLICATION, Address, Gap, Notification, RemoteError
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.protocols.overlay import messages as say
from seriatim.protocols.overlay.state import ClientState


class Client(Machine):
    """The machine of one client, at one broker."""

    def __init__(self, name: Address, broker: Address, state: ClientState | None = None) -> None:
        self.name = name
        self.broker = broker
        self.state = state if state is not None else ClientState()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        if source == APPLICATION and isinstance(message, say.Command):
            effects.send.append((self.broker, message))
        elif source == self.broker and isinstance(message, say.Deliver):
            self._deliver(message, effects)
        elif source == self.broker and isinstance(message, say.Answer):
            if isinstance(message, say.Unsubscribed):
                self.state.numbers.pop(message.name, None)
            effects.notify.append(message)
        else:
            raise RemoteError(f"{source} sent {self.name} an unknown message: {message!r}")
        return effects

    def explain(self) -> list[str]:
        return []

    def _deliver(self, message: say.Deliver, effects: Effects) -> None:
        """Notify, once, and tell first which numbers are missing."""
        done = self.state.numbers
        new = {name: number for name, number in message.numbers.items() if number > done.get(name, 0)}
        for name, number in new.items():
            first = done.get(name, 0) + 1
            if number > first:
                effects.notify.append(Gap(name, first, number - 1, "lost on the way from the broker"))
            if message.event is None:
                effects.notify.append(Gap(name, number, number, message.reason))
            done[name] = number
        if new and message.event is not None:
            effects.notify.append(Notification(message.event, min(new.items())[1], new))
