"""The messages that stations keep while another is away are bounded: publishers wait, and no event with a number is
lost."""

from itertools import combinations
from random import Random
from typing import Any

import pytest

from seriatim.model import APPLICATION, BROKER, Event
from seriatim.protocols.atoms.burden import BELIEVED_MS, REPORT_MS, Burden
from seriatim.protocols.atoms.live_messages import Full, Numbered, Room
from seriatim.protocols.atoms.messages import Begin, Carry, Drain, Forget, Item, Publish
from seriatim.protocols.atoms.state import HostedAtom
from seriatim.protocols.atoms.station import StationHost
from seriatim.protocols.link import RESENT_AT_ONCE, Frame
from seriatim.protocols.machine import Effects
from tests.protocols.atoms.test_station import NAMES, Stations

MOST = 5


class Publisher:
    """One that repeats what was not taken before it sends anything else."""

    def __init__(self, world: Stations, name: str, topic: str) -> None:
        self.world, self.name, self.topic = world, name, topic
        self.ingress = world.plan.ingress_of(topic)
        self.taken = 0

    def publish(self, id: str) -> bool:
        """Whether it was numbered."""
        world, event = self.world, Event(id, self.topic, self.name, b"x")
        heard = world.heard.get((self.name, self.ingress), 0)
        world.deliver(self.name, self.ingress, Frame(1, self.taken + 1, heard, Publish(event)))
        is_taken: bool = world.said[self.name][-1] == Numbered(id, self.taken + 1)
        self.taken += is_taken
        return is_taken


def full_of(world: Stations, client: str) -> list[str]:
    return [each.why for each in world.said.get(client, []) if isinstance(each, Full)]


def ids(world: Stations) -> list[str]:
    return [item.event.id for item in world.items if item.event is not None]


@pytest.mark.parametrize("restarted", [False, True])
def test_while_the_broker_is_away_publishers_wait_and_all_that_was_numbered_comes(restarted: bool) -> None:
    world = Stations(kept_events_max=MOST)
    for receiver in ("r", "s"):
        world.join(receiver, "a", "b")
    p = Publisher(world, "p", "a")
    world.away = {BROKER}
    taken = [f"e{number}" for number in range(20) if p.publish(f"e{number}")]
    assert taken == [f"e{number}" for number in range(MOST)]
    assert "events of 5 bytes for the broker, which is away, or slow" in full_of(world, "p")[0]
    assert any("no events of a are taken" in line for line in world.nodes[p.ingress].explain())
    records = sum(map(len, world.journals.values()))
    assert not p.publish("e5") and sum(map(len, world.journals.values())) == records, "it is in no journal"
    if restarted:
        for name in NAMES:
            world.crash(name)
        world.pass_time(REPORT_MS)
        assert not p.publish("e5"), "as much is kept as before"
    world.away.clear()
    world.pass_time()
    world.pass_time()
    assert world.said["p"][-1] == Room()
    assert p.publish("e5")
    assert ids(world) == [f"e{number}" for number in range(6)] == world.seen["r"] == world.seen["s"]
    assert not any("are taken" in line for node in world.nodes.values() for line in node.explain())


def test_other_topics_go_on_while_one_waits_for_a_station_that_is_away() -> None:
    """a and b end at the host of their atom, the other one has none. While that host is away only they wait."""
    world = Stations(kept_events_max=MOST)
    for receiver in ("r", "s"):
        world.join(receiver, "a", "b")
    host = next(name for name in NAMES if world.nodes[name].inner.state.host.atoms)  # type: ignore[union-attr]
    topic, other = (
        next(topic for topic in topics if world.plan.ingress_of(topic) != host) for topics in ("ab", "cdefgh")
    )
    world.join("t", other)
    p, q = Publisher(world, "p", topic), Publisher(world, "q", other)
    world.away = {host}
    assert [p.publish(f"e{number}") for number in range(8)] == [True] * MOST + [False] * 3
    assert f"for node {host}, which is away, or slow" in full_of(world, "p")[0]
    assert all(q.publish(f"f{number}") for number in range(8)), "it takes another way"
    world.away.clear()
    for _ in range(3):
        world.pass_time()
    assert p.publish("e5")
    assert world.seen["r"] == world.seen["s"] == [f"e{number}" for number in range(6)]


