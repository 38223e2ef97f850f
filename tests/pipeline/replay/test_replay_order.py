"""The promises of a replay, judged by the auditor beside real subscribers in simulated runs with faults."""

from collections import defaultdict
from itertools import combinations

import pytest

from seriatim.audit import audit
from seriatim.lab.sim import Options
from seriatim.model import Delivery, History
from tests.pipeline.replay.worlds import Archived, archived

GLOBAL = Options(order="global", broker="fifo")
PAIRWISE = Options(order="pairwise", mode="log", broker="fifo", changes=0, subscribers=6, topics=4)


def disorder(world: Archived, replay: list[Delivery]) -> list[str]:
    report = audit(History([*world.history.deliveries, *replay]))
    return [anomaly.sentence for anomaly in report.anomalies_against(["tno"])]


@pytest.mark.parametrize("seed", range(20))
def test_clusters_in_global_order_replay_any_topics_as_everybody_saw_them(seed: int) -> None:
    """Under churn, crashes and voids, and whatever the broker's clock said."""
    world = archived(seed, GLOBAL)
    logs = sorted({stamp.log for stamp in world.stamps})
    for count in range(1, len(logs) + 1):
        chosen = set(logs[:count])
        merger = world.merged(chosen)
        replay = world.replayed(merger.take())
        assert merger.held() == []
        assert len(replay) == sum(log in chosen for log, _ in world.events)
        assert disorder(world, replay) == [], f"seed {seed}, {chosen}"


@pytest.mark.parametrize("seed", range(20))
def test_pairwise_order_is_replayed_where_two_held_both_topics(seed: int) -> None:
    world = archived(seed, PAIRWISE)
    holdings = defaultdict(set)
    for row in world.history.subscriptions:
        holdings[row.subscriber].add(row.topic)
    logs = sorted({stamp.log for stamp in world.stamps})
    for count in (2, 3):
        for chosen in combinations(logs, count):
            pairs = list(combinations(chosen, 2))
            if all(sum(held.issuperset(pair) for held in holdings.values()) != 1 for pair in pairs):
                assert disorder(world, world.replayed(world.merged(set(chosen)).take())) == [], f"seed {seed}, {chosen}"


def test_who_held_two_topics_alone_may_have_seen_another_order() -> None:
    """The limit that docs/replay.md states is real: such a run exists."""
    found = []
    for seed in range(8):
        world = archived(seed, PAIRWISE)
        logs = {stamp.log for stamp in world.stamps}
        found += disorder(world, world.replayed(world.merged(logs).take()))
    assert found
