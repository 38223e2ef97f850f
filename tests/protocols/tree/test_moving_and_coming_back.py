"""Topics have moved, and a node comes back: what it owes, and what its journal must know of its own stamps."""

import pytest

from seriatim.model import APPLICATION, BROKER
from seriatim.order import SequencingTree
from seriatim.protocols.tree import SequencerNode
from seriatim.protocols.tree.messages import GoOn, Move, Switch
from seriatim.protocols.with_broker import Begun, Unwatch, Unwatched, Watch
from tests.protocols.tree.net import Net, options_for

STAR = SequencingTree.star({"A": 1, "B": 2}, leaves=3)


def world() -> Net:
    net = Net(STAR, options_for("log"))
    net.change("s", "AB")
    net.publish("p", "A", "a1", "a2")
    return net


def move(net: Net, to: str) -> None:
    net.step(APPLICATION, net.tree.root, Move("A", to))
    net.run()


def comes_back(net: Net, node: str, records: int | None = None) -> SequencerNode:
    """`records`: with an older copy of its journal, which has so many."""
    net.crash(node)
    machine = SequencerNode.come_back(net.tree, node, net.options, net.journals[node][:records], 9)
    net.add(node, machine)
    net.wait(2_000.0)
    return machine


def test_a_former_home_that_crashes_tells_the_broker_when_it_is_back() -> None:
    net = world()
    net.hold_back(Unwatched)
    move(net, "n3")
    left = Unwatch("A", "n3", 2, 1)
    assert net.all_sent(Unwatch) == [left]
    net.lose()
    machine = comes_back(net, "n1")
    assert net.all_sent(Unwatch) == [left, left]
    assert not machine.state.sequencer.moving.left
    comes_back(net, "n1")
    assert net.all_sent(Unwatch) == [left, left], "the broker has answered"


def test_a_new_home_says_how_far_the_topic_was_stamped_elsewhere() -> None:
    net = world()
    move(net, "n3")
    comes_back(net, "n3")
    about_it = [watch for watch in net.all_sent(Watch) if watch.issued]
    assert about_it == [Watch(frozenset("A"), {"A": 2})] * 2


@pytest.mark.parametrize("node", ["n1", "n3", "n0"])
def test_the_newest_journal_is_confirmed_wherever_the_topic_lives(node: str) -> None:
    """The broker also tells what a node has stamped of a topic that has left it."""
    net = world()
    for event_id, to in (("a3", "n3"), ("a4", "n1"), ("a5", "n3")):
        move(net, to)
        assert comes_back(net, node).is_acting
        net.publish("p", "A", event_id)
        assert comes_back(net, node).is_acting
    assert net.notified("s") == ["a1", "a2", "a3", "a4", "a5"]


@pytest.mark.parametrize("kind", [Switch, GoOn])
def test_a_new_home_that_is_not_told_yet_is_confirmed(kind: type) -> None:
    """The topic is handed over, and nobody knows yet that it lives there."""
    net = world()
    net.hold_back(kind, target="n3")
    move(net, "n3")
    comes_back(net, "n3")
    net.release()
    net.wait(2_000.0)
    net.publish("p", "A", "a3")
    assert net.notified("s") == ["a1", "a2", "a3"]


def test_an_older_copy_that_believes_its_topic_elsewhere_is_told() -> None:
    """It was home, is not according to the copy, and is home again."""
    net = world()
    move(net, "n3")
    records = len(net.journals["n1"])
    net.publish("p", "A", "a3")
    move(net, "n1")
    net.publish("p", "A", "a4")
    machine = comes_back(net, "n1", records)
    assert machine.outdated is not None
    begun = Begun(machine.epoch, machine.epoch, {"A": 4})
    copy = SequencerNode.come_back(net.tree, "n1", net.options, net.journals["n1"][:records], 9)
    found = copy.step(BROKER, begun, net.now).notify
    assert "it keeps stamps of A up to 4; the journal knows of 2" in str(found[0])


def test_an_answer_to_an_earlier_life_confirms_nothing() -> None:
    """The broker took stamps of that life after it had answered. What names a later life counts all the same."""
    net = world()
    again = [SequencerNode.come_back(net.tree, "n1", net.options, net.journals["n1"], 9) for _ in range(2)]
    for machine in again:
        machine.step(BROKER, Begun(8, 8, {"A": 1}), net.now)
        machine.step(BROKER, Begun(8, 9), net.now)  # its stamps are refused by now
        assert BROKER in machine.unconfirmed
    again[0].step(BROKER, Begun(9, 9, {"A": 2}), net.now)
    assert BROKER not in again[0].unconfirmed
    again[1].step(BROKER, Begun(8, 10), net.now)
    assert again[1].outdated is not None and again[1].outdated.later == 10
