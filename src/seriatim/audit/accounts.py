"""Which events arrived, whatever their order? Checks `integrity` and `completeness`.

Numbers, publications and subscriptions are claims of the system under audit. They are compared with each other and with
the deliveries: missing rows make a doubt, contradictions make an anomaly.

A *place* identifies an event within its topic: its number, and its index if one number stands for several events.
"""

from bisect import bisect_left, bisect_right
from typing import TypeAlias

from seriatim.audit.evidence import Evidence
from seriatim.audit.lost import knows_owed
from seriatim.audit.report import Findings
from seriatim.model import Delivery, History, Number, Publication, Subscription, Topic

Place: TypeAlias = tuple[Number, int]

ENDLESS = 1 << 62  # above every index


def check_integrity(history: History, evidence: Evidence, findings: Findings) -> None:
    """Each event at most once, published, on a topic held, under one id and one number."""
    for first, row in evidence.repeats:
        if findings.counted("duplicate"):
            where = f"at positions {first.position} and {row.position}"
            findings.add("duplicate", f"{row.subscriber} was notified of {row.event_id} twice, {where}", (first, row))
    for event_id, (one, other) in sorted(evidence.reused.items()):
        if findings.counted("reused-id"):
            findings.add("reused-id", reused_sentence(event_id, one, other), (one, other))
    _check_published(history, evidence, findings)
    _check_held(history, evidence, findings)
    _check_numbers(evidence, findings)


def reused_sentence(event_id: str, one: Delivery | Publication, other: Delivery | Publication) -> str:
    """One id, two events: say which."""
    return f"the id {event_id} stands for {_told(one)} and for {_told(other)}"


def _told(row: Delivery | Publication) -> str:
    if isinstance(row, Delivery):
        return f"an event that {row.subscriber} was notified of on topic {row.topic}"
    return f"an event that {row.publisher} published on topic {row.topic}"


def _check_published(history: History, evidence: Evidence, findings: Findings) -> None:
    if not evidence.published:
        findings.doubt("no publications in the log: whether every event was published is not known", "integrity")
        return
    if history.lost.get("publications"):
        return
    for rows in evidence.rows.values():
        for row in rows:
            if row.event_id not in evidence.published and findings.counted("phantom"):
                sentence = f"{row.subscriber} was notified of {row.event_id}, which nobody published"
                findings.add("phantom", sentence, (row,))


def _check_held(history: History, evidence: Evidence, findings: Findings) -> None:
    if not history.subscriptions:
        findings.doubt("no subscriptions in the log: whether every topic was held is not known", "integrity")
        return
    if history.lost.get("subscriptions"):
        return
    held: dict[tuple[str, Topic], list[Subscription]] = {}
    for subscription in sorted(history.subscriptions, key=_subscription_key):
        held.setdefault((subscription.subscriber, subscription.topic), []).append(subscription)
    for subscriber, rows in evidence.rows.items():
        for row in rows:
            spans = held.get((subscriber, row.topic), ())
            for span in spans:
                if span.since <= row.position and (span.until is None or row.position < span.until):
                    break
            else:
                if findings.counted("phantom"):
                    what = f"{row.event_id} on topic {row.topic}, which it did not hold then"
                    findings.add("phantom", f"{subscriber} was notified of {what}", (row, *spans))


def _subscription_key(row: Subscription) -> tuple[str, Topic, int, Number, Number, Number]:
    """Sort subscriptions by subscriber, topic and time, so that the order of the rows does not matter; unknown times
    come first."""
    until, start, end = (-1 if value is None else value for value in (row.until, row.start, row.end))
    return (row.subscriber, row.topic, row.since, until, start, end)


def _check_numbers(evidence: Evidence, findings: Findings) -> None:
    """A number of a topic belongs to one event, and an event has one number."""
    by_place: dict[tuple[Topic, Number, int], Delivery | Publication] = {}
    by_event: dict[str, Delivery | Publication] = {}
    reported: set[str] = set()
    rows: list[Delivery | Publication] = [*evidence.published.values()]
    for deliveries in evidence.rows.values():
        rows += deliveries
    for row in rows:
        if row.number is None or row.event_id in evidence.reused:
            continue
        place = _shown((row.number, row.index))
        other = by_place.setdefault((row.topic, row.number, row.index), row)
        if other.event_id != row.event_id and row.event_id not in reported:
            reported.add(row.event_id)
            if findings.counted("number-mismatch"):
                sentence = f"number {place} of topic {row.topic} stands for {other.event_id} and for {row.event_id}"
                findings.add("number-mismatch", sentence, (other, row))
        other = by_event.setdefault(row.event_id, row)
        if (other.number, other.index) != (row.number, row.index) and row.event_id not in reported:
            reported.add(row.event_id)
            if findings.counted("number-mismatch"):
                both = f"{_shown((other.number or 0, other.index))} and {place}"
                sentence = f"{row.event_id} has the numbers {both} of topic {row.topic}"
                findings.add("number-mismatch", sentence, (other, row))


def _shown(place: Place) -> str:
    number, index = place
    return f"{number} index {index}" if index else str(number)


