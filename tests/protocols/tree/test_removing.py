"""Removing a topic: its home refuses while it is held, settles what is open, and numbers go on behind what was."""

import random

import pytest

from seriatim.model import APPLICATION, BROKER, Gap, Notification
from seriatim.order import SequencingTree
from seriatim.protocols import broker
from seriatim.protocols.broker import Broker
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import Sequencer, SequencerNode
from seriatim.protocols.tree.messages import Add, Inquire, Move, Refused, Remove, Subscribe, Switch, Ticket
from seriatim.protocols.with_broker import Discard, Discarded, Grown, Kept, Watch
from tests.protocols.tree.net import Net, messages, options_for

TREE = SequencingTree.star({"A": 1, "B": 2}, leaves=2)


def remove(net: Net, topic: str, is_forced: bool = False) -> None:
    home = net.tree.home(topic)
    net.step(home, home, Remove(topic, is_forced))
    net.wait(0.0)
    net.run()


def numbers(net: Net, name: str) -> list[tuple[str, int]]:
    return [(each.event.topic, each.number) for each in net.told[name] if isinstance(each, Notification)]


def test_a_topic_that_is_held_stays_unless_it_is_forced() -> None:
    net = Net(TREE, options_for("log"))
    net.change("s", add="AB")
    net.publish("p", "A", "a1")
    remove(net, "A")
    node = net.node("n1")
    assert node.inner.why_kept("A") == "it is held by s"
    assert node.state.sequencer.removed == {}
    assert node.inner.why_kept("B") == "its home is n2, not n1"
    remove(net, "A", is_forced=True)
    assert node.state.sequencer.removed == {"A": True}
    assert node.inner.why_kept("A") == "it is removed already"


@pytest.mark.parametrize("restarts", [False, True])
def test_numbers_go_on_and_everybody_still_agrees(restarts: bool) -> None:
    """B's stamps name A, and A's B: both must name counts that go on."""
    net = Net(TREE, options_for("log"))
    net.change("s", add="AB")
    net.publish("p", "A", "a1", "a2")
    net.publish("p", "B", "b1")
    net.change("s", remove="A")
    remove(net, "A")
    assert net.broker.state.topics["A"].first_available == 3
    if restarts:
        for node in TREE.parents:
            net.add(node, SequencerNode.take_over(TREE, node, net.options, net.journals[node]))
            net.run()
    assert net.node("n1").state.sequencer.removed == {"A": True}
    assert net.broker.state.topics["A"].watchers == [], "nothing makes it again by itself"
    net.change("s", add="A")
    net.change("t", add="AB")
    assert net.node("n1").state.sequencer.removed == {}
    net.publish("p", "A", "a3")
    net.publish("p", "B", "b2")
    net.publish("p", "A", "a4")
    late = [("A", 3), ("B", 2), ("A", 4)]
    assert numbers(net, "s") == [("A", 1), ("A", 2), ("B", 1), *late]
    assert numbers(net, "t") == late


def test_what_is_not_numbered_yet_is_numbered_first() -> None:
    """The log of a topic that nobody watches has grown: the broker says so, instead of dropping it."""
    home = Sequencer(SequencingTree.single("A"), "root", options_for("log"))
    home.tick(0.0)
    home.step("root", Remove("A"), 0.0)
    assert messages(home.tick(0.0), Discard) == [Discard("A", 0, 1)]
    assert home.step(BROKER, Grown("A", 2), 1.0).send
    assert messages(home.tick(11.0), Discard) == [], "its stamp is not kept yet"
    assert "waits for its numbers" in home.explain()[-1]
    home.step(BROKER, Kept("A", 1), 12.0)
    assert messages(home.tick(31.0), Discard) == [Discard("A", 2, 1)]
    home.step(BROKER, Discarded("A", 0), 32.0)
    assert home.state.removed == {"A": False}, "an answer to what was asked before"
    home.step(BROKER, Discarded("A", 2), 33.0)
    assert home.state.removed == {"A": True}
    assert messages(home.tick(60.0), Discard) == []


