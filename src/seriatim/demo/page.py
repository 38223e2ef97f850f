"""The live demo as text: one line for everything that happens, then both logs side by side. Fits into 80 columns."""

import os
import sys
import textwrap
import time
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest

import click

from seriatim.demo.judge import GUARANTEES, Columns, Judgement, Kind
from seriatim.demo.run import DemoRun
from seriatim.demo.shop import DISTANCE_MS, EU, HOLDINGS, HUB, SUBSCRIBER_SITES

WIDTH = 80
COLUMN_WIDTH = 24
WHO_WIDTH = 13
ROWS_MAX = 9  # of a window
DISTANCE_ADDED_MS = 2 * DISTANCE_MS[frozenset({HUB, EU})]  # from a topic's home to the root and back
HARD_SPACE = "\u00a0"
COLOURS = {"valid": "green", "invalid": "red", "unknown": "yellow"}
EVENTS = {"kill -9": "red", "recovered": "green"}

INTRODUCTION = """\
A shop at three sites. Every process is real; only the distance is simulated, by
delayed connections: hub to eu or us 20 ms one way, eu to us 40 ms.

  site  sequencer  publishers                            subscriber
  eu    eu         checkout: orders (plain NATS client)  billing
  us    us         pricing: prices, cashier: payments    shipping
  hub   root                                             support

Every subscriber adds up what the shop sells: each order at the price of that
moment. It does so twice, with the same streams: without Seriatim, and with it.
"""


class Narrator:
    """Prints each event of the demo when it happens; on a terminal also the activity in between."""

    def __init__(self, is_quiet: bool = False) -> None:
        self._began_s = time.monotonic()
        self._is_quiet = is_quiet
        self._is_live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not is_quiet
        self._has_live_line = False

    def tell(self, who: str, what: str) -> None:
        """Print one line that stays."""
        if not self._is_quiet:
            self.wipe()
            name = click.style(f"{who:{WHO_WIDTH}}", fg=EVENTS.get(who), bold=True if who in EVENTS else None)
            click.echo(f"{self._elapsed()}{name}{what}")

    def progress(self, what: str) -> None:
        """Write over the last line."""
        if self._is_live:
            self.wipe()
            click.echo(f"{self._elapsed()}{'':{WHO_WIDTH}}{what}"[: WIDTH - 1], nl=False)
            self._has_live_line = True

    def wipe(self) -> None:
        """Remove the line that `progress` wrote."""
        if self._has_live_line:
            click.echo("\r\x1b[K", nl=False)
            self._has_live_line = False

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began_s:5.1f} s  "


def page(run: DemoRun, judgement: Judgement) -> Iterator[str]:
    """The page of results: both logs, what the auditor says about each, and the figures."""
    yield ""
    yield click.style("Without Seriatim: each event when it arrives", bold=True)
    yield from _table(_side_by_side(judgement.without.window), judgement.disputed, "red")
    yield from _verdict(judgement.without)
    if judgement.sentence:
        yield from (click.style(line, fg="red") for line in _wrapped(judgement))
    else:
        yield "  By luck, nobody disagreed this time: run it again."
    yield ""
    yield click.style("With Seriatim: the same events, one line for each", bold=True)
    yield from _table(_aligned(judgement), judgement.disputed, "green")
    yield from _verdict(judgement.ordered)
    if judgement.ordered.is_valid:
        killed = " and ".join(fault.what for fault in run.faults)
        yield click.style("  Nothing lost, nothing repeated, the same books everywhere,", fg="green")
        yield click.style(f"  though {killed} were killed.", fg="green")
    yield ""
    paced = f"{judgement.paced:,} events at {judgement.paced_per_s:.0f} per second"
    yield f"{paced}: ordering added {judgement.added_p50_ms:.0f} ms (p50), distance {DISTANCE_ADDED_MS:.0f} of it"
    listed = f"{judgement.listed:,} at once"
    yield f"{listed}: notified in order at {judgement.list_per_s:,.0f} per second (slowest subscriber)"


def _table(columns: Sequence[Sequence[str]], marked: Collection[str], colour: str) -> Iterator[str]:
    heads = [f"{name} ({SUBSCRIBER_SITES[name]})" for name in HOLDINGS]
    yield "  " + "  ".join(f"{head:{COLUMN_WIDTH}}" for head in heads).rstrip()
    for cells in zip_longest(*columns, fillvalue=""):
        line = ""
        for text in cells:
            shown = f"{'*' if text in marked else ' '} {text}"
            line += click.style(shown, fg=colour) if text in marked else shown
            line += " " * (COLUMN_WIDTH + 2 - len(shown))
        yield line.rstrip()


def _wrapped(judgement: Judgement) -> list[str]:
    """The auditor's sentence; no line ends within the name of an event."""
    sentence = judgement.sentence
    for event_id in judgement.disputed:
        sentence = sentence.replace(event_id, event_id.replace(" ", HARD_SPACE))
    others = judgement.without.report.counts["inversion"] - 1
    sentence += f" (and so with {others:,} other pairs)" if others else ""
    lines = textwrap.wrap(sentence, WIDTH - 1, initial_indent="* ", subsequent_indent="  ")
    return [line.replace(HARD_SPACE, " ") for line in lines]


def _side_by_side(window: Columns) -> list[list[str]]:
    """What each subscriber saw, in its own order; a long middle is cut short."""
    columns = []
    for rows in window.values():
        column = [row.event_id for row in rows]
        if len(column) > ROWS_MAX:
            kept = ROWS_MAX // 2
            column[kept:-kept] = [f"({len(column) - 2 * kept} more)"]
        columns.append(column)
    return columns


def _aligned(judgement: Judgement) -> list[list[str]]:
    """The auditor's order, which fits everybody, lines the columns up."""
    window = judgement.ordered.window
    seen = {name: {row.event_id for row in rows} for name, rows in window.items()}
    shown = set().union(*seen.values())
    order = [event_id for event_id in judgement.ordered.report.order or () if event_id in shown]
    places = [place for place, event_id in enumerate(order) if event_id in judgement.disputed]
    if places and len(order) > ROWS_MAX:  # those around the disputed ones
        spare = max(0, ROWS_MAX - (places[-1] - places[0] + 1))
        order = order[max(0, places[0] - spare // 2) : places[-1] + 1 + spare // 2]
    if not order:  # they do not agree: what each saw, as it saw it
        return _side_by_side(window)
    return [[event_id if event_id in ids else "" for event_id in order] for ids in seen.values()]


def _verdict(kind: Kind) -> Iterator[str]:
    colour = "green" if len(set(kind.books.values())) == 1 else "red"
    sums = "".join(f"{f'  sold {kind.books[name] / 100:,.2f}':{COLUMN_WIDTH + 2}}" for name in HOLDINGS)
    yield click.style(sums.rstrip(), fg=colour, bold=True)
    answers = [(name, kind.report.verdicts[name].answer) for name in GUARANTEES]
    shown = [f"{name} {click.style(answer, fg=COLOURS[answer])}" for name, answer in answers]
    yield f"  audit: {', '.join(shown[:3])},"
    yield f"         {', '.join(shown[3:])}"
    for missing in kind.missing[:3]:
        yield f"  missing: {missing}"
