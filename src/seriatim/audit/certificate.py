"""The certificate: do all deliveries fit the order log? One pass, and no comparison of subscribers.

If everybody's sequence rises in one order, that order fits everybody: `acyclic`, `tno` and `per-topic` hold. The order
log is a claim of the audited system, and the certificate checks it rather than trusts it: its rows (`order_log.py`),
then that each event is at one position and each position one event, and that each subscriber's positions rise.

A run that does not fit its order log need not have an order that is wrong: the order log may be. So a certificate that
fails says nothing about the guarantees. The auditor that looks at deliveries alone judges them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from seriatim.audit.auditor import EMPTY, ONLY_TAGGED
from seriatim.audit.evidence import delivery_key
from seriatim.audit.lost import lost_doubts
from seriatim.audit.order_log import Extent, OrderLog
from seriatim.audit.report import AGAINST_ORDER, CERTIFICATE, Anomaly, Answer, Findings, Report, Verdict
from seriatim.model import Delivery, LogError, Placement, Position

CERTIFIED = ("per-topic", "tno", "acyclic")
NOT_CERTIFIED = "the certificate is not valid; an audit without it judges the deliveries by themselves"

Key: TypeAlias = tuple[Position, int]  # a position of the order log, and the index where several events share one


class Placed(NamedTuple):
    """A delivery that the order log has, and the row that has it."""

    row: Delivery
    by: Placement

    @property
    def key(self) -> Key:
        assert self.row.number is not None
        return self.by.position + self.row.number - self.by.first, self.row.index


class Certificate(Struct, frozen=True):
    """The result of the pass. `deliveries` were looked at, none if the order log is broken; `unnumbered` of them are
    without a number, `uncovered` before the beginning or behind the end of the order log.
    """

    verdict: Verdict
    anomalies: tuple[Anomaly, ...]
    counts: dict[str, int]
    deliveries: int = 0
    subscribers: int = 0
    out_of_order: int = 0
    unnumbered: int = 0
    uncovered: int = 0

    def added_to(self, report: Report) -> Report:
        """The report of an audit, and the certificate: what it certifies is valid whatever the audit could not tell."""
        verdicts = {CERTIFICATE: self.verdict, **report.verdicts}
        if self.verdict.answer == "valid":
            verdicts |= self._certified()
        anomalies, counts = (*report.anomalies, *self.anomalies), {**report.counts, **self.counts}
        return replace(report, verdicts=verdicts, anomalies=anomalies, counts=counts)

    def alone(self) -> Report:
        """A report of nothing but the certificate and what follows from it. Events are not counted."""
        verdicts = {CERTIFICATE: self.verdict, **self._certified()}
        counted = (self.deliveries, self.subscribers, 0, 0, self.out_of_order)
        return Report(verdicts, self.anomalies, self.counts, None, *counted)

    def _certified(self) -> dict[str, Verdict]:
        is_valid = self.verdict.answer == "valid"
        answer: Answer = "valid" if is_valid else "unknown"
        reason = f"by certificate: {self.verdict.reason}" if is_valid else NOT_CERTIFIED
        return {name: Verdict(name, answer, reason) for name in CERTIFIED}

    def check_numbered(self, where: str) -> None:
        """Refuse a log without any number: nothing of it could be found in an order log."""
        if self.deliveries and self.unnumbered == self.deliveries:
            fix = "say which column is the number with --map number=COLUMN, or leave --order-log out"
            raise LogError(where, "no delivery has a number, and the order log has events by topic and number", fix)


class Marked(Struct):
    """How many subscribers have such a position, and the first of them by name, with its first one."""

    count: int = 0
    subscriber: str = ""
    position: int = 0

    def add(self, subscriber: str, position: int) -> None:
        if not self.count or subscriber < self.subscriber:
            self.subscriber, self.position = subscriber, position
        self.count += 1


class Facts(Struct):
    """The facts about the deliveries of one run, after all have been read. Both engines fill it in."""

    deliveries: int = 0
    subscribers: int = 0
    out_of_order: int = 0
    unnumbered: int = 0
    uncovered: int = 0
    first_uncovered: Delivery | None = None
    missing: Marked = field(default_factory=Marked)  # positions without a row
    tied: Marked = field(default_factory=Marked)  # positions that two events claim


def certify(
    deliveries: Iterable[Delivery],
    order: Iterable[Placement],
    limit: int = 10,
    lost: Mapping[str, int] | None = None,
) -> Certificate:
    """Compare deliveries with an order log; at most `limit` anomalies of each name are shown."""
    log = OrderLog(order)
    findings = Findings(limit)
    for fault in log.faults():
        if findings.counted(fault.name):
            findings.show(fault)
    if findings.counts:
        return judged(Facts(), findings, log.extent, {})
    facts, of_subscribers = Facts(), _by_subscriber(deliveries)
    covered: list[Placed] = []
    for subscriber, rows in of_subscribers.items():
        placed = list(_placed(rows, log, facts))
        covered += placed
        tied = _positions(subscriber, rows, facts)
        for anomaly in _walk([each for each in placed if each.row.position not in tied], findings):
            findings.show(anomaly)
        for each in placed:
            if each.row.order_position not in (None, each.key[0]) and findings.counted("position-mismatch"):
                findings.show(position_mismatch(each))
    facts.subscribers = len(of_subscribers)
    for anomaly in _mismatches(covered, findings):
        findings.show(anomaly)
    return judged(facts, findings, log.extent, lost or {})


def judged(facts: Facts, findings: Findings, extent: Extent, lost: Mapping[str, int]) -> Certificate:
    """The verdict, from all that is known."""
    whom = "1 subscriber" if facts.subscribers == 1 else f"{facts.subscribers:,} subscribers"
    what = "1 delivery" if facts.deliveries == 1 else f"{facts.deliveries:,} deliveries"
    checked = f"{what} of {whom} against {extent}"
    counts = {name: findings.counts[name] for name in AGAINST_ORDER if findings.counts[name]}
    doubts = dict(_doubts(facts, extent, lost))
    if counts:
        broken = ", ".join(f"{name} ({count:,})" for name, count in counts.items())
        is_log = next(iter(counts)).startswith("order-log-")
        reason = f"{broken}: the order log itself is broken" if is_log else f"{broken} in {checked}"
        verdict = Verdict(CERTIFICATE, "invalid", reason)
    elif doubts:
        count = sum(doubts.values())
        more = f" (and {count - 1:,} more)" if count > 1 else ""
        verdict = Verdict(CERTIFICATE, "unknown", next(iter(doubts)) + more)
    else:
        verdict = Verdict(CERTIFICATE, "valid", f"{checked}: all rise")
    return Certificate(
        verdict,
        tuple(findings.listed()),
        dict(sorted(counts.items())),
        facts.deliveries,
        facts.subscribers,
        facts.out_of_order,
        facts.unnumbered,
        facts.uncovered,
    )


def _doubts(facts: Facts, extent: Extent, lost: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Why nothing can be certified, and how many doubts each reason stands for."""
    if not facts.deliveries:
        yield EMPTY, 1
        return
    for reason, _ in lost_doubts({"deliveries": lost.get("deliveries", 0)}):
        yield reason, 1
    if facts.first_uncovered is not None:
        row = facts.first_uncovered
        first = f"{row.event_id} of {row.subscriber}, number {row.number} of topic {row.topic}"
        yield f"{facts.uncovered:,} of {facts.deliveries:,} deliveries are not in {extent}: the first is {first}", 1
    if facts.unnumbered:
        yield f"{facts.unnumbered:,} of {facts.deliveries:,} deliveries have no number", 1
    if (gone := facts.missing).count:
        yield f"{gone.subscriber}: no row for position {gone.position}, so rows are missing", gone.count
    if (tied := facts.tied).count:
        yield f"{tied.subscriber}: different events at position {tied.position}, order not known", tied.count
    if facts.out_of_order == facts.deliveries:
        yield ONLY_TAGGED, 1


