"""The order log at the end of a round: it is read, checked, and everybody is judged by it.

*Certificate.* The order log is dense, every subscriber's positions rise in it, and a position that a subscriber was
told (`event.position`) is the order log's (`seriatim.audit.certify`).

*The past.* Whoever began at a position was handed exactly what the order log has from there on of its topics: nothing
left out, nothing twice, in that order, history and live alike. If it is still there, up to the end.

*Turns.* A publisher that awaits each event before it publishes the next, on another topic, has its own order kept.

The order log is kept over all rounds and only what is new is read. So who begins with the past, in a later round, is
judged by what the order log was then.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from seriatim.audit import CERTIFICATE, audit, certify
from seriatim.audit.order_log import OrderLog, end_of
from seriatim.cli.order import found_log
from seriatim.model import History, Number, Placement, Publication, SeriatimError, TimedOut, Topic
from soak.tree.guest import PAST_MAX
from soak.tree.rows import Acknowledged, now
from soak.tree.shapes import Shape
from soak.tree.verify import SHOWN_MAX, Account, Carried, Record, Verdict, outline

LAG_S = 30.0  # how far the order log may be behind what everybody was notified of
ASK_S = 10.0
TURNS = "fifo-across-topics"
BY_ORDER = (CERTIFICATE, TURNS)


def last_numbers(record: Record, verdict: Verdict) -> dict[Topic, Number]:
    """The last number of each topic that anybody was told of in this round."""
    found: dict[Topic, Number] = {}
    for account in verdict.accounts.values():
        for row in account.handed:
            found[row.topic] = max(found.get(row.topic, 0), row.number)
    for rows in record.publishers.values():
        for each in rows:
            if isinstance(each, Acknowledged):
                topic = verdict.attempts[each.id].topic
                found[topic] = max(found.get(topic, 0), each.number)
    return found


def behind(record: Record, carried: Carried | None, order: OrderLog) -> dict[str, int]:
    """How many numbers whoever began with the past, and is still there, has not reached: the order log says which.

    What was published before it came may be placed after its beginning, so times of attempts do not tell.
    """
    verdict, owed = outline(record, carried), Counter[str]()
    for topic, number in last_numbers(record, verdict).items():
        row = order.row(topic, number)
        for name, account in verdict.accounts.items():
            if row is None or account.start is None or topic not in account.open_spans:
                continue
            handed = max((each.number for each in account.handed if each.topic == topic), default=row.first - 1)
            if row.position + number - row.first >= account.start and handed < number:
                owed[name] += number - handed
    return dict(owed)


async def read_order(url: str, cluster: str, needed: dict[Topic, Number], before: Carried | None) -> list[Placement]:
    """The order log, up to everything that is known to exist. TimedOut: it lags, and by what."""
    rows = list(before.order) if before is not None else []
    after = end_of(rows[-1]) if rows else 0
    reached: dict[Topic, Number] = {row.topic: row.last for row in rows}
    deadline = now() + LAG_S
    async with found_log(url, cluster, ASK_S) as log:
        while True:
            read = await log.read(after)
            if read.after > after:
                raise SeriatimError(f"positions {after + 1}…{read.after} of the order log are gone")
            for each in read.ranges:
                rows.append(Placement(after + 1, each.topic, each.first, each.last))
                reached[each.topic] = each.last
                after += each.count
            if read.ranges:
                continue
            behind = {topic: last for topic, last in needed.items() if reached.get(topic, 0) < last}
            if not behind:
                return rows
            if now() > deadline:
                at = {topic: reached.get(topic, 0) for topic in behind}
                raise TimedOut(f"waited {LAG_S:g} s for the order log to have {behind}; it has {at}")
            await log.wait(after, 1.0)


def judge_by_order(verdict: Verdict, order: list[Placement], shape: Shape, before: Carried | None) -> None:
    """Add to the verdict what the order log shows, and what the next round must know of it."""
    _check_certificate(verdict, order)
    known = (before.past if before is not None else {}) | {row.event_id: row for row in verdict.history.publications}
    ids = _ids(known.values())
    for account in verdict.accounts.values():
        if account.start is not None:
            _check_past(account, order, ids, verdict)
    _check_turns(verdict, set(shape.in_turns))
    verdict.carried.order = order
    verdict.carried.past = _still_within_reach(known, order, set(shape.quiet))


def _check_certificate(verdict: Verdict, order: list[Placement]) -> None:
    found = certify(verdict.history.deliveries, order, SHOWN_MAX)
    verdict.answers[CERTIFICATE] = found.verdict.answer
    for anomaly in found.anomalies:
        verdict.add(anomaly.name, anomaly.sentence)
    verdict.counts.update({name: count - verdict.counts[name] for name, count in found.counts.items()})
    if found.verdict.answer == "unknown" and verdict.history.deliveries:
        verdict.add("undecided", f"{CERTIFICATE}: {found.verdict.reason}")


# ── whoever began with the past ───────────────────────────────────────────────────────────────────────────────────


def _ids(publications: Iterable[Publication]) -> dict[tuple[Topic, Number], list[str]]:
    """The events of each message, in order of their index."""
    found: dict[tuple[Topic, Number], list[Publication]] = {}
    for row in publications:
        found.setdefault((row.topic, row.number or 0), []).append(row)
    return {place: [row.event_id for row in sorted(rows, key=lambda row: row.index)] for place, rows in found.items()}


def _expected(account: Account, order: list[Placement], ids: dict[tuple[Topic, Number], list[str]]) -> Iterator[str]:
    """What the order log has for it. A number without a known event is skipped (ticket mode has voids)."""
    topics = {span.topic for span in account.spans}
    start = account.start or 1
    for row in order:
        if row.topic in topics and end_of(row) >= start:
            for number in range(row.first + max(0, start - row.position), row.last + 1):
                yield from ids.get((row.topic, number), ())


def _check_past(
    account: Account, order: list[Placement], ids: dict[tuple[Topic, Number], list[str]], verdict: Verdict
) -> None:
    expected = list(_expected(account, order, ids))
    handed = [row.id for row in account.handed]
    began = f"{account.name} began at position {account.start:,}"
    for place, (got, wanted) in enumerate(zip(handed, expected, strict=False)):
        if got != wanted:
            verdict.add("past", f"{began}: hand-out {place} is {got}, but the order log has {wanted} there")
            return
    if len(handed) > len(expected):
        verdict.add("past", f"{began}: the order log does not have its last {len(handed) - len(expected)} events")
    elif account.open_spans and len(handed) < len(expected):
        left = len(expected) - len(handed)
        verdict.add("past", f"{began}: of {len(expected)} events the last {left} never came", left)


def _still_within_reach(
    known: dict[str, Publication], order: list[Placement], whole: set[Topic]
) -> dict[str, Publication]:
    """The events that a guest of the next round may begin with."""
    reach = end_of(order[-1]) - PAST_MAX if order else 0
    firsts: dict[Topic, Number] = {}
    for row in order:
        if end_of(row) >= reach:
            firsts.setdefault(row.topic, row.first)
    return {
        event_id: row
        for event_id, row in known.items()
        if row.topic in whole or (row.topic in firsts and (row.number or 0) >= firsts[row.topic])
    }


# ── a publisher's own order across topics ─────────────────────────────────────────────────────────────────────────


def _check_turns(verdict: Verdict, names: set[str]) -> None:
    history = verdict.history
    published = [row for row in history.publications if row.publisher.partition("/")[0] in names]
    if not published:
        return
    ids = {row.event_id for row in published}
    only, places = History(publications=published), Counter[str]()
    for row in history.deliveries:
        if row.event_id in ids:
            only.deliveries.append(replace(row, position=places[row.subscriber]))
            places[row.subscriber] += 1
    report = audit(only, limit=SHOWN_MAX)
    verdict.answers[TURNS] = report.verdicts[TURNS].answer
    for anomaly in report.anomalies_against([TURNS]):
        verdict.add(anomaly.name, anomaly.sentence)
    if report.verdicts[TURNS].answer == "unknown" and not verdict.counts:
        verdict.add("undecided", f"{TURNS}: {report.verdicts[TURNS].reason}")
