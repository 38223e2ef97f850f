"""`seriatim sub`: print the events of some topics in the order that every subscriber sees."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click

from seriatim.cli.common import (
    Client,
    as_json_line,
    client_options,
    data_as_json,
    default_journals,
    is_direct,
    json_option,
    log_option,
    notice,
    run_until_interrupted,
    url_option,
)
from seriatim.cli.output import Output, PipedOutput, stdout_pipe
from seriatim.cli.start import read_start, showing_progress
from seriatim.model import Gap, InputError, TimedOut
from seriatim.runtime.net.addresses import split_address
from seriatim.runtime.net.security import load_stamp_key


@click.command
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--count", type=click.IntRange(min=1), help="End after this many events.")
@click.option("--idle", "idle_s", type=click.FloatRange(min=0, min_open=True), help="End after this many idle seconds.")
@click.option("--durable", metavar="NAME", help="Continue where the subscriber of this name stopped.")
@click.option(
    "--journals",
    type=click.Path(file_okay=False, path_type=Path),
    default=default_journals,
    show_default="~/.local/state/seriatim",
    help="The folder for the journals of durable subscribers.",
)
@click.option("--accept", is_flag=True, help="With --durable: start over if the journal is lost or too old.")
@click.option(
    "--start",
    metavar="PLACE",
    help='Begin with the past: "first", a position, a time such as 2026-05-01T09:00:00Z, or orders=17,prices=4.',
)
@click.option("--seek", is_flag=True, help="With --durable: begin at --start even if the subscriber already exists.")
@log_option("Write the delivery log here, for audit; `broker:` keeps it on the broker, for archive.")
@click.option("--name", help="Name of this subscriber in logs.  [default: a new one]")
@click.option(
    "--gaps",
    type=click.Choice(["wait", "skip", "raise"]),
    default="wait",
    help="What to do about events that the broker no longer keeps.",
)
@click.option(
    "--stamp-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the stamp key: events whose stamps it does not prove are dropped (ticket mode).",
)
@click.option("--where", metavar="FILTER", help="Print only events whose attributes match (docs/filters.md).")
@click.option(
    "--metrics", "address", metavar="HOST:PORT", help="Serve metrics here: events held, for how long, and more."
)
@click.option(
    "--show-stamps", is_flag=True, help="Show each event's stamp: which events of other topics come before it."
)
@click.option("--position", "show_positions", is_flag=True, help="Show each event's place in the order of all events.")
@client_options
@url_option
@json_option
def command(
    topics: tuple[str, ...],
    count: int | None,
    idle_s: float | None,
    durable: str | None,
    journals: Path,
    accept: bool,
    start: str | None,
    seek: bool,
    folder: str | None,
    name: str | None,
    gaps: str,
    stamp_key_file: Path | None,
    where: str | None,
    address: str | None,
    show_stamps: bool,
    show_positions: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Subscribe to topics and print events in their order.

    Every subscriber that holds some of the same topics prints their events in the same order. Without --durable it
    begins with events published after it has joined; with it, where the subscriber of that name stopped. With --start
    it begins with the past, in the order of all events, and then continues without a gap.

    \b
    Examples:
      seriatim sub orders prices
      seriatim sub orders prices --json --count 100
      seriatim sub orders --durable billing
      seriatim sub orders prices --start first --position
      seriatim sub orders --durable billing --start 2026-05-01T09:00:00Z --seek
      seriatim sub orders --metrics 127.0.0.1:9100            for Prometheus
      seriatim sub orders --where 'price > 100 and region = "EU"'
      seriatim sub orders prices --log run/     then: seriatim audit run/
      seriatim sub chat --url "vcube://./peers.toml?id=3"     as a peer, without a broker
      seriatim sub --where 'price > 100' --url overlay://127.0.0.1:7600

    \b
    Exit code: 0 --count events have come, 1 a gap (with --gaps raise) or a failure, 2 wrong options,
               3 the time is over, 130 interrupted.
    """
    if not topics and where is None:
        raise InputError("TOPIC", "none is named", "name topics, or give --where on an overlay:// URL")
    if address is not None:
        split_address("--metrics", address)
    begin = read_start(start) if start is not None else "now"
    if seek and (durable is None or start is None):
        raise InputError("--seek", "it moves a durable subscriber to --start", "give --durable and --start")
    client = Client(**options)
    key = load_stamp_key("--stamp-key-file", stamp_key_file) if stamp_key_file is not None else None
    refuses = client.order == "atoms" or is_direct(client.url)  # then durable is the mistake
    is_kept = durable is not None and not refuses
    places = journals / client.cluster if is_kept else None

    pipe = stdout_pipe() if is_kept else None

    async def subscribe() -> None:
        from seriatim import GapPolicy
        from seriatim.client.metrics import serve_metrics

        # None is to wait, too; where nothing can be waited for, as in an overlay, gaps are passed.
        policy = {"wait": None, "skip": GapPolicy.skip(), "raise": GapPolicy.raise_()}[gaps]
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(client.connect(name=name, journals=places, stamp_key=key))
            if address is not None:  # before the topics are joined, so that a slow join can be seen, too
                server = await stack.enter_async_context(serve_metrics(bus, address))
                notice(f"metrics at {server.url}/metrics")
            joining = bus.subscribe(
                *topics,
                where=where,
                durable=durable,
                acknowledge="next" if pipe is None else "manual",
                accept=accept,
                gaps=policy,
                show_gaps=True,
                log=folder,
                start=begin,
            )
            events = await stack.enter_async_context(joining)
            if seek:
                await events.seek(begin)
            notice(f"listening to {_chosen(topics, where, getattr(events, 'filter', None))}")
            async with showing_progress(events) as before:
                shown = Shown(show_stamps, show_positions, as_json, "" if as_json else before)
                acknowledge = events.acknowledge if durable is not None else None
                output = PipedOutput(events, pipe) if pipe is not None else Output(events, acknowledge)
                await print_events(output, count, idle_s, shown)
                await output.finish()

    run_until_interrupted(subscribe)


