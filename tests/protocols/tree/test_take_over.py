"""Crash and takeover of a node: the journal rebuilds it under a new epoch, and the others only notice a delay."""

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seriatim.model import APPLICATION, BROKER
from seriatim.order import SequencingTree
from seriatim.protocols.link import Frame
from seriatim.protocols.node import Stepped, TookOver
from seriatim.protocols.tree import SequencerNode, SequencerState
from seriatim.protocols.tree.messages import CancelMove, Granted, Move, Pass, Routed, Settled, Subscribe, Ticket
from seriatim.protocols.with_broker import Grown, Stamped, Watch, Written
from tests.nonsense import Nonsense
from tests.protocols.tree.net import Net, messages, options_for, single
from tests.snapshot import copy_of, snapshot

TREES = {
    "single": SequencingTree.single("ABC"),
    "star": SequencingTree.star({"A": 1, "B": 2, "C": 0}, leaves=2),
    "chain": SequencingTree.chain({"A": 3, "B": 2, "C": 1}, length=3),
}


def without_timers(state: SequencerState, now: float) -> SequencerState:
    """The state as far as inputs decide it. Ticks only repeat, tidy up and set new times."""
    state = copy_of(state)
    state.epoch = 0
    for topic, desks in list(state.desks.items()):
        kept = {name: each for name, each in desks.items() if each.forget_at is None or each.forget_at > now}
        state.desks[topic] = kept
        if not kept:
            del state.desks[topic]
    for ranges in state.ranges.values():
        for range_ in ranges.values():
            range_.due = 0.0
            if range_.open_slots == set(range(range_.first, range_.last + 1)):
                range_.open_slots = None
    return state


def some_actions(net: Net, random: Random, count: int) -> None:
    """Publications, changes, silence, lost messages, moves."""
    for _ in range(count):
        action = random.randrange(7)
        if action <= 1:
            ids = [f"{random.getrandbits(64):x}" for _ in range(random.randint(1, 3))]
            net.publish(random.choice(["p", "q"]), random.choice("ABC"), *ids)
        elif action == 2:
            net.change(random.choice("rst"), add=random.choice(["A", "BC", "ABC"]))
        elif action == 3:
            net.change(random.choice("rst"), remove=random.choice("ABC"))
        elif action == 4:
            net.wait(random.choice([5.0, 20.0, 120.0]))
        elif action == 5:
            move = Move(random.choice("ABC"), random.choice(sorted(net.tree.parents)))
            net.step(APPLICATION, net.tree.root, move if random.random() < 0.8 else CancelMove(move.topic))
            net.run()
        elif net.held_back:
            net.lose()
        else:
            net.hold_back(random.choice([Ticket, Granted, Settled, Written, Subscribe, Pass, Routed, Stamped, Grown]))


@settings(max_examples=60)
@given(st.sampled_from(sorted(TREES)), st.sampled_from(["ticket", "log"]), st.integers(0, 2**32 - 1))
def test_replaying_the_journal_gives_the_state(shape: str, mode: str, seed: int) -> None:
    net = Net(TREES[shape], options_for(mode))
    some_actions(net, Random(seed), 25)
    for name in net.tree.parents:
        node = net.node(name)
        copy = SequencerNode.take_over(net.tree, name, net.options, net.journals[name])
        assert snapshot(without_timers(copy.state.sequencer, net.now)) == snapshot(
            without_timers(node.state.sequencer, net.now)
        )
        for neighbour, link in node.state.links.items():
            copied = copy.state.links[neighbour]
            assert (copied.sent, copied.received) == (link.sent, link.received)
            assert copied.unacknowledged.items() >= link.unacknowledged.items(), "nothing unconfirmed is forgotten"


@settings(max_examples=60)
@given(st.sampled_from(sorted(TREES)), st.sampled_from(["ticket", "log"]), st.integers(0, 2**32 - 1))
def test_nodes_may_be_taken_over_at_any_time(shape: str, mode: str, seed: int) -> None:
    random = Random(seed)
    net = Net(TREES[shape], options_for(mode))
    for _ in range(6):
        some_actions(net, random, 6)
        net.take_over(random.choice(sorted(net.tree.parents)))
    net.lose()
    net.wait(1_000.0)
    told = [net.notified(name) for name in "rst" if name in net.machines]
    assert all(len(set(each)) == len(each) for each in told), "somebody was notified twice"
    for one in told:
        for other in told:
            assert [each for each in one if each in other] == [each for each in other if each in one]
    for name in net.tree.parents:
        assert net.node(name).explain() == []
    for name in "rst":
        assert net.subscriber(name).explain() == []
    for publisher in ("p", "q"):
        assert net.publisher(publisher).explain() == []


def test_a_state_that_was_stored_and_read_again_is_the_same_node() -> None:
    net = Net(TREES["star"], options_for())
    some_actions(net, Random(7), 25)
    node = net.node("n1")
    copy = SequencerNode(net.tree, "n1", net.options, copy_of(node.state))
    ticket = Ticket(1, "A", 2)
    assert [copy.step("new", ticket, net.now).send] == [node.step("new", ticket, net.now).send]
    assert snapshot(copy.state) == snapshot(node.state)


