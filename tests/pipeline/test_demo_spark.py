"""The second audit of the demo: the same verdicts from Spark; a missing requirement is reported, and the demo
continues."""

from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from seriatim.audit import Report, audit
from seriatim.demo import spark as demo_spark
from seriatim.demo.judge import Judgement
from seriatim.model import Delivery, History, Publication, Subscription
from seriatim.pipeline.spark.requirements import RequirementMissing, check_requirements


class Half(NamedTuple):
    report: Report


class Both(NamedTuple):
    """As much of a judgement as is looked at."""

    ordered: Half
    without: Half


def history(**notified: str) -> History:
    rows = [Delivery(s, i, e, e[0].upper(), 1) for s, words in notified.items() for i, e in enumerate(words.split())]
    publications = [Publication(row.event_id, row.topic, "p", number=1) for row in rows if row.subscriber == "s1"]
    held = [Subscription(name, topic, 0, start=0) for name in notified for topic in "AB"]
    return History(rows, publications, held)


WITH, WITHOUT = history(s1="a b", s2="a b"), history(s1="a b", s2="b a")


def both(ordered: History, without: History) -> Judgement:
    return Both(Half(audit(ordered)), Half(audit(without)))  # type: ignore[return-value]  # all that is looked at


@pytest.mark.long
def test_spark_says_the_same(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    again = demo_spark.audit_again({"with": WITH, "without": WITHOUT}, both(WITH, WITHOUT), is_quiet=False)
    assert again.agrees
    assert again.deliveries == 8
    assert "the same verdicts and counts; 8 deliveries in " in capsys.readouterr().out
    assert again.shown()["agrees"] is True


def test_without_java_the_demo_says_what_installs_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    again = demo_spark.audit_again({"with": WITH}, both(WITH, WITHOUT), is_quiet=False)
    assert again.agrees and again.shown().keys() == {"missing"}
    said = capsys.readouterr().out
    assert said.startswith("\nThe audit on Spark is left out: ") and "apt install openjdk-17-jre-headless" in said


def test_reports_that_differ() -> None:
    one, other = audit(WITH), audit(WITHOUT)
    assert demo_spark._same(one, one) and not demo_spark._same(one, other)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.pipeline.spark.requirements.find_spec", lambda name: None)
    with pytest.raises(RequirementMissing, match=r'pyspark is not installed; pip install "seriatim\[spark\]"'):
        check_requirements()
