"""The auditor on Spark at sizes: `python -m bench.audit_spark [--rows 1000000 --subscribers 100 …]`.

Makes a log of about so many deliveries as Parquet, then, in one run and on the same files: the audit on Spark, of the
deliveries alone and of everything, and the plain check as one query (each event's first time as key, a running maximum
along every subscriber's positions, rows below it, positions that are not consecutive), by DuckDB and by Spark. The
start of Spark is not counted, nor the making of the log; a small log is audited beforehand, so that Spark is warm.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from seriatim.pipeline.audit import AuditOptions, SparkAudit, audit_tables
from seriatim.pipeline.logs import Tables
from seriatim.pipeline.session import SparkOptions, spark_session
from seriatim.pipeline.workload import (
    Workload,
    delivered_publications,
    delivered_subscriptions,
    deliveries,
    injections,
)

TOPICS, HELD = 100, 10
WARM_ROWS = 20_000

PLAIN_CHECK = """
with keyed as (
    select subscriber, position, event_id, min(notified_at) over (partition by event_id) as key
    from {deliveries}
), walked as (
    select *, max(key) over before as reach, lag(position, 1, -1) over sequence as previous
    from keyed
    window sequence as (partition by subscriber order by position),
           before as (partition by subscriber order by position rows between unbounded preceding and 1 preceding)
)
select count(*), sum(cast(key <= reach as int)), sum(cast(position <> previous + 1 as int)), count(distinct subscriber)
from walked
"""


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--subscribers", type=int, nargs="+", default=[100])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--swaps", type=int, default=3, help="violations put in on purpose, which must be found")
    parser.add_argument("--deliveries-only", action="store_true", help="without publications and subscriptions")
    parser.add_argument("--folder", help="where the logs are made; default: a temporary folder, removed afterwards")
    chosen = parser.parse_args()
    options = SparkOptions(master=chosen.master, memory=chosen.memory, shuffle_partitions=chosen.partitions)
    folder = Path(chosen.folder or tempfile.mkdtemp(prefix="seriatim-bench-"))
    try:
        with spark_session(options, "bench") as spark:
            audit_tables(_made(spark, folder / "warm", WARM_ROWS, 100, 1))
            print(f"{'rows':>12}{'subscribers':>13}{'audit':>9}{'deliveries':>12}{'DuckDB':>9}{'Spark SQL':>11}  found")
            for rows in chosen.rows:
                for subscribers in chosen.subscribers:
                    path = folder / f"{rows}-{subscribers}"
                    tables = _made(spark, path, rows, subscribers, chosen.swaps)
                    count = tables.deliveries.count()
                    plain_s, _ = _timed(lambda path=path: _plain(path / "deliveries", chosen))  # type: ignore[misc]
                    query = PLAIN_CHECK.format(deliveries=f"parquet.`{path}/deliveries`")
                    query_s, _ = _timed(lambda query=query: spark.sql(query).collect())  # type: ignore[misc]
                    alone_s, alone = _timed(lambda tables=tables: audit_tables(Tables(tables.deliveries)))  # type: ignore[misc]
                    whole_s = float("nan")
                    if not chosen.deliveries_only:
                        whole_s, alone = _timed(lambda tables=tables: audit_tables(tables, options=AuditOptions()))  # type: ignore[misc]
                    line = f"{count:12,}{subscribers:13,}{whole_s:8.1f}s{alone_s:11.1f}s{plain_s:8.1f}s{query_s:10.1f}s"
                    print(f"{line}  {_told(alone)}", flush=True)
    finally:
        if not chosen.folder:
            shutil.rmtree(folder, ignore_errors=True)


def _made(spark: "object", path: Path, rows: int, subscribers: int, swaps: int) -> Tables:
    """Read the log from this folder; make it first if it is not there."""
    from pyspark.sql import SparkSession

    assert isinstance(spark, SparkSession)
    events = max(100, rows * TOPICS // (HELD * subscribers))
    workload = Workload(
        subscribers=subscribers, topics=TOPICS, held=HELD, popularity="uniform", events=events, publishers=50
    )
    if not path.exists():
        injected = injections(workload, {"swap": swaps})
        deliveries(spark, workload, injected).write.parquet(str(path / "deliveries"))
        delivered_publications(spark, workload).write.parquet(str(path / "publications"))
        delivered_subscriptions(spark, workload).write.parquet(str(path / "subscriptions"))
    read = spark.read.parquet
    names = ("deliveries", "publications", "subscriptions")
    return Tables(*(read(str(path / name)) for name in names))


def _plain(path: Path, chosen: argparse.Namespace) -> object:
    with duckdb.connect() as connection:
        connection.execute(f"set memory_limit = '{chosen.memory}b'")
        connection.execute("set threads = 2")
        return connection.execute(PLAIN_CHECK.format(deliveries=f"read_parquet('{path}/*.parquet')")).fetchall()


def _timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _told(result: object) -> str:
    assert isinstance(result, SparkAudit)
    counts = result.report.counts
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "all valid or unknown"


if __name__ == "__main__":
    main()
