"""Peers over a network that loses, repeats and reorders: what the link around a peer adds, and what it costs."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from msgspec.structs import replace

from seriatim.audit import audit
from seriatim.lab.sim import Simulator
from seriatim.lab.sim.delays import Constant
from seriatim.lab.sim.network import Link, unreliable
from seriatim.model import (
    APPLICATION,
    Address,
    Delivery,
    Event,
    History,
    InputError,
    Notification,
    Publication,
    RemoteError,
)
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.vcube import Cube, Peer, VCubeOptions, address_of, linked
from seriatim.protocols.vcube.cube import births_of, life_of, name_of
from seriatim.protocols.vcube.linked import (
    PORTION_BYTES_MAX,
    Connected,
    Depart,
    LinkedPeer,
    LinkOptions,
    Parcel,
    TurnedAway,
    bytes_of,
)
from seriatim.protocols.vcube.messages import (
    Alive,
    Body,
    Born,
    Cast,
    EventReceived,
    News,
    Pub,
    Publish,
    Replaced,
    Subscribe,
    Subscribed,
    Suspect,
)

TOPIC = "chat"
TIME_MAX_MS = 300_000.0
SLICE_MS = 50.0


class World:
    """Linked peers in the simulator."""

    def __init__(
        self,
        seed: int,
        count: int,
        link: Link,
        options: VCubeOptions | None = None,
        links: LinkOptions | None = None,
    ) -> None:
        self.told: dict[Address, list[Payload]] = {}
        self.lives: dict[str, list[str]] = {}  # of each life: what it was notified of
        self.sim = Simulator(seed, link, self._notified, record_messages=True)
        self.cube = Cube(range(count))
        options = options if options is not None else VCubeOptions()
        self.history = History()
        self.sequences: dict[str, int] = {}
        for id in self.cube.ids:

            def restore(records: Sequence[Payload], epoch: int, id: int = id) -> LinkedPeer:
                born_again = partial(Peer.restart, journal=records) if epoch > 1 else Peer
                peer = born_again(self.cube, id, options)
                if epoch == 1:
                    peer.state.beat_due = options.heartbeat_ms  # the first one comes when all are there
                return LinkedPeer(peer, links)

            self.told[address_of(id)] = []
            self.sim.add(address_of(id), restore)

    def _notified(self, address: Address, payload: Payload, now: float) -> None:
        self.told[address].append(payload)
        if isinstance(payload, Notification):
            name = name_of(self.peer(address).life)
            seen = self.lives.setdefault(name, [])
            event = payload.event
            if event.publisher == address:
                self.sequences[name] = sequence = self.sequences.get(name, 0) + 1
                self.history.publications.append(Publication(event.id, TOPIC, name, None, sequence, len(seen)))
            self.history.deliveries.append(Delivery(name, len(seen), event.id, TOPIC))
            seen.append(event.id)

    def machine(self, id: int) -> LinkedPeer:
        machine = self.sim.machine(address_of(id))
        assert isinstance(machine, LinkedPeer)
        return machine

    def peer(self, address: Address) -> Peer:
        machine = self.sim.machine(address)
        assert isinstance(machine, LinkedPeer)
        return machine.peer

    def tell(self, id: int, command: Payload) -> None:
        assert self.sim.command(address_of(id), command)

    def subscribe(self, *ids: int) -> None:
        for id in ids:
            wanted = self.count(id, Subscribed) + 1
            self.tell(id, Subscribe(TOPIC))
            self.until(partial(self._is_told, id, Subscribed, wanted), f"peer {id} holds the topic")

    def _is_told(self, id: int, kind: type[Payload], count: int) -> bool:
        return self.count(id, kind) >= count

    def publish(self, id: int, *names: str, payload: bytes = b"") -> None:
        for name in names:
            self.tell(id, Publish(Event(name, TOPIC, address_of(id), payload)))

    def count(self, id: int, kind: type[Payload]) -> int:
        return sum(isinstance(payload, kind) for payload in self.told[address_of(id)])

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Let time pass until something is so; the bound is simulated time."""
        while not is_so():
            assert self.sim.now < TIME_MAX_MS, f"never: {what}"
            self.sim.run(until_ms=self.sim.now + SLICE_MS)

    def seen(self, id: int) -> list[str]:
        return self.lives.get(name_of(self.peer(address_of(id)).life), [])


