"""Which events arrived, whatever their order? Checks `integrity` and `completeness`.

Numbers, publications and subscriptions are claims of the system under audit. They are compared with each other and with
the deliveries: what is missing makes a doubt, what contradicts makes an anomaly.
"""

from bisect import bisect_left, bisect_right

from seriatim.audit.evidence import Evidence
from seriatim.audit.report import Findings, Row
from seriatim.model import Delivery, History, Number, Publication, Subscription, Topic


def check_integrity(history: History, evidence: Evidence, findings: Findings) -> None:
    """Each event at most once, published, on a topic held, under one id and one number."""
    for first, row in evidence.repeats:
        findings.counts["duplicate"] += 1
        if findings.wants("duplicate"):
            where = f"at positions {first.position} and {row.position}"
            findings.add("duplicate", f"{row.subscriber} was notified of {row.event_id} twice, {where}", (first, row))
    for event_id, (one, other) in sorted(evidence.reused.items()):
        findings.counts["reused-id"] += 1
        if findings.wants("reused-id"):
            findings.add("reused-id", f"the id {event_id} stands for {_told(one)} and for {_told(other)}", (one, other))
    _check_published(evidence, findings)
    _check_held(history, evidence, findings)
    _check_numbers(evidence, findings)


def _told(row: Delivery | Publication) -> str:
    if isinstance(row, Delivery):
        return f"an event that {row.subscriber} was notified of on topic {row.topic}"
    return f"an event that {row.publisher} published on topic {row.topic}"


def _check_published(evidence: Evidence, findings: Findings) -> None:
    if not evidence.published:
        findings.doubt("no publications in the log: whether every event was published is not known", "integrity")
        return
    for rows in evidence.rows.values():
        for row in rows:
            if row.event_id not in evidence.published:
                findings.counts["phantom"] += 1
                if findings.wants("phantom"):
                    sentence = f"{row.subscriber} was notified of {row.event_id}, which nobody published"
                    findings.add("phantom", sentence, (row,))


def _check_held(history: History, evidence: Evidence, findings: Findings) -> None:
    if not history.subscriptions:
        findings.doubt("no subscriptions in the log: whether every topic was held is not known", "integrity")
        return
    held: dict[tuple[str, Topic], list[Subscription]] = {}
    for subscription in history.subscriptions:
        held.setdefault((subscription.subscriber, subscription.topic), []).append(subscription)
    for subscriber, rows in evidence.rows.items():
        for row in rows:
            spans = held.get((subscriber, row.topic), ())
            for span in spans:
                if span.since <= row.position and (span.until is None or row.position < span.until):
                    break
            else:
                findings.counts["phantom"] += 1
                if findings.wants("phantom"):
                    what = f"{row.event_id} on topic {row.topic}, which it did not hold then"
                    findings.add("phantom", f"{subscriber} was notified of {what}", (row, *spans))


def _check_numbers(evidence: Evidence, findings: Findings) -> None:
    """A number of a topic belongs to one event, and an event has one number."""
    by_number: dict[tuple[Topic, Number], Delivery | Publication] = {}
    by_event: dict[str, Delivery | Publication] = {}
    reported: set[str] = set()
    rows: list[Delivery | Publication] = [*evidence.published.values()]
    for deliveries in evidence.rows.values():
        rows += deliveries
    for row in rows:
        if row.number is None or row.event_id in evidence.reused:
            continue
        other = by_number.setdefault((row.topic, row.number), row)
        if other.event_id != row.event_id and row.event_id not in reported:
            reported.add(row.event_id)
            both = f"{other.event_id} and for {row.event_id}"
            _show_numbers(f"number {row.number} of topic {row.topic} stands for {both}", (other, row), findings)
        other = by_event.setdefault(row.event_id, row)
        if other.number != row.number and row.event_id not in reported:
            reported.add(row.event_id)
            both = f"{other.number} and {row.number}"
            _show_numbers(f"{row.event_id} has the numbers {both} of topic {row.topic}", (other, row), findings)


def _show_numbers(sentence: str, witness: tuple[Row, ...], findings: Findings) -> None:
    findings.counts["number-mismatch"] += 1
    if findings.wants("number-mismatch"):
        findings.add("number-mismatch", sentence, witness)


