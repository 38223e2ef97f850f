"""The hold-back queue against an oracle that scans everything held after every step."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.model import Entries, Event, Number, Topic
from seriatim.order import Held, HoldBack, Lane, Released
from tests.snapshot import copy_of

TOPICS = ["A", "B", "C", "D"]
Place = tuple[Topic, Number]


class Scan:
    """Oracle. It is told what the queue released, checks that each release was allowed, and that nothing is left."""

    def __init__(self) -> None:
        self.done: dict[Topic, Number] = {}
        self.open: set[Topic] = set()
        self.held: dict[Place, Entries] = {}  # in order of arrival; entries only of topics held on arrival

    def may_go(self, place: Place) -> bool:
        topic, number = place
        met = all(self.done[other] >= needed and other in self.open for other, needed in self.held[place].items())
        return topic in self.open and self.done[topic] == number - 1 and met

    def join(self, topic: Topic) -> None:
        self.done[topic] = 0

    def start(self, topic: Topic, after: Number) -> None:
        self.open.add(topic)
        self.done[topic] = after

    def admit(self, topic: Topic, number: Number, entries: Entries) -> None:
        self.held[topic, number] = {other: needed for other, needed in entries.items() if other in self.done}

    def close(self, topic: Topic) -> None:
        del self.done[topic]
        self.open.discard(topic)
        self.held = {place: needs for place, needs in self.held.items() if place[0] != topic}
        for needs in self.held.values():
            needs.pop(topic, None)

    def check(self, released: list[Released], may_skip: bool = False) -> None:
        for each in released:
            place = (each.topic, each.number)
            if each.held is not None:
                assert self.may_go(place), f"{place} was released too early"
                del self.held[place]
            else:
                assert may_skip, f"{place} was skipped though nobody asked for it"
                skipped = range(each.skipped_from, each.number + 1)
                assert skipped.start == self.done[each.topic] + 1
                assert skipped, "an empty gap"
                assert not any((each.topic, number) in self.held for number in skipped)
            self.done[each.topic] = each.number
        left = [place for place in self.held if self.may_go(place)]
        assert not left, f"{left} should have been released"

    def waits_for_a_join(self, place: Place) -> bool:
        """Whether something that has to come before it cannot be forced, because its topic's start is not known."""
        seen: set[Place] = set()
        ahead = [place]
        while ahead:
            topic, number = ahead.pop()
            if topic not in self.open:
                return True
            if (topic, number) not in seen:
                seen.add((topic, number))
                ahead += [(topic, each) for each in range(self.done[topic] + 1, number)]
                ahead += self.held.get((topic, number), {}).items()
        return False


class Arrival(msgspec.Struct, frozen=True):
    topic: Topic
    number: Number
    entries: Entries


def history(random: Random, length: int) -> list[Arrival]:
    """Events of all topics in one order, each naming some of what came before it."""
    counts = dict.fromkeys(TOPICS, 0)
    events = []
    for _ in range(length):
        topic = random.choice(TOPICS)
        others = [other for other in TOPICS if other != topic and counts[other] and random.random() < 0.6]
        entries = {other: max(1, counts[other] - random.choice([0, 0, 1])) for other in others}
        counts[topic] += 1
        events.append(Arrival(topic, counts[topic], entries))
    return events


def out_of_order(random: Random, events: list[Arrival], reach: int) -> list[Arrival]:
    """Each event moves back by at most `reach` places."""
    return [event for _, event in sorted(enumerate(events), key=lambda item: item[0] + random.uniform(0, reach))]


def event(topic: Topic, number: Number) -> Event:
    return Event(f"{topic}{number}", topic, "p")


def admit(queue: HoldBack, arrival: Arrival, now: float = 0.0) -> list[Released]:
    place = arrival.topic, arrival.number
    return queue.admit(*place, arrival.entries, event(*place), now)


def opened(queue: HoldBack, *topics: Topic) -> HoldBack:
    for topic in topics:
        queue.join(topic)
        queue.open(topic, 0)
    return queue


def names(released: list[Released]) -> list[str]:
    return [f"{each.topic}{each.number}" if each.held else f"({each.topic}{each.number})" for each in released]


seeds = st.integers(0, 2**32 - 1)


