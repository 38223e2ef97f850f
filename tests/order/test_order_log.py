"""The arithmetic of the order log, against an oracle that writes every number out."""

from random import Random

import pytest

from seriatim.order import OrderedRange, OrderState, PassingOrder, count_of, from_position

SEEDS = range(60)


def written_out(ranges: object) -> list[tuple[str, int]]:
    return [(each.topic, number) for each in ranges for number in range(each.first, each.last + 1)]  # type: ignore[attr-defined]


def filled(random: Random, order: PassingOrder, issued: dict[str, int]) -> list[tuple[str, int]]:
    """Add some ranges; what they are, number by number."""
    added = []
    for _ in range(random.randint(0, 8)):
        topic, count = random.choice("AB"), random.randint(1, 3)
        first = issued.get(topic, 0) + 1
        issued[topic] = first + count - 1
        order.add(topic, first, issued[topic])
        added += [(topic, number) for number in range(first, issued[topic] + 1)]
    return added


def test_neighbours_of_one_topic_become_one_range() -> None:
    order = PassingOrder(OrderState())
    assert order.add("A", 1, 2) == 1
    assert order.add("A", 3, 3) == 3
    assert order.add("B", 7, 8) == 4
    assert order.add("A", 4, 4) == 6
    assert order.take() == (OrderedRange("A", 1, 3), OrderedRange("B", 7, 8), OrderedRange("A", 4, 4))
    assert (order.state.told, order.state.end, order.state.ranges) == (6, 6, [])


@pytest.mark.parametrize(("begin", "carried"), [(4, ()), (6, (OrderedRange("A", 4, 5),))])
def test_a_pass_does_not_say_its_own_numbers_twice(begin: int, carried: tuple[OrderedRange, ...]) -> None:
    order = PassingOrder(OrderState())
    order.add("B", 1, 1)
    order.add("A", 4, begin - 1) if begin > 4 else None
    order.add("A", begin, 9)
    assert order.take_before(begin) == (OrderedRange("B", 1, 1), *carried)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_root_hands_on_every_number_once(seed: int) -> None:
    random = Random(f"order {seed}")
    order, issued = PassingOrder(OrderState()), dict[str, int]()
    everything: list[tuple[str, int]] = []
    kept: list[tuple[str, int]] = []
    for _ in range(12):
        everything += filled(random, order, issued)
        following = order.following(random.randint(1, 3))
        assert written_out(following) == everything[len(kept) : len(kept) + count_of(following)], f"seed {seed}"
        if following and random.random() < 0.8:
            cut = random.randint(1, count_of(following))  # an answer may be to an earlier, shorter write
            kept += written_out(following)[:cut]
            order.forget_to(len(kept))
    order.forget_to(0)
    order.forget_to(len(everything) + 1)
    assert written_out(order.state.ranges) == everything[len(kept) :], f"seed {seed}"
    assert (order.state.told, order.state.end) == (len(kept), len(everything))


@pytest.mark.parametrize("seed", SEEDS)
def test_reading_from_a_position(seed: int) -> None:
    random = Random(f"read {seed}")
    order = PassingOrder(OrderState())
    everything = filled(random, order, {})
    begin = random.randint(0, 100)
    for after in range(begin, begin + len(everything) + 2):
        found = from_position(order.state.ranges, begin, after)
        assert written_out(found) == everything[after - begin :], f"seed {seed}"
        assert from_position(order.state.ranges, begin, after, 2) == found[:2]


def test_going_on_behind_a_log_that_knows_more() -> None:
    order = PassingOrder(OrderState())
    order.add("A", 1, 3)
    order.resume_at(10)
    assert order.add("A", 8, 8) == 11
    assert order.take() == (OrderedRange("A", 8, 8),)