def _by_subscriber(deliveries: Iterable[Delivery]) -> dict[str, list[Delivery]]:
    rows: dict[str, list[Delivery]] = {}
    for row in deliveries:
        rows.setdefault(row.subscriber, []).append(row)
    return {name: sorted(rows[name], key=delivery_key) for name in sorted(rows)}


def _placed(rows: list[Delivery], log: OrderLog, facts: Facts) -> Iterator[Placed]:
    """The rows that the order log has."""
    for row in rows:
        facts.deliveries += 1
        facts.out_of_order += row.out_of_order
        if row.number is None:
            facts.unnumbered += 1
        elif (by := log.row(row.topic, row.number)) is not None:
            yield Placed(row, by)
        else:
            facts.uncovered += 1
            facts.first_uncovered = facts.first_uncovered or row


def _positions(subscriber: str, rows: list[Delivery], facts: Facts) -> set[int]:
    """Note the first position without a row; the positions that two events claim."""
    tied = set()
    missing: int | None = None
    expected = 0
    for i, row in enumerate(rows):
        if i and rows[i - 1].position == row.position:
            if rows[i - 1].event_id != row.event_id:
                tied.add(row.position)
            continue
        if row.position != expected and missing is None:
            missing = expected
        expected = row.position + 1
    if missing is not None:
        facts.missing.add(subscriber, missing)
    if tied:
        facts.tied.add(subscriber, min(tied))
    return tied


