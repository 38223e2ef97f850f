"""How fast a log is audited while it is written: `python -m bench.audit_stream [--rows N] [--batches N] [--window N]`.

Writes ordered deliveries as Parquet files, one for each batch, and follows them: first the window alone (one core of
plain Python and numpy), then the whole query with Spark, checkpoints and state: from the start of the query, and, as
what it costs to go on, over the later half of the batches. The last batch has one violation, which must be found.
Processor time counts this process and the JVM.
"""

import argparse
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seriatim.pipeline.follow import Window, WindowOptions

TOPICS = 50
HELD = 10  # topics of a subscriber


def deliveries(batch: int, rows: int, subscribers: int, seed: int, is_broken: bool) -> pa.Table:
    """About this many rows: events of all topics in one order, each notified to every holder of its topic."""
    chance = np.random.default_rng(seed)
    held = np.array([chance.permutation(TOPICS) < HELD for _ in range(subscribers)])
    count = rows * TOPICS // (HELD * subscribers)
    topics = np.random.default_rng((seed, batch)).integers(0, TOPICS, count)
    who, event = np.nonzero(held[:, topics])
    first = np.flatnonzero(np.append(True, who[1:] != who[:-1]))
    position = np.arange(len(who)) - np.repeat(first, np.diff(np.append(first, len(who))))
    if is_broken:  # the last subscriber sees two neighbouring events of one topic swapped
        same = np.flatnonzero((topics[event[1:]] == topics[event[:-1]]) & (who[1:] == who[:-1]))[-1]
        event[[same, same + 1]] = event[[same + 1, same]]
    ids = np.char.add(f"{batch:05}-", np.arange(count).astype(str)).astype(object)
    names = np.char.add("subscriber-", np.arange(subscribers).astype(str)).astype(object)
    kinds = np.char.add("topic-", np.arange(TOPICS).astype(str)).astype(object)
    return pa.table(
        {
            "subscriber": pa.array(names[who], pa.string()),
            "position": pa.array(position.astype(np.int64)),
            "event_id": pa.array(ids[event], pa.string()),
            "topic": pa.array(kinds[topics[event]], pa.string()),
            "out_of_order": pa.array(np.zeros(len(who), dtype=bool)),
        }
    )


def numbered(tables: list[pa.Table]) -> list[pa.Table]:
    """Positions go on from batch to batch."""
    last: dict[str, int] = {}
    numbered = []
    for table in tables:
        names = table["subscriber"].combine_chunks().dictionary_encode()
        start = np.array([last.get(name, 0) for name in names.dictionary.to_pylist()])
        position = table["position"].to_numpy() + start[names.indices.to_numpy()]
        for code, name in enumerate(names.dictionary.to_pylist()):
            last[name] = int(position[names.indices.to_numpy() == code].max()) + 1
        column = table.schema.get_field_index("position")
        numbered.append(table.set_column(column, "position", pa.array(position)))
    return numbered


def window_alone(tables: list[pa.Table], options: WindowOptions) -> None:
    window = Window(options)
    rows = sum(map(len, tables))
    began, used = time.perf_counter(), time.process_time()
    found = [len(window.add(table, batch).findings) for batch, table in enumerate(tables)]
    took, used = time.perf_counter() - began, time.process_time() - used
    assert found == [0] * (len(tables) - 1) + [1], found
    print(
        f"window alone    {rows:>12,} rows  {took:7.1f} s  {used:7.1f} s of a core  {rows / used:>12,.0f} rows/s/core"
    )


def with_spark(tables: list[pa.Table], options: WindowOptions, folder: Path) -> None:
    from seriatim.pipeline.follow import Follower, FollowOptions, follow_deliveries
    from seriatim.pipeline.spark.session import SparkOptions, spark_session

    log = folder / "log"
    log.mkdir()
    for batch, table in enumerate(tables):
        pq.write_table(table, log / f"{batch:05}.parquet")
    rows = sum(map(len, tables))
    with spark_session(SparkOptions(shuffle_partitions=2), "bench") as spark:
        spark.range(1).collect()
        found: list[int] = []
        ended: list[float] = []  # processor time, after each batch

        def told(done) -> None:  # type: ignore[no-untyped-def]  # BatchDone
            found.append(len(done.judged.findings))
            ended.append(_processor_s())

        follow = FollowOptions(checkpoint=str(folder / "state"), is_once=True, window=options)
        follower = Follower(spark, follow, told)
        used, began = _processor_s(), time.perf_counter()
        query = follower.start(follow_deliveries(spark, str(log), files_max=1))
        follower.wait(query)
        took, used = time.perf_counter() - began, _processor_s() - used
        assert found == [0] * (len(tables) - 1) + [1], found
        report = follower.report()
        assert report.deliveries == rows
    print(
        f"with Spark      {rows:>12,} rows  {took:7.1f} s  {used:7.1f} s of a core  {rows / used:>12,.0f} rows/s/core"
    )
    # What a JVM compiles, it compiles in the first batches; what stays is what the later ones cost.
    half = len(tables) // 2
    if half:
        rows, used = sum(map(len, tables[half:])), ended[-1] - ended[half - 1]
        print(f"of it, the later half {rows:>6,} rows  {used:17.1f} s of a core  {rows / used:>12,.0f} rows/s/core")
        each = [f"{later - before:.1f}" for before, later in pairwise(ended)]
        print(f"seconds of a core for each batch after the first: {', '.join(each)}")


def _processor_s() -> float:
    """Of this process, and of its children (the JVM and its workers) from /proc."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = time.process_time()
    parents = {os.getpid()}
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # has ended meanwhile
            continue
        stats.append((int(path.parent.name), int(fields[1]), sum(map(int, fields[11:15]))))
    for _ in range(4):  # generations
        parents |= {pid for pid, parent, _ in stats if parent in parents}
    return total + sum(used for pid, _, used in stats if pid in parents - {os.getpid()}) / ticks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="of a batch")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--subscribers", type=int, default=100)
    parser.add_argument("--window", type=int, default=1_000_000)
    parser.add_argument("--only-window", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    tables = numbered(
        [
            deliveries(batch, words.rows, words.subscribers, words.seed, batch == words.batches - 1)
            for batch in range(words.batches)
        ]
    )
    options = WindowOptions(rows_max=words.window)
    window_alone(tables, options)
    if not words.only_window:
        with tempfile.TemporaryDirectory(prefix="seriatim-bench-") as name:
            with_spark(tables, options, Path(name))


if __name__ == "__main__":
    main()
