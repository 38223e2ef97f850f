"""A few peers by hand: joining, leaving, coming back, dying, being wrongly suspected, and bad input."""

import pytest

from seriatim.model import APPLICATION, Event, InputError, RemoteError
from seriatim.protocols.machine import Effects
from seriatim.protocols.vcube import Cube, Peer, VCubeOptions
from seriatim.protocols.vcube.cube import life_of
from seriatim.protocols.vcube.messages import (
    Ack,
    Alive,
    Answer,
    Born,
    Cast,
    Census,
    Entry,
    EventReceived,
    News,
    Packet,
    Pub,
    Publish,
    Rejoined,
    Replaced,
    Spare,
    Subscribe,
    Subscribed,
    Suspect,
    Unsettled,
    Unsubscribe,
    Unsubscribed,
)
from tests.nonsense import Nonsense
from tests.protocols.vcube.net import TOPIC, Net


def test_ids_need_not_fill_a_power_of_two() -> None:
    net = Net(Peer, [2, 7, 40])
    net.subscribe(2, 7, 40)
    net.publish(40, "a")
    net.publish(7, "b")
    assert net.seen(2) == net.seen(7) == net.seen(40) == ["a", "b"]


def test_one_peer_alone() -> None:
    net = Net(Peer, [0])
    net.subscribe(0)
    net.publish(0, "a")
    assert net.seen(0) == ["a"] and net.answers(0, EventReceived) == [EventReceived("a")]


def test_leaving_and_coming_back() -> None:
    net = Net(Peer, range(4))
    net.subscribe(0, 1, 2)
    net.publish(0, "a")
    net.unsubscribe(1)
    net.publish(0, "b")
    net.subscribe(1)
    net.publish(1, "c")
    net.publish(0, "d")
    assert net.answers(1, Unsubscribed) == [Unsubscribed(TOPIC)]
    assert net.seen(1) == ["a", "c", "d"]
    assert net.seen(0) == net.seen(2) == ["a", "b", "c", "d"]


def test_commands_wait_for_each_other_and_can_be_repeated() -> None:
    net = Net(Peer, range(4))
    net.subscribe(0)
    net.hold(0, 1)
    net.subscribe(1)  # no answer yet
    net.publish(1, "a")
    net.subscribe(1)
    net.unsubscribe(1)
    assert net.told[1] == []
    net.release(0, 1)
    assert net.answers(1, Subscribed) == [Subscribed(TOPIC)] * 2
    assert net.answers(1, Unsubscribed) == [Unsubscribed(TOPIC)]
    assert net.seen(0) == net.seen(1) == ["a"]


def test_nobody_waits_for_a_cause_that_was_before_its_time() -> None:
    net = Net(Peer, range(4))
    net.subscribe(0, 1)
    net.publish(0, "old")
    net.unsubscribe(0)  # a source that has left
    net.subscribe(2)
    net.publish(1, "new")
    assert net.seen(2) == ["new"]


def test_a_reaction_waits_for_its_cause() -> None:
    net = Net(Peer, range(4))
    net.subscribe(0, 1, 2)
    net.hold(0, 2)
    net.publish(0, "question")
    net.publish(1, "answer")
    assert net.seen(1) == ["question", "answer"] and net.seen(2) == []
    machine = net.machines[2]
    assert isinstance(machine, Peer) and list(machine.explain()) == ["A: the next publication of 1 waits for one of 0"]
    net.release(0, 2)
    assert net.seen(2) == ["question", "answer"]


def test_a_source_dies_and_one_member_has_its_publication() -> None:
    net = Net(Peer, range(4))
    net.subscribe(0, 1, 2, 3)
    net.hold(0, 2)
    net.publish(0, "a")  # 1 has it; 2, and 3 behind it, have not
    net.kill(0, 2)
    net.suspect(0)
    assert net.seen(1) == net.seen(2) == net.seen(3) == ["a"]


def test_a_publication_that_died_with_its_source_is_not_waited_for() -> None:
    net = Net(Peer, range(4))
    net.subscribe(0, 1, 2)
    net.hold(0, 2)
    net.hold(1, 2)
    net.publish(0, "a")
    net.publish(1, "b")  # after a
    net.kill(0, 1, 2)
    net.release(1, 2)
    assert net.seen(2) == []
    net.suspect(0)
    assert net.seen(2) == ["a", "b"]  # 1 has it, and lives
    net.hold(1, 2, Pub)
    net.publish(1, "c")
    net.kill(1, 2)
    net.suspect(1)
    net.publish(2, "d")
    assert net.seen(2) == ["a", "b", "d"]


