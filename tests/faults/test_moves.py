"""Topics move while their old home, their new one, the root or a subscriber is killed in the middle: real processes."""

from collections.abc import Iterator

import pytest

from soak.tree.shapes import SHAPES
from tests.faults.stage import Stage

OVERLAPPING = {"for_s": 1.5, "gap_s": -1.4}  # each strikes while those before it last


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(SHAPES["tree"], tmp_path_factory.mktemp("moves")) as stage:
        yield stage


@pytest.fixture
def test(request: pytest.FixtureRequest) -> str:
    return str(request.node.nodeid)


@pytest.mark.long
def test_the_old_home_is_killed(stage: Stage, test: str) -> None:
    """In the first line before it can hand over, in the second while the new home is frozen."""
    stage.round(test, ("kill-sequencer", "east"), ("move", "orders>west"), **OVERLAPPING)
    stage.round(
        test, ("freeze-sequencer", "west"), ("move", "payments>west"), ("kill-sequencer", "east"), **OVERLAPPING
    )


def test_the_root_is_killed(stage: Stage, test: str) -> None:
    stage.round(test, ("freeze-sequencer", "east"), ("move", "stock>east"), ("kill-sequencer", "root"), **OVERLAPPING)


@pytest.mark.long
def test_the_new_home_is_killed(stage: Stage, test: str) -> None:
    stage.round(test, ("kill-sequencer", "west"), ("move", "news>west"), **OVERLAPPING)
    stage.round(test, ("delay-nodes", "east"), ("move", "news>east"), ("kill-sequencer", "east"), **OVERLAPPING)


@pytest.mark.long
def test_subscribers_and_publishers_are_killed(stage: Stage, test: str) -> None:
    stage.round(
        test,
        ("freeze-sequencer", "east"),
        ("move", "prices>east"),
        ("kill-subscriber", "billing"),
        ("kill-subscriber", "reports"),
        ("kill-publisher", "p1"),
        **OVERLAPPING,
    )


@pytest.mark.long
def test_everything_is_killed(stage: Stage, test: str) -> None:
    stage.round(test, ("delay-nodes", "west"), ("move", "news>west"), ("kill-everything", "everything"), **OVERLAPPING)
    stage.round(test, ("move", "news>root"), ("kill-everything", "everything"), for_s=0.2, gap_s=-0.2)


@pytest.mark.long
def test_links_and_the_broker_break(stage: Stage, test: str) -> None:
    stage.round(test, ("partition-nodes", "east"), ("move", "news>east"), ("cut-nodes", "west"), **OVERLAPPING)
    stage.round(test, ("move", "orders>root"), ("kill-nats", "nats"), for_s=0.5, gap_s=-0.5)
    stage.round(test, ("partition-sequencer", "west"), ("move", "orders>west"), **OVERLAPPING)


@pytest.mark.long
def test_to_and_fro(stage: Stage, test: str) -> None:
    moves = [("move", f"{topic}>{node}") for node in ("east", "west", "root") for topic in ("orders", "stock", "news")]
    stage.round(test, *moves, for_s=0.0, gap_s=0.5)
