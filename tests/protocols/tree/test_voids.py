"""Positions of a log that hold no events: told as ranges, and one step each however long they are."""

from random import Random

import pytest

from seriatim.model import APPLICATION, BROKER, Event, Notification, RemoteError
from seriatim.order import HoldBack, Lane
from seriatim.protocols.broker import Broker, Erase
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import Subscriber
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    Delivered,
    Grown,
    Listen,
    Listening,
    Stamped,
    Trimmed,
    Voids,
    Watch,
)
from tests.protocols.tree.net import event
from tests.protocols.tree.test_log_mode import delivered, holder

MANY = 10**12  # nothing that takes a step for each would end


def say(broker: Broker, source: str, message: Payload) -> list[tuple[str, Payload]]:
    return broker.step(source, message, 0.0).send


def told(subscriber: Subscriber, *arrivals: Payload) -> list[str]:
    found = [each for arrival in arrivals for each in subscriber.step(BROKER, arrival, 0.0).notify]
    return [each.event.id for each in found if isinstance(each, Notification)]


# ── the broker ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_erased_positions_are_told_as_ranges_to_who_listens_later() -> None:
    broker = Broker()
    for name in "uvwxyz":
        say(broker, "p", Append(event(name)))
    assert say(broker, APPLICATION, Erase("A", 2, 4)) == []
    assert say(broker, "s", Listen("A", 0)) == [
        ("s", Listening("A")),
        ("s", Delivered("A", 1, None, event("u"))),
        ("s", Voids("A", 2, 4)),
        ("s", Delivered("A", 5, None, event("y"))),
        ("s", Delivered("A", 6, None, event("z"))),
    ]
    assert say(broker, "t", Listen("A", 2))[1] == ("t", Voids("A", 3, 4)), "from where it begins"
    assert say(broker, "p", Append(event("v"))) == [("p", Appended("A", "v", 2))], "a repeat is still known"


def test_positions_beyond_the_end_are_added_and_the_log_has_grown() -> None:
    broker = Broker()
    say(broker, "s", Listen("A"))
    say(broker, "n", Watch(frozenset("A")))
    assert say(broker, APPLICATION, Erase("A", 1, 3)) == [("n", Grown("A", 3)), ("s", Voids("A", 1, 3))]
    assert ("p", Appended("A", "x", 4)) in say(broker, "p", Append(event("x")))


def test_a_broker_may_write_markers_of_its_own() -> None:
    broker = Broker(markers=2)
    say(broker, "s", Listen("A"))
    assert say(broker, "p", Append(event("x"))) == [
        ("s", Delivered("A", 1, None, event("x"))),
        ("s", Voids("A", 2, 3)),
        ("p", Appended("A", "x", 1)),
    ]


def test_only_the_operator_may_erase() -> None:
    with pytest.raises(RemoteError, match="only the broker's operator"):
        say(Broker(), "p", Erase("A", 1, 1))


# ── the subscriber ────────────────────────────────────────────────────────────────────────────────────────────────


def test_voids_of_any_length_are_passed_in_one_step() -> None:
    subscriber = holder()
    after = delivered("after", MANY + 1)
    assert told(subscriber, Stamped("A", 1, MANY + 1, {}), after, Voids("A", 1, MANY)) == ["after"]
    last = delivered("last", 2 * MANY)
    assert told(subscriber, Voids("A", MANY + 2, 2 * MANY - 1), last, Stamped("A", MANY + 2, 2 * MANY, {})) == ["last"]
    assert subscriber.waiting == 0


def test_voids_wait_for_the_entries_of_the_numbers_they_stand_for() -> None:
    subscriber = holder()
    assert told(subscriber, Stamped("A", 1, 3, {}), Stamped("A", 4, 6, {"B": 1}), Stamped("A", 7, 9, {"B": 2})) == []
    assert told(subscriber, delivered("a1", 1), Voids("A", 2, 8), delivered("a9", 9)) == ["a1"]
    assert subscriber.state.lanes["A"].done == 3, "numbers of the first stamp wait for nothing"
    assert told(subscriber, Stamped("B", 1, 2, {}), delivered("b1", 1, "B")) == ["b1"]
    assert subscriber.state.lanes["A"].done == 6
    assert told(subscriber, delivered("b2", 2, "B")) == ["b2", "a9"]


