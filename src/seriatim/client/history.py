"""Where a subscription begins: now, or in the past. The values of `start`, and how far reading the past has come."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from seriatim.client.options import check_portable_topic
from seriatim.model import InputError, Number, Position, Topic

# "now"; "first": what the broker still has; a position of the order log; a time; or a number for each of some topics.
Start: TypeAlias = Literal["now", "first"] | Position | datetime | Mapping[Topic, Number]

_FIX = 'use "now", "first", a position, a datetime with a time zone, or {"orders": 17}'


class Progress(Struct, frozen=True):
    """How far a subscription has read the past.

    `position`: the last notified position in the order of all events. `end`: where the past ends, as far as that is
    known; it grows until the subscription is live.
    """

    position: Position
    end: Position
    is_live: bool

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return 1.0 if self.is_live or not self.end else min(1.0, self.position / self.end)


LIVE = Progress(0, 0, True)


def check_start(start: object, topics: frozenset[Topic]) -> Start:
    """InputError: no subscription to these topics can begin there."""
    if start in ("now", "first"):
        return "first" if start == "first" else "now"
    if isinstance(start, bool) or not isinstance(start, int | datetime | Mapping):
        raise InputError("start", f"unknown value {start!r}", _FIX)
    if isinstance(start, int):
        if start < 1:
            raise InputError("start", f"there is no position {start}", "positions are counted from 1")
        return start
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise InputError("start", f"{start} has no time zone", "give one, such as datetime.now(UTC)")
        return start
    numbers = dict(start)
    if not numbers:
        raise InputError("start", "no topic is named", _FIX)
    for topic, number in numbers.items():
        check_portable_topic(topic)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InputError("start", f"{topic} has no number {number!r}", "numbers are counted from 1")
    if unknown := numbers.keys() - topics:
        raise InputError("start", f"{', '.join(sorted(unknown))} is not subscribed to", "name topics you subscribe to")
    return numbers
