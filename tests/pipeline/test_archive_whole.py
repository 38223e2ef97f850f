"""Files of an archive that are gone or damaged are noticed by whoever reads it, and named."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from seriatim.cli import main
from seriatim.model import InputError, LogError
from seriatim.pipeline.archive import compact, read_archive, read_gaps, records_of
from seriatim.pipeline.audit import AuditOptions, audit_tables
from seriatim.pipeline.logs import read_tables
from seriatim.pipeline.plan.inputs import from_archive
from seriatim.pipeline.spark.unreadable import damage
from tests.pipeline.archives import archived
from tests.pipeline.test_archive_lost import shop


def folder_of(spark: SparkSession, uri: str, table: str, batch: int) -> Path:
    return Path(uri) / f"table={table}" / records_of(spark, uri, table)[batch].folder


def file_of(folder: Path) -> Path:
    (file,) = folder.rglob("*.parquet")
    return file


def remove(folder: Path) -> None:
    file_of(folder).unlink()


def remove_folder(folder: Path) -> None:
    folder.rename(folder.with_name(f"{folder.name}.away"))


def empty(folder: Path) -> None:
    write(file_of(folder), b"")


def repeat(folder: Path) -> None:
    write(file_of(folder).with_name("again.parquet"), file_of(folder).read_bytes())


def junk(folder: Path) -> None:
    write(file_of(folder), b"junk" * 100)


def write(file: Path, data: bytes) -> None:
    """Without the checksum that Hadoop keeps beside a local file: elsewhere there is none."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    file.write_bytes(data)


def damage_page(file: Path, column: str) -> None:
    """Change the bytes of one column; what the end of the file says of it stays."""
    group = pq.ParquetFile(file).metadata.row_group(0)
    (chunk,) = (each for i in range(group.num_columns) if (each := group.column(i)).path_in_schema == column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(file.read_bytes())
    for place in range(start, start + chunk.total_compressed_size):
        data[place] ^= 0xFF
    write(file, bytes(data))


@pytest.mark.parametrize(
    ("harm", "there"),
    [
        (remove, "0 are there"),
        pytest.param(remove_folder, "0 are there", marks=pytest.mark.long),
        pytest.param(empty, "0 are", marks=pytest.mark.long),
        pytest.param(repeat, "12 are", marks=pytest.mark.long),
    ],
)
def test_rows_that_the_record_does_not_count(
    spark: SparkSession, tmp_path: Path, harm: Callable[[Path], None], there: str
) -> None:
    uri = archived(spark, shop(), tmp_path / "lake")
    folder = folder_of(spark, uri, "deliveries", 1)
    harm(folder)
    for use in (read_tables, compact, read_deliveries, read_lost):
        with pytest.raises(InputError) as caught:
            use(spark, uri)
        told = f"{folder}: batch 1 of deliveries should have 6 rows here, and {there}"
        assert told in str(caught.value).replace("file:", "") and "restore the folder from a copy" in str(caught.value)


def read_deliveries(spark: SparkSession, uri: str) -> None:
    read_archive(spark, uri, "deliveries")


def read_lost(spark: SparkSession, uri: str) -> None:
    read_gaps(spark, uri, "deliveries")


def test_a_plan_is_not_made_from_half_of_the_subscriptions(spark: SparkSession, tmp_path: Path) -> None:
    uri = archived(spark, shop(), tmp_path / "lake")
    remove(folder_of(spark, uri, "subscriptions", 0))
    with pytest.raises(InputError, match="batch 0 of subscriptions should have 2 rows here, and 0 are there"):
        from_archive(spark, uri)


def test_a_file_that_is_none_is_named(spark: SparkSession, tmp_path: Path) -> None:
    uri = archived(spark, shop(), tmp_path / "lake")
    folder = folder_of(spark, uri, "deliveries", 1)
    junk(folder)
    for use in (read_tables, compact):
        with pytest.raises(LogError, match="cannot be read: damaged") as caught:
            use(spark, uri)
        assert file_of(folder).name in str(caught.value)


@pytest.mark.long
def test_a_damaged_page_is_named_when_it_is_met(spark: SparkSession, tmp_path: Path) -> None:
    """The ends of files say nothing of it, so it shows only in the middle of an audit, by either way of reading."""
    uri = archived(spark, shop(), tmp_path / "lake")
    file = file_of(folder_of(spark, uri, "deliveries", 1))
    damage_page(file, "event_id")
    result = CliRunner().invoke(main, ["audit", uri])
    assert result.exit_code == 2, result.output
    assert file.name in result.output and "cannot be read: damaged" in result.output
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        audit_tables(read_tables(spark, uri), options=AuditOptions(undivided_rows=0))
    assert file.name in (damage(caught.value) or "")
