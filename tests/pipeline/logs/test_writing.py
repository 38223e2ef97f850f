"""A history written as Parquet is read back as it was."""

from pathlib import Path

from pyspark.sql import SparkSession

from seriatim.model import Delivery, History, Publication, Subscription
from seriatim.pipeline.logs import history_of, read_tables, write_parquet


def test_what_is_written_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    history = History(
        deliveries=[
            Delivery("s1", 0, "a", "A", 1, notified_at=1.5),
            Delivery("s1", 1, "b", "B", None, out_of_order=True, index=2),
        ],
        publications=[Publication("a", "A", "p", 0.5, sequence=0, seen=0, number=1)],
        subscriptions=[Subscription("s1", "A", 0, start=0, where="price > 100")],
    )
    write_parquet(history, tmp_path / "log")
    read = history_of(read_tables(spark, str(tmp_path / "log")), rows_max=10)
    assert read is not None
    assert sorted(read.deliveries, key=lambda row: row.position) == history.deliveries
    assert (read.publications, read.subscriptions) == (history.publications, history.subscriptions)


def test_a_table_without_rows_is_one_that_is_not_known(tmp_path: Path) -> None:
    write_parquet(History([Delivery("s1", 0, "a", "A")]), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["deliveries.parquet"]
