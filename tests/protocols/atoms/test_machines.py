"""Each role alone: what it decides, what it refuses, and its state after a crash."""

from collections.abc import Callable
from typing import Any

import pytest

from seriatim.lab.explore.atoms.worlds import own_ingresses
from seriatim.model import APPLICATION, Event, InputError, Notification, RemoteError
from seriatim.protocols.atoms import COORDINATOR, AtomHost, AtomsOptions, Coordinator, Ingress, Receiver
from seriatim.protocols.atoms.messages import (
    Accepted,
    Carry,
    Change,
    Changed,
    Done,
    Finished,
    Forget,
    Idle,
    Install,
    Item,
    Publish,
    Refused,
    Stray,
    Uninstall,
)
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.node import JournaledNode, TookOver
from tests.protocols.atoms.net import Net

OPTIONS = AtomsOptions()
PAIR = own_ingresses({"A": "r s", "B": "r s", "C": "s t"}, {"A.1&B.1": "h1"}, "U")


def item(group: str, number: int, id: str, **stamp: int) -> Item:
    """An event of a group; its stamp names atoms by their last letters."""
    return Item(group, number, {f"A.1&{name}.1": value for name, value in stamp.items()}, Event(id, group[0], "p"))


# ── receiver ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_receiver_notifies_at_once_or_holds() -> None:
    receiver = Receiver(PAIR, "r", OPTIONS)
    assert receiver.step("h1", item("B.1", 1, "b1", B=2), 0.0).notify == []
    assert receiver.explain() == ["b1 (B.1 1): waits for A.1&B.1 1"]
    assert receiver.step("h1", item("A.1", 2, "a2", B=3), 0.0).notify == []
    notified = receiver.step("h1", item("A.1", 1, "a1", B=1), 0.0).notify
    assert [each.event.id for each in notified if isinstance(each, Notification)] == ["a1", "b1", "a2"]
    assert receiver.explain() == [] and receiver.state.held == {}


def test_numbers_of_atoms_between_other_groups_are_ignored() -> None:
    receiver = Receiver(PAIR, "t", OPTIONS)  # belongs to C only
    assert receiver.step("h1", item("C.1", 1, "c1", B=7), 0.0).notify


def test_repeats_are_dropped() -> None:
    receiver = Receiver(PAIR, "r", OPTIONS)
    first, third = item("A.1", 1, "a1", B=1), item("A.1", 3, "a3", B=3)
    assert len(receiver.step("h1", first, 0.0).notify) == 1
    for message in (first, third, third):
        assert receiver.step("h1", message, 0.0).notify == []
    assert len(receiver.step("h1", item("A.1", 2, "a2", B=2), 0.0).notify) == 2


def test_a_receiver_thaws_with_what_it_held() -> None:
    receiver = Receiver(PAIR, "r", OPTIONS)
    receiver.step("h1", item("B.1", 1, "b1", B=2), 0.0)
    again = Receiver(PAIR, "r", OPTIONS, receiver.state)
    assert len(again.step("h1", item("A.1", 1, "a1", B=1), 0.0).notify) == 2


# ── ingress and host ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_that_overlaps_nobody_goes_straight_to_its_members() -> None:
    effects = Ingress(PAIR, "C", OPTIONS).step(APPLICATION, Publish(Event("c1", "C", "p")), 0.0)
    assert [target for target, _ in effects.send] == ["s", "t"]
    assert effects.notify == [Accepted("c1", "C.1", 1)]


def test_a_topic_without_a_group_is_refused() -> None:
    effects = Ingress(PAIR, "U", OPTIONS).step(APPLICATION, Publish(Event("u1", "U", "p")), 0.0)
    assert effects.send == [] and isinstance(effects.notify[0], Refused) and "nobody" in effects.notify[0].reason


def test_a_repeated_request_gets_the_same_answer_and_no_second_number() -> None:
    ingress = Ingress(PAIR, "C", OPTIONS)
    publish = Publish(Event("c1", "C", "p"), 1)
    first = ingress.step(APPLICATION, publish, 0.0)
    repeat = ingress.step(APPLICATION, publish, 0.0)
    assert repeat.notify == first.notify and repeat.send == []
    assert ingress.step(APPLICATION, Publish(Event("c2", "C", "p"), 2), 0.0).notify == [Accepted("c2", "C.1", 2)]