def test_a_peer_that_is_wrongly_suspected_begins_anew() -> None:
    net = Net(Peer, range(4))
    net.subscribe(0, 1, 2)
    net.hold(1, 0)
    net.publish(1, "a")
    net.tell(0, Suspect(1))
    net.publish(0, "missed")
    net.release(1, 0)
    assert net.answers(1, Born) == [Born(1, (TOPIC,))]
    assert net.answers(1, Rejoined) == [Rejoined(TOPIC)]
    assert net.answers(1, Unsettled) == [Unsettled("a")]
    net.publish(1, "b")
    net.publish(0, "c")
    assert net.seen(1)[-2:] == ["b", "c"]
    assert net.seen(0) == net.seen(2) == ["a", "missed", "b", "c"]


def test_a_peer_that_restarts_is_another_life() -> None:
    net = Net(Peer, range(2))
    net.subscribe(0, 1)
    net.publish(1, "a")
    old = net.machines[1]
    assert isinstance(old, Peer)
    net.kill(1)
    net.machines[1] = new = Peer.restart(old.cube, 1, old.options, [])
    effects = new.tick(0.0)
    assert effects.persist == [Born(1, (), True)] == effects.notify
    net._carry_out(1, effects)
    net.run()
    net.subscribe(1)
    net.publish(1, "b")
    assert net.seen(0) == ["a", "b"]
    assert Peer.restart(old.cube, 1, old.options, [Born(1), Born(4)]).life == life_of(1, 5)


def test_two_processes_with_one_id() -> None:
    peer = Peer(Cube(range(2)), 0, VCubeOptions())
    effects = peer.step("peer1", Packet(1, 0, News({0: 2})), 0.0)
    assert effects.notify == [Replaced(1, may_go_on=True)]
    assert peer.step(APPLICATION, Subscribe(TOPIC), 0.0).send == []
    assert peer.tick(1_000.0) == Effects()


def test_a_process_that_lost_its_journal_goes_on_when_its_last_life_is_over() -> None:
    """Somebody who has not met that life lets the process in, and then hears of it."""
    net = Net(Peer, range(4))
    net.kill(3)
    for other in (1, 2):
        net.tell(other, Suspect(3))
    net.subscribe(1, 2)
    old = net.machines[0]
    assert isinstance(old, Peer)
    peer = net.machines[0] = Peer.restart(old.cube, 0, old.options, [])
    peer.tick(0.0)
    effects = peer.step("peer1", Packet(1, peer.life, News({0: 4})), 0.0)
    assert effects.notify == [Replaced(2, may_go_on=True)] and effects.send == []
    for old_news in ({0: 3}, {0: 4}, {3: 1}):
        assert peer.step("peer1", Packet(1, peer.life, News(old_news)), 0.0) == Effects()
    assert peer.step(APPLICATION, Suspect(1), 0.0) == Effects()
    assert peer.step(APPLICATION, Subscribe(TOPIC), 0.0) == Effects()
    with pytest.raises(InputError, match="does not hold it"):
        peer.step(APPLICATION, Publish(Event("x", "another", "0", b"")), 0.0)
    net.tell(1, Suspect(0))
    effects = peer.step("peer1", Packet(1, life_of(0, 2), News({0: 5})), 0.0)
    assert effects.persist == [Born(3)] and effects.notify[0] == Born(3)
    assert peer.life == life_of(0, 3)
    net._carry_out(0, effects)
    net.run()
    net.publish(1, "a")
    assert net.answers(0, Subscribed) == [Subscribed(TOPIC)] and net.seen(0) == ["a"]


@pytest.mark.parametrize("has_left", [False, True])
def test_who_holds_a_topic_and_was_replaced_does_not_come_back(has_left: bool) -> None:
    net = Net(Peer, range(2))
    net.subscribe(0, 1)
    peer = net.machines[0]
    assert isinstance(peer, Peer)
    if has_left:
        peer.step(APPLICATION, Unsubscribe(TOPIC), 0.0)
        assert peer.state.groups[TOPIC].part == "leaving"
    assert peer.step("peer1", Packet(1, 0, News({0: 2})), 0.0).notify == [Replaced(1)]
    assert peer.step("peer1", Packet(1, 0, News({0: 3})), 0.0) == Effects()
    assert peer.life == 0


def test_heartbeats_find_the_dead() -> None:
    options = VCubeOptions(heartbeat_ms=100.0, suspect_after_ms=300.0)
    peers = {id: Peer(Cube(range(3)), id, options) for id in range(3)}
    for now in range(0, 1000, 100):
        for id in (0, 1):  # 2 is silent
            effects = peers[id].tick(float(now))
            assert effects.wake_at == now + 100.0
            for address, packet in effects.send:
                if address != "peer2":
                    peers[1 - id].step(f"peer{id}", packet, float(now))
    assert peers[0].is_dead(2) and peers[1].is_dead(2)
    assert not peers[0].is_dead(1) and not peers[1].is_dead(0)