def test_who_was_full_and_is_silent_is_not_believed_for_ever() -> None:
    world = Stations(kept_events_max=MOST)
    world.join("r", "a")
    p = Publisher(world, "p", "a")
    other = next(name for name in NAMES if name != p.ingress)
    world.deliver(other, p.ingress, Full(frozenset({"a"}), "it is full"))
    assert not p.publish("e0") and full_of(world, "p") == ["it is full"]
    world.deliver("p", p.ingress, Full(frozenset(), "a client says so"))
    assert not p.publish("e0"), "only stations are asked"
    world.now += BELIEVED_MS
    assert p.publish("e0")
    world.deliver(other, p.ingress, Full(frozenset({"a"}), "it is full"))
    assert not p.publish("e1")
    world.deliver(other, p.ingress, Full(frozenset(), ""))
    assert world.said["p"][-1] == Room() and p.publish("e1")


def test_repeats_of_what_was_taken_are_acknowledged_though_it_is_full() -> None:
    world = Stations(kept_events_max=MOST)
    world.join("r", "a")
    p = Publisher(world, "p", "a")
    world.away = {BROKER}
    while p.publish(f"e{p.taken}"):
        pass
    node = world.nodes[p.ingress]
    again = node.step("p", Frame(1, p.taken, 0, Publish(Event("e4", "a", "p", b"x"))), world.now)
    assert [(target, type(message)) for target, message in again.send] == [("p", Frame)]
    link = node.state.links["p"]
    world.deliver("p", p.ingress, Frame(1, p.taken + 1, link.sent, Publish(Event("e5", "a", "p", b"x"))))
    assert not link.unacknowledged, "what came along with it was heard"


def test_who_is_forgotten_is_not_remembered_as_one_who_waits() -> None:
    world = Stations(names=("one",), kept_events_max=MOST)
    world.join("r", "a")
    world.away = {BROKER, "p"}
    node = world.nodes["one"]
    for number in range(1, MOST + 2):
        event = Event(f"e{number}", "a", "p", b"x")
        world._carry_out("one", node.step("p", Frame(1, number, 0, Publish(event)), 0.0))
    world.pass_time(50.0)
    world.pass_time(50.0)
    assert "p" in node._kept_out and "p" in node._heard
    node.step(APPLICATION, Forget("p"), world.now)
    assert "p" not in node._kept_out | node._heard.keys() | node._portions.keys()


def test_what_gathered_is_sent_as_fast_as_it_is_taken() -> None:
    world = Stations(names=("one",))
    world.join("r", "a")
    p = Publisher(world, "p", "a")
    world.away = {BROKER}
    count = 5 * RESENT_AT_ONCE
    assert all(p.publish(f"e{number}") for number in range(count))
    world.pass_time()
    world.pass_time()
    assert world.seen["r"] == []
    world.away.clear()
    world.pass_time()
    assert world.seen["r"] == [f"e{number}" for number in range(count)]
    assert not world.nodes["one"]._portions


def test_what_waits_behind_gates_is_counted() -> None:
    world = Stations(names=("one",))
    host = StationHost(world.plan, "one", world.options)
    host.state.atoms["a.1&b.1"] = HostedAtom(("a.1", "b.1"), None, "", ends={"a.1": frozenset("r")})

    def carry(source: str, passing: Any) -> Effects:
        return host.step("x", Carry("a.1&b.1", source, passing), 0.0)

    carry("new", Begin("7", "a.1&b.1"))
    for number in range(1, 4):
        carry("new", Item("a.1", number, {}, Event(f"e{number}", "a", "p", b"xyz")))
    assert (host.gated.events, host.gated.bytes, host.gated.topics) == (3, 9, {"a": 3})
    rebuilt = StationHost(world.plan, "one", world.options, host.state)
    assert rebuilt.gated.events == 3
    carry("old", Drain("7", "a.1&b.1"))
    assert (host.gated.events, host.gated.bytes, host.gated.topics) == (0, 0, {})