def _walk(placed: list[Placed], findings: Findings) -> Iterator[Anomaly]:
    """One subscriber's rows in order of position: each is above all before it, or repeats one of them, or is late."""
    highest: Placed | None = None
    reach: Key = (0, 0)
    seen: dict[Key, Placed] = {}  # filled from the first row on that does not rise: most logs have none
    walked: list[Placed] = []
    previous: Delivery | None = None
    for each in placed:
        row = each.row
        is_copy = previous is not None and (row.position, row.event_id) == (previous.position, previous.event_id)
        if row.out_of_order or is_copy:
            continue
        previous = row
        key = each.key
        if highest is None or key > reach:
            highest, reach = each, key
        else:
            for earlier in walked:
                seen.setdefault(earlier.key, earlier)
            walked.clear()
            name = "order-repeat" if key in seen else "order-inversion"
            if findings.counted(name):
                yield order_repeat(seen[key], each) if key in seen else order_inversion(highest, each)
        walked.append(each)


def _mismatches(placed: Iterable[Placed], findings: Findings) -> Iterator[Anomaly]:
    """Events at two positions, then positions of two events."""
    first: dict[tuple[str, Key], Placed] = {}  # the first row of each pair
    for each in placed:
        first.setdefault((each.row.event_id, each.key), each)
    places: dict[str, list[Key]] = {}
    events: dict[Key, list[str]] = {}
    for event_id, key in first:
        places.setdefault(event_id, []).append(key)
        events.setdefault(key, []).append(event_id)
    for event_id, keys in sorted(places.items()):
        if len(keys) > 1 and findings.counted("place-mismatch"):
            yield two_places(first[event_id, min(keys)], first[event_id, max(keys)])
    for key, ids in sorted(events.items()):
        if len(ids) > 1 and findings.counted("place-mismatch"):
            yield two_events(first[min(ids), key], first[max(ids), key])


# ── sentences ─────────────────────────────────────────────────────────────────────────────────────────────────────


def order_inversion(earlier: Placed, later: Placed) -> Anomaly:
    """A row that comes after one that the order log has behind it."""
    one, other = earlier.row.event_id, later.row.event_id
    where = f"{other} at {_shown(later.key)} and {one} at {_shown(earlier.key)}"
    sentence = f"{later.row.subscriber} was notified of {one} before {other}, but the order log has {where}"
    return Anomaly("order-inversion", sentence, (earlier.row, later.row, *_rows_of(later, earlier)))


def order_repeat(first: Placed, again: Placed) -> Anomaly:
    """Two rows of one subscriber at one position of the order log."""
    one, other = first.row, again.row
    both = f"positions {one.position} and {other.position}"
    sentence = f"{one.subscriber} was notified of {one.event_id} twice, at {both}; the order log has it once"
    if one.event_id != other.event_id:
        what = f"{one.event_id} and of {other.event_id}, at {both}"
        sentence = f"{one.subscriber} was notified of {what}; in the order log both are at {_shown(first.key)}"
    return Anomaly("order-repeat", sentence, (one, other, *_rows_of(first, again)))


def position_mismatch(placed: Placed) -> Anomaly:
    """A subscriber was given another position than that of the order log."""
    row = placed.row
    what = f"position {row.order_position} for {row.event_id}, which the order log has at {_shown(placed.key)}"
    return Anomaly("position-mismatch", f"{row.subscriber} was told {what}", (row, placed.by))


def two_places(one: Placed, other: Placed) -> Anomaly:
    """One event at two positions."""
    where = f"at {_shown(one.key)} and at {_shown(other.key)}"
    sentence = f"by their numbers, deliveries of {one.row.event_id} are {where} of the order log"
    return Anomaly("place-mismatch", sentence, (one.row, other.row, *_rows_of(one, other)))


def two_events(one: Placed, other: Placed) -> Anomaly:
    """Two events at one position."""
    both = f"{one.row.event_id} and {other.row.event_id}"
    sentence = f"by their numbers, deliveries of {both} are both at {_shown(one.key)} of the order log"
    return Anomaly("place-mismatch", sentence, (one.row, other.row, *_rows_of(one, other)))


def _rows_of(one: Placed, other: Placed) -> tuple[Placement, ...]:
    return (one.by,) if one.by == other.by else (one.by, other.by)


def _shown(key: Key) -> str:
    position, index = key
    return f"position {position:,} index {index}" if index else f"position {position:,}"
