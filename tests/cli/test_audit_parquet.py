"""`seriatim audit` of Parquet that one process judges: without Spark, and without Java."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from seriatim.cli import main
from seriatim.cli.audit import input as audit_input
from seriatim.cli.audit.input import choose_engine
from seriatim.model import Delivery, History
from seriatim.pipeline.logs import write_parquet

TOLD = "engine: plain Python (4 rows of Parquet; --engine spark takes Spark)"


@pytest.fixture(autouse=True)
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = [Delivery(s, i, e, e.upper()) for s, events in (("s1", "ab"), ("s2", "ba")) for i, e in enumerate(events)]
    write_parquet(History(rows), tmp_path / "run")
    return tmp_path / "run"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, words), "--guarantee", "tno"])


def test_a_folder_and_a_file(log: Path) -> None:
    for path in (log, log / "deliveries.parquet"):
        result = run(path)
        assert result.exit_code == 1 and result.stderr.splitlines() == [TOLD], result.output
        assert "inversion: s1" not in result.stdout and "s1 was notified of a before b" in result.stdout
    forced = run(log, "--engine", "python")
    assert forced.exit_code == 1 and not forced.stderr


def test_many_rows_go_to_spark(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_engine(str(log), "auto", reads_parquet=True).reason == "4 rows of Parquet"
    monkeypatch.setattr(audit_input, "PARQUET_ROWS_MAX", 3)
    assert choose_engine(str(log), "auto", reads_parquet=True)[:2] == ("spark", "Parquet")
    result = run(log)
    assert result.exit_code == 2 and "needs Java" in result.output


def test_what_is_not_simple_goes_to_spark(log: Path) -> None:
    rows = pq.read_table(log / "deliveries.parquet")
    place = rows.column_names.index("position")
    texts = rows.set_column(place, "position", rows["position"].cast(pa.string()))
    pq.write_table(texts, log / "deliveries.parquet")
    forced = run(log, "--engine", "python")
    assert forced.exit_code == 2 and "column position: of type string; leave out --engine python" in forced.output
    chosen = run(log)
    assert chosen.exit_code == 2 and "this command runs on Spark, which needs Java" in chosen.output


def test_what_no_engine_reads_is_told_at_once(log: Path) -> None:
    rows = pq.read_table(log / "deliveries.parquet").drop_columns(["topic"])
    pq.write_table(rows, log / "deliveries.parquet")
    result = run(log)
    assert result.exit_code == 2 and "no column topic" in result.output and "Java" not in result.output