def test_meanwhile_nobody_is_let_in_and_nothing_is_watched() -> None:
    home = Sequencer(SequencingTree.single("AB"), "root", options_for("log"))
    home.tick(0.0)
    home.step("root", Remove("A"), 0.0)

    def join(version: int) -> Effects:
        return home.step("s", Subscribe(version, "A", frozenset("A")), 1.0)

    assert [each.reason for each in messages(join(1), Refused)] == ["A is being removed; ask again when that is done"]
    assert messages(home.step("p", Inquire("A", 1), 1.0), Watch) == []
    assert home.state.couplings.holders == {}
    home.step(BROKER, Discarded("A", 0), 2.0)
    # Somebody who once left A joins B: A is announced, and its log is not made again for that.
    left = home.step("t", Subscribe(1, "B", frozenset("B"), frozenset("A")), 3.0)
    assert all("A" not in each.topics for each in messages(left, Watch))
    assert messages(join(2), Refused) == []
    assert home.state.removed == {}


def test_a_removed_topic_is_asked_for_again_by_who_publishes_to_it() -> None:
    home = Sequencer(SequencingTree.single("A"), "root", options_for("log"))
    home.tick(0.0)
    home.step(BROKER, Grown("A", 2), 0.0)
    home.step(BROKER, Kept("A", 1), 0.0)
    home.step("root", Remove("A"), 0.0)
    home.step(BROKER, Discarded("A", 2), 1.0)
    lost = home.step("s", Inquire("A", 2), 2.0)
    assert [answer.state for _, answer in lost.send if hasattr(answer, "state")] == ["lost"]
    assert messages(home.step("p", Inquire("A", 3), 2.0), Watch) == [Watch(frozenset("A"))]
    home.step(BROKER, Grown("A", 3), 3.0)
    assert (home.state.removed, home.state.homes["A"].issued) == ({}, 3)


def test_a_process_that_starts_goes_on_with_it() -> None:
    options = options_for("log")
    tree = SequencingTree.single("A")
    first = SequencerNode(tree, "root", options)
    journal = [*first.tick(0.0).persist, *first.step("root", Remove("A"), 1.0).persist]
    again = SequencerNode.take_over(tree, "root", options, journal)
    assert messages(again.tick(2.0), Discard) == [Discard("A", 0, again.epoch)]


def test_ticket_mode_waits_until_every_number_is_settled() -> None:
    net = Net(SequencingTree.single("A"), options_for("ticket"))
    net.step("p", "root", Ticket(1, "A", 2))
    net.run()
    remove(net, "A")
    root = net.node().state.sequencer
    assert root.removed == {"A": False}
    net.step("q", "root", Ticket(1, "A", 1))
    assert root.homes["A"].issued == 2, "refused"
    net.wait(net.options.lease_ms + 2 * net.options.retry_ms)  # the numbers become voids
    assert root.removed == {"A": True}
    assert net.broker.state.topics["A"].slots == []
    net.publish("q", "A", "a3")
    assert [slot.number for slot in net.broker.state.topics["A"].slots] == [3]


def test_a_topic_is_made_before_anybody_uses_it() -> None:
    home = Sequencer(SequencingTree({"root": None}, {}, "root"), "root", options_for("log"))
    home.tick(0.0)
    home.step("mallory", Add("A"), 0.0)
    assert home.state.homes == {}, "only the node itself may say so"
    assert messages(home.step("root", Add("A"), 0.0), Watch) == [Watch(frozenset("A"))]
    assert list(home.state.homes) == ["A"]
    home.step("mallory", Remove("A", True), 0.0)
    assert home.state.removed == {}


TOPICS = "ABC"


