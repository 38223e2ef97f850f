"""Log mode with stages: a bus that was notified early publishes only when that is final.

A subscriber that is notified at a low stage could react on another topic, and the reaction could reach a higher meeting
node before its cause does. Still one order fits all, but somebody else would see an effect before its cause. So a
command says which numbers it comes `behind`, and waits until their stamps are finished. Then the cause has passed every
node where anybody's topics meet.

Whatever comes after a command that waits waits with it: it may react to the same. The subscriber tells how far the
stamps of its topics are (`StampedTo` from the application). Of what it cannot tell (any more), because it left the
topic or was restarted, the broker is asked.
"""

from collections.abc import Collection

from msgspec import Struct, field, structs

from seriatim.model import BROKER, Event, Number, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.queue import Queue
from seriatim.protocols.with_broker import Follow, Publish, StampedTo, Unfollow, Withdraw


class Reacting(Struct):
    """The commands that wait, in their order; how far stamps are, as far as it was told meanwhile."""

    queue: Queue[Publish] = field(default_factory=Queue)
    finals: dict[Topic, Number] = field(default_factory=dict)
    asked: set[Topic] = field(default_factory=set)  # the broker was asked about these


class Reactions:
    """The part of a publisher that holds commands back."""

    def __init__(self, state: Reacting) -> None:
        self.state = state

    @property
    def events(self) -> list[Event]:
        return [event for command in self.state.queue for event in command.events]

    def hold(self, command: Publish) -> bool:
        """Keep a command back if it may react to events without a place, or others wait before it. Returns whether it
        is kept back."""
        if not self.state.queue and not self._causes(command):
            return False
        self.state.queue.append(command)
        return True

    def on_final(self, message: StampedTo) -> None:
        if self.state.queue:
            self.state.finals[message.topic] = max(message.last, self.state.finals.get(message.topic, 0))

    def next(self) -> Publish | None:
        """The next command that need not wait any more."""
        queue = self.state.queue
        return queue.take()[0] if queue and not self._causes(queue.first) else None

    def ask(self, effects: Effects) -> None:
        """Ask the broker how far topics are stamped, after nobody has told for a while."""
        for topic in self._causes(self.state.queue.first) if self.state.queue else ():
            self.state.asked.add(topic)
            effects.send.append((BROKER, Follow(topic)))

    def end(self, followed: Collection[Topic], effects: Effects) -> None:
        """If nothing waits any more, forget what was told. The broker need not tell any more but of `followed`."""
        if not self.state.queue and (self.state.finals or self.state.asked):
            effects.send.extend((BROKER, Unfollow(topic)) for topic in sorted(self.state.asked.difference(followed)))
            self.state.asked.clear()
            self.state.finals.clear()

    def forget(self, withdrawn: Withdraw) -> bool:
        """Whether the event was here."""
        queue = self.state.queue
        for index, command in enumerate(queue):
            left = tuple(event for event in command.events if event.id != withdrawn.event_id)
            if len(left) < len(command.events):
                queue.items[queue.taken + index] = structs.replace(command, events=left)
                return True
        return False

    def explain(self) -> str:
        """What these commands wait for; empty: there are none."""
        queue = self.state.queue
        if not queue:
            return ""
        causes = ", ".join(f"{topic} {queue.first.behind[topic]}" for topic in self._causes(queue.first))
        return f"{len(self.events)} events wait until the stamp of {causes} is finished: this bus was notified early"

    def _causes(self, command: Publish) -> list[Topic]:
        """The topics whose stamps it waits for."""
        finals = self.state.finals
        return sorted(topic for topic, number in command.behind.items() if finals.get(topic, 0) < number)
