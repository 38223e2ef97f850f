"""Missing rows of an archive prove nothing: neither that all is well nor that something is wrong."""

from pathlib import Path

import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from seriatim.audit import audit
from seriatim.model import Delivery, History, Publication, Subscription
from seriatim.order import GUARANTEES
from seriatim.pipeline.archive import read_archive, read_gaps
from seriatim.pipeline.audit import audit_tables
from seriatim.pipeline.logs import history_of, read_tables
from seriatim.pipeline.replay import saw, sentence
from tests.pipeline.archives import archived

SUBSCRIBERS = ("billing", "shipping")


def shop() -> History:
    """Two subscribers of two topics; all guarantees hold."""
    events = [(f"e{number}", "AB"[number % 2], number // 2 + 1) for number in range(6)]
    return History(
        [
            Delivery(name, position, event, topic, number, notified_at=float(position))
            for name in SUBSCRIBERS
            for position, (event, topic, number) in enumerate(events)
        ],
        [Publication(e, topic, "p", sequence=i, seen=0, number=n) for i, (e, topic, n) in enumerate(events)],
        [Subscription(name, topic, 0, start=0) for name in SUBSCRIBERS for topic in "AB"],
    )


def answers(history: History) -> dict[str, str]:
    return {name: verdict.answer for name, verdict in audit(history).verdicts.items()}


@pytest.mark.parametrize(
    ("lost", "valid"),
    [
        pytest.param({}, set(GUARANTEES), marks=pytest.mark.long),
        pytest.param(
            {"deliveries": (6,)}, set(), marks=pytest.mark.long
        ),  # the last row of a subscriber, so that no hole in its positions shows it
        pytest.param({"publications": (3, 4)}, {"per-topic", "tno", "acyclic"}, marks=pytest.mark.long),
        pytest.param({"subscriptions": (2,)}, set(GUARANTEES) - {"integrity", "completeness"}, marks=pytest.mark.long),
    ],
)
def test_both_auditors_doubt_what_rests_on_lost_rows(
    spark: SparkSession, tmp_path: Path, lost: dict[str, tuple[int, ...]], valid: set[str]
) -> None:
    tables = read_tables(spark, archived(spark, shop(), tmp_path / "lake", lost=lost))
    assert {table: count for table, count in tables.lost[""].items() if count} == {
        table: len(positions) for table, positions in lost.items()
    }
    history = history_of(tables, 1_000)
    assert history is not None
    report = audit(history)
    assert answers(history) == {name: "valid" if name in valid else "unknown" for name in GUARANTEES}
    assert report.anomalies == ()
    for table, positions in lost.items():
        assert f"message{'s' * (len(positions) > 1)} of {table}" in report.verdicts["completeness"].reason
    assert audit_tables(tables).report.verdicts == report.verdicts


@pytest.mark.long
def test_what_was_before_the_archive_began_is_lost_too(spark: SparkSession, tmp_path: Path) -> None:
    """With `--gaps fail` an archive begins with what a stream still has, and has no row about what was before."""
    tables = read_tables(spark, archived(spark, shop(), tmp_path / "lake", begin=4))
    assert tables.lost[""] == {"deliveries": 3, "publications": 3, "subscriptions": 3}


@pytest.mark.long
def test_an_inversion_that_is_there_is_told(spark: SparkSession, tmp_path: Path) -> None:
    history = shop()
    first, second, *rest = history.deliveries
    swapped = [structs.replace(second, position=0), structs.replace(first, position=1), *rest]
    uri = archived(spark, structs.replace(history, deliveries=swapped), tmp_path / "lake", lost={"deliveries": (12,)})
    verdicts = audit_tables(read_tables(spark, uri)).report.verdicts
    assert (verdicts["tno"].answer, verdicts["per-topic"].answer) == ("invalid", "unknown")


def test_a_replay_tells_that_deliveries_were_lost(spark: SparkSession, tmp_path: Path) -> None:
    uri = archived(spark, shop(), tmp_path / "lake", lost={"deliveries": (6,)})
    events = read_archive(spark, uri, "events")
    deliveries, lost = read_archive(spark, uri, "deliveries"), read_gaps(spark, uri, "deliveries")
    missing = saw(events, deliveries, "billing", lost=lost).missing.where("kind = 'message'").collect()
    assert [sentence(*row) for row in missing] == [
        "shop-logs-deliveries, message 6: the stream does not have it any more; billing may have rows in it"
    ]