@given(seeds)
def test_whatever_may_go_goes_and_nothing_else(seed: int) -> None:
    random = Random(seed)
    queue, oracle = HoldBack({}), Scan()
    for topic in TOPICS:
        queue.join(topic)
        oracle.join(topic)
    events = history(random, 40)
    late = set(random.sample(TOPICS, 2))
    opening = {topic: random.randrange(20) if topic in late else 0 for topic in TOPICS}
    closing = random.randrange(60)
    early: list[Arrival] = []
    for moment, arrival in enumerate([*out_of_order(random, events, 10), *[None] * 20]):
        for topic in [topic for topic, at in opening.items() if at == moment and topic in oracle.done]:
            oracle.start(topic, 0)
            oracle.check(queue.open(topic, 0))
        if moment == closing:
            oracle.close("A")
            oracle.check(queue.close("A"))
        early += [arrival] if arrival is not None else []
        for each in [each for each in early if each.topic in oracle.open]:  # a lane takes events once it is open
            early.remove(each)
            oracle.admit(each.topic, each.number, each.entries)
            oracle.check(admit(queue, each))
        assert queue.size == len(oracle.held)
        assert {(topic, n) for topic, lane in queue.lanes.items() for n in lane.held} == set(oracle.held)
        assert {topic: lane.done for topic, lane in queue.lanes.items()} == oracle.done
    assert not oracle.held or "A" not in oracle.done


@given(seeds)
def test_forcing_makes_room_in_order_and_skips_only_what_is_not_there(seed: int) -> None:
    random = Random(seed)
    queue, oracle = HoldBack({}, bounded=True), Scan()
    joining = random.choice([None, *TOPICS])
    for topic in TOPICS:
        queue.join(topic)
        oracle.join(topic)
        if topic != joining:
            oracle.start(topic, 0)
            oracle.check(queue.open(topic, 0))
    events = [each for each in history(random, 40) if random.random() < 0.7]  # the broker lost the others
    for now, arrival in enumerate(out_of_order(random, events, 10)):
        topic = arrival.topic
        if topic == joining or arrival.number <= oracle.done[topic]:
            continue
        oracle.admit(topic, arrival.number, arrival.entries)
        oracle.check(admit(queue, arrival, float(now)))
        if random.random() < 0.2 and oracle.held:
            oldest = next(iter(oracle.held))
            stuck = oracle.waits_for_a_join(oldest)
            assert queue.oldest_since() == queue.lanes[oldest[0]].held[oldest[1]].since
            oracle.check(queue.force_oldest(), may_skip=True)
            assert stuck or oldest not in oracle.held
    if joining is None:
        for _ in range(len(oracle.held)):
            oracle.check(queue.force_oldest(), may_skip=True)
        assert not oracle.held


@given(seeds, st.integers(0, 40))
def test_a_restored_queue_releases_the_same(seed: int, moment: int) -> None:
    random = Random(seed)
    arrivals = out_of_order(random, history(random, 40), 15)
    queue, oracle = opened(HoldBack({}), *TOPICS), Scan()
    for topic in TOPICS:
        oracle.join(topic)
        oracle.start(topic, 0)
    for arrival in arrivals[:moment]:
        oracle.admit(arrival.topic, arrival.number, arrival.entries)
        oracle.check(admit(queue, arrival))
    copy = HoldBack(copy_of(queue.lanes, dict[Topic, Lane]))
    assert copy.size == queue.size
    for arrival in arrivals[moment:]:
        oracle.admit(arrival.topic, arrival.number, arrival.entries)
        released = admit(copy, arrival)
        oracle.check(released)
        assert sorted(names(released)) == sorted(names(admit(queue, arrival)))
    assert not copy.size and not queue.size


# ── rules, one at a time ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_entry_is_met_by_at_least_its_number() -> None:
    queue = opened(HoldBack({}), "A", "B")
    for number in (1, 2, 3):
        admit(queue, Arrival("A", number, {}))
    assert names(admit(queue, Arrival("B", 1, {"A": 2}))) == ["B1"]


def test_a_topic_that_is_not_held_is_not_waited_for() -> None:
    queue = opened(HoldBack({}), "A")
    assert names(admit(queue, Arrival("A", 1, {"Z": 9}))) == ["A1"]


def test_a_topic_that_is_being_joined_blocks_whatever_names_it() -> None:
    queue = opened(HoldBack({}), "A")
    queue.join("B")
    assert names(admit(queue, Arrival("A", 1, {"B": 3}))) == []
    assert queue.lanes["A"].held[1].waits_for == ("B", 3)
    assert names(queue.open("B", 3)) == ["A1"]


