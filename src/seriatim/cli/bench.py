"""`seriatim bench`: load on a running cluster. One process publishes; each subscriber is a separate process.

Every event carries the time it was published at; all processes run on this machine, so they share its clock. The rate
of notifications counts until the slowest subscriber has everything that was published on its topics.
"""

import asyncio
import contextlib
import multiprocessing
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import click
from msgspec import Struct

from seriatim.cli.common import (
    Client,
    client_options,
    json_option,
    run_until_interrupted,
    show_json,
    show_progress,
    url_option,
)
from seriatim.model import ConnectionFailed, InputError, SeriatimError, TimedOut

TIME_BYTES = 8
CHUNK_EVENTS = 1_000
CHUNKS_UNDER_WAY = 16  # enough for large batches on every topic, and few enough to say something about latency
LATENCY_SAMPLE = 16  # one of this many events is timed, so that timing does not slow down what is measured
SPAWN = multiprocessing.get_context("spawn")


class Load(Struct, frozen=True, kw_only=True):
    """The parameters of the load, sent to every process."""

    client: Client
    topics: list[str]
    ordered: bool


class Said(Struct, frozen=True, kw_only=True):
    """A message from a subscriber's process: that it has joined, that it is done, or why it failed."""

    failure: str = ""
    is_late: bool = False
    count: int = 0
    at_s: float = 0.0
    latencies_ns: list[int] = []


