"""Order keys: how many ranges per second, and how that grows: `python bench/ordering.py [--ranges 1000000] [--spark]`.

The first table is the merger alone, in one process and in processor time, so that a busy machine does not matter:
stamps as a sequencer writes them, of several shapes, fed by time as a Spark task feeds them. `remembered` is the most
ranges whose ordinals it kept at once, `held` the most that waited.

- `even`: every log is stamped as often as every other;
- `skewed`: log k gets a share of 1/k of the stamps, so most logs are quiet most of the time;
- `late`: the stamps of one log in ten come late by a thousand places, so the others wait for it.

`--spark` measures the whole job on local[2]: stamps → places → events with keys, sorted and counted.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from random import Random

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


def spark_table(ranges_max: int) -> None:
    """Wall time: what somebody waits for."""
    import pandas as pd
    from pyspark.sql import functions as F

    from seriatim.pipeline.replay import in_order, placed, places, with_order_keys
    from seriatim.pipeline.schemas import EVENTS, STAMPS
    from seriatim.pipeline.spark.session import SparkOptions, spark_session

    print(f"\n{'ranges':>10} {'events':>12} {'places s':>9} {'keys and sort s':>16} {'events/s':>10}")
    with spark_session(SparkOptions(master="local[2]")) as spark:
        for ranges in (ranges_max // 100, ranges_max // 10, ranges_max):
            rows = list(stamps(ranges, 64, 6, "even", Random(SEED)))
            table = pd.DataFrame(
                {
                    "log": [row[0] for row in rows],
                    "first": [row[1] for row in rows],
                    "last": [row[2] for row in rows],
                    "entries": [row[3] for row in rows],
                    "node": "root",
                    "received_at": [row[4] / 1000 for row in rows],
                }
            )
            stamped = spark.createDataFrame(table, STAMPS).persist()
            stamped.count()
            start = time.monotonic()
            found = places(stamped).persist()
            count = placed(found).count()
            placed_s = time.monotonic() - start
            assert count == ranges
            numbers = stamped.select("log", F.explode(F.sequence("first", "last")).alias("number"))
            constant = {
                "index": 0,
                "received_at": 0.0,
                "topic": "t",
                "event_id": "e",
                "data": "a payload of some bytes",
            }
            events = numbers.select(
                *[
                    F.col(each.name)
                    if each.name in numbers.columns
                    else F.lit(constant.get(each.name)).cast(each.dataType).alias(each.name)
                    for each in EVENTS
                ]
            )
            start = time.monotonic()
            in_order(with_order_keys(events, found)).write.format("noop").mode("overwrite").save()
            keyed_s = time.monotonic() - start
            total = events.count()
            print(f"{ranges:10,} {total:12,} {placed_s:9.1f} {keyed_s:16.1f} {total / (placed_s + keyed_s):10,.0f}")
            found.unpersist()
            stamped.unpersist()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranges", type=int, default=1_000_000, help="of the largest measurement")
    parser.add_argument("--spark", action="store_true", help="measure the Spark job too")
    arguments = parser.parse_args()
    merger_table(arguments.ranges)
    if arguments.spark:
        spark_table(arguments.ranges)


if __name__ == "__main__":
    main()
