"""Files that tasks read by themselves: which ones, and the same words of them as of their tables."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from seriatim.audit import Report, audit
from seriatim.model import Delivery, History, Subscription
from seriatim.pipeline.audit import AuditOptions, audit_tables
from seriatim.pipeline.audit.columnar.files import file_log, path_of
from seriatim.pipeline.logs import Tables, read_tables, tables_of

IN_FILES = AuditOptions(undivided_rows=0, split_rows=3, chunk_rows=2)
COLUMNS = {
    "subscriber": pa.string(),
    "position": pa.int64(),
    "event_id": pa.string(),
    "topic": pa.string(),
    "number": pa.int64(),
    "notified_at": pa.float64(),
    "out_of_order": pa.bool_(),
    "index": pa.int32(),
}


def table(rows: list[Delivery]) -> pa.Table:
    return pa.table({name: pa.array([getattr(row, name) for row in rows], kind) for name, kind in COLUMNS.items()})


def disagreeing() -> list[Delivery]:
    """Two subscribers, their events in two orders."""
    orders = {"s1": "abc", "s2": "bac"}
    return [
        Delivery(name, position, event, "A", notified_at=float(position))
        for name, events in orders.items()
        for position, event in enumerate(events)
    ]


def same(report: Report) -> tuple[object, ...]:
    return report.verdicts, report.anomalies, report.counts


def test_paths() -> None:
    assert path_of("file:///logs/a%20b%2541.parquet") == "/logs/a b%41.parquet"
    assert path_of("/logs/a%20b#1.parquet") == "/logs/a%20b#1.parquet"  # a path, and no URI
    assert path_of("s3a://logs/a.parquet") is None


def test_a_column_that_only_spark_takes_for_ours(spark: SparkSession, tmp_path: Path) -> None:
    """Of files in one folder, Spark takes `Out_Of_Order` for `out_of_order`."""
    rows = table([Delivery("s1", 0, "a", "A", out_of_order=True)])
    pq.write_table(rows, tmp_path / "a.parquet")
    pq.write_table(rows.rename_columns({"out_of_order": "Out_Of_Order"}), tmp_path / "b.parquet")
    tables = read_tables(spark, str(tmp_path))
    assert tables.deliveries.filter("out_of_order").count() == 2
    assert file_log(tables.files[:1], False, IN_FILES) is not None or file_log(tables.files[1:], False, IN_FILES)
    assert file_log(tables.files, False, IN_FILES) is None


def test_only_an_archive_has_rows_that_are_none(spark: SparkSession, tmp_path: Path) -> None:
    rows = table(disagreeing())
    pq.write_table(rows, tmp_path / "a.parquet")
    assert len(read_tables(spark, str(tmp_path)).files) == 1
    pq.write_table(rows.append_column("lost_to", pa.array([5] * len(rows))), tmp_path / "b.parquet")
    assert read_tables(spark, str(tmp_path)).files == ()


def half_numbered() -> History:
    """Three events of one message. One subscriber kept no numbers, another was not notified of the event between."""
    orders = {"s1": (0, 2), "s2": (0, 1, 2), "s3": (1,)}
    rows = [
        Delivery(name, position, f"e{index}", "A", 1 if name != "s3" else None, notified_at=1.0 + index, index=index)
        for name, indices in orders.items()
        for position, index in enumerate(indices)
    ]
    return History(rows, subscriptions=[Subscription(name, "A", 0, start=0) for name in orders])


def far_away() -> History:
    """Positions whose sum is more than a bigint holds."""
    first = 1 << 62
    names = ("s1", "s2", "s3")
    return History([Delivery(name, first + place, f"e{place}", "A") for name in names for place in range(3)])


@pytest.mark.long
@pytest.mark.parametrize("made", [half_numbered, far_away])
def test_the_same_words(spark: SparkSession, tmp_path: Path, made: Callable[[], History]) -> None:
    history = made()
    path = tmp_path / "a.parquet"
    pq.write_table(table(history.deliveries), path, row_group_size=2)
    known = tables_of(spark, history)
    tables = Tables(spark.read.parquet(str(path)), known.publications, known.subscriptions, files=(str(path),))
    assert file_log(tables.files, False, IN_FILES) is not None
    assert same(audit_tables(tables, options=IN_FILES).report) == same(audit(history))