def test_opening_before_the_named_number_is_not_enough() -> None:
    queue = opened(HoldBack({}), "A")
    queue.join("B")
    admit(queue, Arrival("A", 1, {"B": 3}))
    assert names(queue.open("B", 2)) == []
    assert names(admit(queue, Arrival("B", 3, {}))) == ["B3", "A1"]


def test_closing_a_topic_drops_what_is_held_of_it_and_frees_who_waited() -> None:
    queue = opened(HoldBack({}), "A", "B")
    admit(queue, Arrival("B", 2, {}))
    admit(queue, Arrival("A", 1, {"B": 1}))
    assert names(queue.close("B")) == ["A1"]
    assert queue.size == 0


def test_a_topic_that_is_closed_and_joined_again_starts_afresh() -> None:
    queue = opened(HoldBack({}), "A", "B")
    admit(queue, Arrival("B", 2, {"A": 1}))
    queue.close("B")
    queue.join("B")
    queue.open("B", 4)
    assert names(admit(queue, Arrival("B", 5, {"A": 1}))) == []
    assert names(admit(queue, Arrival("A", 1, {}))) == ["A1", "B5"]
    assert names(admit(queue, Arrival("B", 6, {}))) == ["B6"]


def test_a_void_is_done_in_its_turn() -> None:
    queue = opened(HoldBack({}), "A", "B")
    admit(queue, Arrival("A", 1, {"B": 1}))
    (void,) = queue.admit("B", 1, {}, None, 0.0)[:1]
    assert void.held is not None and void.held.event is None
    assert queue.lanes["A"].done == 1


def test_missing_names_the_next_number_of_each_topic_that_somebody_waits_for() -> None:
    queue = opened(HoldBack({}), "A", "B", "C", "D")
    queue.join("E")
    admit(queue, Arrival("A", 3, {}))
    admit(queue, Arrival("B", 1, {"C": 7, "E": 1}))
    assert sorted(queue.missing()) == [("A", 1)], "B waits for E, and E has not begun"
    queue.open("E", 1)
    assert sorted(queue.missing()) == [("A", 1), ("C", 1)]


def test_forged_stamps_that_wait_for_each_other_do_not_loop() -> None:
    queue = opened(HoldBack({}, bounded=True), "A", "B")
    admit(queue, Arrival("A", 1, {"B": 1}))
    admit(queue, Arrival("B", 1, {"A": 1}))
    assert queue.force_oldest() == []


# ── never a scan ──────────────────────────────────────────────────────────────────────────────────────────────────


class NoScan(dict[Number, Held]):
    """What is held of a topic, found by its number only."""

    def unexpected(self, *ignored: Any) -> Any:
        raise AssertionError("the buffer was scanned")

    __iter__ = items = values = keys = unexpected


class Counted(HoldBack):
    """Counts how often a held event is looked at."""

    looks = 0

    def join(self, topic: Topic) -> None:
        super().join(topic)
        self.lanes[topic].held = NoScan()

    def _blocker(self, topic: Topic, number: Number, lane: Lane, held: Held) -> Place | None:
        self.looks += 1
        return super()._blocker(topic, number, lane, held)


@given(seeds)
def test_an_event_is_looked_at_once_for_each_thing_it_waits_for(seed: int) -> None:
    random = Random(seed)
    events = history(random, 60)
    queue = Counted({})
    opened(queue, *TOPICS)
    for arrival in out_of_order(random, events, 60):
        admit(queue, arrival)
    # Once on arrival, once when its predecessor is done, once for each entry.
    assert queue.looks <= sum(2 + len(each.entries) for each in events)


def in_own_topic(count: int) -> Iterator[Arrival]:
    return (Arrival("full", number + 2, {}) for number in range(count))


def on_another_topic(count: int) -> Iterator[Arrival]:
    return (Arrival("full", number + 1, {"missing": number + 1}) for number in range(count))


@pytest.mark.parametrize("backlog", [in_own_topic, on_another_topic])
def test_a_release_costs_the_same_however_much_is_held(backlog: Callable[[int], Iterator[Arrival]]) -> None:
    def looks(held: int) -> int:
        queue = Counted({})
        opened(queue, "full", "missing", "A", "B")
        for arrival in backlog(held):
            admit(queue, arrival)
        queue.looks = 0
        assert names(admit(queue, Arrival("B", 1, {"A": 1}))) == []
        assert names(admit(queue, Arrival("A", 1, {}))) == ["A1", "B1"]
        return queue.looks

    assert looks(10) == looks(1_000) == 3