@click.command
@click.option("--topics", type=click.IntRange(min=1), default=10, help="Topics to publish on.")
@click.option("--subscribers", type=click.IntRange(min=1), default=4, help="Subscribers.")
@click.option("--hold", type=click.IntRange(min=1), default=5, help="Topics that each subscriber holds.")
@click.option("--size", type=click.IntRange(min=TIME_BYTES), default=64, help="Bytes of an event.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=5.0, help="How long to publish.")
@click.option("--rate", type=click.FloatRange(min=1), help="Events per second.  [default: as fast as possible]")
@click.option("--unordered", is_flag=True, help="Notify as events arrive, without ordering.")
@click.option("--prefix", default="bench", help="Topics are called PREFIX.0, PREFIX.1, …")
@client_options
@url_option
@json_option
def command(
    topics: int,
    subscribers: int,
    hold: int,
    size: int,
    seconds: float,
    rate: float | None,
    unordered: bool,
    prefix: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Load a broker: events per second, and how late they are notified.

    One process publishes on all topics in turn, as fast as the broker confirms (or at --rate). Each subscriber is a
    separate process and holds --hold topics, overlapping with its neighbours. At full speed latency is mostly the
    queue; with --rate below the maximum it is the time an event really takes. The events stay in the broker's streams.

    \b
    Examples:
      seriatim bench
      seriatim bench --topics 10 --subscribers 4 --hold 5 --seconds 10
      seriatim bench --rate 1000
      seriatim bench --unordered                  the same without ordering, to compare

    \b
    Exit code: 0 everything published was notified, 1 not everything could be published, 2 wrong options,
               3 not everything was notified in time, 130 interrupted.
    """
    if hold > topics:
        raise InputError("--hold", f"{hold} of {topics} topics", "give at most as many as there are --topics")
    names = [f"{prefix}.{index}" for index in range(topics)]
    client = Client(**options)
    loads = [
        Load(
            client=client,
            topics=[names[(index * topics // subscribers + place) % topics] for place in range(hold)],
            ordered=not unordered,
        )
        for index in range(subscribers)
    ]
    readers = [_Reader(load) for load in loads]

    async def measure() -> dict[str, Any]:
        for reader in readers:
            await reader.receive("to subscribe", client.timeout_s + 10.0)
        counts, began_s, ended_s = await _publish(client, names, size, seconds, rate)
        for reader, load in zip(readers, loads, strict=True):
            reader.expect(sum(counts[topic] for topic in load.topics))
        said = [await each.receive("to be notified of everything", client.timeout_s + seconds) for each in readers]
        published, notified = sum(counts.values()), sum(each.count for each in said)
        last_s = max(began_s, *(each.at_s for each in said))
        latencies = sorted(latency for each in said for latency in each.latencies_ns)
        return {  # rates are events per second, latencies milliseconds
            "published": published,
            "published_per_s": published / (ended_s - began_s),
            "notified": notified,
            "notified_per_s": notified / max(last_s - began_s, 1e-9),
            "latency_p50_ms": _percentile_ms(latencies, 0.50),
            "latency_p99_ms": _percentile_ms(latencies, 0.99),
        }

    try:
        found = run_until_interrupted(measure)
    finally:
        for reader in readers:
            reader.end()
    if as_json:
        shape = {"topics": topics, "subscribers": subscribers, "hold": hold, "size": size}
        show_json({**found, **shape, "ordered": not unordered, "seconds": seconds})
        return
    order = "unordered" if unordered else "in order"
    click.echo(f"published  {found['published']:>12,} events  {found['published_per_s']:>12,.0f} per second")
    click.echo(f"notified   {found['notified']:>12,} events  {found['notified_per_s']:>12,.0f} per second, {order}")
    click.echo(f"latency    p50 {found['latency_p50_ms']:,.1f} ms, p99 {found['latency_p99_ms']:,.1f} ms")


def _percentile_ms(sorted_ns: Sequence[int], share: float) -> float:
    return sorted_ns[min(len(sorted_ns) - 1, int(len(sorted_ns) * share))] / 1e6 if sorted_ns else 0.0


async def _publish(
    client: Client, names: Sequence[str], size: int, seconds: float, rate: float | None
) -> tuple[dict[str, int], float, float]:
    """Publish for this time. Returns the number of events on each topic, the start and the end."""
    counts = dict.fromkeys(names, 1)
    async with client.connect() as bus:
        # The broker makes a topic's stream when the topic is first used: not what is measured here.
        await bus.publish_many([(name, time.time_ns().to_bytes(TIME_BYTES, "big")) for name in names])
        under_way: set[asyncio.Task[Any]] = set()
        began_s = shown_s = time.monotonic()
        sent = 0
        while (elapsed_s := time.monotonic() - began_s) < seconds:
            chunk = CHUNK_EVENTS if rate is None else min(CHUNK_EVENTS, int(elapsed_s * rate) + 1 - sent)
            if chunk <= 0:
                await asyncio.sleep(1 / rate if rate is not None else 0)
                continue
            data = time.time_ns().to_bytes(TIME_BYTES, "big").ljust(size, b".")
            events = [(names[(sent + index) % len(names)], data) for index in range(chunk)]
            sent += chunk
            under_way.add(asyncio.create_task(bus.publish_many(events)))
            if len(under_way) >= CHUNKS_UNDER_WAY or rate is not None:
                wait_s = None if len(under_way) >= CHUNKS_UNDER_WAY else 0
                done, under_way = await asyncio.wait(under_way, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                _count(done, counts)
            if time.monotonic() - shown_s > 0.5:
                shown_s = time.monotonic()
                show_progress(f"{elapsed_s:.0f} of {seconds:.0f} s: {sum(counts.values()):,} published")
        if under_way:
            done, _ = await asyncio.wait(under_way)
            _count(done, counts)
        ended_s = time.monotonic()
        show_progress("")
    return counts, began_s, ended_s


def _count(done: "set[asyncio.Task[Any]]", counts: dict[str, int]) -> None:
    for task in done:
        for receipt in task.result():
            counts[receipt.topic] += 1


# ── subscribers ───────────────────────────────────────────────────────────────────────────────────────────────────


class _Reader:
    """A subscriber's process, seen from here."""

    def __init__(self, load: Load) -> None:
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_subscribe, args=(theirs, load), daemon=True)
        self._process.start()
        theirs.close()

    def expect(self, count: int) -> None:
        """Tell it how many events there were on its topics."""
        self._pipe.send(count)

    async def receive(self, what: str, timeout_s: float) -> Said:
        """The next message of the process. Raises the error with which it failed."""
        if not await asyncio.to_thread(self._pipe.poll, timeout_s):
            raise TimedOut(f"waited {timeout_s:g} s for a subscriber {what}")
        try:
            said: Said = self._pipe.recv()
        except EOFError:
            raise ConnectionFailed("a subscriber's process ended; what it wrote above says why") from None
        if said.failure:
            raise TimedOut(said.failure) if said.is_late else ConnectionFailed(said.failure)
        return said

    def end(self) -> None:
        """Close our end of the pipe; then the process ends by itself."""
        self._pipe.close()
        self._process.join(5.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _subscribe(pipe: "Connection[Any, Any]", load: Load) -> None:
    """The whole life of a subscriber's process."""
    from seriatim.runtime.loop import run

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process decides
    try:
        run(_read(pipe, load))
    except SeriatimError as error:
        _say(pipe, Said(failure=str(error), is_late=isinstance(error, TimedOut)))


def _say(pipe: "Connection[Any, Any]", said: Said) -> None:
    with contextlib.suppress(BrokenPipeError):  # the parent process has ended
        pipe.send(said)


async def _read(pipe: "Connection[Any, Any]", load: Load) -> None:
    loop = asyncio.get_running_loop()
    expected: asyncio.Future[int] = loop.create_future()
    deserted = asyncio.Event()
    latencies: list[int] = []
    count = 0

    def told() -> None:
        try:
            expected.set_result(pipe.recv())
        except EOFError:  # the parent process has ended
            loop.remove_reader(pipe.fileno())
            deserted.set()

    async with load.client.connect() as bus, bus.subscribe(*load.topics, ordered=load.ordered) as events:
        _say(pipe, Said())
        loop.add_reader(pipe.fileno(), told)
        batches = aiter(events.batches(max=CHUNK_EVENTS))
        coming = asyncio.ensure_future(anext(batches))
        end = asyncio.ensure_future(deserted.wait())
        last_s = time.monotonic()
        while not end.done() and not (expected.done() and count >= expected.result()):
            waits: set[asyncio.Future[Any]] = {coming, end} if expected.done() else {coming, end, expected}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                continue
            now_ns, last_s = time.time_ns(), time.monotonic()
            batch = coming.result()
            for event in batch[::LATENCY_SAMPLE]:
                latencies.append(now_ns - int.from_bytes(event.data[:TIME_BYTES], "big"))
            count += len(batch)
            coming = asyncio.ensure_future(anext(batches))
        loop.remove_reader(pipe.fileno())
        coming.cancel()
        end.cancel()
        _say(pipe, Said(count=count, at_s=last_s, latencies_ns=latencies))
