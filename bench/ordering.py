"""Replays by positions and by stamps: how fast, and how that grows: `python bench/ordering.py [--spark]`.

The first table is the merger of stamps alone, in one process and in processor time, so that a busy machine does not
matter: stamps as a sequencer writes them, of several shapes, fed by time as a Spark task feeds them. `remembered` is
the most ranges whose ordinals it kept at once, `held` the most that waited.

- `even`: every log is stamped as often as every other;
- `skewed`: log k gets a share of 1/k of the stamps, so most logs are quiet most of the time;
- `late`: the stamps of one log in ten come late by a thousand places, so the others wait for it.

`--spark` measures whole replays of one archive on local[2], by the order log and by stamps in turn: events, stamps and
order log are Parquet files, 20 events to a range; found, placed and sorted, and written nowhere. `ranges s` is the time
until ranges have their keys: checking the order log, or merging stamps. Medians of `--rounds` rounds in turn.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from itertools import accumulate
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from seriatim.pipeline.replay import Merger

SEED = 1
PROMISE_EVERY = 1_000
LATE_BY = 1_000
EVENTS_PER_RANGE = 20


def stamps(
    ranges: int, logs: int, entries: int, shape: str, random: Random
) -> Iterator[tuple[str, int, int, dict[str, int], int]]:
    """(log, first, last, entries, received_us), by time. Entries are differences: they name what rose."""
    names = [f"log-{index:04d}" for index in range(logs)]
    weights = [1 / (index + 1) if shape == "skewed" else 1.0 for index in range(logs)]
    issued = dict.fromkeys(names, 0)
    recent: list[str] = []
    for at, name in enumerate(random.choices(names, weights, k=ranges)):
        first = issued[name] + 1
        last = issued[name] + random.randint(1, 2 * EVENTS_PER_RANGE)
        named = {other: issued[other] for other in recent[-entries:] if other != name}
        issued[name] = last
        recent.append(name)
        del recent[: -2 * entries or None]
        yield name, first, last, named, 10 * at


def late(
    rows: Iterator[tuple[str, int, int, dict[str, int], int]],
) -> Iterator[tuple[str, int, int, dict[str, int], int]]:
    """The same, but one log in ten is read late."""
    waiting: list[tuple[int, tuple[str, int, int, dict[str, int], int]]] = []
    for at, row in enumerate(rows):
        if row[0].endswith("0"):
            waiting.append((at + LATE_BY, row))
        else:
            yield row
        while waiting and waiting[0][0] <= at:
            yield waiting.pop(0)[1]
    yield from (row for _, row in waiting)


def measure(ranges: int, logs: int, entries: int, shape: str) -> tuple[float, int, int]:
    """Ranges per second of processor time; the most remembered and the most held."""
    rows = stamps(ranges, logs, entries, shape, Random(SEED))
    fed = list(late(rows) if shape == "late" else rows)
    merger = Merger({row[0] for row in fed})
    placed = remembered = held = 0
    gc.collect()
    start = time.process_time()
    spent = 0.0
    for at, row in enumerate(fed):
        merger.feed(*row)
        if at % PROMISE_EVERY == 0:
            looked = time.process_time()
            lanes = merger.lanes.values()
            remembered = max(remembered, sum(len(lane.ordinals) for lane in lanes))
            held = max(held, sum(len(lane.queue) for lane in lanes))
            spent += time.process_time() - looked
            if shape != "late":
                merger.promise(row[4])
            merger.forget()
            placed += len(merger.take())
    placed += len(merger.take())
    elapsed = time.process_time() - start - spent
    assert placed == ranges, f"{ranges - placed} ranges have no place"
    return ranges / elapsed, remembered, held


def merger_table(ranges_max: int) -> None:
    print(f"{'shape':8} {'ranges':>10} {'logs':>6} {'entries':>8} {'ranges/s':>10} {'remembered':>11} {'held':>8}")
    for shape in ("even", "skewed", "late"):
        for ranges in (ranges_max // 100, ranges_max // 10, ranges_max):
            rate, remembered, held = measure(ranges, 64, 6, shape)
            print(f"{shape:8} {ranges:10,} {64:6,} {6:8} {rate:10,.0f} {remembered:11,} {held:8,}", flush=True)
    for logs, entries in ((1_000, 6), (64, 50)):
        rate, remembered, held = measure(ranges_max // 10, logs, entries, "even")
        print(f"{'even':8} {ranges_max // 10:10,} {logs:6,} {entries:8} {rate:10,.0f} {remembered:11,} {held:8,}")


def spark_table(ranges_max: int, rounds: int) -> None:
    """Wall time: what somebody waits for."""
    from pyspark.sql import functions as F

    from seriatim.pipeline.replay import in_sequence, would_have_seen
    from seriatim.pipeline.schemas import EVENTS
    from seriatim.pipeline.spark.session import SparkOptions, spark_session

    print(f"\n{'ranges':>10} {'events':>12} {'by':10} {'ranges s':>9} {'all s':>7} {'events/s':>10}")
    with spark_session(SparkOptions(master="local[2]")) as spark, TemporaryDirectory() as folder:
        for ranges in (ranges_max // 10, ranges_max):
            tables = {name: spark.read.parquet(uri) for name, uri in written(spark, ranges, folder).items()}
            numbers = tables["stamps"].select("log", F.explode(F.sequence("first", "last")).alias("number"))
            constant = {"index": 0, "received_at": 1e9, "event_id": "e", "data": "a payload of some bytes"}
            made = {"topic": F.col("log"), "log": F.col("log"), "number": F.col("number")}
            columns = [
                made.get(of.name, F.lit(constant.get(of.name))).cast(of.dataType).alias(of.name) for of in EVENTS
            ]
            numbers.select(*columns).write.parquet(f"{folder}/events-{ranges}")
            events = spark.read.parquet(f"{folder}/events-{ranges}")
            count = events.count()
            topics = [row[0] for row in events.select("topic").distinct().collect()]
            spent: dict[str, list[tuple[float, float]]] = {"order": [], "stamps": []}
            for table in ("order", "stamps") * rounds:
                start = time.monotonic()
                order, stamped = (tables[name] if name == table else None for name in ("order", "stamps"))
                replay = would_have_seen(events, topics, order=order, stamps=stamped)
                if replay.places is not None:
                    replay.places.count()
                placed_s = time.monotonic() - start
                in_sequence(replay.events).write.format("noop").mode("overwrite").save()
                spent[table].append((placed_s, time.monotonic() - start))
                if replay.places is not None:
                    replay.places.unpersist()
            for table, taken in spent.items():
                placed_s, all_s = (median(each[at] for each in taken) for at in (0, 1))
                by = "positions" if table == "order" else table
                print(
                    f"{ranges:10,} {count:12,} {by:10} {placed_s:9.1f} {all_s:7.1f} {count / all_s:10,.0f}", flush=True
                )
            ratio = median(by_stamps[1] / by_order[1] for by_order, by_stamps in zip(*spent.values(), strict=True))
            print(f"{'':10} {'':12} positions are {ratio:.2f} times as fast")


def written(spark: Any, ranges: int, folder: str) -> dict[str, str]:
    """Stamps of so many ranges and their order log, as files."""
    import pandas as pd

    from seriatim.pipeline.schemas import PLACED, STAMPS

    rows = list(stamps(ranges, 64, 6, "even", Random(SEED)))
    common: dict[str, object] = {name: [row[at] for row in rows] for at, name in enumerate(("log", "first", "last"))}
    common["received_at"] = [row[4] / 1000 for row in rows]
    ends = list(accumulate(row[2] - row[1] + 1 for row in rows))
    order = common | {"position": [end - row[2] + row[1] for end, row in zip(ends, rows, strict=True)], "epoch": 1}
    found = {
        "stamps": (common | {"entries": [row[3] for row in rows], "node": "root"}, STAMPS),
        "order": (order, PLACED),
    }
    uris = {name: f"{folder}/{name}-{ranges}" for name in found}
    for name, (columns, schema) in found.items():
        spark.createDataFrame(pd.DataFrame(columns)[schema.names], schema).write.parquet(uris[name])
    return uris


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranges", type=int, default=1_000_000, help="of the largest measurement")
    parser.add_argument("--spark", action="store_true", help="measure whole replays on Spark instead")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.spark:
        spark_table(arguments.ranges, arguments.rounds)
    else:
        merger_table(arguments.ranges)


if __name__ == "__main__":
    main()