def test_what_comes_for_an_atom_that_is_not_there_is_kept_and_the_rest_goes_on() -> None:
    host = AtomHost(PAIR, "h1", OPTIONS)
    lost = Carry("A.1&Z.1", "A.1", item("A.1", 1, "a1"))
    effects = host.step("A", lost, 0.0)
    assert effects.notify == [Stray("A.1&Z.1", "A.1", lost.passing)] and "not here" in host.explain()[0]
    assert host.step("B", Carry("A.1&B.1", "B.1", item("B.1", 1, "b1")), 0.0).send
    late = host.step(COORDINATOR, Install("1", "A.1&Z.1", ("A.1", "Z.1"), "A.1&B.1", "h1"), 0.0)
    assert host.explain() == []
    assert [(target, getattr(sent, "stamp", None)) for target, sent in late.send] == [
        (COORDINATOR, None),
        ("r", {"A.1&Z.1": 1, "A.1&B.1": 2}),
        ("s", {"A.1&Z.1": 1, "A.1&B.1": 2}),
    ]


def test_an_idle_atom_numbers_nothing() -> None:
    host = AtomHost(PAIR, "h1", OPTIONS)
    assert host.step(COORDINATOR, Idle("1", "A.1&B.1"), 0.0).send == [(COORDINATOR, Done("1"))]
    _, sent = host.step("A", Carry("A.1&B.1", "A.1", item("A.1", 1, "a1")), 0.0).send[0]
    assert isinstance(sent, Item) and sent.stamp == {}


@pytest.mark.parametrize(
    ("machine", "source", "message", "error"),
    [
        (AtomHost, "x", Finished("A.1"), RemoteError),
        (AtomHost, COORDINATOR, Idle("1", "X.1&Y.1"), RemoteError),
        (Ingress, "x", Finished("A.1"), RemoteError),
        (Ingress, APPLICATION, Finished("A.1"), InputError),
        (Receiver, "x", Finished("A.1"), RemoteError),
        (Coordinator, "x", Uninstall("1", "A.1&B.1"), RemoteError),
        (Coordinator, APPLICATION, Uninstall("1", "A.1&B.1"), InputError),
    ],
)
def test_nonsense_is_named(machine: Callable[..., Any], source: str, message: Any, error: type[Exception]) -> None:
    made = machine(PAIR, "h1", OPTIONS)
    with pytest.raises(error, match=r"X\.1&Y\.1|unknown message|unknown command"):
        made.step(source, message, 0.0)


# ── coordinator ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_groups_come_change_and_go() -> None:
    net = Net(own_ingresses({}, {}, "A B"), "rst")
    net.change("A", "r s")
    net.change("B", "r s t")
    net.publish("A", "a1")
    net.publish("B", "b1")
    assert set(net.graph.atoms) == {"A.1&B.1"}
    net.change("B", "s t")
    net.publish("B", "b2")
    net.publish("A", "a2")
    assert net.seen("r") == ["a1", "b1", "a2"]
    assert net.seen("s") == ["a1", "b1", "b2", "a2"]
    assert net.seen("t") == ["b1", "b2"]
    assert net.graph.atoms == {} and set(net.graph.groups) == {"A.1", "B.2"}
    net.change("A")
    net.change("B")
    assert net.graph.groups == {} and net.explain(COORDINATOR) == []
    for name, machine in net.machines.items():
        left = [getattr(machine.state, each, None) for each in ("atoms", "inlets", "held", "done", "unfinished")]
        assert not any(left), f"{name} keeps {left}"
    changed = [(each.topic, each.group) for each in net.answers(COORDINATOR, Changed)]
    assert changed == [("A", "A.1"), ("B", "B.1"), ("B", "B.2"), ("A", ""), ("B", "")]


def test_a_group_needs_members() -> None:
    net = Net(own_ingresses({"A": "r s"}, {}, "B"), "rs")
    net.change("B")
    assert [each.topic for each in net.answers(COORDINATOR, Refused)] == ["B"]
    net.change("A")
    net.change("A")
    assert [each.topic for each in net.answers(COORDINATOR, Refused)] == ["B", "A"]


def test_a_change_does_not_wait_for_a_receiver_and_a_forgotten_one_is_not_waited_for_at_all() -> None:
    net = Net(own_ingresses({"A": "r s"}, {}, "B"), "rs")
    net.hold(("A", "s"), ("h1", "s"))
    net.publish("A", "a1")
    net.change("B", "r s")
    net.publish("B", "b1")
    net.change("A")
    net.publish("B", "b2")
    assert net.seen("r") == ["a1", "b1", "b2"] and net.seen("s") == []
    assert net.explain(COORDINATOR) == ["A.1: closed, but s may not have seen its end"]
    assert set(net.graph.groups) == {"A.1", "B.1"}
    net.tell(COORDINATOR, Forget("s"))
    assert set(net.graph.groups) == {"B.1"} and net.graph.atoms == {}
    net.publish("B", "b3")
    assert net.seen("r") == ["a1", "b1", "b2", "b3"]


