"""Delta tables are read as tables: rows that were deleted do not count, whichever way they were deleted."""

import base64
import json
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from seriatim.cli import main
from seriatim.model import LogError
from seriatim.pipeline.arrow import delta
from seriatim.pipeline.logs import read_tables

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

# s2 was notified of b before a, and of b once more; without the first of its rows it agrees with s1.
ROWS = pa.table(
    {
        "subscriber": ["s1", "s1", "s2", "s2", "s2"],
        "position": [0, 1, 0, 1, 2],
        "event_id": ["a", "b", "b", "a", "b"],
        "topic": ["A", "B", "B", "A", "B"],
    }
)
SECOND = pa.table({"subscriber": ["s2", "s2"], "position": [0, 1], "event_id": ["a", "b"], "topic": ["A", "B"]})


def rewritten(folder: Path, *, partitions: list[str] | None = None) -> Path:
    """Rows deleted by writing files anew: the old files lie there until somebody removes them."""
    write_deltalake(folder, ROWS, partition_by=partitions)
    DeltaTable(folder).delete("subscriber = 's2'")
    write_deltalake(folder, SECOND, mode="append")
    return folder


def marked(folder: Path) -> Path:
    """Rows deleted by a deletion vector, as Spark and Databricks do it: the file has them still."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    pq.write_table(ROWS, folder / "part-0.parquet")
    write_deltalake(folder.parent / "schema", ROWS)
    first = (folder.parent / "schema" / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    (metadata,) = [row for row in map(json.loads, first) if "metaData" in row]
    deleted = (2, 4)  # places of rows: what s2 was notified of first, and the repeat
    bitmap = struct.pack("<IIHHI2H", 12346, 1, 0, len(deleted) - 1, 16, *deleted)
    vector = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    text = base64.b85encode(vector).decode().translate(str.maketrans(B85, Z85))
    size = (folder / "part-0.parquet").stat().st_size
    features = ["deletionVectors"]
    rows = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        metadata,
        {
            "add": {
                "path": "part-0.parquet",
                "partitionValues": {},
                "size": size,
                "modificationTime": 0,
                "dataChange": True,
                "stats": json.dumps({"numRecords": ROWS.num_rows}),
                "deletionVector": {
                    "storageType": "i",
                    "pathOrInlineDv": text,
                    "sizeInBytes": len(vector),
                    "cardinality": len(deleted),
                },
            }
        },
    ]
    (log / f"{0:020}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def audit(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, words), "--guarantee", "tno", "--guarantee", "integrity"])


def check_rows(spark: SparkSession, folder: Path, expected: list[tuple[object, ...]]) -> None:
    found = read_tables(spark, str(folder)).deliveries
    assert sorted((row.subscriber, row.position, row.event_id) for row in found.collect()) == expected


IN_ORDER: list[tuple[object, ...]] = [("s1", 0, "a"), ("s1", 1, "b"), ("s2", 0, "a"), ("s2", 1, "b")]


def test_rows_that_were_written_anew(spark: SparkSession, tmp_path: Path) -> None:
    folder = rewritten(tmp_path / "log")
    assert len(list(folder.glob("*.parquet"))) > len(DeltaTable(folder).file_uris())
    check_rows(spark, folder, IN_ORDER)
    check_rows(spark, rewritten(tmp_path / "parts", partitions=["subscriber"]), IN_ORDER)
    run = tmp_path / "run"  # as a table of a run
    rewritten(run / "deliveries")
    check_rows(spark, run, IN_ORDER)


def test_rows_that_are_marked_as_deleted(spark: SparkSession, tmp_path: Path) -> None:
    folder = marked(tmp_path / "log")
    check_rows(spark, folder, [("s1", 0, "a"), ("s1", 1, "b"), ("s2", 1, "a")])
    assert delta.plain_files(delta.open_table(str(folder))) is None


def test_a_table_with_no_row_is_an_empty_log(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "log", ROWS)
    DeltaTable(tmp_path / "log").delete()
    check_rows(spark, tmp_path / "log", [])


def test_commands_on_a_table(spark: SparkSession, tmp_path: Path) -> None:
    folder = rewritten(tmp_path / "log")
    for engine in ("spark", "auto"):
        result = audit(folder, "--engine", engine)
        assert result.exit_code == 3 and "4 deliveries to 2 subscribers" in result.output, result.output
        assert "tno                 valid" in result.output
    part = audit(next(folder.glob("*.parquet")))
    assert part.exit_code == 2 and "a part of a Delta table" in part.output
    replayed = CliRunner().invoke(main, ["replay", str(folder), "--subscriber", "s1"])
    assert replayed.exit_code == 2 and "this is a Delta table, and no archive" in replayed.output
    followed = audit(folder, "--follow", "--once", "--checkpoint", tmp_path / "state")
    assert followed.exit_code == 2 and "audit it without --follow" in followed.output
    held = pa.table({"subscriber": ["s1", "s2"], "topic": ["A", "A"]})
    write_deltalake(tmp_path / "held", held)
    DeltaTable(tmp_path / "held").delete("subscriber = 's2'")
    words = ["plan", str(tmp_path / "held"), "--node", "eu=europe", "--out", str(tmp_path / "plan")]
    planned = CliRunner().invoke(main, words)
    assert planned.exit_code == 0 and "1 subscription" in planned.output, planned.output


def test_a_damaged_log_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    folder = rewritten(tmp_path / "log")
    (folder / "_delta_log" / f"{1:020}.json").write_text('{"commitInfo": {"timest')
    with pytest.raises(LogError, match="this Delta table cannot be read"):
        read_tables(spark, str(folder))


def test_a_table_of_a_newer_version(spark: SparkSession, tmp_path: Path) -> None:
    folder = marked(tmp_path / "log")
    log = folder / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace("deletionVectors", "timeTravelToTomorrow"))
    with pytest.raises(LogError, match="this Delta table cannot be read"):
        read_tables(spark, str(folder))


def test_without_the_extra(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = rewritten(tmp_path / "log")
    monkeypatch.setattr(delta, "find_spec", lambda name: None)
    result = audit(folder, "--engine", "spark")
    assert result.exit_code == 2 and 'pip install "seriatim[delta]"' in result.output, result.output
