"""Whose sequence is replayed: a name that the delivery logs do not know is an error, and never an empty sequence."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from seriatim.cli import main
from seriatim.model import Delivery, History, Subscription
from tests.pipeline.archives import archived, with_events

NAMES = ("billing~0011223344", "billing~5566778899", "shipping~aabbccddee")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    history = History(
        [Delivery(name, i, event, event.upper()) for name in NAMES for i, event in enumerate("ab")],
        subscriptions=[Subscription(name, topic, 0) for name in (*NAMES, "audit~0") for topic in "AB"],
    )
    uri = tmp_path_factory.mktemp("names") / "lake"
    archived(spark, history, uri)
    return with_events(spark, history, uri)


def replay(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, words)])


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("billing", "billing~0011223344, billing~5566778899?"),  # as `sub --name` was given
        ("Biling", "billing~0011223344, billing~5566778899, "),
        ("shipping~aabbccdde0", "shipping~aabbccddee, "),
    ],
)
def test_an_unknown_name(lake: str, tmp_path: Path, name: str, near: str) -> None:
    result = replay(lake, "--subscriber", name, "--out", tmp_path / "out", "--format", "jsonl")
    assert result.exit_code == 2 and not (tmp_path / "out").exists()
    assert f"--subscriber: the delivery logs of this archive do not know '{name}'; did you mean {near}" in result.output


def test_known_names(lake: str) -> None:
    shown = replay(lake, "--subscriber", NAMES[0], "--json")
    assert [json.loads(line)["event_id"] for line in shown.stdout.splitlines()] == ["a", "b"], shown.output
    silent = replay(lake, "--subscriber", "audit~0")  # it subscribed, and was notified of nothing
    assert silent.exit_code == 0 and "no events" in silent.output
