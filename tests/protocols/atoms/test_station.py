"""Stations: all roles in one machine, rebuilt from records and snapshots, and not harmed by what makes no sense."""

from collections import deque
from functools import partial
from typing import Any

import msgspec
import pytest

from seriatim.model import APPLICATION, BROKER, Event, Notification
from seriatim.protocols.atoms import AtomsOptions, Plan, SequencingGraph
from seriatim.protocols.atoms.live_messages import (
    Alive,
    Declined,
    Forgotten,
    Full,
    Input,
    Join,
    Joined,
    Leave,
    Left,
    Numbered,
    Room,
)
from seriatim.protocols.atoms.messages import Carry, Forget, Idle, Item, Publish, Started, Stray
from seriatim.protocols.atoms.receiver import Receiver
from seriatim.protocols.atoms.station import IDS_REMEMBERED, Station, StationState
from seriatim.protocols.atoms.station_node import LinkedState, Outdated, StationNode
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Effects
from seriatim.protocols.node import Amnesia, Nonsense, Stepped, TookOver

NAMES = ("one", "two", "three")
_records: msgspec.msgpack.Decoder[Stepped[Input] | TookOver] = msgspec.msgpack.Decoder(Stepped[Input] | TookOver)
_states = msgspec.msgpack.Decoder(LinkedState)


class Stations:
    """Stations joined by perfect wires. Journals are bytes, as on a disk.

    Whoever is `away` is reached by nobody, and reaches nobody.
    """

    def __init__(self, causal: bool = False, names: tuple[str, ...] = NAMES, **options: Any) -> None:
        self.options = AtomsOptions(causal=causal, retry_ms=10.0, **options)
        self.away: set[str] = set()
        self.early: dict[tuple[str, str], list[Item]] = {}
        self.filled: dict[str, int] = {}  # how many items of each station the broker has
        self.plan = Plan(SequencingGraph(), names, names)
        self.nodes = {name: StationNode(self._station(name, None), 10.0) for name in names}
        self.journals: dict[str, list[bytes]] = {name: [] for name in names}
        self.snapshots: dict[str, bytes] = {}
        self.items: list[Item] = []
        self.told: list[Any] = []
        self.heard: dict[tuple[str, str], int] = {}
        self.said: dict[str, list[Any]] = {}
        self.receivers: dict[str, Receiver] = {}
        self.seen: dict[str, list[str]] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.wire: deque[tuple[str, str, Any]] = deque()
        self.now = 0.0

    def _station(self, name: str, state: StationState | None = None) -> Station:
        return Station(self.plan, name, NAMES[0], self.options, state)

    def say(self, client: str, station: str, message: Any) -> None:
        """A client says something, and everything that follows from it happens."""
        number = self.numbers[client, station] = self.numbers.get((client, station), 0) + 1
        self.deliver(client, station, Frame(1, number, self.heard.get((client, station), 0), message))

    def deliver(self, source: str, target: str, message: Any) -> None:
        self.wire.append((source, target, message))
        while self.wire:
            source, target, message = self.wire.popleft()
            if source in self.away or target in self.away:
                continue
            if target in self.nodes:
                self._carry_out(target, self.nodes[target].step(source, message, self.now))
            elif target == BROKER:
                self._publish(source, message)
            elif isinstance(message, Full | Room):
                self.said.setdefault(target, []).append(message)
            elif message.body is not None:
                heard = self.heard.get((target, source), 0)
                if message.number == heard + 1:
                    heard = self.heard[target, source] = message.number
                    self.said.setdefault(target, []).append(message.body)
                self.wire.append((target, source, Frame(1, 0, heard)))

    def _carry_out(self, name: str, effects: Effects) -> None:
        self.journals[name] += [msgspec.msgpack.encode(record) for record in effects.persist]
        self.told += effects.notify
        self.wire.extend((name, target, message) for target, message in effects.send)

    def _publish(self, source: str, frame: "Frame[Item]") -> None:
        assert frame.body is not None
        if frame.number > self.filled.get(source, 0) + 1:  # something before it was lost
            return
        self.filled[source] = max(frame.number, self.filled.get(source, 0))
        item = msgspec.msgpack.decode(msgspec.msgpack.encode(frame.body), type=Item)
        if item not in self.items:
            self.items.append(item)
            for name in self.receivers:
                self._hear(name, source, item)
        self.wire.append((BROKER, source, Frame(1, 0, self.filled[source])))

    def _hear(self, name: str, source: str, item: Item) -> None:
        """A receiver is given the items of its groups, from their first message on; others may come before that."""
        receiver, notice = self.receivers[name], item.notice
        is_first = notice is not None and notice.opens
        if not is_first and item.group not in receiver.state.done:
            self.early.setdefault((name, item.group), []).append(item)
        elif not is_first or (notice is not None and name in notice.members):
            effects = receiver.step(source, item, self.now)
            self.seen[name] += [each.event.id for each in effects.notify if isinstance(each, Notification)]
            for _, message in effects.send:
                self.say_later(name, message)
        for group in [group for who, group in self.early if who == name and group in receiver.state.done]:
            for early in self.early.pop((name, group)):
                self._hear(name, source, early)

    def say_later(self, client: str, message: Any) -> None:
        number = self.numbers[client, NAMES[0]] = self.numbers.get((client, NAMES[0]), 0) + 1
        self.wire.append((client, NAMES[0], Frame(1, number, self.heard.get((client, NAMES[0]), 0), message)))

    def join(self, receiver: str, *topics: str) -> None:
        if receiver not in self.receivers:
            self.receivers[receiver] = Receiver(self.plan, receiver, self.options)
            self.seen[receiver] = []
        for topic in topics:
            self.say(receiver, NAMES[0], Join(topic))

    def publish(self, publisher: str, topic: str, id: str) -> None:
        self.say(publisher, self.plan.ingress_of(topic), Publish(Event(id, topic, publisher, b"x")))

    def crash(self, name: str) -> None:
        """Start a station again from its journal."""
        snapshot = self.snapshots.get(name)
        self.nodes[name] = StationNode.restore(
            partial(self._station, name),
            10.0,
            _states.decode(snapshot) if snapshot is not None else None,
            [_records.decode(record) for record in self.journals[name]],
        )
        self.now += 100.0
        self._carry_out(name, self.nodes[name].tick(self.now))
        self.deliver("nobody", name, Frame(1, 0, 0))  # whatever is on the wire arrives

    def pass_time(self, milliseconds: float = 10.0) -> None:
        """Whatever is due happens."""
        self.now += milliseconds
        for name in sorted(self.nodes.keys() - self.away):
            self._carry_out(name, self.nodes[name].tick(self.now))
        self.deliver("nobody", min(self.nodes), Frame(1, 0, 0))

    def snapshot(self, name: str) -> None:
        self.snapshots[name] = msgspec.msgpack.encode(self.nodes[name].state)
        self.journals[name].clear()


