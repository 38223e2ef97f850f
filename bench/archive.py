"""Archiving from JetStream: events per second and per core, against a plain client that reads the same streams.

A fresh server is filled with streams of packed events, as Seriatim's client writes them. In one run, by turns:

    plain         nats-py fetches every message of every stream and does nothing with it
    reader        the reader of ranges alone (brokers/nats/bulk/ranges.py), one process
    rows          the same, made into Arrow columns of events: what one task of the data source does
    archive       the whole job: Spark, streaming query, Parquet, records; without the start of Spark

Rates are events per second of the clock; "per core" divides by the processor seconds of the process instead (of the
job: Python and Java together). The server's own work is not counted, but shares the machine.

Run: python -m bench.archive [--events 2000000] [--pack 256] [--size 64] [--streams 8] [--cores 2] [--rounds 3]
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import nats
from nats.js.api import AckPolicy, ConsumerConfig

from seriatim.brokers.bulk import Stream
from seriatim.brokers.naming import Names
from seriatim.brokers.nats.server import NatsServer
from seriatim.brokers.packs import BATCH_HEADER, BATCH_VERSION, pack
from seriatim.brokers.urls import bulk_reader

CLUSTER = "bench"
FETCH = 500
UNDER_WAY = 256


class Measured(NamedTuple):
    """One round of one row."""

    events: int
    elapsed_s: float
    processor_s: float

    def __str__(self) -> str:
        return f"{self.events / self.elapsed_s:>12,.0f} /s {self.events / self.processor_s:>12,.0f} /s per core"


async def fill(url: str, streams: int, messages: int, per_message: int, size: int) -> None:
    """Publish this many messages of this many events to every stream."""
    client = await nats.connect(url)
    names = Names(CLUSTER)
    data = [b"%08d" % index + b"." * (size - 8) for index in range(per_message)]
    for place in range(streams):
        topic = f"t{place}"
        stream = names.log_stream(topic)
        config = {"name": stream, "subjects": [topic], "storage": "file", "allow_direct": True}
        await client.request(f"$JS.API.STREAM.CREATE.{stream}", json.dumps(config).encode(), timeout=30)
        waiting: list[Any] = []
        for number in range(messages):
            first = number * per_message + 1
            headers = {"Nats-Msg-Id": f"p~{place}-{first}", "Seriatim-Publisher": f"p~{place}"}
            body = data[0]
            if per_message > 1:
                headers[BATCH_HEADER] = BATCH_VERSION
                body = pack(first, data)
            waiting.append(asyncio.ensure_future(client.request(topic, body, headers=headers, timeout=60)))
            if len(waiting) == UNDER_WAY:
                await asyncio.gather(*waiting)
                waiting = []
        await asyncio.gather(*waiting)
    await client.close()


# ── the rows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def plain(url: str, streams: list[Stream], events: int) -> None:
    """The plain client: a pull consumer that fetches messages and drops them."""

    async def read() -> None:
        client = await nats.connect(url)
        jetstream = client.jetstream(timeout=60)
        unacknowledged = ConsumerConfig(ack_policy=AckPolicy.NONE)
        for stream in streams:
            consumer = await jetstream.pull_subscribe("", stream=stream.name, config=unacknowledged)
            left = stream.next - 1
            while left:
                left -= len(await consumer.fetch(min(FETCH, left), timeout=60))
            await consumer.unsubscribe()
        await client.close()

    asyncio.run(read())


def reader(url: str, streams: list[Stream], events: int) -> None:
    broker = bulk_reader(url, cluster=CLUSTER)
    for stream in streams:
        found = sum(len(part.positions) for part in broker.read(stream, 1, stream.next - 1))
        assert found == stream.next - 1, "every message once"


def rows(url: str, streams: list[Stream], events: int) -> None:
    from seriatim.pipeline.source.options import read_options
    from seriatim.pipeline.source.planning import Range
    from seriatim.pipeline.source.rows import Converter

    options = read_options({"url": url, "cluster": CLUSTER, "gaps": "rows"})
    converter = Converter(options, ())
    found = 0
    for stream in streams:
        whole = Range(stream, 1, stream.next - 1)
        for part in options.reader.read(stream, whole.first, whole.last):
            found += sum(batch.num_rows for batch in converter.convert(part, whole))
    assert found == events, f"{found} rows of {events} events"


def archive_job(spark: Any, url: str, folder: str, events: int) -> None:
    from seriatim.pipeline.archive import ArchiveOptions, archive, records_of

    out = f"{folder}/archive"
    archive(
        spark,
        ArchiveOptions(
            url=url, cluster=CLUSTER, out=out, checkpoint=f"{folder}/checkpoint", tables=("events",), max_messages=10**9
        ),
    )
    found = sum(record.rows for record in records_of(spark, out, "events"))
    assert found == events, f"{found} rows of {events} events"


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(work: Callable[[], None], events: int, processor_s: Callable[[], float]) -> Measured:
    began, used = time.perf_counter(), processor_s()
    work()
    return Measured(events, time.perf_counter() - began, processor_s() - used)


def family_seconds() -> float:
    """Processor seconds of this process and all below it: Java, and Python's workers, living or waited for."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    ticks = os.sysconf("SC_CLK_TCK")
    parents: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            parents[int(entry.name)] = (int(fields[1]), sum(int(each) for each in fields[11:15]) / ticks)

    def below(pid: int) -> float:
        return sum(seconds + below(child) for child, (parent, seconds) in parents.items() if parent == pid)

    return total + below(os.getpid())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--pack", type=int, default=256, help="events per message; 1: plain messages")
    parser.add_argument("--size", type=int, default=64, help="bytes per event")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-spark", action="store_true")
    arguments = parser.parse_args()
    messages = max(1, arguments.events // arguments.pack // arguments.streams)
    events = messages * arguments.streams * arguments.pack
    with tempfile.TemporaryDirectory(prefix="bench-archive-") as folder, NatsServer(Path(folder) / "nats") as server:
        asyncio.run(fill(server.url, arguments.streams, messages, arguments.pack, max(8, arguments.size)))
        streams = bulk_reader(server.url, cluster=CLUSTER).catalogue().of("log")
        print(f"{events:,} events of {arguments.size} bytes, {arguments.pack} per message, in {len(streams)} streams")
        best: dict[str, Measured] = {}

        def run(name: str, work: Callable[[], None], processor_s: Callable[[], float]) -> None:
            found = measure(work, events, processor_s)
            if name not in best or found.elapsed_s < best[name].elapsed_s:
                best[name] = found

        spark = None
        if not arguments.without_spark:
            from seriatim.pipeline.spark.session import SparkOptions, open_session

            spark = open_session(SparkOptions(master=f"local[{arguments.cores}]"), "bench")
        for number in range(arguments.rounds):
            for each in (plain, reader, rows):
                run(each.__name__, partial(each, server.url, streams, events), time.process_time)
            if spark is not None:
                place_ = f"{folder}/round-{number}"
                run("archive", partial(archive_job, spark, server.url, place_, events), family_seconds)
        if spark is not None:
            spark.stop()
        for name, found in best.items():
            print(f"{name:<10}{found}")


if __name__ == "__main__":
    main()
