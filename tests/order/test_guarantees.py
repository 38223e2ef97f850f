"""The lattice of guarantees: what implies what, and what does not."""

from itertools import product

import pytest

from seriatim.model import InputError
from seriatim.order import GUARANTEES, implied_by, implies


def test_every_guarantee_says_what_it_promises_and_where_that_is_defined() -> None:
    for name, guarantee in GUARANTEES.items():
        assert guarantee.name == name
        assert guarantee.promise.endswith(".")
        assert guarantee.citation


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        ("acyclic", "tno"),
        ("acyclic", "per-topic"),
        ("tno", "per-topic"),
        ("causal", "fifo-across-topics"),
        ("causal", "fifo"),
        ("causal-total", "causal"),
        ("causal-total", "tno"),
        ("causal-total", "per-topic"),
    ],
)
def test_stronger_implies_weaker_and_not_the_other_way(stronger: str, weaker: str) -> None:
    assert implies(stronger, weaker)
    assert not implies(weaker, stronger)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tno", "acyclic"),  # {A,B}, {B,C}, {C,A} may see a<b, b<c, c<a
        ("causal-total", "acyclic"),
        ("acyclic", "fifo"),  # everybody may agree on the reverse of what a publisher did
        ("causal", "per-topic"),  # concurrent events may be seen in any order
        ("acyclic", "causal"),
        ("completeness", "integrity"),
    ],
)
def test_what_is_not_implied(one: str, other: str) -> None:
    assert not implies(one, other)


def test_implication_is_a_partial_order() -> None:
    for name in GUARANTEES:
        assert implies(name, name)
    for a, b, c in product(GUARANTEES, repeat=3):
        if implies(a, b) and implies(b, c):
            assert implies(a, c)
        if implies(a, b) and implies(b, a):
            assert a == b


def test_implied_by_is_everything_below() -> None:
    assert implied_by("acyclic") == {"acyclic", "tno", "per-topic"}


@pytest.mark.parametrize(("stronger", "weaker"), [("total", "tno"), ("tno", "total")])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(stronger: str, weaker: str) -> None:
    with pytest.raises(InputError, match="unknown guarantee 'total'; use one of fifo, "):
        implies(stronger, weaker)