def test_how_many_inputs_a_journal_has_had_is_known_from_snapshots_and_records() -> None:
    """A copy of a journal is told by it (live/life.py)."""
    world = Stations()
    world.join("r", "a")
    for number in range(12):
        world.publish("p", "a", f"e{number}")
        if number in (4, 9):
            for name in NAMES:
                world.snapshot(name)
        before = {name: node.state.inputs for name, node in world.nodes.items()}
        for name in NAMES:
            world.crash(name)
        after = {name: node.state.inputs for name, node in world.nodes.items()}
        assert all(after[name] >= before[name] for name in NAMES), (number, before, after)
    assert after[world.plan.ingress_of("a")] > 12


def test_members_see_one_order_over_all_stations() -> None:
    world = Stations()
    world.join("r", "a", "b")
    world.join("s", "a", "b")
    for number in range(10):
        world.publish("p", "ab"[number % 2], f"e{number}")
    assert world.seen["r"] == world.seen["s"] and len(world.seen["r"]) == 10
    assert [each.place for each in world.said["p"] if isinstance(each, Numbered)] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    joined = [each for each in world.said["r"] if isinstance(each, Joined)]
    assert [each.topic for each in joined] == ["a", "b"]


def test_stations_are_rebuilt_from_bytes_at_any_time() -> None:
    for causal in (False, True):
        world = Stations(causal)
        world.join("r", "a", "b", "c")
        world.join("s", "a", "b")
        for number in range(12):
            world.publish("p", "abc"[number % 3], f"e{number}")
            name = NAMES[number % 3]
            if number % 4 == 3:
                world.snapshot(name)
            world.crash(name)
            if number == 5:
                world.say("s", NAMES[0], Leave("b"))
                assert Left("b") in world.said["s"]
        assert [id for id in world.seen["r"] if id in world.seen["s"]] == world.seen["s"]
        assert len(world.seen["r"]) == 12 and len(world.seen["s"]) == 6
        assert [each.event_id for each in world.said["p"] if isinstance(each, Numbered)] == [
            f"e{number}" for number in range(12)
        ]


