"""Random runs of both variants: causal and total order per topic by the reference auditor, and nothing lost."""

import pytest

from seriatim.audit import audit
from seriatim.lab.sim.engine import MachineFailed
from seriatim.model import History
from tests.lab.papers.srpt.worlds import TOPICS, SrptWorld

PROMISED = ["fifo", "per-topic", "causal"]


def disorder(history: History) -> list[str]:
    """What the auditor finds against the promise, by topic."""
    sentences = []
    for topic in TOPICS:
        rows = [row for row in history.deliveries if row.topic == topic]
        positions: dict[str, list[int]] = {}
        for row in rows:
            positions.setdefault(row.subscriber, []).append(row.position)
        deliveries = []
        for row in rows:
            position = positions[row.subscriber].index(row.position)
            deliveries.append(type(row)(row.subscriber, position, row.event_id, topic, row.number))
        publications = []
        for made in history.publications:
            if made.topic == topic:
                seen = sum(position < (made.seen or 0) for position in positions.get(made.publisher, ()))
                publications.append(
                    type(made)(made.event_id, topic, made.publisher, made.published_at, made.sequence, seen)
                )
        one = History(deliveries=deliveries, publications=publications)
        report = audit(one)
        if (answer := report.answer(PROMISED)) != "valid":
            found = [anomaly.sentence for anomaly in report.anomalies_against(PROMISED)]
            sentences += found or [f"{topic}: {answer}"]
    return sentences


@pytest.mark.parametrize("variant", ["S", "B"])
@pytest.mark.parametrize("seed", range(40))
def test_order_is_kept_and_nothing_is_lost(variant: str, seed: int) -> None:
    world = SrptWorld(seed, variant)
    history = world.play()
    assert disorder(history) == [], f"seed {seed}, SRPT-{variant}"
    for (user, topic), since in world.subscribed.items():
        owed = [event.id for event in world.events[since:] if event.topic == topic]
        missing = set(owed) - set(world.notified.get(user, ()))
        assert not missing, f"seed {seed}, SRPT-{variant}: {user} misses {missing} of {topic}"


def test_links_that_overtake_are_noticed() -> None:
    """Order rests on links that keep it: without them a machine says so, or the auditor does."""
    noticed = 0
    for seed in range(20):
        world = SrptWorld(seed, "S", fifo=False)
        try:
            noticed += bool(disorder(world.play()))
        except MachineFailed as failed:
            assert "after" in str(failed)
            noticed += 1
    assert noticed >= 10
