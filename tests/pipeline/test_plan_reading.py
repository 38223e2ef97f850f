"""The tables of a plan as files: what is read, and what is refused with its file, column and value."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from seriatim.cli import main
from seriatim.model import InputError
from seriatim.pipeline.plan import Inputs, rates_of, read_table, summed_up

HELD = "subscriber,topic\ns1,001\ns1,1\ns1,2026-01-01\ns2,001\ns2,1\ns2,2026-01-01\n"


def written(path: Path, text: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def damaged(path: Path) -> bytes:
    """A Parquet file whose footer is right and whose rows are not."""
    table = pa.table({"subscriber": [f"s{i}" for i in range(5_000)], "topic": [f"t{i % 37}" for i in range(5_000)]})
    pq.write_table(table, path)
    data = bytearray(path.read_bytes())
    data[60:1_500] = bytes(byte ^ 0xFF for byte in data[60:1_500])
    return bytes(data)


def test_text_stays_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    held = read_table(spark, "subscriptions", written(tmp_path / "held.csv", HELD))
    rates = written(tmp_path / "rates.csv", "topic,events_per_s\n001,1e1\n1, 20 \n2026-01-01,0.5\n")
    sites = read_table(spark, "sites", written(tmp_path / "sites.csv", "client,site\n01,007\n1,7\n"))
    with summed_up(Inputs(held, read_table(spark, "rates", rates))) as found:
        assert dict(zip(found.graph.names, found.graph.rates.tolist(), strict=True)) == {
            "001": 10.0,
            "1": 20.0,
            "2026-01-01": 0.5,
        }
    assert {(row.client, row.site) for row in sites.collect()} == {("01", "007"), ("1", "7")}


def test_the_format_is_that_of_the_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "held"
    written(folder / "1.csv", "subscriber,topic,until\ns1,a,\n")
    written(folder / "2.csv", "subscriber,topic,until\ns2,b,7\n")
    lines = '{"subscriber": "s1", "topic": "a"}\n' * 2_000 + '{"subscriber": "s2", "topic": "b", "until": 7}\n'
    text = written(tmp_path / "held.txt", HELD)
    for uri in (str(folder), written(tmp_path / "held.jsonl", lines)):  # a column that comes late is seen, too
        held = Inputs(read_table(spark, "subscriptions", uri)).held.distinct().collect()
        assert [tuple(row) for row in held] == [("s1", "a")]
    assert read_table(spark, "subscriptions", text).count() == 6


@pytest.mark.parametrize(
    ("times", "per_s"),
    [
        (("2026-01-01T00:00:00Z", "2026-01-01T01:00:10+01:00"), 0.1),
        (("2026-01-01 00:00:00", "2026-01-01 00:00:00.5"), 2.0),
        (("1000", "2000.0"), 1.0),
    ],
)
def test_rates_from_times_of_any_kind(
    spark: SparkSession, tmp_path: Path, times: tuple[str, str], per_s: float
) -> None:
    log = "topic,publisher,published_at\n" + "".join(f"001,p,{time}\n" for time in times)
    events = read_table(spark, "publications", written(tmp_path / "log.csv", log))
    assert [(row.topic, row.events_per_s) for row in rates_of(events).collect()] == [("001", 2 * per_s)]
    typed = spark.createDataFrame([("a", "x"), ("a", "y")], "topic string, published_at string")
    with pytest.raises(InputError, match="publications: column published_at: x is neither a number nor a time"):
        rates_of(typed)
    endless = spark.createDataFrame([("a", 1.0), ("a", float("inf"))], "topic string, published_at double")
    with pytest.raises(InputError, match="column published_at: Infinity is neither a number nor a time"):
        rates_of(endless)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("rates", "topic,events_per_s\na,1\nb,many\n", r"table.csv, column events_per_s: many is not a number"),
        ("publications", "topic,published_at\na,1\nb,Infinity\n", "published_at: Infinity is neither a number nor a"),
        ("publications", "topic,received_at\na,soon\n", "received_at: soon is neither a number nor a time"),
        ("subscriptions", "subscriber,topic\ns1,a\ns2\n", "table.csv, more or fewer cells than the first line: s2"),
        (
            "subscriptions",
            "subscribr,topc\ns1,a\n",
            "no column 'subscriber', only subscribr, topc; did you mean 'subscr",
        ),
        ("sites", "Client,site\ns1,eu\n", "no column 'client', only Client, site; did you mean 'Client'"),
        ("publications", "topics,published_at\na,1\n", "no column 'topic', only topics, published_at; did you mean 't"),
        ("sites", "", "table.csv is empty"),
    ],
)
def test_tables_that_do_not_fit(spark: SparkSession, tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_table(spark, name, written(tmp_path / "table.csv", text))


def test_the_command_names_what_it_cannot_read(spark: SparkSession, tmp_path: Path) -> None:
    problem = "cannot be read: damaged, cut off, or not what its name says; copy the file again"
    for data in (b"hello", damaged(tmp_path / "whole.parquet")):
        table = written(tmp_path / "table.parquet", data)
        result = CliRunner().invoke(main, ["plan", table, "--out", str(tmp_path / "plan")])
        assert result.exit_code == 2 and f"table.parquet: {problem}" in result.stderr
        assert "Spark" not in result.stderr