def test_joins_that_come_together_are_one_change() -> None:
    world = Stations()
    registrar = world.nodes["one"].inner.registrar
    assert registrar is not None
    for number in range(20):  # none of it is carried out before the first change is complete
        world.wire.append((f"r{number}", "one", Frame(1, 1, 0, Join("a"))))
    world.deliver("r20", "one", Frame(1, 1, 0, Join("a")))
    assert len(registrar.members("a")) == 21
    assert registrar.state.incarnations["a"] < 10


def test_a_topic_without_members_is_declined_and_others_go_on() -> None:
    world = Stations()
    world.join("r", "a")
    world.publish("p", "nobody", "e1")
    world.publish("p", "a", "e2")
    assert Declined("e1", "nobody", "nobody is subscribed to it") in world.said["p"]
    assert world.seen["r"] == ["e2"]
    world.say("r", NAMES[0], Forget("r"))
    world.publish("p", "a", "e3")
    assert world.said["p"][-1] == Declined("e3", "a", "nobody is subscribed to it")


def test_a_message_for_a_retired_path_is_kept_and_told_and_others_go_on() -> None:
    world = Stations()
    world.join("r", "a", "b")
    world.join("s", "a", "b")
    lost = Item("z.1", 1, {}, Event("lost", "z", "p"))
    host = next(name for name in NAMES if world.nodes[name].inner.state.host)
    world.say("elsewhere", host, Carry("y.1&z.1", "z.1", lost))
    assert [each for each in world.told if isinstance(each, Stray)] == [Stray("y.1&z.1", "z.1", lost)]
    assert "a message for y.1&z.1, which is not here" in world.nodes[host].explain()
    world.crash(host)
    assert "a message for y.1&z.1, which is not here" in world.nodes[host].explain()
    world.publish("p", "a", "e1")
    world.publish("p", "b", "e2")
    assert world.seen["r"] == world.seen["s"] == ["e1", "e2"]


def test_what_makes_no_sense_is_passed_over_also_by_the_journal() -> None:
    world = Stations()
    world.say("x", "two", Idle("7", "not&here"))
    assert [type(each) for each in world.told] == [Nonsense]
    world.say("x", "two", Join("a"))  # the coordinator is elsewhere
    assert [type(each) for each in world.told] == [Nonsense, Nonsense]
    world.crash("two")
    world.join("r", "a")
    world.publish("p", "a", "e1")
    assert world.seen["r"] == ["e1"]


def test_a_client_or_a_node_may_be_called_coordinator_without_being_it() -> None:
    world = Stations(names=("one", "coordinator"))
    world.join("r", *"abcdef")
    world.join("s", *"abcdef")
    assert {world.plan.ingress_of(topic) for topic in "abcdef"} >= {"coordinator"}
    for number, topic in enumerate("abcdef"):
        world.publish("p", topic, f"e{number}")
    assert world.seen["r"] == world.seen["s"] == [f"e{number}" for number in range(6)]
    world = Stations()
    world.join("r", "a")
    world.publish("coordinator", "a", "e1")
    world.publish("coordinator", "b", "e2")
    assert [type(each) for each in world.said["coordinator"]] == [Numbered, Declined]
    assert world.seen["r"] == ["e1"]


def test_only_its_own_membership_can_be_given_up() -> None:
    world = Stations()
    world.join("r", "a")
    world.say("thief", "one", Forget("r"))
    world.publish("p", "a", "e1")
    assert world.seen["r"] == ["e1"]


def test_a_neighbour_that_lost_its_journal_is_named_and_nothing_for_it_is_lost() -> None:
    world = Stations()
    world.join("r", "a", "b")
    world.join("s", "a", "b")
    unharmed = next(topic for topic in "cdefgh" if world.plan.ingress_of(topic) == "one")
    world.join("t", unharmed)
    world.publish("p", "a", "e1")
    links = world.nodes["one"].state.links
    name = next(name for name in NAMES[1:] if name in links and links[name].sent)
    world.nodes[name] = StationNode(world._station(name, None), 10.0)  # an empty disk
    world.nodes[name].state.epoch = 50
    world.deliver(name, "one", Frame(50, 0, 0))
    assert [each.source for each in world.told if isinstance(each, Amnesia)] == [name]
    assert any("has lost its journal" in line for line in world.nodes["one"].explain())
    world.say("r", "one", Leave("b"))  # needs a part of the graph that is gone: it waits, and is kept
    assert any(f"messages to {name}: wait for its acknowledgement" in line for line in world.nodes["one"].explain())
    world.publish("p", unharmed, "e2")
    assert world.seen["t"] == ["e2"]


