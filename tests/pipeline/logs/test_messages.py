"""Errors about files that cannot be read: which file, which column, and what to do."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from seriatim.audit import ColumnMapping, read_history
from seriatim.cli import main
from seriatim.model import LogError
from seriatim.pipeline.logs import read_tables, reading
from seriatim.pipeline.spark.files import files_below


def deliveries(ids: pa.Array) -> pa.Table:
    names = pa.array(["s1", "s2"])
    return pa.table({"subscriber": names, "position": [0, 0], "event_id": ids, "topic": ["A", "A"]})


def test_types_that_differ_between_files(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(deliveries(pa.array(["1", "1"])), tmp_path / "a.parquet")
    pq.write_table(deliveries(pa.array([1, 1])), tmp_path / "b.parquet")
    with pytest.raises(LogError, match="column event_id is") as caught:
        read_tables(spark, str(tmp_path))
    for words in ("mixed types", "a.parquet", "b.parquet", "bigint", "string"):
        assert words in str(caught.value)


def test_parquet_that_spark_cannot_read(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(deliveries(pa.array(["1", "1"])), tmp_path / "a.parquet", compression="brotli")
    with pytest.raises(LogError, match=r"a\.parquet: compressed with Brotli, .*; write it with zstd, snappy or gzip"):
        read_tables(spark, str(tmp_path))
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"u" * 16] * 2, pa.binary(16)))
    pq.write_table(deliveries(ids), tmp_path / "a.parquet")
    with pytest.raises(LogError, match=r"type FIXED_LEN_BYTE_ARRAY \(UUID\), which Spark does not read; write that"):
        read_tables(spark, str(tmp_path))


def test_inside_a_column_of_parquet(spark: SparkSession, tmp_path: Path) -> None:
    table = deliveries(pa.array(["a", "b"])).append_column("m", pa.array([{"seq": {"n": 0}}, {"seq": {"n": 1}}]))
    pq.write_table(table, tmp_path / "log.parquet")
    tables = read_tables(spark, str(tmp_path), ColumnMapping.of({"position": "m.seq.n"}))
    assert sorted((row.subscriber, row.position) for row in tables.deliveries.collect()) == [("s1", 0), ("s2", 1)]
    with pytest.raises(LogError, match=r"no sequence in column m: its fields are seq; correct m\.sequence"):
        read_tables(spark, str(tmp_path), ColumnMapping.of({"position": "m.sequence"}))
    with pytest.raises(LogError, match="no x in column position: it has no fields"):
        read_tables(spark, str(tmp_path), ColumnMapping.of({"position": "position.x"}))


@pytest.mark.parametrize("name", ["log.PARQUET", "log.pq"])
def test_other_ways_to_say_parquet(spark: SparkSession, name: str, tmp_path: Path) -> None:
    pq.write_table(deliveries(pa.array(["a", "a"])), tmp_path / name)
    result = CliRunner().invoke(main, ["audit", str(tmp_path / name), "--guarantee", "tno"])
    assert (result.exit_code, "engine: plain Python (2 rows of Parquet" in result.output) == (0, True), result.output
    with pytest.raises(LogError, match="only Spark reads Parquet"):
        read_history(tmp_path / name)


def test_columns_that_are_one_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("subscriber,position,event_id,topic,Topic\ns1,0,a,A,B\n")
    with pytest.raises(LogError, match="two columns are called topic and Topic, which differ only in case; rename"):
        read_tables(spark, str(tmp_path))


def test_an_empty_file_among_more_than_are_looked_at(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are lost, and Spark would pass over it: what is left may well be in order."""
    for name in ("a", "b", "c"):
        pq.write_table(deliveries(pa.array(["a", "a"])), tmp_path / f"{name}.parquet")
    (first,) = files_below(spark, str(tmp_path), 1)
    later = next(path for path in sorted(tmp_path.iterdir()) if path.name != first.name)
    later.write_bytes(b"")
    (tmp_path / "_done.parquet").write_bytes(b"")  # Spark leaves out such names, and so do we
    monkeypatch.setattr(reading, "LOOKED_AT", 1)
    with pytest.raises(LogError, match=rf"{later.name}: empty, which no Parquet file is"):
        read_tables(spark, str(tmp_path))
    later.unlink()
    assert read_tables(spark, str(tmp_path)).deliveries.count() == 4
