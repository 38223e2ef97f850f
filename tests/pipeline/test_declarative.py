"""The declarative pipeline, run by `spark-pipelines` as a data team would: twice, with new files in between."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from seriatim.cli import main
from seriatim.model import Delivery
from seriatim.pipeline import declarative
from seriatim.pipeline.logs.reading import CORRUPT
from tests.turns import turn

SECONDS_MAX = 900  # a machine that does other things as well may need many times the usual half minute
SOURCE = Path(__file__).parent.parent.parent / "src"


def write(path: Path, *rows: Delivery | dict[str, object]) -> None:
    lines = []
    for row in rows:
        cells = row
        if isinstance(row, Delivery):
            cells = {"host": row.subscriber, "position": row.position, "event_id": row.event_id, "topic": row.topic}
        lines.append(json.dumps(cells) + "\n")
    path.write_text("".join(lines))


def run_pipeline(folder: Path) -> str:
    """`spark-pipelines run`, with this interpreter and this source tree."""
    environment = os.environ | {
        "PYTHONPATH": str(SOURCE),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    with turn("spark-pipelines"):  # it always takes the same port
        done = subprocess.run(
            ["spark-pipelines", "run"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
        )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def answers(spark: SparkSession, folder: Path, *lines: str) -> dict[str | None, tuple[str, str]]:
    """What the tables of the pipeline say about `tno` of each run, made from these lines without `spark-pipelines`."""
    folder.mkdir()
    (folder / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))
    plan = declarative.Plan(spark, folder.as_uri(), "jsonl")
    reader = spark.read.schema(plan.raw().schema).option("columnNameOfCorruptRecord", CORRUPT)
    raw = reader.json(str(folder)).cache()  # Spark does not answer a question about nothing but lines that are cut off
    try:
        judged = declarative.audited(plan.validated(raw))
        found = declarative.verdicts(judged, plan.refused(raw)).where("guarantee = 'tno'").collect()
        return {row.run: (row.answer, row.reason) for row in found}
    finally:
        raw.unpersist()


def run_of(name: str | None) -> list[str]:
    run = {} if name is None else {"run": name}
    return [
        json.dumps({**run, "subscriber": s, "position": i, "event_id": e, "topic": e.upper()})
        for s in ("s1", "s2")
        for i, e in enumerate("abc")
    ]


@pytest.mark.long
def test_rows_without_a_run_doubt_every_run(spark: SparkSession, tmp_path: Path) -> None:
    monday, tuesday = run_of("monday"), run_of("tuesday")
    valid = ("valid", "no violation in 6 deliveries to 2 subscribers")
    assert answers(spark, tmp_path / "whole", *monday, *tuesday) == {"monday": valid, "tuesday": valid}
    misfit = '{"run": "monday", "subscriber": "s3", "position": "x", "event_id": "a", "topic": "A"}'
    doubted = {"monday": ("unknown", "1 rows were refused"), "tuesday": valid}
    assert answers(spark, tmp_path / "misfit", *monday, *tuesday, misfit) == doubted
    # A line that was cut off says nothing about its run, so it may be of any.
    doubted = {"monday": ("unknown", "2 rows were refused"), "tuesday": ("unknown", "1 rows were refused")}
    cut = '{"run": "monday", "subscriber": "s3", "posi'
    assert answers(spark, tmp_path / "cut", *monday, *tuesday, misfit, cut) == doubted
    reason = "there are rows that do not say which run they are of"
    both = {"": ("unknown", reason), "monday": ("unknown", reason)}
    assert answers(spark, tmp_path / "unnamed", *monday, *run_of(None)) == both
    assert answers(spark, tmp_path / "plain", *run_of(None)) == {"": valid}


@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS_MAX + 60)
def test_raw_to_validated_to_audited_twice(spark: SparkSession, tmp_path: Path) -> None:
    log, project = tmp_path / "log", tmp_path / "audit"
    log.mkdir()
    write(log / "1.jsonl", *(Delivery(s, i, e, e.upper()) for s in ("s1", "s2") for i, e in enumerate("abc")))
    words = ["pipeline", str(project), "--input", str(log), "--subscriber", "host"]
    made = CliRunner().invoke(main, words)
    assert made.exit_code == 0, made.output
    assert CliRunner().invoke(main, words).exit_code == 2  # it is there already

    defaults = project / "conf" / "spark-defaults.conf"
    text = defaults.read_text().replace("-Dderby", "-XX:TieredStopAtLevel=1 -Dderby")  # quicker to start
    defaults.write_text(re.sub(r"(shuffle.partitions\s+)16", r"\g<1>2", text))

    def table(name: str) -> list[dict[str, object]]:
        return [row.asDict() for row in spark.read.parquet(str(project / "warehouse" / name)).collect()]

    run_pipeline(project)
    assert len(table("deliveries")) == 6
    assert {row["guarantee"]: row["answer"] for row in table("verdicts")}["tno"] == "valid"

    write(log / "2.jsonl", Delivery("s3", 0, "b", "B"), Delivery("s3", 1, "a", "A"), {"host": "s4", "position": "x"})
    run_pipeline(project)
    answers = {row["guarantee"]: (row["answer"], row["reason"]) for row in table("verdicts")}
    assert answers["tno"] == ("invalid", "inversion (1)")
    assert answers["per-topic"] == ("unknown", "1 rows were refused")
    (anomaly,) = table("anomalies")
    assert anomaly["sentence"] == "s1 was notified of a before b, s3 of b before a"
    assert len(json.loads(str(anomaly["witness"]))) == 4
    (refused,) = table("refused")
    assert refused["problem"] == "column position: x is not a whole number"
    assert len(table("raw_deliveries")) == 9
