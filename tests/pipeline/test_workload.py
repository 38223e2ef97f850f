"""Rows follow from the seed and their own key, popularity is as asked, and violations are where they are said to be."""

import numpy as np
import pytest
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession

from seriatim.audit import audit
from seriatim.model import Delivery, History, InputError, Publication, Subscription
from seriatim.pipeline import workload as made
from seriatim.pipeline.workload import Workload
from seriatim.pipeline.workload.draws import choose_distinct, popularities

SMALL = Workload(seed=7, subscribers=60, topics=20, held=4, sites=3, local_share=0.7, events=400, publishers=5)


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.collect()]


def history_of(spark: SparkSession, workload: Workload, injected: list[made.Injection]) -> History:
    return History(
        [Delivery(*row) for row in rows_of(made.deliveries(spark, workload, injected))],  # type: ignore[arg-type]
        [Publication(*row) for row in rows_of(made.delivered_publications(spark, workload))],  # type: ignore[arg-type]
        [Subscription(*row) for row in rows_of(made.delivered_subscriptions(spark, workload))],  # type: ignore[arg-type]
    )


@pytest.mark.long
def test_the_number_of_partitions_changes_no_row(spark: SparkSession) -> None:
    workload = structs.replace(SMALL, churn=0.3, held_max=7, common=1, popularity="power-law", exponent=2.1)
    for make in (made.subscriptions, made.publications, made.rates, made.sites, made.delivered_publications):
        one, many = (sorted(rows_of(make(spark, workload, partitions)), key=repr) for partitions in (1, 7))
        assert one == many, make.__name__
        assert len(set(map(repr, one))) == len(one)
    one, many = (sorted(rows_of(made.deliveries(spark, SMALL, partitions=count)), key=repr) for count in (1, 5))
    assert one == many


def test_another_seed_is_another_workload(spark: SparkSession) -> None:
    other = structs.replace(SMALL, seed=8)
    assert rows_of(made.subscriptions(spark, SMALL)) != rows_of(made.subscriptions(spark, other))


def test_subscriptions_are_sets_of_the_size_asked_for(spark: SparkSession) -> None:
    workload = structs.replace(SMALL, held_max=9, common=2, churn=0.5, topics=40)
    held: dict[str, set[str]] = {}
    ended = 0
    for subscriber, topic, since, until, *_ in rows_of(made.subscriptions(spark, workload)):
        assert topic not in held.setdefault(str(subscriber), set())  # nobody comes back to a topic it left
        held[str(subscriber)].add(str(topic))
        ended += until is not None
        assert until is None or (isinstance(until, int) and until > 0 and since == 0)
    current = rows_of(made.subscriptions(spark, workload).where("until is null").groupBy("subscriber").count())
    assert {count for _, count in current} == set(range(4 + 2, 9 + 2 + 1))
    assert all({"t0", "t1"} <= topics for topics in held.values())
    assert ended > 60


@pytest.mark.parametrize(
    ("popularity", "exponent", "share"), [("zipf", 1.0, 0.2429), ("uniform", 1.0, 0.02), ("power-law", 2.1, None)]
)
def test_topics_are_chosen_by_popularity(popularity: str, exponent: float, share: float | None) -> None:
    workload = Workload(topics=50, held=1, popularity=popularity, exponent=exponent)  # type: ignore[arg-type]
    clients = np.arange(40_000)
    chosen = choose_distinct(workload, clients, np.zeros(40_000, np.int64), np.ones(40_000, np.int64)).topic
    first = (1 / sum(1 / rank for rank in range(1, 51))) if popularity == "zipf" else share
    expected = popularities(workload).weights
    assert first is None or expected[0] == pytest.approx(first)
    seen = np.bincount(chosen, minlength=50) / 40_000
    assert np.abs(seen - expected).max() < 5 * np.sqrt(expected.max() / 40_000)


def test_clients_choose_topics_of_their_own_site() -> None:
    workload = Workload(topics=90, held=1, popularity="uniform", sites=3, local_share=0.7)
    clients = np.arange(30_000)
    chosen = choose_distinct(workload, clients, clients % 3, np.ones(30_000, np.int64))
    local = (chosen.topic % 3 == chosen.owner % 3).mean()
    assert local == pytest.approx(0.7 + 0.3 / 3, abs=0.02)


def test_one_who_holds_every_topic_is_no_endless_loop() -> None:
    workload = Workload(topics=300, held=300, exponent=3.0)
    chosen = choose_distinct(workload, np.arange(3), np.zeros(3, np.int64), np.asarray([300, 299, 1]))
    assert [len(set(chosen.topic[chosen.owner == client].tolist())) for client in range(3)] == [300, 299, 1]


def test_deliveries_are_right_unless_something_is_injected(spark: SparkSession) -> None:
    report = audit(history_of(spark, SMALL, []))
    assert report.shared > 100
    assert report.answer(name for name in report.verdicts if "causal" not in name) == "valid"


def test_every_injected_violation_is_found(spark: SparkSession) -> None:
    injected = made.injections(SMALL, {"swap": 2, "duplicate": 1, "gap": 1})
    assert [each.kind for each in injected] == ["swap", "swap", "duplicate", "gap"]
    report = audit(history_of(spark, SMALL, injected))
    anomalies = [anomaly.sentence for anomaly in report.anomalies]
    for each in injected:
        assert any(each.event_id in sentence and each.subscriber in sentence for sentence in anomalies), each


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"topics": 3}, "topics"),
        ({"sites": 200}, "sites"),
        ({"local_share": 1.5}, "local_share"),
        ({"popularity": "power-law", "exponent": 1.0}, "exponent"),
        ({"held_max": 2}, "held_max"),
        ({"popularity": "gauss"}, "popularity"),
    ],
)
def test_what_makes_no_workload_is_named(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as raised:
        Workload(**wrong)  # type: ignore[arg-type]
    assert raised.value.field == field


def test_violations_that_nobody_could_see_are_refused() -> None:
    with pytest.raises(InputError, match="do not fit"):
        made.injections(Workload(subscribers=1, topics=20, events=50), {"swap": 1})
