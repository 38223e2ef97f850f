"""A client of a broker: hands on what its application asks for, and sees that no number is missing."""

from seriatim.model import APPLICATION, Address, Gap, Notification, RemoteError
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay.messages import (
    Advertise,
    Advertised,
    Deliver,
    EventTaken,
    Publish,
    Refused,
    Subscribe,
    Subscribed,
    Unadvertise,
    Unadvertised,
    Unsubscribe,
    Unsubscribed,
)
from seriatim.protocols.overlay.state import ClientState


class Client:
    """The machine of one client, at one broker."""

    def __init__(self, name: Address, broker: Address, state: ClientState | None = None) -> None:
        self.name = name
        self.broker = broker
        self.state = state if state is not None else ClientState()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Subscribe() | Unsubscribe() | Advertise() | Unadvertise() | Publish() if source == APPLICATION:
                effects.send.append((self.broker, message))
            case Deliver() if source == self.broker:
                self._deliver(message, effects)
            case Unsubscribed(name) if source == self.broker:
                self.state.numbers.pop(name, None)
                effects.notify.append(message)
            case Subscribed() | Advertised() | Unadvertised() | EventTaken() | Refused() if source == self.broker:
                effects.notify.append(message)
            case _:
                raise RemoteError(f"{source} sent {self.name} what it does not understand: {message!r}")
        return effects

    def tick(self, now: float) -> Effects:
        """Nothing here depends on time."""
        return Effects()

    def explain(self) -> list[str]:
        """Nothing waits here."""
        return []

    def _deliver(self, message: Deliver, effects: Effects) -> None:
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
