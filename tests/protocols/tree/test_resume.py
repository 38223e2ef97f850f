"""Durable subscribers: after a restart they go on after the last event they persisted, once each."""

from typing import Any

import pytest

from seriatim.model import BROKER, Gap, Notification
from seriatim.order import SequencingTree
from seriatim.protocols.tree import Subscriber
from seriatim.protocols.tree.messages import Began, Done, Joined, Refresh, Refreshed, Subscribe, Update
from seriatim.protocols.with_broker import Changed, Delivered, Listen, Stamped
from tests.protocols.tree.net import Net, event, messages, options_for, single
from tests.snapshot import snapshot

MODES = ["ticket", "log"]


def resume(net: Net, name: str) -> Subscriber:
    machine = Subscriber.resume(net.tree, name, net.options, net.journals[name])
    net.add(name, machine)
    net.run()
    return machine


def durable(mode: str, **options: Any) -> Net:
    return single(mode, durable=True, **options)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_missed_and_nothing_comes_twice(mode: str) -> None:
    net = durable(mode)
    net.change("s", "AB")
    net.publish("p", "A", "a1")
    net.publish("p", "B", "b1")
    net.crash("s")
    net.publish("p", "A", "a2", "a3")
    resume(net, "s")
    net.publish("p", "B", "b2")
    assert net.notified("s") == ["a1", "b1", "a2", "a3", "b2"]
    assert net.all_told("s", Changed) == [Changed(1, frozenset("AB"), {"A": 0, "B": 0})], "not told again"


@pytest.mark.parametrize("mode", MODES)
def test_a_join_that_a_crash_interrupted_misses_nothing_after_its_start(mode: str) -> None:
    net = durable(mode)
    net.hold_back(Joined)
    net.change("s", "A")
    net.publish("p", "A", "a1")
    net.crash("s")
    net.publish("p", "A", "a2")
    net.lose()
    resume(net, "s")
    net.wait(300.0)
    assert net.notified("s") == ["a1", "a2"]


@pytest.mark.parametrize("mode", MODES)
def test_what_was_held_is_held_again(mode: str) -> None:
    net = durable(mode)
    for subscriber in ("r", "s"):
        net.change(subscriber, "AB")
    net.holds_back = lambda source, to, message: to == "s" and isinstance(message, Delivered) and message.topic == "A"
    net.publish("p", "A", "a1")
    net.publish("p", "B", "b1")
    assert net.notified("s") == []
    net.lose()
    net.crash("s")
    resume(net, "s")
    assert net.notified("s") == net.notified("r") == ["a1", "b1"]


@pytest.mark.parametrize("mode", MODES)
def test_the_floor_of_a_topic_survives(mode: str) -> None:
    net = durable(mode)
    net.change("s", "A")
    net.holds_back = lambda source, to, message: to == "s" and isinstance(message, Delivered)
    net.publish("p", "A", "a1")
    net.change("s", "B")
    net.publish("p", "B", "b1")
    net.lose()
    net.crash("s")
    net.holds_back = lambda source, to, message: to == "s" and isinstance(message, Delivered) and message.topic == "A"
    resume(net, "s")
    assert net.notified("s") == []
    net.release()
    assert net.notified("s") == ["a1", "b1"]


@pytest.mark.parametrize("mode", MODES)
def test_a_change_under_way_is_finished(mode: str) -> None:
    net = durable(mode)
    net.change("s", "A")
    net.hold_back(Subscribe)
    net.change("s", "B")
    net.lose()
    net.crash("s")
    machine = resume(net, "s")
    net.wait(20.0)
    assert machine.topics == frozenset("AB")
    assert net.all_told("s", Changed)[-1] == Changed(2, frozenset("AB"), {"B": 0})
    net.publish("p", "B", "b1")
    assert net.notified("s") == ["b1"]


@pytest.mark.parametrize("mode", MODES)
def test_a_topic_that_was_left_stays_left_and_is_remembered(mode: str) -> None:
    net = durable(mode)
    net.change("s", "AB")
    net.hold_back(Update)
    net.change("s", remove="A")
    net.lose()
    net.crash("s")
    machine = resume(net, "s")
    net.wait(20.0)
    assert machine.topics == frozenset("B")
    assert machine.state.left == {"A"}
    assert net.node().state.sequencer.couplings.holders["s"].topics == frozenset("B")
    net.publish("p", "A", "a1")
    net.publish("p", "B", "b1")
    assert net.notified("s") == ["b1"]


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_request_after_a_restart_is_repeated(mode: str) -> None:
    net = durable(mode)
    net.change("s", "A")
    net.crash("s")
    net.publish("p", "A", "a1")
    net.hold_back(Listen)
    resume(net, "s")
    net.lose()
    net.wait(20.0)
    assert net.notified("s") == ["a1"]