@pytest.mark.parametrize("portion", [PORTION_BYTES_MAX, 3])
@pytest.mark.parametrize("seed", range(5))
def test_everything_arrives_once_over_a_network_that_loses_repeats_and_reorders(
    seed: int, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linked, "PORTION_BYTES_MAX", portion)  # 3: nearly everything waits for its turn
    world = World(seed, 6, unreliable(loss=0.15, duplication=0.15, reordering=0.2))
    world.subscribe(*range(6))
    names = [f"{id}-{number}" for number in range(15) for id in range(6)]
    for name in names:
        world.publish(int(name[0]), name, payload=b"x")
        world.sim.run(until_ms=world.sim.now + 7.0)
    world.until(lambda: all(world.count(id, EventReceived) == 15 for id in range(6)), "all is published")
    for id in range(6):
        assert sorted(world.seen(id)) == sorted(names)
    assert audit(world.history).verdicts["causal"].answer == "valid"
    world.until(lambda: all(world.machine(id).kept == 0 for id in range(6)), "all is acknowledged")


@pytest.mark.parametrize("seed", range(5))
def test_a_peer_that_is_killed_comes_back_as_a_new_life_and_the_others_lose_nothing(seed: int) -> None:
    world = World(seed, 5, unreliable(loss=0.1, duplication=0.1, reordering=0.1))
    world.subscribe(*range(5))
    for number in range(10):
        for id in range(5):
            world.publish(id, f"{id}-{number}")
    world.sim.crash(address_of(2))
    for id in (0, 1, 3, 4):
        world.tell(id, Suspect(2))
    world.sim.run(until_ms=world.sim.now + 400.0)
    world.sim.start(address_of(2))
    world.subscribe(2)
    world.publish(2, "again")
    world.until(lambda: all("again" in world.seen(id) for id in range(5)), "the new life is heard by all")
    world.until(lambda: all(world.count(id, EventReceived) == 10 for id in (0, 1, 3, 4)), "the others' are published")
    world.until(lambda: len({tuple(sorted(world.seen(id))) for id in (0, 1, 3, 4)}) == 1, "all have the same")
    for id in (0, 1, 3, 4):
        assert {f"{other}-{number}" for other in (0, 1, 3, 4) for number in range(10)} <= set(world.seen(id))
        assert len(set(world.seen(id))) == len(world.seen(id))
    assert world.peer(address_of(2)).life == life_of(2, 1)
    assert audit(world.history).verdicts["causal"].answer == "valid"


def test_after_a_reconnection_a_long_backlog_is_repeated_in_portions_without_waiting_for_the_clock() -> None:
    """Nothing is lost while a connection lasts, so live peers hardly ever repeat by the clock."""
    links = LinkOptions(retry_ms=100_000.0, retry_ms_max=100_000.0)
    world = World(2, 2, Link(Constant(5.0), holds=False), VCubeOptions(window=1_000), links)
    world.subscribe(0, 1)
    ends = (address_of(0), address_of(1))
    world.sim.partition([ends, ends[::-1]], world.sim.now, world.sim.now + 500.0)
    world.sim.run(until_ms=world.sim.now + 10.0)
    world.publish(0, *(f"a{number}" for number in range(900)))
    world.sim.run(until_ms=world.sim.now + 600.0)
    assert world.seen(1) == []
    births = [births_of(machine.peer.life) for machine in (world.machine(0), world.machine(1))]
    world.tell(0, Connected(1, births[1]))
    world.publish(0, "b")  # sent while the rest is repeated: its turn comes
    world.tell(1, Connected(0, births[0]))
    began = world.sim.now
    world.until(lambda: world.count(0, EventReceived) == 901, "all is published")
    assert world.sim.now - began < 1_000.0
    assert world.seen(1) == [*(f"a{number}" for number in range(900)), "b"]


