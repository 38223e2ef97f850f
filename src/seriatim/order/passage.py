"""What has passed a node, and what a topic must collect there: differences at a cost that follows the changes.

A node remembers for every topic how many of its events have passed (`passed`). When topic T passes, it collects an
entry for each topic of its group that *rose* since T collected here last; older entries are already carried by an
earlier event of T, and events of one topic are notified in order. Finding what rose must cost neither the size of
the group nor the number of topics of the node, so both ways are open and the cheaper one is taken: walk the topics
from the most recently raised one backwards, or look at each topic of the group.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct, field

from seriatim.model import Entries, Number, Topic


class Passage(Struct):
    """One topic at one node. `raised` and `collected` are moments of the node's own count of raises."""

    passed: Number = 0
    raised: int = 0
    collected: int = 0
    group: set[Topic] = field(default_factory=set)


class PassageState(Struct):
    """Plain data of a PassageTable: enough to rebuild it."""

    moment: int = 0
    passages: dict[Topic, Passage] = field(default_factory=dict)


class PassageTable:
    """All passages of one node. `full` makes every collection a whole stamp instead of a difference.

    A whole stamp also keeps what a topic collected only once or for the last time: that one event may get lost.
    """

    __slots__ = ("_recent", "full", "state")

    def __init__(self, state: PassageState, full: bool = False) -> None:
        self.state = state
        self.full = full
        by_age = sorted(state.passages.items(), key=lambda item: item[1].raised)
        self._recent = OrderedDict((topic, None) for topic, passage in by_age if passage.passed)

    def passed(self, topic: Topic) -> Number:
        """How many events of the topic have passed here, as far as this node was told."""
        passage = self.state.passages.get(topic)
        return passage.passed if passage is not None else 0

    def raise_to(self, topic: Topic, number: Number) -> None:
        """The first `number` events of the topic have passed (or were announced)."""
        passage = self._passage(topic)
        if number > passage.passed:
            passage.passed = number
            self.state.moment = passage.raised = self.state.moment + 1
            self._recent[topic] = None
            self._recent.move_to_end(topic)

    def collect(
        self,
        topic: Topic,
        couple: Sequence[Topic] = (),
        uncouple: Sequence[Topic] = (),
        once: Sequence[Topic] = (),
    ) -> Entries:
        """The entries that `topic` must carry from here. A newly coupled topic gives its whole count as base."""
        passage = self._passage(topic)
        entries = self._whole(passage) if self.full else self._risen(passage)
        passage.collected = self.state.moment
        if couple or uncouple or once:
            passage.group.update(couple)
            if self.full:
                passage.group.update(once)
            else:
                passage.group.difference_update(uncouple)
            for other in sorted((*couple, *once)):
                known = self.state.passages.get(other)
                if known is not None and known.passed:
                    entries[other] = known.passed
        return entries

    def _passage(self, topic: Topic) -> Passage:
        passage = self.state.passages.get(topic)
        if passage is None:
            passage = self.state.passages[topic] = Passage()
        return passage

    def _whole(self, passage: Passage) -> Entries:
        passages = self.state.passages
        known = ((other, passages.get(other)) for other in sorted(passage.group))
        return {other: found.passed for other, found in known if found is not None and found.passed}

    def _risen(self, passage: Passage) -> Entries:
        entries: Entries = {}
        group = passage.group
        if not group:
            return entries
        passages, recent, collected = self.state.passages, self._recent, passage.collected
        for other in islice(reversed(recent), len(group)):
            risen = passages[other]
            if risen.raised <= collected:
                return entries
            if other in group:
                entries[other] = risen.passed
        if len(recent) <= len(group):
            return entries
        # At least as many topics rose as the group has: the group is the shorter list.
        entries.clear()
        for other in sorted(group):
            known = passages.get(other)
            if known is not None and known.raised > collected:
                entries[other] = known.passed
        return entries
