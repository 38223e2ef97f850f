"""The violations that a run must not show. Each checker reads a history, trusts no machine, and answers with sentences.

These are short on purpose: the auditor (seriatim.audit) is the fast and complete judge of logs; here stand the plain
definitions, against which it can be compared.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from seriatim.model import Delivery, Gap, History, Number, Subscription, Topic


class Violation(Struct, frozen=True):
    """One broken promise. No subscriber: it is about several of them, or about another role."""

    kind: str  # lost, duplicate, phantom, misnumbered, inversion, failure, or the name of an auditor's anomaly
    subscriber: str
    sentence: str


def check_integrity(history: History) -> list[Violation]:
    """Nobody is notified twice, of an event that was not published, or on a topic that it does not hold."""
    published = {row.event_id: row for row in history.publications}
    stays: dict[tuple[str, Topic], list[Subscription]] = {}
    for stay in history.subscriptions:
        stays.setdefault((stay.subscriber, stay.topic), []).append(stay)
    violations = []
    seen: set[tuple[str, str]] = set()
    for row in history.deliveries:
        who, what = row.subscriber, f"{row.subscriber} was notified of {row.event_id}"
        publication = published.get(row.event_id)
        if (who, row.event_id) in seen:
            violations.append(Violation("duplicate", who, f"{what} twice"))
        elif publication is None or publication.topic != row.topic:
            violations.append(Violation("phantom", who, f"{what} on {row.topic}, which nobody published there"))
        elif not any(_covers(stay, row) for stay in stays.get((who, row.topic), ())):
            violations.append(Violation("phantom", who, f"{what} while it did not hold {row.topic}"))
        elif row.number is not None and row.number != publication.number:
            sentence = f"{what} as {row.topic} {row.number}, but the broker has it as {publication.number}"
            violations.append(Violation("misnumbered", who, sentence))
        seen.add((who, row.event_id))
    return violations


def check_owed(history: History, gaps: Mapping[str, Iterable[Gap]] | None = None) -> list[Violation]:
    """Everything on the broker between the start and the end of a stay arrives, or is reported as a gap."""
    events: dict[Topic, dict[Number, str]] = {}
    for row in history.publications:
        if row.number is not None:
            events.setdefault(row.topic, {})[row.number] = row.event_id
    delivered = {(row.subscriber, row.event_id) for row in history.deliveries}
    violations = []
    for stay in history.subscriptions:
        if stay.start is None:
            continue  # its cut is not complete: nothing is owed yet
        excused = [gap for gap in (gaps or {}).get(stay.subscriber, ()) if gap.topic == stay.topic]
        for number, event_id in sorted(events.get(stay.topic, {}).items()):
            if number <= stay.start or (stay.until is not None and number > (stay.end or 0)):
                continue
            if (stay.subscriber, event_id) in delivered or any(gap.first <= number <= gap.last for gap in excused):
                continue
            sentence = f"{stay.subscriber} was not notified of {stay.topic} {number} ({event_id})"
            violations.append(Violation("lost", stay.subscriber, sentence))
    return violations


def _covers(stay: Subscription, row: Delivery) -> bool:
    in_time = stay.since <= row.position and (stay.until is None or row.position < stay.until)
    return in_time and (stay.start is None or row.number is None or row.number > stay.start)