def test_two_peers_that_held_each_other_for_dead_find_each_other_again() -> None:
    """Both directions are cut, so neither hears that it is held for dead until the network heals."""
    world = World(1, 2, unreliable(loss=0.0, duplication=0.0, reordering=0.0))
    world.subscribe(0, 1)
    world.sim.partition([(address_of(0), address_of(1)), (address_of(1), address_of(0))], world.sim.now, 5_000.0)
    world.sim.run(until_ms=1_000.0)
    world.tell(0, Suspect(1))
    world.tell(1, Suspect(0))
    world.sim.run(until_ms=4_900.0)
    assert world.peer(address_of(0)).living() == world.peer(address_of(1)).living() == ()
    world.until(
        lambda: world.peer(address_of(0)).living() == (1,) and world.peer(address_of(1)).living() == (0,), "met"
    )
    world.until(lambda: world.peer(address_of(0)).topics == world.peer(address_of(1)).topics == [TOPIC], "rejoined")
    world.publish(0, "hello")
    world.until(lambda: "hello" in world.seen(1), "the other one is notified")


def test_acknowledgements_do_not_double_the_frames() -> None:
    world = World(3, 8, Link(Constant(5.0)))
    world.subscribe(*range(8))
    assert world.sim.messages is not None
    world.sim.messages.clear()
    for number in range(200):
        for id in range(8):
            world.publish(id, f"{id}-{number}")
        world.sim.run(until_ms=world.sim.now + 4.0)
    world.until(lambda: all(world.count(id, EventReceived) == 200 for id in range(8)), "all is published")
    bodies = 2 * 7 * 8 * 200  # a publication and its acknowledgement for each other member
    assert bodies <= len(world.sim.messages) <= 1.05 * bodies


def test_nothing_is_kept_for_who_is_held_for_dead() -> None:
    world = World(4, 3, Link(Constant(5.0)))
    world.subscribe(0, 1, 2)
    world.sim.crash(address_of(2))
    world.publish(0, *(f"e{number}" for number in range(30)))
    world.sim.run(until_ms=world.sim.now + 1_000.0)
    assert world.machine(0).kept >= 30
    world.tell(0, Suspect(2))
    world.until(lambda: world.machine(0).kept == 0 and world.count(0, EventReceived) == 30, "all that live have it")


def test_who_does_not_keep_up_is_declared_dead() -> None:
    options = VCubeOptions(window=1_000)
    world = World(5, 3, Link(Constant(5.0)), options, LinkOptions(kept_max=50))
    world.subscribe(0, 1, 2)
    world.sim.crash(address_of(2))
    for number in range(60):
        world.publish(0, f"e{number}")
        world.sim.run(until_ms=world.sim.now + 20.0)
    assert world.peer(address_of(0)).living() == (1,)
    world.until(lambda: world.count(0, EventReceived) == 60, "the others have it")


def test_who_stood_still_does_not_blame_the_others() -> None:
    """A frozen process finds, when it goes on, that it has heard nobody for long; what they said is not read yet."""
    cube, options = Cube(range(4)), VCubeOptions(heartbeat_ms=100.0, suspect_after_ms=500.0)
    machine = LinkedPeer(Peer(cube, 0, options))
    for now in (0.0, 100.0, 200.0):
        machine.tick(now)
    machine.tick(60_000.0)
    assert machine.peer.living() == (1, 2, 3)
    for now in range(60_100, 61_000, 100):  # awake, and still nobody is heard
        machine.tick(float(now))
    assert machine.peer.living() != (1, 2, 3)


WATCHING = VCubeOptions(heartbeat_ms=100.0, suspect_after_ms=1_000.0)


def cut_off(world: World, one: int, other: int, for_ms: float) -> None:
    ends = (address_of(one), address_of(other))
    world.sim.partition([ends, ends[::-1]], world.sim.now, world.sim.now + for_ms)


def test_two_that_are_no_neighbours_and_cannot_reach_each_other_do_not_wait_for_ever() -> None:
    """Nobody else misses either of them, and no heartbeat goes between them."""
    world = World(10, 4, Link(Constant(5.0), holds=False), WATCHING)
    world.subscribe(0, 3)
    healed = world.sim.now + 5_000.0
    cut_off(world, 0, 3, 5_000.0)
    world.sim.run(until_ms=world.sim.now + 10.0)
    world.publish(0, "during")
    world.until(lambda: world.count(0, EventReceived) == 1, "published without the one that cannot be reached")
    assert world.sim.now < healed
    assert births_of(world.peer("peer1").life) == births_of(world.peer("peer2").life) == 0
    world.sim.run(until_ms=world.sim.now + 15_000.0)
    world.publish(0, "after")
    world.until(lambda: "after" in world.seen(3), "they have found each other again")


