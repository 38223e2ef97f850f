"""Couplings kept by small steps, against an oracle that looks at all subscriptions every time."""

from itertools import permutations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from seriatim.model import Address, Topic
from seriatim.order import CouplingState, CouplingTable, Shift
from tests.snapshot import copy_of

HOMED_HERE = {"A", "B", "C"}
TOPICS = ["A", "B", "C", "X", "Y"]
SUBSCRIBERS = ["r", "s", "t"]


class Apply(msgspec.Struct, frozen=True):
    """News of a subscription."""

    subscriber: Address
    version: int
    topics: frozenset[Topic]


class Forget(msgspec.Struct, frozen=True):
    """The subscriber is gone."""

    subscriber: Address


Operation = Apply | Forget
operations = st.one_of(
    st.builds(Apply, st.sampled_from(SUBSCRIBERS), st.integers(1, 6), st.frozensets(st.sampled_from(TOPICS))),
    st.builds(Forget, st.sampled_from(SUBSCRIBERS)),
)
thresholds = st.sampled_from([1, 2])


class AllSubscriptions:
    """Oracle: the latest subscription of everybody, and nothing computed from it beforehand."""

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self.latest: dict[Address, tuple[int, frozenset[Topic]]] = {}

    def apply(self, operation: Operation) -> None:
        if isinstance(operation, Forget):
            self.latest.pop(operation.subscriber, None)
        elif operation.version > self.latest.get(operation.subscriber, (0, None))[0]:
            self.latest[operation.subscriber] = (operation.version, operation.topics)

    def holding_both(self, topic: Topic, other: Topic) -> int:
        return sum(topic in topics and other in topics for _, topics in self.latest.values())

    def coupled(self) -> set[tuple[Topic, Topic]]:
        pairs = ((topic, other) for topic, other in permutations(TOPICS, 2) if topic in HOMED_HERE)
        return {pair for pair in pairs if self.holding_both(*pair) >= self.threshold}


def table_for(threshold: int, state: CouplingState | None = None) -> CouplingTable:
    return CouplingTable(state if state is not None else CouplingState(), HOMED_HERE.__contains__, threshold)


def apply(table: CouplingTable, operation: Operation) -> list[Shift]:
    if isinstance(operation, Forget):
        return table.forget(operation.subscriber)
    return table.apply(operation.subscriber, operation.version, operation.topics, now=0.0)


@given(thresholds, st.lists(operations, max_size=40))
def test_groups_and_shifts_are_those_of_all_current_subscriptions(threshold: int, run: list[Operation]) -> None:
    table, oracle = table_for(threshold), AllSubscriptions(threshold)
    for operation in run:
        before = oracle.coupled()
        shifts = apply(table, operation)
        oracle.apply(operation)
        after = oracle.coupled()
        new = [Shift(*pair, coupled=True) for pair in after - before]
        gone = [Shift(*pair, coupled=False) for pair in before - after]
        assert shifts == sorted(new + gone, key=lambda shift: (shift.topic, shift.other))
        for topic in HOMED_HERE:
            assert table.group(topic) == {other for each, other in after if each == topic}
        for subscriber in SUBSCRIBERS:
            assert table.version(subscriber) == oracle.latest.get(subscriber, (0, None))[0]


@given(st.lists(operations, max_size=40))
def test_nothing_is_kept_that_no_subscription_needs(run: list[Operation]) -> None:
    table, oracle = table_for(2), AllSubscriptions(2)
    for operation in run:
        apply(table, operation)
        oracle.apply(operation)
    counts = {
        topic: {other: count for other in TOPICS if other != topic and (count := oracle.holding_both(topic, other))}
        for topic in sorted(HOMED_HERE)
    }
    assert table.state.together == {topic: each for topic, each in counts.items() if each}


@given(thresholds, st.lists(operations, max_size=30), st.lists(operations, max_size=30))
def test_a_restored_table_goes_on_as_if_nothing_had_happened(
    threshold: int, before: list[Operation], after: list[Operation]
) -> None:
    table = table_for(threshold)
    for operation in before:
        apply(table, operation)
    copy = table_for(threshold, copy_of(table.state))
    for operation in after:
        assert apply(copy, operation) == apply(table, operation)
    assert copy.state == table.state


def test_old_news_changes_nothing_but_shows_that_the_subscriber_lives() -> None:
    table = table_for(1)
    table.apply("s", 2, frozenset(), now=10.0)
    assert table.apply("s", 1, frozenset({"A", "B"}), now=20.0) == []
    assert table.group("A") == set()
    assert table.state.holders["s"].heard_at == 20.0


def test_who_was_forgotten_may_come_back_under_any_version() -> None:
    table = table_for(1)
    table.apply("s", 7, frozenset({"A", "B"}), now=0.0)
    table.forget("s")
    assert table.apply("s", 3, frozenset({"A", "X"}), now=0.0) == [Shift("A", "X", coupled=True)]


tables = st.lists(st.tuples(st.sampled_from(SUBSCRIBERS), st.frozensets(st.sampled_from(TOPICS))), max_size=8)


@given(tables, tables, st.sampled_from([1, 2]))
def test_a_topic_that_was_adopted_is_coupled_as_if_it_had_always_been_here(
    at_both: list[tuple[Address, frozenset[Topic]]], here: list[tuple[Address, frozenset[Topic]]], threshold: int
) -> None:
    """Its former home heard of some subscriptions, and its new one of those and of later ones."""
    homed: set[Topic] = {"A"}
    old, new = (CouplingTable(CouplingState(), each.__contains__, threshold) for each in ({"X"}, homed))
    always = CouplingTable(CouplingState(), {"A", "X"}.__contains__, threshold)
    for version, (name, topics) in enumerate(at_both, 1):
        for table in (old, new, always):
            table.apply(name, version, topics, 0.0)
    group = old.group("X")
    for version, (name, topics) in enumerate(here, 100):
        for table in (new, always):
            table.apply(name, version, topics, 0.0)
    shifts = new.adopt("X", old.holding("X"), 0.0)
    homed.add("X")
    assert new.state.together == always.state.together
    for shift in shifts:
        assert shift.topic == "X", "what is homed here has not changed"
        (group.add if shift.coupled else group.discard)(shift.other)
    assert group == new.group("X") == always.group("X")


def test_who_holds_nothing_else_here_is_forgotten_with_a_topic_that_leaves() -> None:
    homed = {"A", "B"}
    table = CouplingTable(CouplingState(), homed.__contains__, 1)
    table.apply("r", 1, frozenset("A"), 0.0)
    table.apply("s", 1, frozenset("AB"), 0.0)
    homed.discard("A")
    assert table.release("A") == ["r"]
    assert table.state.holders.keys() == {"s"}
    assert table.state.together == {"B": {"A": 1}}
