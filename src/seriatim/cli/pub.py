"""`seriatim pub`: publish events from the command line, a file or a pipe."""

import asyncio
import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from seriatim.cli.common import (
    Client,
    client_options,
    json_option,
    log_option,
    pairs_in,
    run_until_interrupted,
    show_json,
    url_option,
)
from seriatim.model import InputError

if TYPE_CHECKING:
    from seriatim import Bus

WINDOW = 16_384  # events under way at once: more gain nothing, fewer leave the batches small
CHUNK_BYTES = 64 * 1024
CHUNKS_AHEAD = 16
NAMES = ("n", "time", "time_ns")  # what {{…}} in DATA may name, so that repeated events differ

_PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@click.command
@click.argument("topic")
@click.argument("data", required=False)
@click.option("--count", type=click.IntRange(min=1), default=1, help="Publish this many events.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most this many per second.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Each line of the input is an event.")
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    metavar="NAME=VALUE",
    help="An attribute that filters see: a value as in a filter (101.5), or plain text; may be given again.",
)
@click.option("--header", "headers", multiple=True, metavar="KEY=VALUE", help="A header; may be given again.")
@click.option(
    "--confirm",
    type=click.Choice(["placed", "stored"]),
    help="Wait until each event has its place in the order (default of a tree), or only until the broker has it.",
)
@log_option("Log publications here, for audit; `broker:` keeps the log on the broker, for archive.")
@client_options
@url_option
@json_option
def command(
    topic: str,
    data: str | None,
    count: int,
    rate: float | None,
    from_stdin: bool,
    attributes: tuple[str, ...],
    headers: tuple[str, ...],
    confirm: Literal["placed", "stored"] | None,
    folder: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Publish events.

    DATA is the event's data; with --count it is published again and again. Places in double braces are filled in:
    {{n}}: 1, 2, 3, … for each event, {{time}}: the time, ISO 8601 in UTC, {{time_ns}}: the time in nanoseconds since
    1970. With --stdin each line is an event.

    \b
    Examples:
      seriatim pub orders "order 1"
      seriatim pub prices "price {{n}} at {{time}}" --count 10 --rate 2
      seriatim pub orders "order 2" --header customer=7
      seriatim pub prices "ACME" --attribute price=101.5 --url overlay://127.0.0.1:7600
      tail -f orders.log | seriatim pub orders --stdin

    \b
    Exit code: 0 everything is on the broker, 1 not everything is, 2 wrong options, 3 the time is over and the
               last events may or may not be on the broker, 130 interrupted.
    """
    if (data is None) != from_stdin:
        problem = "either DATA or --stdin is needed, and not both"
        raise InputError("DATA", problem, 'for example: seriatim pub t "hello"')
    fill = template(data) if data is not None else None
    events: AsyncIterator[bytes] = _lines() if fill is None else _repeat(fill(each) for each in range(1, count + 1))
    parsed = {**dict(pairs_in("--header", headers, "a header", "key=value")), **_attributes(attributes)}
    client = Client(**options)

    async def publish() -> _Summary:
        async with client.connect(publication_log=folder, join=True, confirm=confirm) as bus:
            return await _publish(bus, topic, _paced(events, rate), parsed, as_json)

    summary = run_until_interrupted(publish)
    if not as_json:
        click.echo(summary.sentence(topic))


@dataclass
class _Summary:
    """The counts of what was published so far."""

    count: int = 0
    first: int = 0
    last: int = 0
    started_s: float = field(default_factory=time.monotonic)

    def add(self, number: int) -> None:
        self.count += 1
        self.first = self.first or number
        self.last = number

    def sentence(self, topic: str) -> str:
        if self.count == 0:
            return f"nothing to publish on {topic}"
        if self.count == 1:
            return f"published 1 event on {topic}: number {self.first}"
        elapsed_s = time.monotonic() - self.started_s
        return (
            f"published {self.count:,} events on {topic}: numbers {self.first} to {self.last}, "
            f"{self.count / elapsed_s:,.0f} per second"
        )


async def _publish(
    bus: "Bus", topic: str, events: AsyncIterator[bytes], headers: dict[str, str], as_json: bool
) -> _Summary:
    """Publish as many at once as the window allows, and report them in order as soon as they are confirmed."""
    summary = _Summary()
    under_way: asyncio.Queue[asyncio.Future[Any] | None] = asyncio.Queue(WINDOW)

    async def publish() -> None:
        async for data in events:
            await bus.ready()
            await under_way.put(bus.publish_nowait(topic, data, headers=headers or None))
        await under_way.put(None)

    async def tell() -> None:
        while (receipt := await under_way.get()) is not None:
            published = await receipt
            summary.add(published.number)
            if as_json:
                show_json({name: getattr(published, name) for name in ("topic", "number", "index", "id")})

    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(publish())
            both.create_task(tell())
    except BaseExceptionGroup as failed:
        while not under_way.empty():  # these fail for the same reason, and one line about it is enough
            if (receipt := under_way.get_nowait()) is not None:
                receipt.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise failed.exceptions[0] from None
    return summary


async def _repeat(events: Iterable[bytes]) -> AsyncIterator[bytes]:
    for data in events:
        yield data


async def _lines() -> AsyncIterator[bytes]:
    """Lines of the input, without their ends, as they come.

    Read by a thread of its own that nobody waits for: it may be in the middle of waiting when the program ends.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_AHEAD)

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the program has ended meanwhile
            while chunk := os.read(sys.stdin.fileno(), CHUNK_BYTES):
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            asyncio.run_coroutine_threadsafe(chunks.put(b""), loop).result()

    threading.Thread(target=read, daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")


async def _paced(events: AsyncIterator[bytes], rate: float | None) -> AsyncIterator[bytes]:
    started_s = time.monotonic()
    count = 0
    async for data in events:
        if rate is not None:
            await asyncio.sleep(max(0.0, started_s + count / rate - time.monotonic()))
        yield data
        count += 1


def _attributes(texts: Iterable[str]) -> dict[str, str]:
    """A value as filters write it; anything else is a string, so region=EU need not be quoted twice in a shell."""
    from seriatim.filters import FilterError, Value, headers_of, parse_value

    attributes: dict[str, Value] = {}
    for name, value in pairs_in("--attribute", texts, "an attribute", "name=value"):
        try:
            attributes[name] = parse_value(value)
        except FilterError:
            attributes[name] = value
    return headers_of(attributes)


def template(text: str) -> Callable[[int], bytes]:
    """A function from an event's count to its data. Unknown names in braces are an error, before anything is sent."""
    for name in _PLACE.findall(text):
        if name not in NAMES:
            known = ", ".join(f"{{{{{each}}}}}" for each in NAMES)
            raise InputError("DATA", f"{{{{{name}}}}} is unknown", f"use {known}")
    if not _PLACE.search(text):
        data = text.encode()
        return lambda count: data

    def fill(count: int) -> bytes:
        now_ns = time.time_ns()
        now = datetime.fromtimestamp(now_ns / 1e9, UTC).isoformat()
        values = dict(zip(NAMES, (str(count), now, str(now_ns)), strict=True))
        return _PLACE.sub(lambda match: values[match[1]], text).encode()

    return fill