class _Numbers:
    """The knowledge of the whole log about the numbers of each topic."""

    def __init__(self, evidence: Evidence) -> None:
        self.published = evidence.published
        self.rows: dict[Topic, dict[Place, Delivery | Publication]] = {}  # a row that shows the place is an event's
        self.voids_known: dict[Topic, bool] = {}  # every publication has its number, so the others never became events
        for row in evidence.published.values():
            self.voids_known[row.topic] = self.voids_known.get(row.topic, True) and row.number is not None
            if row.number is not None:
                self.rows.setdefault(row.topic, {}).setdefault((row.number, row.index), row)
        for deliveries in evidence.rows.values():
            for delivery in deliveries:
                if (place := self.of(delivery)) is not None:
                    self.rows.setdefault(delivery.topic, {}).setdefault(place, delivery)
        self.sorted = {topic: sorted(rows) for topic, rows in self.rows.items()}

    def of(self, row: Delivery) -> Place | None:
        """The place of a delivered event, if any row tells it."""
        if row.number is not None:
            return row.number, row.index
        publication = self.published.get(row.event_id)
        if publication is None or publication.number is None:
            return None
        return publication.number, publication.index

    def between(self, topic: Topic, after: Place, last: Place | None = None) -> list[Place]:
        """The places of events of a topic above `after` and, if given, up to `last`."""
        places = self.sorted.get(topic, [])
        return places[bisect_right(places, after) : len(places) if last is None else bisect_right(places, last)]


def check_completeness(history: History, evidence: Evidence, findings: Findings) -> None:
    """Each subscription on its own: from its cut to its last notified event, no event of the topic is missing."""
    if not history.subscriptions:
        findings.doubt("no subscriptions in the log: which events were owed is not known", "completeness")
        return
    if findings.counts["number-mismatch"] or evidence.reused:
        findings.doubt("ids or numbers contradict each other, so gaps cannot be recognised", "completeness")
        return
    if not knows_owed(history.lost):
        return
    numbers = _Numbers(evidence)
    received: dict[tuple[str, Topic], list[Delivery]] = {}
    for subscriber, rows in evidence.rows.items():
        for row in rows:
            received.setdefault((subscriber, row.topic), []).append(row)
    for subscriber, topic in sorted(received.keys() - {(row.subscriber, row.topic) for row in history.subscriptions}):
        findings.doubt(f"{subscriber}, topic {topic}: no subscription says which events were owed", "completeness")
    for subscription in sorted(history.subscriptions, key=_subscription_key):
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
    got = {place: row for row in rows if (place := numbers.of(row)) is not None}
    if len(got) < len(rows) and any(numbers.of(row) is None for row in rows):
        findings.doubt(f"{who}: events without a number, so a gap would not be noticed", "completeness")
        return
    start = subscription.start
    if start is None:
        start = min(got, default=(1, 0))[0] - 1
        if start > 0 or not got:
            findings.doubt(f"{who}: the cut is not recorded, so the first event owed is not known", "completeness")
    after = (start, ENDLESS)
    last = _last_owed(got, after, subscription.end)
    owed = numbers.between(topic, after, last)
    missing = [place for place in owed if place not in got]
    if missing and subscriber in evidence.incomplete:
        findings.doubt(f"{who}: number {_shown(missing[0])} may be in a row that is missing", "completeness")
    elif missing:
        findings.counts["gap"] += len(missing)
        if findings.wants("gap"):
            proof = numbers.rows[topic][missing[0]]
            later = [got[last]] if last in got else []
            what = f"{proof.event_id} (number {_shown(missing[0])} of topic {topic})"
            until = _shown(last) if last in got else last[0]
            sentence = f"{subscriber} held the topic but was never notified of {what}, though owed up to number {until}"
            findings.add("gap", sentence, (subscription, proof, *later))
    if numbers.voids_known.get(topic) is False:
        findings.doubt(f"{who}: publications without a number, so a gap may not be noticed", "completeness")
    elif topic not in numbers.voids_known and _has_holes(owed, start, last[0]):
        findings.doubt(f"{who}: numbers that no row mentions may be events or voids", "completeness")
    if subscription.until is None and (tail := numbers.between(topic, last)):
        findings.doubt(f"{who}: number {_shown(tail[0])} not notified yet, late or lost", "completeness")


def _last_owed(got: dict[Place, Delivery], after: Place, end: Number | None) -> Place:
    """Up to where the subscriber must get events: the last one notified, or all of number `end`.

    Who leaves in the middle of a message has its end there: what follows in the message it was notified of last is not
    owed.
    """
    if end is None:
        return max(got, default=after)
    return max((place for place in got if place[0] == end), default=(end, ENDLESS))


def _has_holes(owed: list[Place], start: Number, last: Number) -> bool:
    """Whether there are numbers, or indices within a number, that no row mentions."""
    indices: dict[Number, int] = {}  # the highest one, plus one
    for number, index in owed:
        indices[number] = index + 1
    return last - start > len(indices) or sum(indices.values()) > len(owed)
