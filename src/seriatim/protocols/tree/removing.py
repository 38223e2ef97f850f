"""Removing topics: a home gives one up for good, and remembers how far its numbers went.

The operator asks (`Remove`). The home refuses while somebody holds the topic, unless it is forced. From then on it
takes no tickets and no joins for it. When every number that it gave out is settled, it has the broker drop the events,
stamps and slots (`Discard`), and repeats that until the broker has done so (`Discarded`). A log that has grown
meanwhile is numbered and stamped first, so no number is ever without its place in the order log.

*Numbers go on.* The count stays, here and wherever it has passed: a topic of the same name that is made anew begins
behind it. Order log, archives, stamps of other topics and durable subscribers name events by topic and number; a number
that is given out twice would be another event under an old name.

A removed topic is not watched, so nothing makes it again by itself. It is in use again with the first ticket or join,
or when somebody finds that its log has grown.
"""

from seriatim.model import BROKER, Address, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import messages as say
from seriatim.protocols.tree.core import SequencerCore
from seriatim.protocols.with_broker import Discard, Discarded

NAMED_MAX = 5


class Removing(SequencerCore):
    """The part of a sequencer that removes topics."""

    def why_kept(self, topic: Topic, is_forced: bool = False) -> str | None:
        """Why this topic cannot be removed now. None: it can."""
        if not self._is_home(topic):
            return self._why_not_home(topic)
        if (is_done := self.state.removed.get(topic)) is not None:
            return "it is removed already" if is_done else "it is being removed already"
        moving = self.state.moving
        if topic in moving.leaving or topic in moving.arriving:
            return "it is just being moved to another node; try again when that is done"
        if topic in self.state.renewing:
            return "another log of it is just being accepted; try again when that is done"
        holders = self.holders(topic) if not is_forced else []
        if holders:
            more = len(holders) - NAMED_MAX
            others = f" and {more} more" if more > 0 else ""
            return f"it is held by {', '.join(holders[:NAMED_MAX])}{others}"
        return None

    def holders(self, topic: Topic) -> list[Address]:
        """The subscribers that hold the topic or are joining it."""
        return sorted(name for name, holder in self.state.couplings.holders.items() if topic in holder.topics)

    def _on_add(self, source: Address, message: say.Add, now: float, effects: Effects) -> None:
        """A topic begins to be used before anybody publishes or subscribes: a plain client may publish to it."""
        topic = message.topic
        if self._is_home(topic) and self._problem_with_removed(topic) is None:
            self._home(topic)
            if self.options.mode == "log":
                self._watch([topic], now, effects)

    def _on_remove(self, source: Address, message: say.Remove, now: float, effects: Effects) -> None:
        topic = message.topic
        if self._why_not_removable(message) is not None:
            return
        self._home(topic)
        self.state.removed[topic] = False
        for subscriber, joins in list(self.state.joins.items()):
            if joins.pop(topic, None) is not None and not joins:
                del self.state.joins[subscriber]
        self._removal_due = now

    def _why_not_removable(self, message: say.Remove) -> str | None:
        return self.why_kept(message.topic, message.is_forced)

    def _on_discarded(self, source: Address, message: Discarded, now: float, effects: Effects) -> None:
        topic = message.topic
        home = self.state.homes.get(topic)
        if home is None or message.last != home.issued or self.state.removed.get(topic) is not False:
            return
        self.state.removed[topic] = True
        home.kept_from, home.measured = home.issued + 1, 0
        self._forget_measure(topic)
        for table in (self.state.voids, self.state.disputed, self.state.desks):
            table.pop(topic, None)

    def _problem_with_removed(self, topic: Topic) -> str | None:
        """A topic that is being removed takes no requests. One that is removed is in use again from now on."""
        is_done = self.state.removed.get(topic)
        if is_done is False:
            return f"{topic} is being removed; ask again when that is done"
        if is_done:
            del self.state.removed[topic]
        return None

    def _start_removals(self, now: float) -> None:
        """A process starts: ask the broker again about what is not done."""
        if not all(self.state.removed.values()):
            self._removal_due = now

    def _remove_due(self, now: float, effects: Effects) -> None:
        """A tick: what has settled is handed to the broker, and again until that is answered."""
        if self._removal_due is None or now < self._removal_due:
            return
        under_way = sorted(topic for topic, is_done in self.state.removed.items() if not is_done)
        for topic in under_way:
            if topic not in self.state.ranges:
                effects.send.append((BROKER, Discard(topic, self.state.homes[topic].issued, self.state.epoch)))
        self._removal_due = now + self.options.retry_ms if under_way else None

    def _explain_removals(self) -> list[str]:
        under_way = sorted(topic for topic, is_done in self.state.removed.items() if not is_done)
        return [
            f"{topic} is being removed: waits for {'its numbers' if topic in self.state.ranges else 'the broker'}"
            for topic in under_way
        ]