@pytest.mark.parametrize("causal", [False, True], ids=["total", "causal"])
def test_a_station_with_an_older_journal_ends_when_it_hears_of_a_neighbour(causal: bool) -> None:
    """Whatever has not been said of its journal elsewhere: what its neighbours have had of it says it."""
    world = Stations(causal)
    world.join("r", "a", "b")
    world.join("s", "a", "b")
    older = {name: list(world.journals[name]) for name in NAMES}
    for number in range(6):
        world.publish("p", "ab"[number % 2], f"e{number}")
    world.join("t", "a", "c")
    neighbours = world.nodes["one"].state.links.keys() & {*NAMES}
    assert neighbours, "the coordinator has told others what to host"
    for name in NAMES:  # with the newest journal nobody is
        world.crash(name)
    world.pass_time()
    assert not any(isinstance(each, Outdated) for each in world.told)
    world.journals["one"] = older["one"]
    world.away = {name for name in NAMES if name != "one"}  # what it repeats at once is dropped there as a repeat
    world.crash("one")
    world.away = set()
    for name in sorted(neighbours):
        link = world.nodes[name].state.links["one"]
        world.deliver(name, "one", link.acknowledgement(world.nodes[name].state.epoch))
    found = [each for each in world.told if isinstance(each, Outdated)]
    assert len(found) == 1 and found[0].source in neighbours and "the journal here knows of" in found[0].reason
    mine = next(topic for topic in "abcdefgh" if world.plan.ingress_of(topic) == "one")
    world.publish("q", mine, "late")
    world.pass_time()
    assert "q" not in world.said, "nothing is confirmed any more"
    assert world.nodes["one"].tick(world.now + 1e6).send == []


def test_who_is_forgotten_is_told() -> None:
    world = Stations()
    world.join("r", "a")
    node = world.nodes["one"]
    assert node.answer_alive("r", Alive(1)) is None
    world._carry_out("one", node.step(APPLICATION, Forget("r"), 0.0))
    assert node.answer_alive("r", Alive(1)) == Forgotten()
    assert "r" not in node.state.links
    world.say("r", "one", Started("a.1"))  # too late: nothing is made of it
    assert "r" not in node.state.links


def test_an_id_that_is_published_again_is_numbered_once() -> None:
    for causal in (False, True):
        world = Stations(causal)
        world.join("r", "a", "b")
        world.join("s", "a", "b")
        ingress = world.plan.ingress_of("a")
        world.publish("p", "a", "payment-1")
        world.publish("p", "a", "payment-1")
        world.crash(ingress)
        world.publish("p", "a", "payment-1")
        world.snapshot(ingress)
        world.crash(ingress)
        world.publish("p", "a", "payment-1")
        assert world.seen["r"] == world.seen["s"] == ["payment-1"]
        assert world.said["p"] == [Numbered("payment-1", 1)] * 4
        world.publish("q", "a", "payment-1")  # somebody else's: another event
        world.publish("p", "b", "payment-1")
        assert world.seen["r"] == ["payment-1"] * 3


def test_the_ids_that_are_remembered_are_bounded_and_end_with_their_publisher() -> None:
    world = Stations(names=("one",))
    world.join("r", "a")
    for number in range(IDS_REMEMBERED + 10):
        world.publish("p", "a", f"e{number}")
        world.publish("p", "a", f"p-{number}")  # counted by the publisher: never used again
    state = world.nodes["one"].inner.state.ingress
    assert state is not None and len(state.recent["p"]) == IDS_REMEMBERED
    assert not [id for id in state.recent["p"] if id.startswith("p-")]
    world.say("p", "one", Forget("p"))
    assert not state.recent


def test_an_answer_that_is_owed_is_not_given_early_to_a_repeat() -> None:
    world = Stations(causal=True)
    world.join("r", "a", "b", "c", "d")
    world.join("s", "a", "b", "c", "d")
    ingress, topic = next(
        (name, topic)
        for name in NAMES
        for topic, group in world.nodes[name].inner.state.ingress.topics.items()  # type: ignore[union-attr]
        if world.nodes[name].inner.state.ingress.inlets[group].entry_host != name  # type: ignore[union-attr]
    )
    first, again = (Frame(1, number, 0, Publish(Event("e", topic, "p", b"x"))) for number in (1, 2))
    effects = world.nodes[ingress].step("p", first, 0.0)
    world._carry_out(ingress, effects)  # on its way to an atom elsewhere
    world._carry_out(ingress, world.nodes[ingress].step("p", again, 0.0))
    assert not any(isinstance(frame.body, Numbered) for _, _, frame in world.wire)
    world.deliver("nobody", ingress, Frame(1, 0, 0))
    assert world.seen["r"] == ["e"] and world.said["p"] == [Numbered("e", 1)]