def _chosen(topics: Iterable[str], where: str | None, filter: object) -> str:
    """What is listened to; a durable subscription has the filter it began with, also if none is given."""
    chosen = where if where is not None else str(filter) if filter is not None else None
    return ", ".join([*sorted(set(topics)), *([chosen] if chosen is not None else [])])


class Shown(NamedTuple):
    """The printed part of an event."""

    stamps: bool
    positions: bool
    as_json: bool
    before: str = ""  # at a terminal: what clears the line of the progress


async def print_events(output: Output, count: int | None, idle_s: float | None, what: Shown) -> None:
    """Print one line per event, and gaps on stderr, in their places. TimedOut: no event came for `idle_s`."""
    shown = 0
    while count is None or shown < count:
        try:
            async with asyncio.timeout(idle_s):
                event = await output.next()
        except TimeoutError:
            await output.finish()
            raise TimedOut(f"no event for {idle_s:g} s, after {shown} events") from None
        except StopAsyncIteration:
            return
        if isinstance(event, Gap):
            numbers = str(event.first) if event.first == event.last else f"{event.first}…{event.last}"
            notice(f"{what.before}gap: {event.topic} {numbers} will not come: {event.reason}")
            continue
        shown += 1
        await output.write(as_json_line(_as_json(event, what)) if what.as_json else what.before + _as_text(event, what))


def _as_json(event: Any, what: Shown) -> dict[str, Any]:
    row = {name: getattr(event, name) for name in ("topic", "number", "index", "id", "publisher")}
    row |= data_as_json(event.data)
    if event.headers:
        row["headers"] = dict(event.headers)
    if what.stamps:
        row["stamp"] = dict(event.stamp)
    if what.positions:
        row["position"] = event.position
    for flag in ("out_of_order", "replayed"):
        if getattr(event, flag):
            row[flag] = True
    row["notified_at"] = time.time()
    return row


def _as_text(event: Any, what: Shown) -> str:
    place = f"{event.number}.{event.index}" if event.index else str(event.number)
    flags = "".join(f"  ({flag.replace('_', ' ')})" for flag in ("out_of_order", "replayed") if getattr(event, flag))
    after = ", ".join(f"{topic} {number}" for topic, number in sorted(event.stamp.items())) if what.stamps else ""
    stamp = f"  [after {after}]" if after else ""
    position = f"{event.position if event.position is not None else '-'}  " if what.positions else ""
    return f"{position}{event.topic} {place}{stamp}{flags}  {_readable(event.data)}"


def _readable(data: bytes) -> str:
    """Text if it is text without control characters, else how Python would write it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)[2:-1]
    return text if text.isprintable() else repr(text)[1:-1]