class World:
    """Random publications, changes of subscriptions, removals and restarts."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.tree = SequencingTree.star({"A": 1, "B": 2, "C": 1}, leaves=2)
        self.net = Net(self.tree, options_for("log", order_log=True))
        self.published: dict[str, int] = dict.fromkeys(TOPICS, 0)
        self.removed = 0
        for name in "rst":
            self.net.subscriber(name)

    def step(self) -> None:
        net, dice = self.net, self.dice
        match dice.randrange(7):
            case 0 | 1 | 2 | 6:
                topic = dice.choice(TOPICS)
                self.published[topic] += 1
                net.publish("p", topic, f"{topic}{self.published[topic]}")
            case 3:
                name, topic = dice.choice("rst"), dice.choice(TOPICS)
                if net.subscriber(name).topics:
                    net.change(name, remove="".join(net.subscriber(name).topics))
                else:
                    net.change(name, add=topic + dice.choice(TOPICS))
            case 4:
                topic = dice.choice(TOPICS)
                home = self.tree.home(topic)
                is_free = net.node(home).inner.why_kept(topic) is None
                net.step(home, home, Remove(topic))
                net.wait(100.0)
                net.run()
                self.removed += is_free
                assert net.node(home).state.sequencer.removed.get(topic, True)
            case 5:
                node = dice.choice(list(self.tree.parents))
                net.crash(node)
                net.take_over(node)
        net.wait(200.0)


def problem_in(seed: int) -> tuple[str, int]:
    """What is wrong after one random world, and how many topics were removed in it."""
    world = World(seed)
    for _ in range(60):
        world.step()
    world.net.change("z", add=TOPICS)  # so that also what nobody watched since a removal is numbered
    world.net.wait(2_000.0)
    ranges = world.net.broker.state.order.ranges
    order = [(each.topic, number) for each in ranges for number in range(each.first, each.last + 1)]
    if sorted(order) != [(topic, n) for topic in TOPICS for n in range(1, world.published[topic] + 1)]:
        return "the order log has not each number once", world.removed
    places = {event: place for place, event in enumerate(order)}
    for name in "rst":
        seen = [places[event] for event in numbers(world.net, name)]
        if seen != sorted(set(seen)):
            return f"{name} contradicts the order log", world.removed
        if world.net.all_told(name, Gap):
            return f"{name} has lost events", world.removed
    return "", world.removed


@pytest.mark.parametrize("block", range(3))
def test_in_random_worlds_everybody_agrees_and_nothing_is_lost(block: int) -> None:
    removed = 0
    for seed in range(20 * block, 20 * block + 20):
        problem, count = problem_in(seed)
        assert not problem, f"seed {seed}: {problem}"
        removed += count
    assert removed > 20


def test_a_broker_that_drops_what_is_not_numbered_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop_all(self: Broker, source: str, message: Discard, effects: Effects) -> None:
        state = self._topic(message.topic)
        state.first_available = len(state.log) + 1
        state.log[:], state.watchers[:] = [None] * len(state.log), []
        effects.send.append((source, Discarded(message.topic, message.last)))

    net = Net(SequencingTree.single("A"), options_for("log", order_log=True))
    monkeypatch.setitem(broker._HANDLERS, Discard, drop_all)
    net.hold_back(Grown)
    net.publish("p", "A", "a1")
    net.lose()
    remove(net, "A")
    assert net.broker.state.order.ranges == [], "the number is lost"
    monkeypatch.undo()
    net = Net(SequencingTree.single("A"), options_for("log", order_log=True))
    net.hold_back(Grown)
    net.publish("p", "A", "a1")
    net.lose()
    remove(net, "A")
    net.wait(1_000.0)
    assert [(each.topic, each.last) for each in net.broker.state.order.ranges] == [("A", 1)]


def test_a_removed_topic_that_moves_keeps_its_count() -> None:
    net = Net(TREE, options_for("log"))
    net.change("s", add="AB")
    net.publish("p", "A", "a1", "a2")
    net.change("s", remove="A")
    remove(net, "A")
    net.step(APPLICATION, net.tree.root, Move("A", "n2"))
    net.run()
    net.wait(0.0)
    net.run()
    assert net.node("n1").state.sequencer.removed == {}
    assert net.node("n2").state.sequencer.removed == {"A": True}, "the broker has been told of its new home"
    net.change("s", add="A")
    net.publish("p", "A", "a3")
    assert numbers(net, "s")[-1] == ("A", 3)


def test_a_topic_that_is_being_moved_is_not_removed_and_the_other_way_round() -> None:
    net = Net(TREE, options_for("log"))
    net.publish("p", "A", "a1")
    net.step("n1", "n1", Remove("A"))
    net.step(APPLICATION, net.tree.root, Move("A", "n2"))
    net.hold_back(Switch)
    net.run()
    assert net.node("n1").inner.tree.home("A") == "n1", "it is removed first"
    net.wait(0.0)
    net.run()
    assert net.node("n1").inner.why_kept("A") is not None
    net.release()
    net.wait(0.0)
    net.run()
    assert net.node("n2").state.sequencer.removed == {"A": True}
