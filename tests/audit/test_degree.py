"""The ordering degree of paper 003, on streams whose degree can be worked out by hand."""

from random import Random

import pytest

from seriatim.audit import audit
from seriatim.audit.degree import ordering_degree
from seriatim.model import Delivery
from tests.audit.worlds import sound_history


def log(**sequences: str) -> list[Delivery]:
    return [
        Delivery(name, position, event_id, "T")
        for name, events in sequences.items()
        for position, event_id in enumerate(events.split())
    ]


def test_one_swap_of_neighbours_displaces_two_events_by_one() -> None:
    found = ordering_degree(log(s1="a b c d", s2="a c b d"))
    assert found.degree == pytest.approx((4 + 3 + 3 + 4) / 16)  # the sum of S - D, divided by S²
    assert (found.pairs, found.compared, found.displaced, found.displacement_max) == (1, 4, 2, 1)


def test_a_reversed_stream() -> None:
    found = ordering_degree(log(s1="a b c", s2="c b a"))
    assert found.degree == pytest.approx((1 + 3 + 1) / 9)
    assert found.displacement_max == 2


def test_only_events_in_common_count() -> None:
    found = ordering_degree(log(s1="x a y b", s2="a z b"))
    assert (found.degree, found.compared, found.displaced) == (1, 2, 0)


def test_every_subscriber_is_compared_with_the_next_by_name() -> None:
    found = ordering_degree(log(s1="a b", s2="a b", s3="b a"))
    assert (found.pairs, found.compared, found.displaced) == (3, 6, 4)


@pytest.mark.parametrize("deliveries", [[], log(s1="a b"), log(s1="a", s2="b")])
def test_nothing_to_compare(deliveries: list[Delivery]) -> None:
    assert ordering_degree(deliveries).degree is None


def test_one_exactly_where_everybody_agrees() -> None:
    for seed in range(50):
        history = sound_history(Random(seed))
        assert audit(history).verdicts["tno"].answer == "valid"
        assert ordering_degree(history.deliveries, history.publications).degree in (1, None)
