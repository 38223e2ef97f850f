"""Small files at a URI: what is whole, what stays, and what is said when it cannot be done."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from seriatim.model import InputError
from seriatim.pipeline.spark import files


def test_a_file_that_is_there_stays_unless_it_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    uri = files.join(f"{tmp_path.as_uri()}/", "new", "state.json")
    assert files.read(spark, uri) is None
    assert files.create(spark, uri, b"first\x00\xff")
    assert not files.create(spark, uri, b"second")
    assert files.read(spark, uri) == b"first\x00\xff"
    files.replace(spark, uri, b"third")
    assert files.read(spark, uri) == b"third"
    (entry,) = files.children(spark, files.join(tmp_path.as_uri(), "new"))  # and nothing of another name beside it
    assert (entry.name, entry.is_folder, entry.bytes) == ("state.json", False, 5)
    assert entry.changed_at == pytest.approx((tmp_path / "new" / "state.json").stat().st_mtime, abs=1.0)
    assert files.read_head(spark, entry, 3) == b"thi"
    assert files.read_head(spark, entry, 100) == b"third"


def test_what_is_in_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", ".hidden", "_records/one.json", "date=1/c.csv", "date=1/_d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("12345")
    uri = str(tmp_path)
    assert [entry.name for entry in files.children(spark, uri)] == ["_records", "a.csv", "b.csv", "date=1"]
    assert [entry.name for entry in files.children(spark, uri) if entry.is_hidden] == ["_records"]
    assert sorted(entry.name for entry in files.files_below(spark, uri, 100)) == ["a.csv", "b.csv", "c.csv"]
    assert len(files.files_below(spark, uri, 1)) <= 1
    assert sorted(entry.name for entry in files.find(spark, f"{uri}/*.csv")) == ["a.csv", "b.csv"]
    assert [entry.is_folder for entry in files.find(spark, uri)] == [True]
    assert files.size(spark, f"{uri}/date=1") == 10


def test_what_is_not_there_is_nothing(spark: SparkSession, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent")
    assert files.children(spark, absent) == []
    assert files.find(spark, absent) == []
    assert files.find(spark, f"{absent}/*.csv") == []
    files.remove(spark, absent)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("")
    files.remove(spark, str(tmp_path / "folder"))
    assert files.children(spark, str(tmp_path)) == []


def test_what_cannot_be_done_names_the_place(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inside = str(tmp_path / "file" / "state.json")  # below a file, where no folder can be: whoever runs the test
    for write in (files.create, files.replace):
        with pytest.raises(InputError, match=r"file/state\.json: it cannot be written: .*; check the address"):
            write(spark, inside, b"")
    with pytest.raises(InputError, match=r"nowhere://x: it cannot be used: .*; give a path, file:, hdfs: or s3a: URI"):
        files.children(spark, "nowhere://x")
    with pytest.raises(InputError, match="it cannot be listed"):
        files.size(spark, str(tmp_path / "absent"))
