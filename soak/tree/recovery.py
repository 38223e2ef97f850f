"""How long until events flow again after a fault, from the same files as the verdict.

*Recovery* runs from the moment the victim was started again (or the network healed, or the frozen process thawed) to
the next notification, at each subscriber that the fault could hold up, of an event that was published after the fault
began: older ones may have been on their way. If the subscriber itself was struck, any event counts. Where a standby
takes over nobody starts anything again, so it runs from the kill. *Silence* is the same from the beginning of the
fault: what a user sees. Faults that overlap are not measured.
"""

from bisect import bisect_left
from collections.abc import Iterable

from msgspec import Struct, structs

from soak.tree.plan import CHANGES
from soak.tree.rows import Injected
from soak.tree.verify import Verdict

NEAR_S = 1.0  # faults that are closer than this are not alone


class Recovery(Struct, frozen=True):
    """One fault at one subscriber."""

    fault: str
    target: str
    subscriber: str
    recovery_s: float
    silence_s: float


class Spread(Struct, frozen=True):
    """Many of them, of one kind of fault."""

    count: int
    recovery_s_p50: float
    recovery_s_max: float
    silence_s_max: float


def recoveries(verdict: Verdict, faults: Iterable[Injected]) -> list[Recovery]:
    """The recoveries of a round. A subscriber that was handed nothing more in the round is left out."""
    found = []
    for fault in faults:
        if not fault.alone:
            continue
        for name in fault.subscribers:
            at = _next_at(verdict, fault, name)
            if at is not None:
                found.append(Recovery(fault.fault, fault.target, name, at - fault.ended_at, at - fault.began_at))
    return found


def _next_at(verdict: Verdict, fault: Injected, subscriber: str) -> float | None:
    account = verdict.accounts.get(subscriber)
    if account is None:
        return None
    rows = account.handed
    topics = set(fault.topics)
    for row in rows[bisect_left(rows, fault.ended_at, key=lambda row: row.at) :]:
        attempt = verdict.attempts.get(row.id)
        if attempt is None or row.topic not in topics or (fault.fresh and attempt.at < fault.began_at):
            continue
        if fault.publisher is None or attempt.publisher.partition("/")[0] == fault.publisher:
            return row.at
    return None


def spreads(found: Iterable[Recovery]) -> dict[str, Spread]:
    """The spreads, by kind of fault."""
    by_fault: dict[str, list[Recovery]] = {}
    for each in found:
        by_fault.setdefault(each.fault, []).append(each)
    return {fault: _spread(each) for fault, each in sorted(by_fault.items())}


def _spread(found: list[Recovery]) -> Spread:
    times = sorted(each.recovery_s for each in found)
    return Spread(len(found), times[len(times) // 2], times[-1], max(each.silence_s for each in found))


def with_neighbours(injected: list[Injected]) -> list[Injected]:
    """Marks those that overlap, or nearly so: whose recovery cannot be told from another's."""
    return [
        structs.replace(
            one,
            alone=not any(
                other is not one
                and other.fault not in CHANGES
                and other.began_at < one.ended_at + NEAR_S
                and one.began_at < other.ended_at + NEAR_S
                for other in injected
            ),
        )
        for one in injected
    ]