def test_who_does_not_watch_suspects_nobody() -> None:
    world = World(11, 4, Link(Constant(5.0), holds=False))
    world.subscribe(0, 3)
    cut_off(world, 0, 3, 60_000.0)
    world.sim.run(until_ms=world.sim.now + 10.0)
    world.publish(0, "e")
    world.sim.run(until_ms=world.sim.now + 50_000.0)
    assert world.machine(0).kept > 0
    assert world.peer("peer0").living() == (1, 2, 3)
    world.until(lambda: world.count(0, EventReceived) == 1, "it arrives after all")


def test_who_stood_still_does_not_blame_those_that_owe_it_an_acknowledgement() -> None:
    machine = LinkedPeer(Peer.restart(Cube(range(8)), 0, WATCHING, []))
    for now in (0.0, 100.0, 200.0):
        machine.tick(now)
    assert machine.kept == 7  # its birth is told to everybody
    machine.tick(60_000.0)
    for now in range(60_100, 61_000, 100):
        machine.tick(float(now))
        assert len(machine.peer.living()) == 7
    for now in range(61_000, 61_300, 100):  # awake, and still nobody is heard
        machine.tick(float(now))
    assert machine.peer.living() == ()


def test_who_turns_us_away_lives() -> None:
    """Peer 1 says that another process has our id; peer 2 says nothing."""
    options = VCubeOptions(heartbeat_ms=100.0, suspect_after_ms=300.0)
    machine = LinkedPeer(Peer.restart(Cube(range(3)), 0, options, []))
    machine.step(APPLICATION, Subscribe(TOPIC), 0.0)
    for now in range(0, 2_000, 50):
        if now % 200 == 0:
            machine.step(APPLICATION, TurnedAway(1), float(now))
        machine.tick(float(now))
    assert machine.peer.state.statuses == {0: 2, 2: 1}
    assert machine.peer.topics == [], "it does not hold the topic without peer 1"


def test_who_speaks_is_not_suspected_however_late_it_acknowledges() -> None:
    machine = LinkedPeer(Peer.restart(Cube(range(2)), 0, WATCHING, []))
    for now in range(0, 5_000, 100):
        machine.tick(float(now))
        machine.step("peer1", Parcel(machine.peer.life, Frame(life_of(1, 1), 0, 0, Alive())), float(now))
        assert machine.kept > 0
        assert machine.peer.living() == (1,)


@pytest.mark.parametrize("owes", [True, False])
def test_a_connection_through_which_nothing_comes_is_no_sign_of_life(owes: bool) -> None:
    machine = LinkedPeer(Peer(Cube(range(2)), 0, WATCHING))
    machine.tick(0.0)
    machine.step(APPLICATION, Connected(1, 1), 0.0)
    if not owes:
        machine.step("peer1", Parcel(machine.peer.life, Frame(life_of(1, 1), 0, machine.kept)), 0.0)
    assert (machine.kept > 0) == owes
    for now in range(100, 1_500, 100):
        assert machine.peer.living() == (1,) or now > 1_000
        machine.tick(float(now))
        machine.step(APPLICATION, Connected(1, 1), float(now))
    assert machine.peer.living() == ()


def test_events_go_out_in_portions_that_a_connection_can_hold() -> None:
    """However many are kept: a connection that breaks of too much would break again of the same."""
    cube, options = Cube(range(2)), VCubeOptions(window=1_000)
    sender, receiver = (LinkedPeer(Peer.founder(cube, id, options, {TOPIC: (0, 1)})) for id in range(2))
    sizes = [300_000] * 60 + [PORTION_BYTES_MAX + 1] * 2 + [300_000] * 60
    first = Effects()
    for number, size in enumerate(sizes):
        event = Event(f"e{number}", TOPIC, "peer0", bytes(size))
        first.send += sender.step(APPLICATION, Publish(event), 0.0).send
    assert sender.kept == len(sizes)
    assert PORTION_BYTES_MAX / 2 < sent_bytes(first) <= PORTION_BYTES_MAX
    going = sender.step(APPLICATION, Connected(1, 0), 10.0)  # all that went before is lost
    published: list[EventReceived] = []
    for _ in range(10 * len(sizes)):
        assert len(going.send) == 1 or sent_bytes(going) <= PORTION_BYTES_MAX
        back = Effects()
        for _, parcel in going.send:
            back.send += receiver.step("peer0", parcel, 10.0).send
        going = Effects()
        for _, parcel in back.send:
            effects = sender.step("peer1", parcel, 10.0)
            going.send += effects.send
            published += [notice for notice in effects.notify if isinstance(notice, EventReceived)]
    assert [notice.event_id for notice in published] == [f"e{number}" for number in range(len(sizes))]
    assert sender.kept == 0


