"""A log that was deleted on purpose: its home forgets it, and goes on with the one that has its name now.

A number is a position in a log, so numbers of another log fit nobody: homes and subscribers refuse it. The operator may
accept it (`AcceptLog`). The broker is told to let the new log go on one number later than the old one ended (`Renew`,
repeated until it is `Renewed`), so a number is a position again. What the log held before that was never numbered. It
is dropped if the operator permits it; if not, and there is something, the broker waits for the permission. The number
in between, the *mark*, is no event of either log. The home gives it out then, with a stamp like any other. It counts as
lost, as does everything before it: so every holder is told of a gap, also one that had seen everything.
"""

from seriatim.model import BROKER, Address, Node, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import messages as say
from seriatim.protocols.tree.estate import Range
from seriatim.protocols.tree.numbering import Numbering
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.state import SequencerState
from seriatim.protocols.with_broker import Renew, Renewed


class Accepting(Numbering):
    """The part of a sequencer that goes on with another log."""

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerState | None = None
    ) -> None:
        super().__init__(tree, node, options, state)
        self._renewal_due: float | None = None  # when to ask the broker, or again

    def why_not_accepted(self, topic: Topic) -> str | None:
        """Why another log of this topic cannot be accepted now. None: it can."""
        if self.options.mode != "log":
            return "in ticket mode events lie in slots, and there is no log to accept"
        if not self._is_home(topic):
            return self._why_not_home(topic)
        moving = self.state.moving
        if topic in moving.leaving or topic in moving.arriving:
            return "it is just being moved to another node; try again when that is done"
        if topic in self.state.renewing:
            return "it is being accepted already"
        if topic in self.state.removed:
            return "it was removed, so it goes on behind its last number by itself when it is used again"
        if topic not in self.state.homes or not self.state.homes[topic].issued:
            return "nothing of it was numbered yet"
        return None

    def _on_accept_log(self, source: Address, message: say.AcceptLog, now: float, effects: Effects) -> None:
        topic, state = message.topic, self.state
        if topic in state.renewing and message.drop:
            state.undroppable.discard(topic)
            self._renewal_due = now
        if self.why_not_accepted(topic) is not None:
            return
        home = self._home(topic)
        if not message.drop:
            state.undroppable.add(topic)
        home.kept_from = self.state.renewing[topic] = home.issued + 2  # behind the mark
        self._renewal_due = now

    def _on_renewed(self, source: Address, message: Renewed, now: float, effects: Effects) -> None:
        topic = message.topic
        if self.state.healing.is_frozen:
            return  # asked again
        if self.state.renewing.get(topic) != message.first:  # a repeat; perhaps the topic has moved away since
            return
        del self.state.renewing[topic]
        self.state.undroppable.discard(topic)
        home = self._home(topic)
        if home.issued < (mark := message.first - 1):
            self._issue(topic, home, Range(home.issued + 1, mark), now, effects)

    def _start_renewals(self, now: float) -> None:
        """A process starts: nobody knows what of it arrived."""
        if self.state.renewing:
            self._renewal_due = now

    def _renew_due(self, now: float, effects: Effects) -> None:
        """A tick: the broker is asked, and again until it answers."""
        if self._renewal_due is not None and now >= self._renewal_due:
            for topic, first in sorted(self.state.renewing.items()):
                effects.send.append((BROKER, Renew(topic, first, topic not in self.state.undroppable)))
            self._renewal_due = now + self.options.retry_ms if self.state.renewing else None

    def _explain_renewals(self) -> list[str]:
        return [
            f"{topic} goes on at {first} with another log: waits for the broker"
            for topic, first in sorted(self.state.renewing.items())
        ]
