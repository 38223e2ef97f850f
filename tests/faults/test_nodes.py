"""Nodes come and go while the root, a neighbour, the node itself or a subscriber is killed: real processes."""

from collections.abc import Iterator

import pytest

from soak.tree.shapes import SHAPES
from tests.faults.stage import Stage

OVERLAPPING = {"for_s": 1.5, "gap_s": -1.4}  # each strikes while those before it last


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(SHAPES["tree"], tmp_path_factory.mktemp("nodes")) as stage:
        yield stage


@pytest.fixture
def test(request: pytest.FixtureRequest) -> str:
    return str(request.node.nodeid)


@pytest.mark.long
def test_a_leaf_comes_is_killed_and_goes(stage: Stage, test: str) -> None:
    stage.round(
        test,
        ("node-add", "root"),
        ("move", "orders>leaf1"),
        ("kill-sequencer", "leaf1"),
        ("move", "stock>leaf1"),
        ("kill-subscriber", "billing"),
        ("node-remove", "leaf1"),
        for_s=0.5,
    )


@pytest.mark.long
def test_the_root_and_the_neighbour_are_killed(stage: Stage, test: str) -> None:
    stage.round(test, ("node-add", "east"), ("kill-sequencer", "root"), ("kill-sequencer", "east"), **OVERLAPPING)
    stage.round(test, ("kill-sequencer", "root"), ("node-add", "west"), ("kill-sequencer", "west"), **OVERLAPPING)


@pytest.mark.long
def test_a_new_root_grows_while_the_old_one_is_killed(stage: Stage, test: str) -> None:
    stage.round(test, ("node-root", "tree"), ("kill-sequencer", "root"), ("kill-subscriber", "reports"), **OVERLAPPING)
    stage.round(test, ("move", "news>east"), ("kill-everything", "everything"), ("node-add", "tree"))


@pytest.mark.long
def test_nodes_go_while_everything_is_killed(stage: Stage, test: str) -> None:
    stage.round(test, ("node-add", "tree"), ("node-remove", "tree"), ("kill-everything", "everything"), **OVERLAPPING)