def test_the_epoch_is_recorded_before_anything_else_and_grows_with_every_takeover() -> None:
    net = single()
    assert net.node().epoch == 1
    net.publish("p", "A", "x")
    for epoch in (2, 3, 4):
        node = SequencerNode.take_over(net.tree, "root", net.options, net.journals["root"])
        assert node.epoch == epoch
        effects = node.tick(net.now)
        assert effects.persist[0] == TookOver(epoch)
        net.journals["root"].extend(effects.persist)


def test_every_input_that_changes_something_is_persisted_before_its_effects() -> None:
    net = single()
    effects = net.node().step("p", Ticket(1, "A", 1), 5.0)
    assert effects.persist == [Stepped("p", Ticket(1, "A", 1), 5.0)]


def test_open_ranges_are_granted_again_in_the_new_epoch_with_a_new_lease() -> None:
    net = single()
    net.step("p", "root", Ticket(1, "A", 1))
    net.now = 90.0
    node = SequencerNode.take_over(net.tree, "root", net.options, net.journals["root"])
    effects = node.tick(90.0)
    assert effects.send == [("p", Granted(1, "A", 1, 1, {}, epoch=2))]
    assert effects.wake_at == 190.0


def test_log_mode_watches_and_stamps_again() -> None:
    net = single("log", topics="A")
    net.step(BROKER, "root", Grown("A", 3))
    node = SequencerNode.take_over(net.tree, "root", net.options, net.journals["root"])
    assert node.tick(0.0).send == [(BROKER, Stamped("A", 1, 3, {}, epoch=2)), (BROKER, Watch(frozenset("A")))]


# ── links ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("crashed", ["n1", "n2", "n3"])
@pytest.mark.parametrize("kind", [Pass, Routed])
def test_what_was_on_its_way_along_the_tree_arrives_after_the_takeover(crashed: str, kind: type) -> None:
    net = Net(TREES["chain"], options_for())
    net.change("r", "AC")
    net.change("s", "AC")
    net.publish("p", "C", "c1")
    net.hold_back(kind, target="n2")
    net.publish("p", "A", "a1")
    assert net.notified("s") == ["c1"]
    net.lose()
    net.crash(crashed)
    net.wait(50.0)
    net.take_over(crashed)
    net.wait(50.0)
    assert net.notified("r") == net.notified("s") == ["c1", "a1"]
    assert net.published("p") == [("c1", 1), ("a1", 1)]
    assert all(net.node(node).explain() == [] for node in net.tree.parents)


def test_neighbours_refuse_the_process_that_was_replaced() -> None:
    net = Net(TREES["chain"], options_for())
    net.change("r", "AC")
    net.change("s", "AC")
    old = net.node("n3")
    net.take_over("n3")
    net.publish("p", "A", "a1")
    before = snapshot(net.node("n2").state)
    for target, message in old.step("q", Ticket(1, "A", 1), net.now).send:
        assert (target, type(message)) == ("n2", Frame)
        net.step("n3", target, message)
    assert snapshot(net.node("n2").state) == before


def test_a_frame_from_somebody_who_is_no_neighbour_is_ignored() -> None:
    node = SequencerNode(TREES["chain"], "n1", options_for())
    before = snapshot(node.state)
    effects = node.step("n3", Frame(1, 1, 0, Pass("A", 1, 9, "n1", {})), 0.0)
    assert effects.send == [] and effects.persist == []
    assert snapshot(node.state) == before


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hostile", Pass("A", 1, 10**9, "n1", {})),
        ("hostile", Grown("A", 10**9)),
        ("hostile", Written("A", 1, None)),
        ("n2", Pass("A", 1, 10**9, "n1", {})),
    ],
)
def test_clients_cannot_speak_for_nodes_or_the_broker(source: str, message: Any) -> None:
    node = SequencerNode(SequencingTree.chain({"A": 1, "B": 2}, length=2), "n1", options_for("log"))
    before = snapshot(node.state)
    effects = node.step(source, message, 0.0)
    assert effects.send == [] and effects.persist == []
    assert snapshot(node.state) == before


@pytest.mark.parametrize(
    ("source", "message"),
    [("x", Nonsense()), ("x", Grown("A", 1)), ("x", Frame(1, 1, 0, None)), ("p", Ticket(1, "A", 1))],
)
def test_what_is_ignored_does_not_cancel_the_wish_to_be_woken(source: str, message: Any) -> None:
    net = single()
    net.step("p", "root", Ticket(1, "A", 1))
    assert net.node().step(source, message, 1.0).wake_at == 100.0
    assert net.node().inner.step(source, Nonsense(), 1.0).wake_at == 100.0


def test_an_acknowledgement_rides_on_whatever_goes_back_anyway() -> None:
    net = Net(TREES["chain"], options_for())
    net.change("r", "AB")
    net.change("s", "AB")
    (climb,) = messages(net.node("n3").step("p", Ticket(1, "A", 1), 0.0), Pass)
    link = net.node("n3").state.links["n2"]
    answers = net.node("n2").step("n3", Frame(1, link.sent, link.received, climb), 0.0).send
    assert [(target, type(frame.body)) for target, frame in answers if isinstance(frame, Frame)] == [("n3", Routed)]
