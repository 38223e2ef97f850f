"""Faults in ticket mode: numbers whose publisher dies become voids, and nothing waits for them longer than a lease."""

from collections.abc import Iterator

import pytest

from soak.tree.shapes import SHAPES
from tests.faults.stage import Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(SHAPES["ticket"], tmp_path_factory.mktemp("ticket")) as stage:
        yield stage


@pytest.fixture
def test(request: pytest.FixtureRequest) -> str:
    return str(request.node.nodeid)


@pytest.mark.long
def test_publishers_killed_with_numbers_in_their_hands(stage: Stage, test: str) -> None:
    strikes = [("kill-publisher", "p1"), ("kill-subscriber", "billing"), ("kill-publisher", "p2")]
    stage.round(test, *strikes, ("kill-publisher", "p1"), ("kill-subscriber", "reports"), for_s=0.1, gap_s=0.2)


def test_sequencers_and_nats_killed(stage: Stage, test: str) -> None:
    stage.round(test, ("kill-sequencer", "east"), ("kill-nats", "nats"), for_s=0.2)


@pytest.mark.long
def test_the_root_and_nats_killed(stage: Stage, test: str) -> None:
    stage.round(test, ("kill-sequencer", "root"), ("kill-nats", "nats"), ("kill-sequencer", "east"), for_s=0.2)