def test_full_is_full_until_half_of_it_is_gone() -> None:
    world = Stations(kept_events_max=4, kept_bytes_max=100)
    burden, event = Burden(), Event("e", "t", "p", b"x")
    changes = []
    for change in [burden.add] * 5 + [burden.remove] * 3 + [burden.add]:
        change(event)
        changes.append((burden.weigh(world.options), burden.is_full))
    assert [index for index, (has_changed, _) in enumerate(changes) if has_changed] == [3, 7]
    assert not burden.is_full
    burden.add(Event("large", "t", "p", b"x" * 100))
    assert burden.weigh(world.options) and burden.is_full


def keeps(world: Stations) -> int:
    """The most that any station keeps for anybody, of events."""
    return max(burden.events for node in world.nodes.values() for burden in node.burdens.kept.values())


def recounted(world: Stations) -> bool:
    """Whether what is counted on the way is what is there."""
    for node in world.nodes.values():
        counted = {address: (burden.events, burden.bytes) for address, burden in node.burdens.kept.items()}
        node.burdens.begin(node.state.links)
        if counted != {address: (burden.events, burden.bytes) for address, burden in node.burdens.kept.items()}:
            return False
    return True


class Insisting:
    """Sends the same again until it is taken, and only then the next one."""

    def __init__(self, world: Stations, topic: str) -> None:
        self.world, self.name, self.topic = world, f"p{topic}", topic
        self.ingress = world.plan.ingress_of(topic)
        self.sent: list[str] = []

    @property
    def numbered(self) -> list[str]:
        link = self.world.nodes[self.ingress].state.links.get(self.name)
        return self.sent[: link.received if link is not None else 0]

    def publish(self) -> None:
        if len(self.sent) == len(self.numbered):
            self.sent.append(f"{self.topic}{len(self.sent)}")
        event = Event(self.sent[-1], self.topic, self.name, b"x")
        heard = self.world.heard.get((self.name, self.ingress), 0)
        self.world.deliver(self.name, self.ingress, Frame(1, len(self.sent), heard, Publish(event)))


@pytest.mark.parametrize("seed", range(40))
def test_in_random_worlds_little_is_kept_and_nothing_that_was_numbered_is_lost(seed: int) -> None:
    """Stations and the broker go and come back, stations restart, somebody joins meanwhile, publishers insist.

    (The coordinator is always there: receivers of these tests say everything once.)
    """
    random = Random(seed)
    world = Stations(causal=random.random() < 0.3, kept_events_max=MOST)
    topics = {receiver: random.sample("abcd", random.choice([2, 3, 4])) for receiver in ("r", "s", "t")}
    for receiver, held in topics.items():
        world.join(receiver, *held)
    publishers = [Insisting(world, topic) for topic in sorted({each for held in topics.values() for each in held})]
    kept_most = 0
    for number in range(300):
        draw = random.random()
        if draw < 0.05:
            world.away = set(random.sample([*NAMES[1:], BROKER], random.choice([0, 1, 1, 2])))
        elif draw < 0.07:
            name = random.choice(NAMES)
            if seed % 2:
                world.snapshot(name)
            world.crash(name)
        elif draw < 0.15:
            world.pass_time(random.choice([10.0, REPORT_MS]))
        else:
            random.choice(publishers).publish()
        if number == 150:
            world.join("late", *topics["r"])
        kept_most = max(kept_most, keeps(world))
    assert recounted(world)
    world.away.clear()
    for _ in range(20):
        world.pass_time(REPORT_MS)
    for receiver, held in topics.items():
        for p in publishers:
            seen = [id for id in world.seen[receiver] if id.startswith(p.topic)]
            assert seen == (p.numbered if p.topic in held else []), "in order, and nothing is missing"
    for one, other in combinations(world.seen, 2):
        common = set(world.seen[one]) & set(world.seen[other])
        assert [id for id in world.seen[one] if id in common] == [id for id in world.seen[other] if id in common]
    assert keeps(world) == 0 and recounted(world)
    if seed % 2:  # else what is replayed counts, until somebody says that he has it
        most = len(NAMES) * (len(NAMES) + 1) * MOST  # each station for each other one and for the broker
        assert MOST <= kept_most < most, "what others have kept comes on top, when it gets through"
