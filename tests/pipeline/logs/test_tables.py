"""Reading logs with Spark: our own tables, Parquet, many files. For the rules see `test_both_readers.py`."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from seriatim.audit import ColumnMapping, write_history
from seriatim.audit.rules import HEAD
from seriatim.model import Delivery, History, LogError, Publication, Subscription
from seriatim.pipeline.logs import Tables, read_tables
from tests.audit.foreign_logs import HOSTS

HISTORY = History(
    deliveries=[
        Delivery("s1", 0, "a", "A", 1, {"B": 2, "A": 1}, 1.5, 2.0),
        Delivery("s1", 1, "ü \n,\"'", "B", out_of_order=True),
        Delivery("s1", 2, "c", "B", 1, index=3),
    ],
    publications=[Publication("a", "A", "p", 0.25, 0, 0, 1), Publication("c", "B", "p", number=1, index=3)],
    subscriptions=[Subscription("s1", "A", 0, 5, 0, 1)],
)


def shown(tables: Tables) -> dict[str, str]:
    rows: dict[str, list[str]] = {}
    for row in tables.deliveries.orderBy("subscriber", "position", "event_id").collect():
        rows.setdefault(row.subscriber, []).append(f"{row.position}:{row.event_id}")
    return {name: " ".join(words) for name, words in rows.items()}


def test_our_own_tables_are_read_as_they_were_written(spark: SparkSession, tmp_path: Path) -> None:
    write_history(HISTORY, tmp_path / "run")
    tables = read_tables(spark, str(tmp_path / "run"))
    assert tables.messages is None
    for name in ("deliveries", "publications", "subscriptions"):
        rows = getattr(HISTORY, name)
        frame = getattr(tables, name)
        read = [type(rows[0])(**row.asDict()) for row in frame.collect()]
        assert sorted(read, key=repr) == sorted(rows, key=repr)
        frame.write.parquet(str(tmp_path / "parquet" / name))
    again = read_tables(spark, f"file://{tmp_path}/parquet")
    assert again.deliveries.schema.simpleString() == tables.deliveries.schema.simpleString()
    assert shown(again) == shown(tables)
    assert again.subscriptions is not None and again.subscriptions.count() == 1


def test_foreign_parquet(spark: SparkSession, tmp_path: Path) -> None:
    at = f.timestamp_micros(f.col("id") * 1000)
    frame = spark.range(4).select(
        f.lit("A").alias("topic"),
        f.col("id").alias("msg_id"),
        f.concat(f.lit("h"), f.col("id") % 2).alias("host"),
        at.alias("at"),
    )
    frame.coalesce(1).write.partitionBy("host").parquet(str(tmp_path / "log"))
    mapping = ColumnMapping.of({"subscriber": "host", "event_id": "msg_id"}, order_by="at")
    assert shown(read_tables(spark, str(tmp_path / "log"), mapping)) == {"h0": "0:0 1:2", "h1": "0:1 1:3"}


def test_damaged_parquet(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1000).selectExpr(
        "'s' AS subscriber", "id AS position", "string(id) AS event_id", "'A' AS topic"
    ).coalesce(1).write.parquet(str(tmp_path / "log"))
    (part,) = (tmp_path / "log").glob("part-*")
    whole = part.read_bytes()
    (tmp_path / "log" / f".{part.name}.crc").unlink()
    part.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LogError, match=f"{part.name}.*damaged, cut off.*copy the file again"):
        read_tables(spark, str(tmp_path / "log"))
    part.write_bytes(b"PAR1" + b"\xff" * 400 + whole[404:])  # the end is whole, the pages are not
    with pytest.raises(LogError, match=f"{part.name}.*damaged, cut off"):
        read_tables(spark, str(tmp_path / "log"))
    part.write_bytes(whole)
    (tmp_path / "log" / "more.parquet").write_bytes(b"")  # Spark itself would pass over it
    with pytest.raises(LogError, match=r"more\.parquet: empty, which no Parquet file is; copy the file again"):
        read_tables(spark, str(tmp_path / "log"))


def test_files_of_different_types_and_formats(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(3).selectExpr("'s' AS subscriber", "id AS position", "string(id) AS event_id", "'A' AS topic")
    rows.write.parquet(str(tmp_path / "log"))
    rows.selectExpr("subscriber", "named_struct('x', position) AS position", "event_id", "topic").write.mode(
        "append"
    ).parquet(str(tmp_path / "log"))
    with pytest.raises(LogError, match="mixed types"):
        read_tables(spark, str(tmp_path / "log"))
    (tmp_path / "log" / "more.csv").write_text("subscriber,position,event_id,topic\ns,0,a,A\n")
    with pytest.raises(LogError, match=r"files of different formats: csv \(more\.csv\) and parquet"):
        read_tables(spark, str(tmp_path / "log"))


def test_headings_that_differ(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("host,msg_id,topic,position\nh1,a,A,0\n")
    (tmp_path / "2.csv").write_text("msg_id,host,topic,position\na,h2,A,0\n")
    with pytest.raises(LogError, match="its columns are not those of the other files"):
        read_tables(spark, str(tmp_path), HOSTS)


def test_paths_that_are_no_log(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no such file or folder; correct the path"):
        read_tables(spark, str(tmp_path / "none"))
    (tmp_path / "publications.jsonl").write_text("{}")
    with pytest.raises(LogError, match="no deliveries beside publications"):
        read_tables(spark, str(tmp_path))
    (tmp_path / "deliveries.csv").write_text("")
    (tmp_path / "deliveries.jsonl").write_text("")
    with pytest.raises(LogError, match="deliveries twice"):
        read_tables(spark, str(tmp_path))


def test_runs_in_folders_are_not_taken_for_one(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "deliveries.csv").write_text("subscriber,position,event_id,topic\ns,0,a,A\n")
    with pytest.raises(LogError, match=r"but in .*monday, .*tuesday; give one of these: an audit is about one run"):
        read_tables(spark, str(tmp_path))


def test_many_misfits_are_counted_and_few_shown(spark: SparkSession, tmp_path: Path) -> None:
    text = "".join(f"s,{i if i % 2 else 'x'},e{i},A\n" for i in range(100))
    (tmp_path / "log.csv").write_text("subscriber,position,event_id,topic\n" + text)
    with pytest.raises(LogError) as caught:
        read_tables(spark, str(tmp_path / "log.csv"))
    assert "50 of 100 rows do not fit" in str(caught.value)
    assert str(caught.value).count("is not a whole number") == 3
    assert "log.csv row 3, column position: x is not a whole number" in str(caught.value)


@pytest.mark.long
def test_a_field_that_only_late_rows_have_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """JSON leaves out what a row does not have, so the first rows do not name every column."""
    ids = [f"e{n}" for n in range(HEAD + 2)]
    first, last = ids[:-1], ids[-1]
    history = History(
        deliveries=[Delivery("s", i, name, "A") for i, name in enumerate(first)]
        + [Delivery("s", len(first), last, "A", 7, {"B": 1}, 1.5, 2.5, out_of_order=True, index=3)],
        publications=[Publication(name, "A", "p") for name in first]
        + [Publication(last, "A", "p", 0.5, 4, 5, 7, index=3)],
        subscriptions=[Subscription("s", name, 0) for name in first] + [Subscription("s", "A", 0, 9, 1, 2)],
    )
    write_history(history, tmp_path / "run")
    tables = read_tables(spark, str(tmp_path / "run"))
    assert tables.publications is not None and tables.subscriptions is not None
    (delivery,) = tables.deliveries.where(f.col("event_id") == last).collect()
    (publication,) = tables.publications.where(f.col("event_id") == last).collect()
    (subscription,) = tables.subscriptions.where(f.col("topic") == "A").collect()
    assert Delivery(**delivery.asDict()) == history.deliveries[-1]
    assert Publication(**publication.asDict()) == history.publications[-1]
    assert Subscription(**subscription.asDict()) == history.subscriptions[-1]


def test_typed_columns_are_checked_by_their_types(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("s1", 0, "a", "A", 1.7e12 + 0.25, True), ("s1", 1, "b", "A", 0.1234567894, None)]
    schema = "subscriber string, position int, event_id string, topic string, notified_at double, out_of_order boolean"
    spark.createDataFrame(rows, schema).write.parquet(str(tmp_path / "log"))
    found = read_tables(spark, str(tmp_path / "log")).deliveries.orderBy("position").collect()
    assert [(row.notified_at, row.out_of_order) for row in found] == [(1.7e12 + 0.25, True), (0.123456789, False)]
    for place, value in enumerate((float("nan"), float("inf"), -1e30)):
        bad = [*rows[:1], ("s1", 1, "b", "A", value, False)]
        spark.createDataFrame(bad, schema).write.parquet(str(tmp_path / str(place)))
        with pytest.raises(LogError, match=r"column notified_at: .* is neither a number nor a time"):
            read_tables(spark, str(tmp_path / str(place)))
