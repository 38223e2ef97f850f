"""Events that have arrived at a subscription and that its application has not taken yet, in order.

A *parcel* is one notice of the machine: the events of one broker message, a gap, or news for the delivery log. The log
gets everything in the order in which the application gets it, including events that a filter leaves out. Parcels other
than news are counted, because the machine of a durable subscription persists one record for each: the count says up to
which place everything was handed out.
"""

from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import TypeAlias

from msgspec import Struct

from seriatim.client.events import Event
from seriatim.client.options import Limits
from seriatim.client.room import Room
from seriatim.model import Gap, LogError, Topic

Item: TypeAlias = Event | Gap
Place: TypeAlias = tuple[int, int]  # a count of parcels, and of events of the next one
NOTHING: frozenset[int] = frozenset()

# Tells a delivery log which events of one message are handed out, when the message came, and which of the events (by
# index) a filter left out. After a LogError the next attempt tells it the same events again.
TellLog: TypeAlias = Callable[[Sequence[Event], float | None, Set[int]], None]


class Parcel(Struct, eq=False):
    """One notice. `next` is the index in `events` of the first one not handed out.

    `notices`: how many notices without events share this parcel. `news`: a call for the log.
    `left_out`: events of the same message that a filter leaves out; the log must still record them.
    """

    events: list[Event]
    bytes: int
    received_at: float | None = None
    gap: Gap | None = None
    news: Callable[[], None] | None = None
    next: int = 0
    notices: int = 1
    begun: bool = False  # part of it was handed out, and the rest was packed again
    left_out: Sequence[Event] = ()


class Inbox:
    """A queue of parcels. `show_gaps`: hand out gaps like events; otherwise only count them."""

    def __init__(self, limits: Limits, *, show_gaps: bool, count: int = 0, log: TellLog | None = None) -> None:
        self.room = Room(limits.unread_events, limits.unread_bytes)  # what is not handed out yet
        self.notified = 0  # events that were ever put
        self.gap_count = 0
        self.gaps: deque[Gap] = deque(maxlen=limits.gaps)  # the latest
        self.handed: Place = (count, 0)
        self.count = count  # parcels that were ever put, without news
        self._show_gaps = show_gaps
        self._log = log
        self._parcels: deque[Parcel] = deque()

    def put(
        self, events: list[Event], size: int, received_at: float | None = None, left_out: Sequence[Event] = ()
    ) -> None:
        """Add the events of one message (possibly none); `size` in bytes. `left_out`: those a filter excludes."""
        self.notified += len(events)
        self.count += 1
        if left_out and self._log is not None:
            self._parcels.append(Parcel(events, size, received_at, left_out=left_out))
            self.room.take(len(events), size)
            return
        size = size if events or not left_out else 0
        last = self._parcels[-1] if self._parcels and not events else None
        if last is not None and not last.events and not (last.gap or last.news or last.left_out):
            last.notices += 1
            last.bytes += size
        else:
            self._parcels.append(Parcel(events, size, received_at))
        self.room.take(len(events), size)

    def put_gap(self, gap: Gap) -> None:
        self.gap_count += 1
        self.count += 1
        self.gaps.append(gap)
        self._parcels.append(Parcel([], 0, gap=gap))

    @property
    def reached(self) -> int:
        """Parcels of which at least something was handed out."""
        first = self._parcels[0] if self._parcels else None
        return self.handed[0] + (first is not None and (first.begun or first.next > 0))

    def put_news(self, news: Callable[[], None]) -> None:
        """Queue a call for the log; it runs when everything before it has been handed out."""
        self._parcels.append(Parcel([], 0, news=news))

    def quick(self) -> Event | None:
        """The fast path: the next event, unless it is the last of its message. Does not update `handed`."""
        if self._parcels:
            parcel = self._parcels[0]
            place = parcel.next
            if place + 1 < len(parcel.events):
                parcel.next = place + 1
                self.room.events -= 1  # `give` would cost a call for each event
                return parcel.events[place]
        return None

    def take(self, count: int) -> list[Item]:
        """Take up to `count` events. A gap that is shown is taken alone, so that the caller can stop there.

        After LogError nothing was taken, and the next attempt begins at the same place.
        """
        taken: list[Item] = []
        try:
            while len(taken) < count:
                parcel = self._parcels[0] if self._parcels else None
                if parcel is not None and parcel.next < len(parcel.events):
                    upto = min(len(parcel.events), parcel.next + count - len(taken))
                    events = parcel.events[parcel.next : upto]
                    self._hand_out(parcel, events, upto)
                    taken += events
                    continue
                if parcel is not None and parcel.gap is not None and self._show_gaps and taken:
                    break
                item = self._pass_by()
                if item is not None:
                    return [item]
                if parcel is None:
                    break
        except LogError:
            if not taken:  # otherwise `taken` is in the log already, and the next call raises
                raise
        return taken

    def _pass_by(self) -> Gap | None:
        """Finish the first parcel, which has no event left to hand out."""
        if not self._parcels:
            return None
        parcel = self._parcels[0]
        if parcel.news is not None:
            parcel.news()
        if parcel.left_out:
            self._tell_log(parcel, [], None)
        self._finish(parcel)
        return parcel.gap if self._show_gaps else None

    def skip_empty(self) -> None:
        """Finish parcels at the front that have nothing to hand out, so that notices behind them are delivered now."""
        try:
            while self._parcels and not self._has_item(self._parcels[0]):
                self._pass_by()
        except LogError:
            return  # the next attempt to take something raises it

    def _has_item(self, parcel: Parcel) -> bool:
        return parcel.next < len(parcel.events) or (self._show_gaps and parcel.gap is not None)

    def __bool__(self) -> bool:
        return bool(self._parcels)

    def drop(self, topics: Set[Topic]) -> None:
        """Drop the events of these topics. Their parcels stay, so that the count remains right."""
        for parcel in self._parcels:
            left = [event for event in parcel.events[parcel.next :] if event.topic not in topics]
            self.room.give(len(parcel.events) - parcel.next - len(left), 0)
            parcel.begun |= parcel.next > 0
            parcel.events, parcel.next = left, 0
            parcel.left_out = [event for event in parcel.left_out if event.topic not in topics]

    def _hand_out(self, parcel: Parcel, events: Sequence[Event], upto: int) -> None:
        """Tell the log first: events that it does not accept stay in the inbox."""
        self._tell_log(parcel, events, None if upto == len(parcel.events) else events[-1].index)
        parcel.next = upto
        self.room.give(len(events), 0)
        if upto == len(parcel.events):
            self._finish(parcel)
        else:
            self.handed = (self.handed[0], events[-1].index + 1)

    def _tell_log(self, parcel: Parcel, events: Sequence[Event], upto: int | None) -> None:
        """Log these events and those left out before the index `upto` (None: all that were left out)."""
        if self._log is None:
            return
        passed_by = [event for event in parcel.left_out if upto is None or event.index < upto]
        if passed_by:
            both = sorted([*events, *passed_by], key=lambda event: event.index)
            self._log(both, parcel.received_at, {event.index for event in passed_by})
            parcel.left_out = parcel.left_out[len(passed_by) :]
        else:
            self._log(events, parcel.received_at, NOTHING)

    def _finish(self, parcel: Parcel) -> None:
        self._parcels.popleft()
        self.room.give(0, parcel.bytes)
        if parcel.news is None:
            self.handed = (self.handed[0] + parcel.notices, 0)