def test_bad_commands() -> None:
    peer = Peer(Cube(range(2)), 0, VCubeOptions())
    publish = Publish(Event("a", TOPIC, "peer0"))
    with pytest.raises(InputError, match="join=True"):
        peer.step(APPLICATION, publish, 0.0)
    with pytest.raises(InputError, match="no peer 7"):
        peer.step(APPLICATION, Suspect(7), 0.0)
    with pytest.raises(InputError, match="unknown command"):
        peer.step(APPLICATION, Nonsense(), 0.0)
    with pytest.raises(InputError, match="not among the peers"):
        Peer(Cube(range(2)), 2, VCubeOptions())
    assert peer.topics == []


def test_packets_of_strangers_are_refused() -> None:
    peer = Peer(Cube(range(2)), 0, VCubeOptions())
    for sender in (0, 9):
        with pytest.raises(RemoteError):
            peer.step(f"peer{sender}", Packet(sender, 0, Alive()), 0.0)
    with pytest.raises(RemoteError):
        peer.step("peer1", Nonsense(), 0.0)
    with pytest.raises(RemoteError):
        Peer(Cube(range(3)), 0, VCubeOptions()).step("peer1", Packet(2, 0, Alive()), 0.0)


def test_what_was_meant_for_an_earlier_life_is_dropped() -> None:
    net = Net(Peer, range(2))
    net.subscribe(0, 1)
    pub = Pub(TOPIC, 1, 1, {}, 0, Event("a", TOPIC, "peer1"))
    effects = net.machines[0].step("peer1", Packet(1, life_of(0, 1), Cast(1, 0, pub)), 0.0)
    assert effects.notify == [] == effects.send


@pytest.mark.parametrize(
    ("name", "value"), [("window", 0), ("heartbeat_ms", 0.0), ("suspect_after_ms", -1.0), ("heartbeat_ms", 5_000.0)]
)
def test_bad_options(name: str, value: float) -> None:
    with pytest.raises(InputError):
        VCubeOptions(**{name: value})  # type: ignore[arg-type]


def test_nobody_begins_anew_because_a_peer_that_was_down_comes_back() -> None:
    net = Net(Peer, range(4))
    net.subscribe(0)
    down = net.machines[3]
    assert isinstance(down, Peer)
    net.kill(3)
    net.suspect(3)
    net.subscribe(1, 2)  # while 3 is held for dead
    net.machines[3] = new = Peer.restart(down.cube, 3, down.options, [])
    net._carry_out(3, new.tick(0.0))
    net.run()
    net.subscribe(3)
    net.publish(1, "a")
    net.publish(3, "b")
    assert all(net.seen(id) == ["a", "b"] for id in range(4))
    assert not any(net.answers(id, Born) for id in range(3))


def test_who_has_left_gives_what_it_had_to_who_lacks_it() -> None:
    net = Net(Peer, range(4))
    net.subscribe(0, 1, 2)
    net.hold(0, 2, "a")
    net.publish(0, "a")
    net.unsubscribe(1)
    net.kill(0, 2)
    net.suspect(0)
    net.hold(1, 3, Spare)
    net.subscribe(3)
    assert net.under_way(1, 3) == []  # 3 begins after it, so it is not sent it
    net.publish(3, "b")
    assert net.seen(2) == ["a", "b"] and net.seen(3) == ["b"]


def test_who_returns_gives_what_it_had_to_who_lacks_it() -> None:
    net = Net(Peer, range(4))
    net.subscribe(0, 1, 2)
    net.hold(0, 2, "a")
    net.publish(0, "a")
    net.unsubscribe(1)
    net.subscribe(1)
    net.kill(0, 2)
    net.suspect(0)
    assert net.seen(1) == ["a"] == net.seen(2)


def test_an_answer_to_a_census_tells_who_was_born_again() -> None:
    peer = Peer(Cube(range(4)), 1, VCubeOptions())
    peer.step("peer3", Packet(3, 1, News({2: 2})), 0.0)
    census = Census(TOPIC, Entry(0, 1, "joining"), {}, {})
    effects = peer.step("peer0", Packet(0, 1, Cast(1, 0, census)), 0.0)
    bodies = [packet.body for _, packet in effects.send if isinstance(packet, Packet)]
    assert [body for body in bodies if isinstance(body, Ack)] == [Ack(1, Answer(dead={2: 2}))]
