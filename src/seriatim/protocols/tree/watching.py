"""Log mode: how long the logs of the topics homed here are, and who waits to know.

A topic that the tree does not list lives on the default home, and its log is not watched until somebody wants it. That
log may be long already; so may any log after a restart, since what was appended meanwhile is not known yet. A join that
went on at once would begin at too low a number, and hand a new subscriber all of that as if it were news. So the cut
of a join waits until the broker has told the length of the log, once *in this epoch*. Not once ever: then "what was
there when you asked is not given to you" would break at every restart. It costs little, because a node that starts
has all its logs watched again anyway.

The answer is an input like any other, so it is in the journal; which questions are open is known to this process only.
"""

from collections.abc import Iterable

from seriatim.model import BROKER, Address, Node, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree.core import SequencerCore
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.state import SequencerState
from seriatim.protocols.with_broker import Watch

PUT_OFF_MAX = 8  # while answers come in, the question is not repeated for so many retries


class Watching(SequencerCore):
    """The part of a sequencer that asks the broker for the lengths of logs."""

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerState | None = None
    ) -> None:
        super().__init__(tree, node, options, state)
        self._unanswered: set[Topic] = set()
        self._watched_at = 0.0
        self._watch_due: float | None = None
        self._unmeasured_joins: dict[Topic, set[Address]] = {}  # who waits for the length of which log
        for subscriber, joins in self.state.joins.items():
            for topic, join in joins.items():
                if topic in join.unannounced:
                    self._unmeasured_joins.setdefault(topic, set()).add(subscriber)

    def _is_measured(self, topic: Topic) -> bool:
        """Whether the broker has told in this epoch how long the log is. In ticket mode there is none."""
        if self.options.mode != "log":
            return True
        home = self.state.homes.get(topic)
        return home is not None and home.measured == self.state.epoch

    def _watch(self, topics: Iterable[Topic], now: float, effects: Effects) -> None:
        """Have these logs watched, unless that is known, or asked already."""
        new = frozenset(topic for topic in topics if topic not in self._unanswered and not self._is_measured(topic))
        if new:
            self._unanswered |= new
            if self._watch_due is None:
                self._watched_at = now
                self._watch_due = now + self.options.retry_ms
            effects.send.append((BROKER, Watch(new)))

    def _watch_everything(self, now: float, effects: Effects) -> None:
        """A process starts: whatever an earlier one asked or was told, ask for every log."""
        self._unanswered.clear()
        self._watch_due = None
        listed = (topic for topic, node in self.tree.homes.items() if node == self.node)
        self._watch((*listed, *self.state.homes, *self._unmeasured_joins), now, effects)

    def _answered(self, topic: Topic, now: float) -> None:
        """One answer less to wait for. Others may be on their way, so there is no hurry to ask again."""
        self._unanswered.discard(topic)
        retry_ms = self.options.retry_ms
        put_off = min(now + retry_ms, self._watched_at + PUT_OFF_MAX * retry_ms)
        self._watch_due = put_off if self._unanswered else None

    def _watch_again(self, now: float, effects: Effects) -> None:
        if self._watch_due is not None and now >= self._watch_due:
            self._watched_at = now
            self._watch_due = now + self.options.retry_ms
            effects.send.append((BROKER, Watch(frozenset(self._unanswered))))
