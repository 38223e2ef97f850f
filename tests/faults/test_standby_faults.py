"""Faults on nodes with standbys, journals on JetStream: taken over, fenced, nothing lost or given out twice."""

from collections.abc import Iterator

import pytest

from soak.tree.shapes import SHAPES
from tests.faults.stage import Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(SHAPES["standby"], tmp_path_factory.mktemp("standby")) as stage:
        yield stage


@pytest.fixture
def test(request: pytest.FixtureRequest) -> str:
    return str(request.node.nodeid)


def test_the_active_process_killed(stage: Stage, test: str) -> None:
    """Twice, so that both have been active and both have been replaced."""
    result = stage.round(test, ("kill-sequencer", "root"), ("kill-sequencer", "root"), gap_s=3.5)
    assert result.recoveries, "the standby took over while the load went on"


def test_the_active_process_frozen_and_fenced_when_it_thaws(stage: Stage, test: str) -> None:
    stage.round(test, ("freeze-sequencer", "root"), for_s=2.5)


@pytest.mark.long
def test_the_active_process_cut_off_from_its_journal(stage: Stage, test: str) -> None:
    stage.round(test, ("partition-sequencer", "root"), for_s=2.5)


@pytest.mark.long
def test_nats_killed_with_the_journals_on_it(stage: Stage, test: str) -> None:
    stage.round(test, ("kill-nats", "nats"), for_s=0.5)


@pytest.mark.long
def test_a_third_process_lets_one_act_at_a_time(stage: Stage, test: str) -> None:
    stage.round(test, ("second-process", "east"), ("second-process", "root"))


@pytest.mark.long
def test_topics_move_while_standbys_take_over(stage: Stage, test: str) -> None:
    stage.round(
        test,
        ("kill-sequencer", "east"),
        ("move", "orders>west"),
        ("freeze-sequencer", "west"),
        ("move", "stock>east"),
        ("partition-nodes", "west"),
        for_s=2.5,
        gap_s=-1.0,
    )


@pytest.mark.long
def test_old_copies_of_durable_subscriptions(stage: Stage, test: str) -> None:
    stage.round(test, ("second-durable", "shipping"), ("stale-durable", "billing"))
