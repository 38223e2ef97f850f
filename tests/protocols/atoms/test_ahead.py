"""A receiver that stops reading the topics that are ahead holds little, and is notified of everything all the same.

Random worlds of the explorer say what comes: groups open, change and end meanwhile. Then each receiver reads its topics
again, one message of one topic at a time, some topics much faster than others.
"""

from collections import deque
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from seriatim.lab.explore.atoms.cast import PROPER, AtomsWorld
from seriatim.lab.explore.atoms.random_worlds import TOPICS, random_atoms, random_forest, random_retirement
from seriatim.lab.explore.engine.checks import ids_of
from seriatim.lab.explore.engine.run import Run
from seriatim.lab.explore.engine.walk import BusyWalk, random_of
from seriatim.model import Event, Topic
from seriatim.protocols.atoms import AtomsOptions, Receiver, plan_of
from seriatim.protocols.atoms.live_messages import slot_of
from seriatim.protocols.atoms.messages import Item
from seriatim.protocols.atoms.overlaps import atom_of, group_of, groups_of, topic_of
from seriatim.protocols.machine import Effects, Payload

WORLDS = 60
LIMIT = 3


class Recorder(Receiver):
    """Remembers what it was sent."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.items: list[Item] = []

    def step(self, source: str, message: Payload, now: float) -> Effects:
        if isinstance(message, Item):
            self.items.append(message)
        return super().step(source, message, now)


def recorded(plan: AtomsWorld, random: Random) -> Run:
    run = Run(plan.build(replace(PROPER, receiver=Recorder)))
    BusyWalk(run, random).go()
    assert run.finish() == []
    return run


class Reader:
    """Reads again what a receiver was sent, from a stream for each topic."""

    def __init__(self, plan: AtomsWorld, name: str, items: list[Item], limit: int | None) -> None:
        self.receiver = Receiver(plan.plan, name, plan.options)
        self.limit = limit
        self.streams: dict[Topic, deque[Item]] = {}
        for item in items:
            self.streams.setdefault(topic_of(item.group), deque()).append(item)
        self.seen: list[str] = []
        self.most = 0

    def read(self, random: Random) -> None:
        """To the end; a topic is often read for long before it is another one's turn."""
        topic = ""
        while self.streams:
            receiver = self.receiver
            is_over = self.limit is not None and receiver.waiting > self.limit
            blocked = receiver.topics_ahead() if is_over else frozenset()
            topics = sorted(self.streams.keys() - blocked)
            assert topics, f"nothing is read any more: {receiver.explain()}"
            if topic not in topics or random.random() < 0.05:
                topic = random.choice(topics)
            item = self.streams[topic].popleft()
            if not self.streams[topic]:
                del self.streams[topic]
            self.seen += ids_of(receiver.step("broker", item, 0.0).notify)
            self.most = max(self.most, receiver.waiting)


@pytest.mark.parametrize("make", [random_atoms, random_retirement, random_forest])
def test_reading_never_stops_and_what_is_held_is_bounded(make: Any) -> None:
    """As items came, which is not the order they have in their groups, and in that order: then little is held."""
    most = unbounded = 0
    for index in range(WORLDS):
        random = random_of(7, index)
        plan: AtomsWorld = make(random, f"world {index}")
        if plan.with_links:
            continue
        run = recorded(plan, random)
        forgotten = run.world.checks.forgotten  # type: ignore[attr-defined]
        for name in sorted(set(plan.receivers) - forgotten):
            came: list[Item] = run.machine(name).items
            readers = [Reader(plan, name, came, LIMIT)]
            readers += [Reader(plan, name, sorted(came, key=slot_of), limit) for limit in (LIMIT, None)]
            for reader in readers:
                reader.read(Random(index))
                receiver = reader.receiver
                assert (receiver.waiting, receiver.waiting_bytes, receiver.state.held) == (0, 0, {})
                assert sorted(reader.seen) == sorted(ids_of(run.log(name))), f"world {index}, {name}"
            most, unbounded = max(most, readers[1].most), max(unbounded, readers[2].most)
    assert most <= LIMIT + len(TOPICS) < unbounded, "one of each topic is one too many"


def test_a_topic_that_is_ahead_is_read_on_if_another_one_waits_for_its_older_group() -> None:
    """t.1 is closed, and may still be marked; t.2 is ahead. As soon as somebody waits for the mark, t is read on."""
    plan = plan_of({"t": ["r", "s"], "u": ["r", "s"]}, ["h"], ["i"])
    receiver = Receiver(plan, "r", AtomsOptions())
    receiver.state.done = {"t.1": 1, "t.2": 1, "u.1": 0, "v.1": 0, "t.2&u.1": 1, "t.1&v.1": 0}
    receiver.step("broker", Item("t.2", 2, {"t.2&u.1": 3}, Event("e", "t", "p", b"12")), 0.0)
    assert receiver.topics_ahead() == {"t"}, "it waits for u"
    receiver.step("broker", Item("v.1", 1, {"t.1&v.1": 2}, Event("f", "v", "p", b"3")), 0.0)
    assert receiver.topics_ahead() == {"v"}, "it waits for the mark of t.1"
    assert (receiver.waiting, receiver.waiting_bytes) == (2, 3)
    receiver.step("broker", Item("t.2", 3, {"t.2&u.1": 4}, Event("g", "t", "p")), 0.0)
    assert receiver.explain(most=1) == [
        "e (t.2 2): waits for t.2&u.1 2",
        "1 messages of t.2: wait behind it",
        "f (v.1 1): waits for t.1&v.1 1",
    ]
    receiver.let_go("v.1")
    receiver.let_go("t.2")
    assert (receiver.waiting, receiver.waiting_bytes, receiver._waiting) == (0, 0, {})
    receiver.step("broker", Item("t.2", 2, {"t.2&u.1": 3}, Event("e", "t", "p", b"12")), 0.0)
    assert (receiver.waiting, receiver.waiting_bytes) == (1, 2)
    assert receiver.topics_ahead() == {"t"}


@pytest.mark.parametrize("topics", [("a", "b"), ("a.1&b.1", "a&"), ("&b", "a"), ("&", "&&"), ("a&&", "&&b")])
def test_the_groups_of_an_atom_are_known_by_its_name(topics: tuple[str, str]) -> None:
    one, other = (group_of(topic, 3) for topic in topics)
    assert set(groups_of(atom_of(one, other)) or ()) == {one, other}
    assert groups_of(one) is None and groups_of(other) is None
