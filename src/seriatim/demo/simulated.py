"""`seriatim demo --simulated`: subscribers of an unordered network disagree, the same run ordered, the audit of both.

A shop publishes orders, prices and stock levels, and its subscribers hold several of these topics each. The network is
simulated once; what every subscriber is notified of is shown as the events arrive, then as Seriatim orders them. The
same seed is the same run.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

import click

from seriatim.audit import Report, Row, audit
from seriatim.cli.common import show_json
from seriatim.demo.simulation import EVENTS, HOLDINGS, open_shop
from seriatim.model import Delivery, History

SEED = 1  # the first disagreement it shows is easy to see
GUARANTEES = ("per-topic", "tno", "completeness")
COLUMN_WIDTH = 14


def show(seed: int, as_json: bool) -> bool:
    """Run and print it. False: the ordered run is not in order, or something is missing from it."""
    without, ordered = open_shop(seed)
    report_without, report_ordered = audit(without), audit(ordered)
    missing = _missing(ordered)
    if as_json:
        answer = {
            "seed": seed,
            "without": _summary(without, report_without),
            "ordered": _summary(ordered, report_ordered),
            "missing": missing,
        }
        show_json(answer)
    else:
        events = sum(len(events) for events in EVENTS.values())
        click.echo(f"{len(HOLDINGS)} subscribers, {len(EVENTS)} topics, {events} events, one run (seed {seed})\n")
        for line in (*_page_without(without, report_without), "", *_page_ordered(ordered, report_ordered, missing)):
            click.echo(line)
    return not missing and report_ordered.answer(GUARANTEES) == "valid"


def _page_without(history: History, report: Report) -> Iterator[str]:
    yield click.style("Without Seriatim: each topic in its own order, topics as they arrive", bold=True)
    inversion = next((anomaly for anomaly in report.anomalies if anomaly.name == "inversion"), None)
    columns = [_notified(history, name) for name in HOLDINGS]
    yield from _table(columns, marked=inversion.witness if inversion else ())
    yield from _verdicts(report)
    yield f"* {inversion.sentence}" if inversion else "  By luck, nobody disagrees with this seed: try another."


def _page_ordered(history: History, report: Report, missing: list[str]) -> Iterator[str]:
    yield click.style("With Seriatim: the same arrivals, one line per event", bold=True)
    columns: list[list[Delivery | None]] = []
    for name in HOLDINGS:
        rows = {row.event_id: row for row in _notified(history, name)}
        # The auditor's certificate, an order that fits everybody, lines the columns up.
        columns.append([rows.get(event_id) for event_id in report.order or rows])
    yield from _table(columns)
    yield from _verdicts(report)
    if missing:
        yield f"  missing: {', '.join(missing)}"
    waits_ms = [(row.notified_at or 0.0) - (row.received_at or 0.0) for row in history.deliveries]
    if waits_ms:
        mean_ms = sum(waits_ms) / len(waits_ms)
        yield f"  waited for stamp and turn: {mean_ms:.0f} ms on average, {max(waits_ms):.0f} ms at most"


def _table(columns: Sequence[Sequence[Delivery | None]], marked: Collection[Row] = ()) -> Iterator[str]:
    yield "  " + "  ".join(f"{name:{COLUMN_WIDTH}}" for name in HOLDINGS).rstrip()
    for rows in zip_longest(*columns):
        cells = ""
        for row in rows:
            text = f"{'*' if row in marked else ' '} {row.event_id if row else ''}"
            cells += click.style(text, fg="red") if row in marked else text
            cells += " " * (COLUMN_WIDTH + 2 - len(text))
        yield cells.rstrip()


def _verdicts(report: Report) -> Iterator[str]:
    colours = {"valid": "green", "invalid": "red", "unknown": "yellow"}
    answers = [(name, report.verdicts[name].answer) for name in GUARANTEES]
    yield "  audit: " + ", ".join(f"{name} {click.style(answer, fg=colours[answer])}" for name, answer in answers)


def _notified(history: History, name: str) -> list[Delivery]:
    return [row for row in history.deliveries if row.subscriber == name]


def _missing(history: History) -> list[str]:
    """What a subscriber holds the topic of and was not notified of: nothing is owed after the run."""
    seen = {(row.subscriber, row.event_id) for row in history.deliveries}
    owed = [(name, event_id) for name, topics in HOLDINGS.items() for topic in topics for event_id in EVENTS[topic]]
    return sorted(f"{event_id} at {name}" for name, event_id in owed if (name, event_id) not in seen)


def _summary(history: History, report: Report) -> dict[str, object]:
    return {
        "notified": {name: [row.event_id for row in _notified(history, name)] for name in HOLDINGS},
        "verdicts": {name: report.verdicts[name].answer for name in GUARANTEES},
        "anomalies": [anomaly.sentence for anomaly in report.anomalies],
    }