def test_log_mode_resumes_in_the_middle_of_a_stamped_range() -> None:
    options = options_for("log", durable=True)
    journal: list[Began | Joined | Done] = [
        Began(1, frozenset("AB"), frozenset()),
        Joined(1, "A", 0, {}),
        Joined(1, "B", 0, {}),
        Done("A", 1),
        Done("A", 2),
    ]
    subscriber = Subscriber.resume(SequencingTree.single("AB"), "s", options, journal)
    assert messages(subscriber.tick(0.0), Listen) == [Listen("A", 2, version=1), Listen("B", 0, version=1)]
    # The entries of the range belong to its first event, which is done.
    assert subscriber.step(BROKER, Stamped("A", 1, 4, {"B": 9}), 0.0).notify == []
    for number in (3, 4):
        (told,) = subscriber.step(BROKER, Delivered("A", number, None, event(f"a{number}")), 0.0).notify
        assert isinstance(told, Notification)
        assert (told.event.id, told.entries) == (f"a{number}", {})


@pytest.mark.parametrize("mode", MODES)
def test_resuming_twice_is_resuming_once(mode: str) -> None:
    net = durable(mode)
    net.change("s", "ABC")
    net.publish("p", "A", "a1")
    net.change("s", remove="C")
    net.publish("p", "B", "b1")
    machines = [Subscriber.resume(net.tree, "s", net.options, net.journals["s"]) for _ in range(2)]
    assert snapshot(machines[0].state) == snapshot(machines[1].state)
    for topic in "AB":
        assert machines[0].state.lanes[topic].done == net.subscriber("s").state.lanes[topic].done


@pytest.mark.parametrize("mode", MODES)
def test_a_durable_subscriber_may_be_away_for_many_leases(mode: str) -> None:
    net = durable(mode, subscriber_lease_ms=300.0)
    for subscriber in ("r", "s"):
        net.change(subscriber, "AB")
    net.publish("p", "A", "a1")
    net.crash("s")
    net.wait(3_000.0)
    net.publish("p", "B", "b1")
    net.publish("p", "A", "a2")
    net.wait(3_000.0)
    resume(net, "s")
    net.wait(100.0)
    net.publish("p", "B", "b2")
    assert net.notified("s") == net.notified("r") == ["a1", "b1", "a2", "b2"]
    assert net.all_told("s", Gap) == []
    assert net.all_told("s", Changed) == [Changed(1, frozenset("AB"), {"A": 0, "B": 0})], "it did not join anew"


@pytest.mark.parametrize("mode", MODES)
def test_a_durable_subscriber_needs_no_confirmation(mode: str) -> None:
    net = durable(mode, subscriber_lease_ms=300.0)
    net.change("s", "A")
    net.sent.clear()
    net.hold_back(Refreshed)
    net.wait(1_000.0)
    net.publish("p", "A", "a1")
    assert net.notified("s") == ["a1"]
    assert net.all_sent(Refresh) == []


@pytest.mark.parametrize("mode", MODES)
def test_one_that_is_not_durable_is_forgotten(mode: str) -> None:
    net = single(mode, subscriber_lease_ms=300.0)
    net.change("s", "AB")
    net.crash("s")
    net.wait(1_000.0)
    assert net.node().state.sequencer.couplings.holders == {}


@pytest.mark.parametrize("mode", MODES)
def test_every_home_knows_that_a_durable_subscriber_lasts_until_it_holds_nothing(mode: str) -> None:
    net = Net(
        SequencingTree.star({"A": 1, "B": 2}, leaves=2), options_for(mode, durable=True, subscriber_lease_ms=300.0)
    )
    net.change("s", "A")
    net.change("s", "B")  # A's home hears of this change from B's
    net.change("s", remove="A")
    for node in ("n1", "n2"):
        net.crash(node)
        net.take_over(node)
    net.crash("s")
    net.wait(1_000.0)
    for node in ("n1", "n2"):
        (holder,) = net.node(node).state.sequencer.couplings.holders.values()
        assert (holder.version, holder.lasting, holder.topics) == (3, True, frozenset("B"))
    resume(net, "s")
    net.change("s", remove="B")
    net.wait(1_000.0)
    assert net.node("n2").state.sequencer.couplings.holders == {}


def test_a_subscriber_that_is_not_durable_persists_nothing() -> None:
    net = single()
    net.change("s", "A")
    net.publish("p", "A", "a1")
    assert net.journals["s"] == []