def test_voids_that_are_stamped_in_parts_are_passed_in_parts() -> None:
    subscriber = holder()
    assert told(subscriber, Voids("A", 1, 10), delivered("a11", 11)) == []
    for last in (4, 9):
        told(subscriber, Stamped("A", last - 3 if last == 4 else 5, last, {}))
        assert subscriber.state.lanes["A"].done == last
    assert told(subscriber, Stamped("A", 10, 11, {})) == ["a11"]
    assert subscriber.waiting == 0


def test_voids_that_come_again_or_overlap_what_is_held_block_nothing() -> None:
    subscriber = holder()
    told(subscriber, Stamped("A", 1, 20, {"B": 1}))
    held = [Voids("A", 1, 4), delivered("a7", 7), Voids("A", 3, 9), Voids("A", 5, 9), Voids("A", 8, 12)]
    assert told(subscriber, *held, *held) == []
    assert told(subscriber, Stamped("B", 1, 1, {}), delivered("b1", 1, "B")) == ["b1"]
    assert subscriber.state.lanes["A"].done == 12
    assert told(subscriber, Voids("A", 1, 12), delivered("a13", 13)) == ["a13"]
    assert subscriber.waiting == 0 and not subscriber.state.lanes["A"].held


def test_retention_beyond_voids_that_are_here_is_no_loss() -> None:
    subscriber = holder()
    told(subscriber, Stamped("A", 1, 9, {"B": 1}), Voids("A", 1, 5), delivered("a6", 6))
    before = subscriber.state.version
    subscriber.step(BROKER, Trimmed("A", 7), 0.0)
    assert subscriber.state.version == before, "6 and all before it are here"


@pytest.mark.parametrize("seed", range(200))
def test_ranges_are_what_one_void_after_the_other_would_be(seed: int) -> None:
    """Any log, any stamps, any interleaving of both channels, with parts of the log delivered again."""
    random = Random(seed)
    log = {topic: [random.random() < 0.4 for _ in range(random.randint(1, 12))] for topic in "AB"}
    stamps = {topic: _stamps(random, topic, log) for topic in "AB"}
    whole, single = holder(), holder()
    lanes = [_entries(log[topic], topic) for topic in "AB"] + [list(stamps[topic]) for topic in "AB"]
    ways = [lane for lane in lanes if lane]
    notified: tuple[list[str], list[str]] = ([], [])
    while ways:
        lane = random.choice(ways)
        message = lane.pop(0)
        if isinstance(message, Voids) and random.random() < 0.2:
            lane.insert(0, message)  # it comes twice
        notified[0].extend(told(whole, message))
        notified[1].extend(told(single, *_one_by_one(message)))
        assert notified[0] == notified[1], f"seed {seed}, after {message}"
        ways = [lane for lane in ways if lane]
    assert {topic: lane.done for topic, lane in whole.state.lanes.items()} == {t: len(each) for t, each in log.items()}
    assert whole.waiting == single.waiting == 0


def _entries(log: list[bool], topic: str) -> list[Payload]:
    """What a broker delivers of a log: events where it says so, and voids as ranges."""
    found: list[Payload] = []
    for number, is_event in enumerate(log, 1):
        if is_event:
            found.append(delivered(f"{topic}{number}", number, topic))
        elif found and isinstance(found[-1], Voids):
            found[-1] = Voids(topic, found[-1].first, number)
        else:
            found.append(Voids(topic, number, number))
    return found


def _stamps(random: Random, topic: str, log: dict[str, list[bool]]) -> list[Stamped]:
    """B waits for nothing; stamps of A name more and more of B."""
    found: list[Stamped] = []
    first, needed = 1, 0
    while first <= len(log[topic]):
        last = min(len(log[topic]), first + random.randint(0, 3))
        needed = random.randint(needed, len(log["B"]))
        found.append(Stamped(topic, first, last, {"B": needed} if topic == "A" and random.random() < 0.6 else {}))
        first = last + 1
    return found


def _one_by_one(message: Payload) -> list[Payload]:
    if not isinstance(message, Voids):
        return [message]
    return [Voids(message.topic, number, number) for number in range(message.first, message.last + 1)]


# ── the hold-back queue ───────────────────────────────────────────────────────────────────────────────────────────


def test_who_waits_for_a_number_inside_a_stretch_is_released_by_it() -> None:
    queue = HoldBack({topic: Lane(open=True) for topic in "ABC"})
    for place, topic in enumerate("BC"):
        assert queue.admit(topic, 1, {"A": 5 + place}, Event(topic, topic, "p"), 0.0) == []
    released = queue.admit("A", 1, {}, None, 0.0, last=MANY)
    assert [(each.topic, each.number) for each in released] == [("A", MANY), ("B", 1), ("C", 1)]
    assert queue.size == 0
