"""What subscribers have waited for longer than their patience, as they tell the homes of their topics (`Inquire`).

They repeat it while they wait. Who is silent is forgotten: it waits no more, or is gone. The table is bounded.
"""

import time
from collections.abc import Callable

from msgspec import Struct

from seriatim.model import Address, Number, Topic
from seriatim.protocols.tree.messages import Inquire

WAITERS_MAX = 10_000
SILENT = 3.0  # times the patience of subscribers: who has repeated nothing for so long waits no more


class Waiter(Struct):
    """One subscriber and one topic of this home."""

    inquiry: Inquire
    since_s: float
    heard_s: float


class Waiters:
    """The subscribers that wait, at one home."""

    def __init__(self, patience_ms: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_ms / 1000.0
        self._now_s = now_s
        self._waiting: dict[tuple[Address, Topic], Waiter] = {}

    def heard(self, subscriber: Address, inquiry: Inquire) -> None:
        """A subscriber asks. Who has nothing held is none."""
        if not inquiry.held:
            return
        now_s, key = self._now_s(), (subscriber, inquiry.topic)
        known = self._waiting.pop(key, None)
        if known is not None and _what(known.inquiry) == _what(inquiry):
            self._waiting[key] = Waiter(inquiry, known.since_s, now_s)
        else:
            self._waiting[key] = Waiter(inquiry, now_s - self._patience_s, now_s)
        if len(self._waiting) > WAITERS_MAX:
            del self._waiting[next(iter(self._waiting))]  # which was silent the longest

    @property
    def count(self) -> int:
        """How many subscribers wait for something."""
        self._forget()
        return len({subscriber for subscriber, _ in self._waiting})

    @property
    def oldest_s(self) -> float:
        """How long the one that has waited the longest has waited."""
        self._forget()
        return self._now_s() - min((each.since_s for each in self._waiting.values()), default=self._now_s())

    def lines(self) -> list[str]:
        """Who waits for what, in words."""
        self._forget()
        return [self._line(subscriber, each) for (subscriber, _), each in sorted(self._waiting.items(), key=_key)]

    def _line(self, subscriber: Address, waiter: Waiter) -> str:
        inquiry, waited_s = waiter.inquiry, self._now_s() - waiter.since_s
        what = f"{inquiry.topic} {inquiry.number}"
        if inquiry.waits_for is not None:
            other, number = inquiry.waits_for
            return f"{subscriber} has held {what} back for {waited_s:,.1f} s: it waits for {other} {number}"
        return f"{subscriber} has waited for {what} for {waited_s:,.1f} s, with {inquiry.held:,} events behind it"

    def _forget(self) -> None:
        since_s = self._now_s() - SILENT * self._patience_s
        while self._waiting and (oldest := next(iter(self._waiting.items())))[1].heard_s < since_s:
            del self._waiting[oldest[0]]


def _what(inquiry: Inquire) -> tuple[Number, tuple[Topic, Number] | None]:
    return inquiry.number, inquiry.waits_for


def _key(item: tuple[tuple[Address, Topic], Waiter]) -> tuple[Address, Topic]:
    return item[0]