def test_the_last_message_of_a_group_is_not_overtaken_by_its_removal() -> None:
    """Its only member is forgotten while the FIN is on its way, so nobody says that it has come."""
    hosts = {"A.1&B.1": "h1", "A.1&C.1": "h2", "B.1&C.1": "h3"}
    net = Net(own_ingresses({"A": "r s", "B": "r s", "C": "r s"}, hosts), "rs")
    net.hold(("h2", "h3"))
    net.change("C")
    net.tell(COORDINATOR, Forget("s"))
    net.tell(COORDINATOR, Forget("r"))
    assert net.graph.atoms["B.1&C.1"] and not any(net.told[host] for host in net.plan.hosts)
    net.release()
    assert set(net.graph.groups) == {"A.1", "B.1"} and not any(net.told[host] for host in net.plan.hosts)


def test_two_incarnations_that_are_finished_at_the_same_time() -> None:
    """The older one is removed first, with the atom at which the younger one entered."""
    net = Net(own_ingresses({"A": "r s", "C": "s"}, {}), "rs")
    net.hold(("r", COORDINATOR), ("s", COORDINATOR))
    net.change("C", "r s")
    net.change("C")
    net.release()
    assert set(net.graph.groups) == {"A.1"} and net.graph.atoms == {}
    assert not any(net.told[host] for host in net.plan.hosts)


def test_two_changes_of_a_topic_at_once() -> None:
    net = Net(own_ingresses({"A": "r s", "B": "r s"}, {"A.1&B.1": "h1"}), "rs")
    net.hold((COORDINATOR, "h1"))
    net.change("A", "r")
    net.change("A", "r s")
    net.change("A")
    net.publish("A", "a1")
    net.release()
    net.publish("A", "a2")
    assert net.seen("r") == net.seen("s") == ["a1"]
    assert isinstance(net.told["A"][-1], Refused) and set(net.graph.groups) == {"B.1"}


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_host_that_crashed_is_rebuilt_from_its_journal() -> None:
    def create() -> AtomHost:
        return AtomHost(PAIR, "h1", OPTIONS)

    node = JournaledNode(create(), 100.0)
    journal: list[Payload] = []
    first = node.step("A", Frame(1, 1, 0, Carry("A.1&B.1", "A.1", item("A.1", 1, "a1"))), 0.0)
    journal.extend(first.persist)
    again = JournaledNode.take_over(create, 100.0, journal)
    assert again.inner.state == node.inner.state and again.state.epoch == 2
    resent = again.tick(0.0)
    assert resent.persist == [TookOver(2)]
    assert [(target, sent.number) for target, sent in resent.send if isinstance(sent, Frame)] == [("r", 1), ("s", 1)]
    repeat = again.step("A", Frame(1, 1, 0, Carry("A.1&B.1", "A.1", item("A.1", 1, "a1"))), 0.0)
    assert repeat.persist == [] and repeat.send == [("A", Frame(2, 0, 1, heard=1))]
    assert again.inner.state.atoms["A.1&B.1"].count == 1


def test_what_is_not_acknowledged_is_sent_again() -> None:
    ingress = JournaledNode(Ingress(PAIR, "A", OPTIONS), 100.0)
    sent = ingress.step(APPLICATION, Publish(Event("a1", "A", "p")), 0.0)
    assert sent.wake_at == 100.0 and "acknowledgement" in ingress.explain()[0]
    assert ingress.tick(100.0).send == sent.send
    assert ingress.step("h1", Frame(1, 0, 1), 150.0).wake_at is None and ingress.explain() == []


def test_a_forgotten_receiver_is_not_sent_to_again() -> None:
    ingress = JournaledNode(Ingress(PAIR, "C", OPTIONS), 100.0)
    ingress.step(APPLICATION, Publish(Event("c1", "C", "p")), 0.0)
    ingress.step(COORDINATOR, Frame(1, 1, 0, Forget("t")), 0.0)
    assert [target for target, _ in ingress.tick(100.0).send] == ["s"]
    sent = ingress.step(APPLICATION, Publish(Event("c2", "C", "p")), 0.0).send
    assert [target for target, _ in sent] == ["s"]


def test_notifications_carry_their_stamp() -> None:
    net = Net(PAIR, "rst")
    net.publish("A", "a1")
    net.publish("B", "b1")
    told = [each for each in net.told["r"] if isinstance(each, Notification)]
    assert [each.entries for each in told] == [{"A.1&B.1": 1}, {"A.1&B.1": 2}]


def test_options() -> None:
    assert AtomsOptions().threshold == 2 and AtomsOptions(causal=True).threshold == 1
    with pytest.raises(InputError, match="retry_ms"):
        AtomsOptions(retry_ms=0.0)
    assert Change("A", frozenset()).members == frozenset()
