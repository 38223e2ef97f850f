"""The auditor on Spark at sizes: `python -m bench.audit_spark [--rows 1000000 --subscribers 100 …]`.

Makes a log of about so many deliveries as Parquet, then, in one run and on the same files: the audit on Spark, of
everything, of the deliveries alone, and of these without reading the files by itself; the certificate, which compares
the deliveries with the order log of the same events (a row for each); and as queries, by DuckDB, the
plain check (each event's first time as key, a running maximum along every subscriber's positions, rows below it,
positions that are not consecutive), and what else an audit of deliveries judges: repeats, ids and numbers that stand
for two events. The plain check also by Spark. The start of Spark is not counted, nor the making of the log; a small log
is audited beforehand, so that Spark is warm.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb

from seriatim.audit import Certificate
from seriatim.pipeline.audit import AuditOptions, SparkAudit, audit_tables, certify_tables
from seriatim.pipeline.logs import Tables
from seriatim.pipeline.spark.session import SparkOptions, spark_session
from seriatim.pipeline.workload import (
    Workload,
    delivered_order,
    delivered_publications,
    delivered_subscriptions,
    deliveries,
    injections,
)

TOPICS, HELD = 100, 10
WARM_ROWS = 20_000
DIVIDED = AuditOptions(undivided_rows=0)  # so that the warm run starts Python workers too

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

OTHER_CHECKS = (
    "select count(*) from (select 1 from {deliveries} group by subscriber, event_id having count(*) > 1)",
    "select count(*) from (select 1 from {deliveries} group by event_id having min(topic) <> max(topic)"
    ' or min(number) <> max(number) or min("index") <> max("index"))',
    "select count(*) from (select 1 from {deliveries} where number is not null"
    ' group by topic, number, "index" having min(event_id) <> max(event_id))',
)
HEADING = ("audit", "deliveries", "certificate", "ratio", "by Spark", "DuckDB", "and others", "Spark SQL")


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
            warm = _made(spark, folder / "warm", WARM_ROWS, 100, 1)
            audit_tables(warm)
            certify_tables(warm, spark.read.parquet(str(folder / "warm" / "order")), options=DIVIDED)
            print(
                f"{'rows':>12}{'subscribers':>13}" + "".join(f"{name:>12}" for name in HEADING) + "  found", flush=True
            )
            for rows in chosen.rows:
                for subscribers in chosen.subscribers:
                    path = folder / f"{rows}-{subscribers}"
                    tables = _made(spark, path, rows, subscribers, chosen.swaps)
                    alone = tables._replace(publications=None, subscriptions=None)
                    query = PLAIN_CHECK.format(deliveries=f"parquet.`{path}/deliveries`")
                    plain_s, _ = _timed(partial(_in_duckdb, path / "deliveries", chosen, PLAIN_CHECK))
                    others_s, _ = _timed(partial(_in_duckdb, path / "deliveries", chosen, *OTHER_CHECKS))
                    order = spark.read.parquet(str(path / "order"))
                    audit_s, found = _timed(partial(audit_tables, alone))
                    certificate_s, certificate = _timed(partial(certify_tables, alone, order))
                    by_spark_s = query_s = whole_s = float("nan")
                    if not chosen.deliveries_only:
                        by_spark_s, _ = _timed(partial(audit_tables, alone._replace(files=())))
                        query_s, _ = _timed(spark.sql(query).collect)
                        whole_s, found = _timed(partial(audit_tables, tables))
                    line = f"{tables.deliveries.count():12,}{subscribers:13,}{whole_s:11.1f}s{audit_s:11.1f}s"
                    line += f"{certificate_s:11.1f}s{certificate_s / audit_s:12.2f}"
                    line += "".join(f"{s:11.1f}s" for s in (by_spark_s, plain_s, plain_s + others_s, query_s))
                    told = f"{_told(found)}; {_certified(certificate)}; worker {_worker_mb()} MB"
                    print(f"{line}  {told}", flush=True)
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
        delivered_order(spark, workload).write.parquet(str(path / "order"))
    names = ("deliveries", "publications", "subscriptions")
    log, made, held = (spark.read.parquet(str(path / name)) for name in names)
    return Tables(log, made, held, files=tuple(log.inputFiles()))


def _in_duckdb(path: Path, chosen: argparse.Namespace, *queries: str) -> list[object]:
    with duckdb.connect() as connection:
        connection.execute(f"set memory_limit = '{chosen.memory}b'")
        connection.execute("set threads = 2")
        source = f"read_parquet('{path}/*.parquet')"
        return [connection.execute(query.format(deliveries=source)).fetchall() for query in queries]


def _worker_mb() -> int:
    """The most memory that a Python worker has had so far, of those that are there now."""
    found = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text, command = status.read_text(), status.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark.daemon" in command or b"pyspark/daemon" in command:
            found += [int(line.split()[1]) // 1024 for line in text.splitlines() if line.startswith("VmHWM")]
    return max(found)


def _timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _told(result: object) -> str:
    assert isinstance(result, SparkAudit)
    counts = result.report.counts
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "all valid or unknown"


def _certified(result: object) -> str:
    assert isinstance(result, dict) and isinstance(result[""], Certificate)
    return f"{result[''].verdict.answer}: {result[''].verdict.reason}"


if __name__ == "__main__":
    main()
