"""The archive of Spark's classes is an aid: without it, or with a wrong one, everything works."""

import subprocess
import sys
from pathlib import Path

import pytest

from seriatim.pipeline.spark import class_archive
from seriatim.pipeline.spark.class_archive import archive_path, main, sharing_options

STARTED = """
from seriatim.pipeline.spark import session
from pathlib import Path
import sys

session.archive_path = lambda: Path(sys.argv[1])
with session.spark_session(session.SparkOptions(master="local[1]", memory="512m", shuffle_partitions=1)) as spark:
    print(spark.range(3).count())
"""


def test_what_is_not_there_is_not_asked_for(tmp_path: Path) -> None:
    assert sharing_options(None) == ""
    assert sharing_options(tmp_path / "none.jsa") == ""


def test_a_path_with_a_space_cannot_be_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", "/home/some one/venv")
    assert archive_path() is None


def test_where_it_cannot_be_made_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(class_archive, "archive_path", lambda: None)
    assert main() == 1
    assert "not kept" in capsys.readouterr().err


@pytest.mark.long
def test_one_that_does_not_fit_is_passed_over_without_a_word(tmp_path: Path) -> None:
    """What the JVM would say about it must not be among a command's own output."""
    wrong = tmp_path / "wrong.jsa"
    wrong.write_bytes(b"not an archive" * 1000)
    found = subprocess.run(
        [sys.executable, "-c", STARTED, str(wrong)], capture_output=True, text=True, timeout=600, check=True
    )
    assert found.stdout.strip() == "3"
