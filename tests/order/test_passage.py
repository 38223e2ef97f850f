"""The entries that a topic collects at a node, compared with an oracle that keeps whole stamps and never looks at
changes."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from seriatim.model import Entries, Number, Topic
from seriatim.order import PassageState, PassageTable
from tests.snapshot import copy_of

TOPICS = ["A", "B", "C", "D", "E", "F"]
topic_sets = st.frozensets(st.sampled_from(TOPICS), max_size=3)


class Raise(msgspec.Struct, frozen=True):
    """Some events of the topic pass without collecting anything, as an announcement or a topic without a group."""

    topic: Topic
    by: int


class Collect(msgspec.Struct, frozen=True):
    """One event of the topic passes; its group changes first."""

    topic: Topic
    couple: frozenset[Topic] = frozenset()
    uncouple: frozenset[Topic] = frozenset()
    once: frozenset[Topic] = frozenset()


Operation = Raise | Collect
plain_operations = st.one_of(
    st.builds(Raise, st.sampled_from(TOPICS), st.integers(0, 3)), st.builds(Collect, st.sampled_from(TOPICS))
)
operations = st.one_of(
    plain_operations, st.builds(Collect, st.sampled_from(TOPICS), topic_sets, topic_sets, topic_sets)
)


class WholeStamps:
    """Oracle: every event carries the count of every topic of its group, those just uncoupled included.

    `keeps`: what was named once is named always, since the event that named it may get lost.
    """

    def __init__(self, keeps: bool = False) -> None:
        self.keeps = keeps
        self.passed: dict[Topic, Number] = dict.fromkeys(TOPICS, 0)
        self.groups: dict[Topic, set[Topic]] = {topic: set() for topic in TOPICS}

    def apply(self, operation: Operation) -> Entries:
        if isinstance(operation, Raise):
            self.passed[operation.topic] += operation.by
            return {}
        group = self.groups[operation.topic]
        named = group | operation.couple | operation.once
        group |= operation.couple
        if self.keeps:
            group |= operation.once
        else:
            group -= operation.uncouple
        stamp = {other: self.passed[other] for other in named if self.passed[other]}
        self.passed[operation.topic] += 1
        return stamp


def apply(table: PassageTable, operation: Operation) -> Entries:
    topic = operation.topic
    if isinstance(operation, Raise):
        table.raise_to(topic, table.passed(topic) + operation.by)
        return {}
    couple, uncouple, once = map(sorted, (operation.couple, operation.uncouple, operation.once))
    entries = table.collect(topic, couple, uncouple, once)
    table.raise_to(topic, table.passed(topic) + 1)
    return entries


def learn(knowledge: Entries, entries: Entries) -> None:
    for topic, number in entries.items():
        knowledge[topic] = max(number, knowledge.get(topic, 0))


@given(st.lists(operations, max_size=60))
def test_differences_tell_a_reader_of_the_topic_the_same_as_whole_stamps(run: list[Operation]) -> None:
    table, oracle = PassageTable(PassageState()), WholeStamps()
    by_differences: dict[Topic, Entries] = {topic: {} for topic in TOPICS}
    by_whole_stamps: dict[Topic, Entries] = {topic: {} for topic in TOPICS}
    for operation in run:
        learn(by_differences[operation.topic], apply(table, operation))
        learn(by_whole_stamps[operation.topic], oracle.apply(operation))
        assert by_differences == by_whole_stamps


@given(st.lists(operations, max_size=60))
def test_full_collects_whole_stamps(run: list[Operation]) -> None:
    table, oracle = PassageTable(PassageState(), full=True), WholeStamps(keeps=True)
    for operation in run:
        assert apply(table, operation) == oracle.apply(operation)


@given(st.lists(operations, max_size=60))
def test_a_difference_names_only_what_rose_or_was_asked_for(run: list[Operation]) -> None:
    table, oracle = PassageTable(PassageState()), WholeStamps()
    seen_at_last_collection: dict[Topic, Entries] = {}
    for operation in run:
        before = dict(oracle.passed)
        entries = apply(table, operation)
        oracle.apply(operation)
        if isinstance(operation, Collect):
            known = seen_at_last_collection.get(operation.topic, {})
            asked_for = operation.couple | operation.once
            assert all(before[other] > known.get(other, 0) or other in asked_for for other in entries)
            seen_at_last_collection[operation.topic] = before


@given(st.lists(operations, max_size=40), st.lists(operations, max_size=40), st.booleans())
def test_a_restored_table_goes_on_as_if_nothing_had_happened(
    before: list[Operation], after: list[Operation], full: bool
) -> None:
    table = PassageTable(PassageState(), full)
    for operation in before:
        apply(table, operation)
    copy = PassageTable(copy_of(table.state), full)
    for operation in after:
        # As lists: also the order of the entries is the same.
        assert list(apply(copy, operation).items()) == list(apply(table, operation).items())
    assert copy.state == table.state


def test_a_number_never_falls() -> None:
    table = PassageTable(PassageState())
    table.raise_to("A", 5)
    table.raise_to("A", 3)
    assert table.passed("A") == 5
    assert table.passed("never heard of") == 0


class CountedDict(dict[Topic, Any]):
    """Counts how many topics are looked at."""

    looks = 0

    def __getitem__(self, key: Topic) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def get(self, key: Topic, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def unexpected(self, *ignored: Any) -> Any:
        raise AssertionError("a collection walks over all topics of the node")

    __iter__ = items = values = keys = unexpected


@given(st.lists(plain_operations, max_size=60), topic_sets)
def test_a_collection_looks_at_what_changed_or_at_the_group_whichever_is_less(
    run: list[Operation], group: frozenset[Topic]
) -> None:
    table = PassageTable(PassageState())
    for topic in TOPICS:
        apply(table, Collect(topic, group - {topic}))
    passages = table.state.passages = CountedDict(table.state.passages)
    rose_at = dict.fromkeys(TOPICS, 0)
    collected_at = dict.fromkeys(TOPICS, -1)
    for moment, operation in enumerate(run, 1):
        topic = operation.topic
        if isinstance(operation, Collect):
            changed = sum(rose > collected_at[topic] for rose in rose_at.values())
            passages.looks = 0
            table.collect(topic)
            others = passages.looks - 1  # one look at the topic itself
            assert others <= 2 * min(changed, len(group - {topic})) + 1
            collected_at[topic] = moment - 1
        elif operation.by:
            table.raise_to(topic, table.passed(topic) + operation.by)
            rose_at[topic] = moment


def test_the_cost_of_a_collection_is_independent_of_group_and_node() -> None:
    def looks(group: int, unrelated: int, changed: int) -> int:
        table = PassageTable(PassageState())
        others = [f"group {i}" for i in range(group)]
        for other in [*others, *(f"unrelated {i}" for i in range(unrelated))]:
            table.raise_to(other, 1)
        table.collect("T", couple=others)
        for other in others[:changed]:
            table.raise_to(other, 2)
        passages = table.state.passages = CountedDict(table.state.passages)
        assert len(table.collect("T")) == changed
        return passages.looks

    assert {looks(group, unrelated, 3) for group in (20, 200, 2_000) for unrelated in (0, 1_000)} == {5}


def test_a_topic_that_moves_collects_nothing_until_it_is_coupled_again() -> None:
    table = PassageTable(PassageState())
    table.raise_to("B", 3)
    assert table.collect("A", couple=["B"]) == {"B": 3}
    table.ungroup("A")
    table.ungroup("C")
    table.raise_to("B", 5)
    assert table.collect("A") == {}
    assert table.collect("A", couple=["B"]) == {"B": 5}