def sent_bytes(effects: Effects) -> int:
    return sum(
        bytes_of(parcel.frame.body)
        for _, parcel in effects.send
        if isinstance(parcel, Parcel) and parcel.frame.body is not None
    )


def test_a_process_that_departs_is_not_waited_for() -> None:
    world = World(6, 3, Link(Constant(5.0)))
    world.subscribe(0, 1, 2)
    world.tell(2, Depart())
    world.sim.run(until_ms=world.sim.now + 50.0)
    assert world.peer(address_of(0)).living() == (1,)
    before = world.sim.now
    world.publish(0, "e")
    world.until(lambda: world.count(0, EventReceived) == 1, "published")
    assert world.sim.now - before <= SLICE_MS
    world.tell(2, Subscribe(TOPIC))  # does nothing any more
    assert world.machine(2).tick(world.sim.now).send == []


def test_who_lost_its_journal_is_told_of_its_later_lives() -> None:
    """Its first life is long over: it is told when it connects, and goes on as the next one."""
    world = World(7, 2, Link(Constant(5.0)))
    world.sim.run(until_ms=10.0)
    for births in (2, 3):
        parcel = Parcel(world.peer("peer0").life, Frame(life_of(1, births), 0, 0, Alive()))
        world.machine(0).step("peer1", parcel, 20.0)
    world.tell(0, Suspect(1))
    effects = world.machine(0).step(APPLICATION, Connected(1, 1), 30.0)
    for address, sent in effects.send:
        if address == "peer1":
            world.machine(1).step("peer0", sent, 35.0)
    assert world.peer("peer1").life == life_of(1, 4)


def test_of_two_processes_with_one_id_the_later_life_goes_on() -> None:
    world = World(8, 2, Link(Constant(5.0)))
    news = Parcel(world.peer("peer0").life, Frame(world.peer("peer1").life, 0, 0, News({0: 4})))
    effects = world.machine(0).step("peer1", news, 20.0)
    assert effects.notify == [Replaced(2, may_go_on=True)]
    for births, goes_on in ((3, False), (5, True)):  # the end of that life, heard on the connection it once had
        news = Parcel(life_of(0, 2), Frame(world.peer("peer1").life, 0, 0, News({0: births})))
        effects = world.machine(0).step("peer1", news, 30.0)
        assert effects.notify == ([Born(3)] if goes_on else [])


def parcel_of(world: World, body: Body, number: int = 1) -> Parcel:
    return Parcel(world.peer("peer0").life, Frame(world.peer("peer1").life, number, 0, body))


def test_what_no_peer_can_have_said_is_refused_and_changes_nothing() -> None:
    world = World(9, 3, Link(Constant(5.0)))
    world.sim.run(until_ms=50.0)
    machine = world.machine(0)
    pub = Pub(TOPIC, life_of(1, 0), 1, {}, 0, Event("e", TOPIC, "x"))
    wrong = [
        ("peer2", parcel_of(world, Alive())),  # in somebody else's name
        ("peer9", replace(parcel_of(world, Alive()), frame=Frame(life_of(9, 1), 1, 0, Alive()))),
        ("peer1", parcel_of(world, Cast(1, 1_000_000_000, pub))),
        ("peer1", parcel_of(world, Cast(1, 0, replace(pub, source=life_of(77, 1))))),
        ("peer1", parcel_of(world, Cast(1, 0, replace(pub, number=0)))),
        ("peer1", parcel_of(world, Cast(1, 0, pub), number=0)),
    ]
    for source, parcel in wrong:
        with pytest.raises(RemoteError):
            machine.step(source, parcel, 60.0)
    world.subscribe(0, 1, 2)


def test_options_name_what_is_wrong() -> None:
    with pytest.raises(InputError, match=r"retry_ms: -1.0 is not positive"):
        LinkOptions(retry_ms=-1.0)
