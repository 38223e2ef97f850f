"""From what was counted, found and doubted of one log to the reference auditor's report of it."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from seriatim.audit import ANOMALIES, Anomaly, Report
from seriatim.audit.auditor import EMPTY, ONLY_TAGGED
from seriatim.audit.lost import lost_doubts
from seriatim.audit.report import extent, verdict_of
from seriatim.order import GUARANTEES, implied_by

# The doubts about each guarantee that is checked; the others follow from these.
DOUBTED = {
    "fifo": ("order", "fifo"),
    "per-topic": ("order",),
    "causal": ("causal",),
    "integrity": ("integrity",),
    "completeness": ("completeness",),
}


class LogCounts(NamedTuple):
    """The counts of one log."""

    deliveries: int = 0
    subscribers: int = 0
    out_of_order: int = 0
    numbered: int = 0
    events: int = 0
    shared: int = 0
    reused: int = 0
    usable: int = 0  # rows that are not tagged, of ids that stand for one event
    published: int = 0
    told: int = 0  # publications of ids that stand for one event
    seen: int = 0  # publications that say what their publisher had seen
    phantoms: int = 0  # rows of what nobody published, if publications are known
    subscriptions: int = 0


def absent(run: LogCounts, is_tagged: bool, is_confused: bool) -> Iterator[tuple[str, str]]:
    """Doubts because of what a run does not have at all."""
    if run.deliveries and is_tagged:
        yield "order", ONLY_TAGGED
    if not run.told:
        yield "fifo", "no publications in the log: who published what, and when, is not known"
    elif not run.seen:
        yield "causal", "no publication says what its publisher had seen"
    if not run.published:
        yield "integrity", "no publications in the log: whether every event was published is not known"
    if not run.subscriptions:
        yield "integrity", "no subscriptions in the log: whether every topic was held is not known"
        yield "completeness", "no subscriptions in the log: which events were owed is not known"
    elif is_confused:
        yield "completeness", "ids or numbers contradict each other, so a gap cannot be told"


def report_of(
    run: LogCounts,
    counts: dict[str, int],
    shown: list[Anomaly],
    told: dict[str, list[tuple[str, int]]],
    lost: Mapping[str, int],
) -> Report:
    if not run.deliveries and not run.subscriptions:
        told, counts, shown, lost = {}, {}, [], {}
    valid_reason = f"no violation in {extent(run.deliveries, run.subscribers)}"
    verdicts = {}
    for guarantee in GUARANTEES:
        below = implied_by(guarantee)
        about = dict.fromkeys(about for name, doubted in DOUBTED.items() if name in below for about in doubted)
        reasons = [(reason, 1) for reason, names in lost_doubts(lost) if not below.isdisjoint(names)]
        reasons += [reason for name in about for reason in told.get(name, ())]
        if not run.deliveries:
            reasons.insert(0, (EMPTY, 1))
        first = reasons[0][0] if reasons else None
        verdicts[guarantee] = verdict_of(guarantee, counts, first, sum(count for _, count in reasons), valid_reason)
    return Report(
        verdicts=verdicts,
        anomalies=tuple(shown),
        counts={name: count for name, count in sorted(counts.items()) if count and name in ANOMALIES},
        order=None,
        deliveries=run.deliveries,
        subscribers=run.subscribers,
        events=run.events,
        shared=run.shared,
        out_of_order=run.out_of_order,
    )
