"""`seriatim audit` with an engine to choose: what it takes, what it says, and the same report from all of them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from seriatim.audit import write_history
from seriatim.cli import main
from seriatim.cli.audit import input as audit_input
from seriatim.cli.audit.input import choose_engine
from seriatim.model import Delivery, History
from seriatim.pipeline.logs import write_parquet

MAPPED = ("--subscriber", "host", "--event", "msg_id")


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, words)])


def disagreeing(folder: Path) -> Path:
    rows = [Delivery(s, i, e, e.upper()) for s, events in (("s1", "ab"), ("s2", "ba")) for i, e in enumerate(events)]
    write_history(History(rows), folder)
    return folder


def test_the_engine_is_chosen_by_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("x" * 10)
    assert choose_engine(str(tmp_path), "auto")[:2] == ("python", "a small log")
    assert choose_engine(str(tmp_path / "*.csv"), "auto").engine == "python"
    assert choose_engine("s3a://bucket/log", "auto")[:2] == ("spark", "a URI")
    assert choose_engine(str(tmp_path), "spark")[:2] == ("spark", "--engine")
    monkeypatch.setattr(audit_input, "BYTES_MAX", 5)
    assert choose_engine(str(tmp_path), "auto")[:2] == ("spark", "0 MB")
    monkeypatch.setattr(audit_input, "FILES_MAX", 0)
    monkeypatch.setattr(audit_input, "BYTES_MAX", 100)
    assert choose_engine(str(tmp_path), "auto")[:2] == ("spark", "more than 0 files")
    (tmp_path / "b.parquet").write_text("")
    assert choose_engine(str(tmp_path / "b.parquet"), "auto")[1:3] == ("Parquet", True)


def test_a_large_log_without_java_is_audited_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disagreeing(tmp_path / "run")
    monkeypatch.setattr(audit_input, "BYTES_MAX", 5)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    result = run(tmp_path / "run", "--guarantee", "tno")
    assert result.exit_code == 1
    assert "Spark would be faster, but this command runs on Spark, which needs Java" in result.output
    result = run(tmp_path / "run", "--engine", "spark")
    assert result.exit_code == 2 and "install Java 17 or newer" in result.output and "verdict" not in result.output


def test_all_engines_give_the_same_report(spark: SparkSession, tmp_path: Path) -> None:
    log = disagreeing(tmp_path / "run")
    answers = {}
    for engine in ("python", "spark"):
        result = run(log, "--engine", engine, "--json")
        assert result.exit_code == 1, result.output
        answers[engine] = json.loads(result.stdout)
        assert answers[engine].pop("engine") == engine
    assert answers["python"] == answers["spark"]
    result = run(log, "--table", tmp_path / "out", "--guarantee", "tno")
    assert result.exit_code == 1 and "engine: Spark (--table)" in result.output
    verdicts = {row.guarantee: row.answer for row in spark.read.parquet(str(tmp_path / "out" / "verdicts")).collect()}
    assert verdicts["tno"] == "invalid" and verdicts["per-topic"] == "valid"
    (anomaly,) = spark.read.parquet(str(tmp_path / "out" / "anomalies")).collect()
    assert anomaly.sentence == "s1 was notified of a before b, s2 of b before a"


def test_the_verdict_does_not_wait_for_tables_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    log = disagreeing(tmp_path / "run")
    (tmp_path / "file").write_text("no folder")
    result = run(log, "--table", tmp_path / "file" / "out", "--guarantee", "tno")
    assert result.exit_code == 2 and "tno                 invalid  inversion (1)" in result.stdout, result.output
    error = result.stderr.splitlines()[-1]
    assert error.startswith("Error: --table: ") and "the verdict above is complete" in error


def test_follow(spark: SparkSession, tmp_path: Path) -> None:
    log = disagreeing(tmp_path / "run") / "deliveries.jsonl"
    words = (log, "--follow", "--once", "--checkpoint", tmp_path / "state", "--guarantee", "tno")
    result = run(*words)
    assert result.exit_code == 1, result.output
    assert "batch 0  inversion: s1 was notified of a before b, s2 of b before a" in result.output
    assert "tno                 invalid  inversion (1)" in result.output
    again = run(*words)  # nothing is new: nothing is told again, and what is known is known
    assert again.exit_code == 1 and "batch" not in again.output and "inversion (1)" in again.output


@pytest.mark.long
def test_follow_one_run_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for run_name, events in (("mon", "ab"), ("tue", "ba")):
        folder = log / f"run={run_name}"
        folder.mkdir(parents=True)
        rows = "".join(f"s-{run_name},{i},{event},{event.upper()}\n" for i, event in enumerate(events))
        (folder / "log.csv").write_text(f"subscriber,position,event_id,topic\n{rows}")
    words = (log, "--follow", "--once", "--guarantee", "tno", "--checkpoint")
    mixed = run(*words, tmp_path / "all")
    assert mixed.exit_code == 2 and "rows of several runs: mon, tue; audit one at a time: --run NAME" in mixed.output
    for _ in range(2):  # the second time from the checkpoint
        monday = run(*words, tmp_path / "all", "--run", "mon")
        assert monday.exit_code == 0 and "2 deliveries to 1 subscriber" in monday.output, monday.output
    other = run(*words, tmp_path / "all", "--run", "tue")
    assert other.exit_code == 2 and "follows run mon, not tue; give another checkpoint" in other.output
    absent = run(*words, tmp_path / "none", "--run", "xyz")
    assert absent.exit_code == 2 and "no row of run xyz; its runs are mon, tue" in absent.output


@pytest.mark.long
def test_follow_files_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    other, damaged = tmp_path / "other", tmp_path / "damaged"
    for folder in (other, damaged):
        folder.mkdir()
    (other / "1.csv").write_text("subscriber,position,event_id,topic\ns1,0,a,A\n")
    (other / "2.csv").write_text("subscriber,event_id,position,topic\ns2,a,0,A\n")
    write_parquet(History([Delivery("s1", i, f"{i:0100}", "A") for i in range(1_000)]), damaged)
    table = damaged / "deliveries.parquet"
    data = bytearray(table.read_bytes())
    data[100:2_000] = bytes(byte ^ 0xFF for byte in data[100:2_000])
    table.write_bytes(data)
    for folder, file, problem in (
        (other, ".csv", "its columns are not those of the other files"),
        (damaged, "deliveries.parquet", "cannot be read: damaged, cut off, or not what its name says"),
    ):
        result = run(folder, "--follow", "--once", "--checkpoint", tmp_path / f"{folder.name}-state")
        assert result.exit_code == 2, result.output
        (line,) = result.output.splitlines()
        assert f"{file}: {problem}" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--follow",), "needs --checkpoint"),
        (("--follow", "--checkpoint", "x", "--trigger", "soon"), "'soon' is not a time such as 5s"),
        (("--table", "out", "--engine", "python"), "--table writes Parquet"),
        (("--map", "subscriber"), "'subscriber' is not FIELD=COLUMN"),
        (("--map", "colour=red"), "'colour' is not a field of a delivery"),
        (("--map", "event=id", "--event", "msg_id"), "event_id is mapped twice"),
        (("--position", "p", "--order-by", "at"), "both a position and a column to order by"),
        (MAPPED, "no files in this folder"),
    ],
)
def test_wrong_words(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    result = run(tmp_path, *words)
    assert result.exit_code == 2
    assert message in result.output
