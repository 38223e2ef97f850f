"""How long a plan takes, how much memory, and how that grows: 10 million subscriptions over 1,000 and 100,000 topics.

Each size runs in a process of its own, so that its memory is its own: the driver's process, the JVM and the Python
workers together, sampled twice a second. The time is that of the whole job, Spark's start-up left out: reading the
table, overlaps, graph, homes, lower bound, advice, files. `yardstick`: DuckDB counting the coupled pairs alone, on the
same file and the same processors.

Run: python -m bench.plan [--rows 1250000 2500000 5000000 10000000] [--topics 1000 100000] [--memory 4g]
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HELD = 10
SITES = 4
SAMPLE_S = 0.5
TIMEOUT_S = 3_600.0


def measure(folder: Path, rows: int, topics: int, memory: str, popularity: str, everybody: int) -> dict[str, Any]:
    """Make the workload (not timed), then the plan."""
    from seriatim.pipeline import plan as planning
    from seriatim.pipeline import workload as made
    from seriatim.pipeline.spark.session import SparkOptions, open_session

    workload = made.Workload(
        subscribers=rows // (HELD + everybody),
        topics=topics,
        held=HELD,
        common=everybody,
        sites=SITES,
        local_share=0.8,
        popularity=popularity,  # type: ignore[arg-type]
    )
    spark = open_session(SparkOptions(master="local[2]", memory=memory), "bench")
    for name in ("subscriptions", "rates", "sites"):
        path = folder / name
        if not path.exists():
            getattr(made, name)(spark, workload).write.parquet(str(path))
    peak = Peak()
    started = time.monotonic()
    laps: list[tuple[str, float]] = []

    def lap(line: str) -> None:
        laps.append((line, round(time.monotonic() - started, 1)))

    held, rates, sites = (spark.read.parquet(str(folder / name)) for name in ("subscriptions", "rates", "sites"))
    inputs = planning.Inputs(held, rates, sites)
    with planning.summed_up(inputs, order="pairwise", say=lap) as summed:
        plan = planning.make_plan(summed, planning.default_network(summed.graph.sites), lap)
        lap("placed")
        summary = planning.summary(plan, planning.advise(plan))
        lap("advised")
        planning.write_plan(plan, summary, str(folder / "plan"))
    seconds = time.monotonic() - started
    found = {
        "rows": sum(plan.summed.topics.holders),
        "topics": plan.graph.size,
        "pairs": plan.graph.pair_count,
        "seconds": round(seconds, 1),
        "gigabytes": round(peak.stop() / 2**30, 2),
        "laps": laps,
        "hops_per_event": summary["after"]["hops_per_event"],
        "bound_per_event": summary["bound_per_event"],
        "others": {each["name"]: round(each["hops_per_event"], 3) for each in summary["others"]},
        "advice": summary["advice"][:1],
    }
    spark.stop()
    return found


class Peak:
    """The largest sum of the memory of this process and all below it (proportional set size)."""

    def __init__(self) -> None:
        self._bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._is_over.set()
        self._thread.join()
        return self._bytes

    def _watch(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            self._look()

    def _look(self) -> None:
        self._bytes = max(self._bytes, sum(_bytes(pid) for pid in family(os.getpid())))


def family(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += [int(child) for child in children.read_text().split()]
            except OSError:
                continue  # it has ended meanwhile
    return found


def _bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0  # it has ended meanwhile
    return 0


def yardstick(folder: Path) -> float:
    """Seconds that DuckDB needs to count the coupled pairs."""
    import duckdb

    started = time.monotonic()
    duckdb.sql("set threads to 2")
    counted = duckdb.sql(f"""
        with held as (select distinct subscriber, topic from '{folder}/subscriptions/*.parquet')
        select count(*) from (
            select a.topic, b.topic from held a join held b on a.subscriber = b.subscriber and a.topic < b.topic
            group by all having count(*) >= 2)
    """)
    assert counted is not None, "a query has a result"
    counted.fetchall()
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_250_000, 2_500_000, 5_000_000, 10_000_000])
    parser.add_argument("--topics", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--popularity", default="zipf")
    parser.add_argument("--everybody", type=int, default=0, help="number of topics that everybody holds")
    parser.add_argument("--duckdb", action="store_true", help="the yardstick, too")
    parser.add_argument("--one", metavar="FOLDER", help="(one size, in this process, as JSON)")
    given = parser.parse_args()
    if given.one:
        sizes = given.rows[0], given.topics[0]
        print(json.dumps(measure(Path(given.one), *sizes, given.memory, given.popularity, given.everybody)))
        return
    print("     rows   topics      pairs  seconds     GB  hops/event  bound  one node  duckdb")
    for topics in given.topics:
        before: tuple[int, float] | None = None
        for rows in given.rows:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "bench.plan", "--one", folder, "--rows", str(rows)]
                command += ["--topics", str(topics), "--memory", given.memory, "--popularity", given.popularity]
                command += ["--everybody", str(given.everybody)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True)
                found = json.loads(done.stdout.splitlines()[-1])
                duckdb_s = f"{yardstick(Path(folder)):7.1f}" if given.duckdb else ""
            print(
                f"{found['rows']:9,} {found['topics']:8,} {found['pairs']:10,} {found['seconds']:8.1f} "
                f"{found['gigabytes']:6.2f} {found['hops_per_event']:11.3f} {found['bound_per_event']:6.3f} "
                f"{found['others']['one node']:9.3f} {duckdb_s}",
                flush=True,
            )
            if before is not None:
                growth = math.log(found["seconds"] / before[1]) / math.log(found["rows"] / before[0])
                print(f"          grows as rows^{growth:.2f}")
            before = (found["rows"], found["seconds"])
        print(f"          {'; '.join(f'{line}: {at_s} s' for line, at_s in found['laps'])}")


if __name__ == "__main__":
    main()
