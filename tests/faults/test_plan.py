"""A plan of faults is made from its seed alone, strikes everybody sooner or later, and leaves time to recover."""

from itertools import pairwise

import pytest

from seriatim.model import InputError
from soak.tree.plan import KINDS, LAST_S, make_plan
from soak.tree.shapes import SHAPES, shape_named

TREE = SHAPES["tree"]


def test_the_same_seed_and_round_make_the_same_plan() -> None:
    assert make_plan(7, 3, TREE, 60.0) == make_plan(7, 3, TREE, 60.0)
    assert make_plan(7, 3, TREE, 60.0) != make_plan(7, 4, TREE, 60.0)
    assert make_plan(7, 3, TREE, 60.0) != make_plan(8, 3, TREE, 60.0)


@pytest.mark.parametrize("name", SHAPES)
def test_every_fault_that_fits_comes_up_with_every_target(name: str) -> None:
    shape = SHAPES[name]
    plans = [make_plan(1, number, shape, 120.0) for number in range(200)]
    seen = {(fault.kind, fault.target) for plan in plans for fault in plan}
    assert seen == {(kind, target) for kind in KINDS for target in KINDS[kind].targets(shape)}


def test_faults_end_before_the_load_does_and_sometimes_overlap() -> None:
    plans = [make_plan(2, number, TREE, 40.0) for number in range(100)]
    assert all(fault.at_s + fault.for_s <= 40.0 - LAST_S for plan in plans for fault in plan)
    overlaps = [one for plan in plans for one, other in pairwise(plan) if other.at_s < one.at_s + one.for_s]
    assert 10 < len(overlaps) < sum(map(len, plans)) / 2


def test_only_the_kinds_asked_for() -> None:
    plan = make_plan(1, 1, TREE, 60.0, kinds=["kill-nats"])
    assert plan
    assert {fault.kind for fault in plan} == {"kill-nats"}
    assert make_plan(1, 1, SHAPES["one"], 60.0, kinds=["cut-nodes"]) == [], "one node has no links"


def test_what_a_node_holds_up() -> None:
    assert TREE.topics_of("east") == ["orders", "payments"]
    assert TREE.topics_of("root") == list(TREE.topics)
    assert TREE.holders_of(["news"]) == ["support", "reports"]
    assert "reports" not in TREE.holders_of(["stock"]), "it comes and goes"


def test_an_unknown_shape_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="there is none called 'ring'; use one of one, tree"):
        shape_named("ring")
