"""The results from the logs of a live demo: the auditor's verdicts, the books, the window to show, and the measured
times."""

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct

from seriatim.audit import Report, audit
from seriatim.demo.run import DemoRun
from seriatim.demo.shop import HOLDINGS
from seriatim.model import Delivery, History, Publication

GUARANTEES = ("per-topic", "tno", "acyclic", "integrity", "completeness")
ANOMALIES_MAX = 1_000  # enough to find one that is easy to see
AROUND = 1  # rows shown before and after what the auditor names
MONEY_ROWS = 10  # a window about money may be this many rows longer than another one

Columns = Mapping[str, Sequence[Delivery]]  # of each subscriber, some of its rows in their order


class Kind(Struct, frozen=True, kw_only=True):
    """One of the two logs."""

    report: Report
    books: Mapping[str, int]
    missing: tuple[str, ...]
    window: Columns

    @property
    def is_valid(self) -> bool:
        """Whether the auditor has nothing against it, nobody missed anything, and all books say the same."""
        return self.report.answer(GUARANTEES) == "valid" and not self.missing and len(set(self.books.values())) == 1


class Judgement(Struct, frozen=True, kw_only=True):
    """Compares both logs. Times are in milliseconds, rates per second."""

    without: Kind
    ordered: Kind
    sentence: str  # one disagreement, as the auditor says it
    disputed: frozenset[str]  # the two events of that sentence
    paced: int  # events published while the shop was open
    paced_per_s: float
    listed: int  # prices published at once when it closed
    list_per_s: float  # those, notified in order at the slowest subscriber, counted from the first arrival there
    added_p50_ms: float  # by ordering: how much later the same process was notified of an event; without the outages


def judge(run: DemoRun) -> Judgement:
    """Judge a run by its logs alone."""
    reports = {kind: audit(history, ANOMALIES_MAX) for kind, history in run.histories.items()}
    without, ordered = run.histories["without"], run.histories["with"]
    sentence, disputed, window = _clearest(reports["without"], without)
    shown = {row.event_id for rows in window.values() for row in rows}
    same = {name: [row for row in rows if row.event_id in shown] for name, rows in _columns(ordered).items()}
    listed = sum(map(_is_list_price, ordered.publications))
    paced = len(ordered.publications) - listed
    return Judgement(
        without=Kind(report=reports["without"], books=run.books["without"], missing=_missing(without), window=window),
        ordered=Kind(report=reports["with"], books=run.books["with"], missing=_missing(ordered), window=same),
        sentence=sentence,
        disputed=disputed,
        paced=paced,
        paced_per_s=paced / run.open_s,
        listed=listed,
        list_per_s=_list_per_s(run),
        added_p50_ms=median(_added_ms(run) or [0.0]),
    )


def _columns(history: History) -> dict[str, list[Delivery]]:
    columns: dict[str, list[Delivery]] = {name: [] for name in HOLDINGS}
    for row in history.deliveries:
        columns[row.subscriber].append(row)
    for rows in columns.values():
        rows.sort(key=lambda row: row.position)
    return columns


def _clearest(report: Report, history: History) -> tuple[str, frozenset[str], dict[str, list[Delivery]]]:
    """Of the disagreements that the auditor found, the one that fits best on a screen."""
    columns = _columns(history)
    places = {name: {row.event_id: place for place, row in enumerate(rows)} for name, rows in columns.items()}
    best: tuple[str, frozenset[str], dict[str, list[Delivery]]] = ("", frozenset(), {name: [] for name in HOLDINGS})
    best_cost = float("inf")
    for anomaly in report.anomalies:
        if anomaly.name != "inversion":
            continue
        pair = frozenset(row.event_id for row in anomaly.witness if isinstance(row, Delivery))
        window = {name: _around(rows, places[name], pair) for name, rows in columns.items()}
        cost = max(map(len, window.values())) + (0 if _is_about_money(pair) else MONEY_ROWS)
        if cost < best_cost:
            best, best_cost = (anomaly.sentence, pair, window), cost
    return best


def _is_about_money(pair: frozenset[str]) -> bool:
    """An order and a price: who disagrees about these, charges different sums."""
    return {event_id.partition(" ")[0] for event_id in pair} == {"order", "price"}


def _around(rows: Sequence[Delivery], places: Mapping[str, int], pair: frozenset[str]) -> list[Delivery]:
    """From a little before the first of the two to a little after the second."""
    found = [places[event_id] for event_id in pair if event_id in places]
    return list(rows[max(0, min(found) - AROUND) : max(found) + AROUND + 1]) if found else []


def _missing(history: History) -> tuple[str, ...]:
    """Everybody had subscribed before the first event, so everything on a topic is owed to everybody who holds it."""
    seen = {(row.subscriber, row.event_id) for row in history.deliveries}
    return tuple(
        f"{row.event_id} at {name}"
        for name, topics in HOLDINGS.items()
        for row in history.publications
        if row.topic in topics and (name, row.event_id) not in seen
    )


def _is_list_price(row: Delivery | Publication) -> bool:
    """Published at once with others: these were given no id of their own."""
    return row.event_id.startswith("pricing~")


def _list_per_s(run: DemoRun) -> float:
    rates = []
    arrived, ordered = (_columns(run.histories[kind]) for kind in ("without", "with"))
    for name in HOLDINGS:
        first = [row.notified_at for row in arrived[name] if _is_list_price(row)][:1]
        last = [row.notified_at for row in ordered[name] if _is_list_price(row)]
        if first and last and first[0] is not None and last[-1] is not None:
            rates.append(len(last) / max(last[-1] - first[0], 1.0) * 1000.0)
    return min(rates, default=0.0)


def _added_ms(run: DemoRun) -> list[float]:
    arrived = {(row.subscriber, row.event_id): row.notified_at for row in run.histories["without"].deliveries}
    added = []
    for row in run.histories["with"].deliveries:
        before = arrived.get((row.subscriber, row.event_id))
        if before is None or row.notified_at is None or _is_list_price(row):
            continue
        if not any(fault.began_ms <= before <= fault.ended_ms for fault in run.faults):
            added.append(row.notified_at - before)
    return added