class _Numbers:
    """What the log as a whole knows about the numbers of each topic."""

    def __init__(self, evidence: Evidence) -> None:
        self.published = evidence.published
        self.rows: dict[Topic, dict[Number, Delivery | Publication]] = {}  # a row that shows the number is an event's
        self.voids_known: dict[Topic, bool] = {}  # every publication has its number, so the others never became events
        for row in evidence.published.values():
            self.voids_known[row.topic] = self.voids_known.get(row.topic, True) and row.number is not None
            if row.number is not None:
                self.rows.setdefault(row.topic, {}).setdefault(row.number, row)
        for deliveries in evidence.rows.values():
            for delivery in deliveries:
                if (number := self.of(delivery)) is not None:
                    self.rows.setdefault(delivery.topic, {}).setdefault(number, delivery)
        self.sorted = {topic: sorted(rows) for topic, rows in self.rows.items()}

    def of(self, row: Delivery) -> Number | None:
        """The number of a delivered event, if any row tells it."""
        if row.number is None and row.event_id in self.published:
            return self.published[row.event_id].number
        return row.number

    def between(self, topic: Topic, after: Number, last: Number | None = None) -> list[Number]:
        """The numbers of events of a topic above `after` and, if given, up to `last`."""
        numbers = self.sorted.get(topic, [])
        return numbers[bisect_right(numbers, after) : len(numbers) if last is None else bisect_right(numbers, last)]


def check_completeness(history: History, evidence: Evidence, findings: Findings) -> None:
    """Each subscription on its own: from its cut to its last notified event, no event of the topic is missing."""
    if not history.subscriptions:
        findings.doubt("no subscriptions in the log: which events were owed is not known", "completeness")
        return
    if findings.counts["number-mismatch"] or evidence.reused:
        findings.doubt("ids or numbers contradict each other, so a gap cannot be told", "completeness")
        return
    numbers = _Numbers(evidence)
    received: dict[tuple[str, Topic], list[Delivery]] = {}
    for subscriber, rows in evidence.rows.items():
        for row in rows:
            received.setdefault((subscriber, row.topic), []).append(row)
    for subscriber, topic in sorted(received.keys() - {(row.subscriber, row.topic) for row in history.subscriptions}):
        findings.doubt(f"{subscriber}, topic {topic}: no subscription tells what was owed", "completeness")
    for subscription in history.subscriptions:
        rows = received.get((subscription.subscriber, subscription.topic), [])
        start = bisect_left(rows, subscription.since, key=lambda row: row.position)
        stop = len(rows)
        if subscription.until is not None:
            stop = bisect_left(rows, subscription.until, key=lambda row: row.position)
        _check_subscription(subscription, rows[start:stop], numbers, evidence, findings)


def _check_subscription(
    subscription: Subscription, rows: list[Delivery], numbers: _Numbers, evidence: Evidence, findings: Findings
) -> None:
    subscriber, topic = subscription.subscriber, subscription.topic
    who = f"{subscriber}, topic {topic}"
    got = {number: row for row in rows if (number := numbers.of(row)) is not None}
    if len(got) < len(rows) and any(numbers.of(row) is None for row in rows):
        findings.doubt(f"{who}: events without a number, so a gap would not show", "completeness")
        return
    start = subscription.start
    if start is None:
        start = min(got, default=1) - 1
        if start > 0 or not got:
            findings.doubt(f"{who}: the cut is not recorded, so the first event owed is not known", "completeness")
    last = max(got, default=start) if subscription.end is None else subscription.end
    owed = numbers.between(topic, start, last)
    missing = [number for number in owed if number not in got]
    if missing and subscriber in evidence.incomplete:
        findings.doubt(f"{who}: number {missing[0]} may be in a row that is missing", "completeness")
    elif missing:
        findings.counts["gap"] += len(missing)
        if findings.wants("gap"):
            proof = numbers.rows[topic][missing[0]]
            later = [got[last]] if last in got else []
            what = f"{proof.event_id} (number {missing[0]} of topic {topic})"
            sentence = f"{subscriber} held the topic but was never notified of {what}, though owed up to number {last}"
            findings.add("gap", sentence, (subscription, proof, *later))
    if numbers.voids_known.get(topic) is False:
        findings.doubt(f"{who}: publications without a number, so a gap may not show", "completeness")
    elif last - start > len(owed) and topic not in numbers.voids_known:
        findings.doubt(f"{who}: numbers that no row tells of may be events or voids", "completeness")
    if subscription.until is None and (tail := numbers.between(topic, last)):
        findings.doubt(f"{who}: number {tail[0]} not notified yet, late or lost", "completeness")
