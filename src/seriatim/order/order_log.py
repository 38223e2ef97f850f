"""The order of all events as a list of ranges: adding to it, merging it, and counting positions in it.

Every node of the tree keeps the order in which events passed it, as far as nobody else keeps it: its own ranges when
they are issued, and its children's where their messages arrive. A node below the root hands its ranges to its parent.
The root's order is the order of all events: it counts positions, and hands its ranges to the broker's order log.

A position counts numbers, from 1. A range of ten numbers takes ten positions. Voids have positions too.
"""

from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec import Struct, field

from seriatim.model import Number, Position, Topic


class OrderedRange(Struct, frozen=True, array_like=True, gc=False):
    """Numbers `first` … `last` of a topic that follow each other in the order of all events."""

    topic: Topic
    first: Number
    last: Number

    @property
    def count(self) -> int:
        """How many positions the range takes."""
        return self.last - self.first + 1


class OrderState(Struct, array_like=True, omit_defaults=True):
    """The part of the order that a node remembers. `end` and `told` count numbers since it began to keep the order.

    The ranges are those after the first `told` numbers: not yet sent to the parent or, at the root, not yet known to be
    in the broker's order log. `lost`: the order log once ended before this position, which it had kept. `lasts`: the
    last number of each topic that is in the order; kept at the root of several nodes (`counted`).
    """

    begun: bool = False
    end: Position = 0
    told: Position = 0
    ranges: list[OrderedRange] = field(default_factory=list)
    lost: Position = 0
    counted: bool = False
    lasts: dict[Topic, Number] = field(default_factory=dict)


class PassingOrder:
    """The order in which events pass one node."""

    __slots__ = ("state",)

    def __init__(self, state: OrderState) -> None:
        self.state = state

    def add(self, topic: Topic, first: Number, last: Number) -> Position:
        """These numbers pass now. Returns the position of the first. Neighbours of one topic become one range."""
        state = self.state
        position = state.end + 1
        state.end += last - first + 1
        if state.counted:
            state.lasts[topic] = last
        ranges = state.ranges
        if ranges and (before := ranges[-1]).topic == topic and before.last + 1 == first:
            ranges[-1] = OrderedRange(topic, before.first, last)
        else:
            ranges.append(OrderedRange(topic, first, last))
        return position

    def merge(self, ranges: Iterable[OrderedRange]) -> None:
        """What passed a child since it last told this node."""
        for each in ranges:
            self.add(each.topic, each.first, each.last)

    def take(self) -> tuple[OrderedRange, ...]:
        """Hand over everything: whoever gets it keeps it from now on."""
        taken = tuple(self.state.ranges)
        self.state.ranges.clear()
        self.state.told = self.state.end
        return taken

    def take_before(self, first: Number) -> tuple[OrderedRange, ...]:
        """Hand over everything, without the numbers from `first` on of the last range: the receiver knows of them."""
        taken = self.take()
        last = taken[-1]
        if last.first == first:
            return taken[:-1]
        return *taken[:-1], OrderedRange(last.topic, last.first, first - 1)

    def following(self, ranges_max: int) -> tuple[OrderedRange, ...]:
        """The next ranges to hand over, at most so many."""
        return tuple(islice(self.state.ranges, ranges_max))

    def forget_to(self, position: Position) -> None:
        """The first `position` numbers are kept elsewhere for good."""
        state = self.state
        if not state.told < position <= state.end:
            return
        ranges, begin, whole = state.ranges, state.told, 0
        state.told = position
        if position == state.end:  # nearly always
            ranges.clear()
            return
        for each in ranges:
            if begin + each.count > position:
                break
            begin += each.count
            whole += 1
        del ranges[:whole]
        if begin < position:
            ranges[0] = OrderedRange(ranges[0].topic, ranges[0].first + position - begin, ranges[0].last)

    def resume_at(self, position: Position) -> None:
        """The order log has more than this node knows of: continue after it."""
        state = self.state
        state.end = state.told = position
        state.ranges.clear()


def from_position(
    ranges: Sequence[OrderedRange], begin: Position, after: Position, ranges_max: int | None = None
) -> tuple[OrderedRange, ...]:
    """Those of the ranges, which follow position `begin`, that lie behind position `after`. The first one is cut if
    necessary."""
    found: list[OrderedRange] = []
    for each in ranges:
        if ranges_max is not None and len(found) == ranges_max:
            break
        end = begin + each.count
        if end > after:
            found.append(OrderedRange(each.topic, each.first + max(0, after - begin), each.last))
        begin = end
    return tuple(found)


def count_of(ranges: Iterable[OrderedRange]) -> int:
    """How many positions these ranges take."""
    return sum(each.last - each.first + 1 for each in ranges)
