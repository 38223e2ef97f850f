"""The events that have passed a node, and the entries that a topic must collect there. The cost depends on the number
of changes.

A node remembers for every topic how many of its events have passed (`passed`). When topic T passes, it collects an
entry for each topic of its group that *rose* since T collected here last; older entries are already carried by an
earlier event of T, and events of one topic are notified in order. Finding what rose must cost neither the size of
the group nor the number of topics of the node, so both ways are open and the cheaper one is taken: walk the topics
from the most recently raised one backwards, or look at each topic of the group.

Only topics that are in somebody's group can be collected, so only these have moments and a place in the list; a topic
that nobody is coupled with costs a count.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec import Struct, field

from seriatim.model import Entries, Number, Topic


class Passage(Struct, array_like=True, omit_defaults=True, gc=False):
    """One topic at one node. `raised` and `collected` are moments of the node's own count of raises."""

    passed: Number = 0
    raised: int = 0
    collected: int = 0


class PassageState(Struct, array_like=True):
    """Plain data of a PassageTable: enough to rebuild it."""

    moment: int = 0
    passages: dict[Topic, Passage] = field(default_factory=dict)
    groups: dict[Topic, set[Topic]] = field(default_factory=dict)  # what each topic collects here; none is empty


class PassageTable:
    """All passages of one node. `full` makes every collection a whole stamp instead of a difference.

    A whole stamp also keeps what a topic collected only once or for the last time: that one event may get lost.
    """

    __slots__ = ("_members", "_recent", "full", "state")

    def __init__(self, state: PassageState, full: bool = False) -> None:
        self.state = state
        self.full = full
        self._members: dict[Topic, int] = {}  # topics that are in a group, and in how many
        for group in state.groups.values():
            for topic in group:
                self._members[topic] = self._members.get(topic, 0) + 1
        raised = [(state.passages[topic].raised, topic) for topic in self._members if self.passed(topic)]
        self._recent = OrderedDict.fromkeys(topic for _, topic in sorted(raised))

    def passed(self, topic: Topic) -> Number:
        """How many events of the topic have passed here, as far as this node was told."""
        passage = self.state.passages.get(topic)
        return passage.passed if passage is not None else 0

    def raise_to(self, topic: Topic, number: Number) -> None:
        """The first `number` events of the topic have passed (or were announced)."""
        passage = self.state.passages.get(topic)
        if passage is None:
            passage = self.state.passages[topic] = Passage()
        if number > passage.passed:
            passage.passed = number
            if topic in self._members:
                self._touch(topic, passage)

    def collect(
        self, topic: Topic, couple: Sequence[Topic] = (), uncouple: Sequence[Topic] = (), once: Sequence[Topic] = ()
    ) -> Entries:
        """The entries that `topic` must carry from here. A newly coupled topic gives its whole count as base."""
        group = self.state.groups.get(topic)
        entries: Entries = {}
        if group is not None:
            passage = self._passage(topic)
            entries = self._whole(group) if self.full else self._risen(passage, group)
            passage.collected = self.state.moment
        if couple or uncouple or once:
            self._regroup(topic, (*couple, *once) if self.full else couple, () if self.full else uncouple)
            for other in sorted((*couple, *once)):
                known = self.state.passages.get(other)
                if known is not None and known.passed:
                    entries[other] = known.passed
        return entries

    def ungroup(self, topic: Topic) -> None:
        """The topic collects nothing here any more, until it is coupled again."""
        group = self.state.groups.get(topic)
        if group is not None:
            self._regroup(topic, (), set(group))

    def _passage(self, topic: Topic) -> Passage:
        passage = self.state.passages.get(topic)
        if passage is None:
            passage = self.state.passages[topic] = Passage()
        return passage

    def _touch(self, topic: Topic, passage: Passage) -> None:
        self.state.moment = passage.raised = self.state.moment + 1
        self._recent[topic] = None
        self._recent.move_to_end(topic)

    def _regroup(self, topic: Topic, add: Iterable[Topic], remove: Iterable[Topic]) -> None:
        """Change the group. A topic that enters its first group is given a moment: nobody has looked at it before."""
        groups, members = self.state.groups, self._members
        group = groups.get(topic)
        if group is None:
            group = groups[topic] = set()
        for other in sorted(set(add) - group):
            group.add(other)
            members[other] = members.get(other, 0) + 1
            if members[other] == 1 and (passage := self.state.passages.get(other)) is not None and passage.passed:
                self._touch(other, passage)
        for other in group.intersection(remove):
            group.discard(other)
            members[other] -= 1
            if not members[other]:
                del members[other]
                self._recent.pop(other, None)
        if group:
            self._passage(topic).collected = self.state.moment
        else:
            del groups[topic]

    def _whole(self, group: set[Topic]) -> Entries:
        passages = self.state.passages
        known = ((other, passages.get(other)) for other in sorted(group))
        return {other: found.passed for other, found in known if found is not None and found.passed}

    def _risen(self, passage: Passage, group: set[Topic]) -> Entries:
        entries: Entries = {}
        passages, recent, collected = self.state.passages, self._recent, passage.collected
        size = len(group)
        for other in islice(reversed(recent), size):
            risen = passages[other]
            if risen.raised <= collected:
                return entries
            if other in group:
                entries[other] = risen.passed
        if len(recent) <= size or len(entries) == size:
            return entries
        # At least as many topics rose as the group has: the group is the shorter list.
        entries.clear()
        for other in sorted(group):
            known = passages.get(other)
            if known is not None and known.raised > collected:
                entries[other] = known.passed
        return entries
