"""A topic moves to another home. That the order holds is the explorer's business (tests/lab/explore)."""

from typing import Any

import msgspec
import pytest

from seriatim.model import APPLICATION, BROKER, Gap
from seriatim.order import Moves, Place, SequencingTree
from seriatim.protocols.link import Frame
from seriatim.protocols.tree import Publisher, Subscriber
from seriatim.protocols.tree.messages import (
    BetweenNodes,
    CancelMove,
    Granted,
    HandOver,
    Locate,
    Located,
    Move,
    Moved,
    MoveEnded,
    MovesFound,
    MoveStep,
    Refresh,
    Routed,
    Switch,
    Switched,
    Ticket,
    Updated,
    Vouch,
)
from seriatim.protocols.with_broker import Changed, Staged, Stamped, Unwatch
from tests.protocols.tree.net import Net, options_for

LEASE_MS = 300.0
STAR = SequencingTree.star({"A": 1, "B": 2, "C": 0}, leaves=3)

each_mode = pytest.mark.parametrize("mode", ["ticket", "log"])


def star(mode: str = "ticket", **options: Any) -> Net:
    return Net(STAR, options_for(mode, **options))


def move(net: Net, topic: str, to: str) -> None:
    net.step(APPLICATION, net.tree.root, Move(topic, to))
    net.run()


def homes_of(net: Net, topic: str) -> list[str]:
    return [node for node in net.tree.parents if topic in net.node(node).state.sequencer.homes]


@each_mode
def test_events_go_on_at_the_new_home_and_clients_follow(mode: str) -> None:
    net = star(mode)
    net.change("s", "AB")
    net.publish("p", "A", "a1")
    move(net, "A", "n3")
    net.publish("p", "A", "a2")
    net.publish("q", "A", "a3")
    net.wait(200.0)
    assert net.notified("s") == ["a1", "a2", "a3"]
    assert homes_of(net, "A") == ["n3"]
    assert net.all_told("n0", MoveStep) == [MoveStep("A", "n3", 1, "quiesce"), MoveStep("A", "n3", 1, "switch")]
    assert net.all_told("n0", MoveEnded) == [MoveEnded("A", "n3", 1)]
    assert all(net.node(node).inner.tree.home("A") == "n3" for node in net.tree.parents)
    assert not any(net.node(node).explain() for node in net.tree.parents)


def test_a_client_that_asks_the_old_home_is_sent_to_the_new_one_and_asks_there_at_once() -> None:
    net = star()
    move(net, "A", "n3")
    net.publish("p", "A", "a1")
    assert ("n1", "p", Moved("A", "n3", 1)) in net.sent
    assert net.published("p") == [("a1", 1)], "no time has passed"
    assert net.publisher("p").tree.home("A") == "n3"


def test_who_asks_during_the_move_waits_and_is_answered_at_its_end() -> None:
    net = star()
    net.change("s", "AB")
    net.hold_back(Switched)
    move(net, "A", "n3")
    net.publish("p", "A", "a1")
    net.change("t", "A")
    net.change("s", remove="A")
    assert not net.published("p") and not net.all_told("t", Changed) and len(net.all_told("s", Changed)) == 1
    net.release()
    assert net.published("p") == [("a1", 1)]
    assert len(net.all_told("t", Changed)) == 1 and len(net.all_told("s", Changed)) == 2
    assert net.notified("t") in ([], ["a1"])


def test_a_repeated_request_gets_the_same_numbers_at_the_new_home() -> None:
    net = star()
    net.hold_back(Granted)
    net.publish("p", "A", "a1")
    net.lose()
    move(net, "A", "n3")
    net.wait(20.0)
    assert net.published("p") == [("a1", 1)]
    assert [each.first for each in net.all_sent(Granted)] == [1] * len(net.all_sent(Granted))


def test_what_nobody_publishes_is_voided_by_the_new_home() -> None:
    net = star()
    net.change("s", "A")
    net.step("gone", "n1", Ticket(1, "A", 1))
    net.run()
    move(net, "A", "n3")
    net.publish("p", "A", "a2")
    net.wait(300.0)
    assert net.notified("s") == ["a2"]
    assert net.node("n3").state.sequencer.voids["A"].keys() == {1}


def test_the_new_home_watches_the_log_and_the_old_one_does_not() -> None:
    net = star("log")
    net.change("s", "A")
    move(net, "A", "n3")
    assert net.broker.state.topics["A"].watchers == ["n3"]
    assert net.all_sent(Unwatch) == [Unwatch("A", "n3", 0, 1)]
    assert not net.node("n1").state.sequencer.moving.left, "the broker has answered"


# ── the operator ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("whom", "command", "reason"),
    [
        ("n1", Move("A", "n3"), "n1 is not the root; ask n0"),
        ("n0", Move("A", "n9"), "there is no node n9; use one of n0, n1, n2, n3"),
        ("n0", Move("Z", "n3"), "no node is home to Z"),
    ],
)
def test_what_cannot_be_done_is_refused(whom: str, command: Move, reason: str) -> None:
    net = star()
    net.step(APPLICATION, whom, command)
    net.run()
    assert [each.reason for each in net.all_told(whom, MoveEnded)] == [reason]
    assert all(not net.node(node).inner.tree.moves.places for node in net.tree.parents)


def test_only_the_operator_may_move_topics() -> None:
    net = star()
    net.step("hostile", "n0", Move("A", "n3"))
    net.step("hostile", "n0", Switch(1, "A", "n3"))
    net.step("hostile", "n0", MovesFound(9, {"A": Place("n3", 9)}))
    net.run()
    assert net.node("n0").inner.tree.home("A") == "n1"


def test_moves_are_made_one_after_the_other() -> None:
    net = star()
    for topic, to in [("A", "n3"), ("B", "n3"), ("A", "n2"), ("A", "n2")]:
        net.step(APPLICATION, "n0", Move(topic, to))
    net.run()
    ends = [(each.topic, each.to, each.move) for each in net.all_told("n0", MoveEnded)]
    assert ends == [("A", "n3", 1), ("B", "n3", 2), ("A", "n2", 3), ("A", "n2", 3)]


@each_mode
def test_a_cancelled_move_leaves_the_topic_where_it_is(mode: str) -> None:
    net = star(mode)
    net.change("s", "A")
    net.hold_back(Vouch)
    net.step(APPLICATION, "n0", Move("A", "n3"))
    net.step(APPLICATION, "n0", Move("B", "n3"))
    net.run()
    net.publish("p", "A", "a1")
    net.step(APPLICATION, "n0", CancelMove("A"))
    net.run()
    net.wait(50.0)
    net.release()
    net.wait(50.0)
    assert net.notified("s") == ["a1"]
    assert homes_of(net, "A") == ["n1"]
    assert [(each.topic, each.reason) for each in net.all_told("n0", MoveEnded)] == [("A", "cancelled"), ("B", "")]
    assert not net.node("n3").state.sequencer.moving.arriving


def test_what_a_cancelled_move_hands_over_too_late_is_not_taken() -> None:
    net = star()
    net.hold_back(HandOver, target="n3")
    net.holds_back = lambda source, target, message: (
        target == "n3"
        and isinstance(message, Frame)
        and isinstance(message.body, Routed)
        and isinstance(message.body.body, HandOver)
    )
    move(net, "A", "n3")
    net.step(APPLICATION, "n0", CancelMove("A"))
    net.run()
    net.release()
    net.wait(50.0)
    assert not net.node("n3").state.sequencer.moving.arriving
    net.publish("p", "A", "a1")
    assert net.published("p") == [("a1", 1)]


# ── being known ───────────────────────────────────────────────────────────────────────────────────────────────────


@each_mode
def test_a_subscriber_with_a_lease_follows_without_a_gap(mode: str) -> None:
    net = star(mode, subscriber_lease_ms=LEASE_MS)
    net.change("s", "AB")
    net.change("t", "B")  # known at n2, under another number, before A comes there
    net.change("t", "A")
    for to in ("n2", "n3", "n1"):
        net.publish("p", "A", f"before {to}")
        move(net, "A", to)
        net.wait(5 * LEASE_MS)
    net.publish("p", "A", "last")
    assert net.notified("s") == net.notified("t") == ["before n2", "before n3", "before n1", "last"]
    assert not net.all_told("s", Gap) and not net.all_told("t", Gap)
    assert len(net.all_told("s", Changed)) == 1


def test_a_subscriber_that_does_not_know_of_the_move_is_not_confirmed_by_the_old_home() -> None:
    net = star(subscriber_lease_ms=LEASE_MS)
    net.change("s", "AB")
    net.hold_back(Located)
    move(net, "A", "n2")
    net.wait(2 * LEASE_MS)
    net.publish("p", "A", "a1")
    assert net.notified("s") == [], "n2 may forget it, since it asks n1"
    net.release()
    net.wait(2 * LEASE_MS)
    net.publish("p", "A", "a2")
    assert net.notified("s")[-1] == "a2"


def test_a_new_home_that_has_not_heard_of_the_move_has_not_forgotten_anybody() -> None:
    """The subscriber heard of it from another node first."""
    net = star(subscriber_lease_ms=LEASE_MS)
    net.change("s", "ABC")
    net.hold_back(Switch)
    move(net, "A", "n2")
    net.wait(3 * LEASE_MS)
    subscriber = net.machines["s"]
    assert isinstance(subscriber, Subscriber)
    assert subscriber.tree.home("A") == "n2"
    assert net.node("n2").inner.tree.home("A") == "n1"
    net.release()
    net.wait(2 * LEASE_MS)
    net.publish("p", "A", "a1")
    assert net.notified("s") == ["a1"]
    assert len(net.all_told("s", Changed)) == 1, "it has not begun anew"


def test_a_home_to_which_a_topic_comes_back_has_not_forgotten_its_holders() -> None:
    """It forgot them when the topic left. The subscriber did not ask at the home between."""
    net = star(subscriber_lease_ms=LEASE_MS)
    net.change("s", "AC")
    net.hold_back(Refresh)
    move(net, "A", "n2")
    move(net, "A", "n1")
    net.lose()
    net.wait(3 * LEASE_MS)
    net.publish("p", "A", "a1")
    assert net.notified("s") == ["a1"]
    assert len(net.all_told("s", Changed)) == 1, "it has not begun anew"


def test_who_was_forgotten_at_the_new_home_joins_again() -> None:
    net = star(subscriber_lease_ms=LEASE_MS)
    net.change("s", "A")
    move(net, "A", "n2")
    net.hold_back(Refresh)
    net.wait(4 * LEASE_MS)
    net.publish("p", "A", "a1")
    net.lose()
    net.wait(2 * LEASE_MS)
    net.publish("p", "A", "a2")
    assert net.notified("s") == ["a2"]
    assert net.all_told("s", Changed)[-1].start == {"A": 1}, "the gap is visible in its start"


def test_a_durable_subscriber_comes_back_with_the_map_it_began_with() -> None:
    net = star("log", durable=True)
    net.change("s", "A")
    net.publish("p", "A", "a1")
    net.crash("s")
    move(net, "A", "n3")
    net.publish("p", "A", "a2")
    net.add("s", Subscriber.resume(STAR, "s", net.options, net.journals["s"]))
    net.run()
    net.change("s", remove="A")
    assert net.notified("s") == ["a1", "a2"]
    assert "s" in [name for name, each in net.node("n3").state.sequencer.couplings.holders.items() if not each.topics]
    assert Updated(2, "n3", 1) in net.all_sent(Updated)


# ── maps ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_comes_back_lives_by_the_map_of_its_journal() -> None:
    net = star()
    move(net, "A", "n3")
    for node in net.tree.parents:
        net.take_over(node)
    net.publish("p", "A", "a1")
    assert net.published("p") == [("a1", 1)]
    assert homes_of(net, "A") == ["n3"]


def test_a_client_may_be_given_a_newer_map() -> None:
    tree = STAR.view(Moves(4, {"A": Place("n3", 4)}))
    assert Publisher(tree, "p", options_for()).tree.home("A") == "n3"
    known = Subscriber(tree, "s", options_for())
    assert (known.tree.home("A"), known.state.moves.number) == ("n3", 4)
    assert STAR.home("A") == "n1"


def test_any_node_tells_what_has_moved_since() -> None:
    net = star()
    move(net, "A", "n3")
    move(net, "B", "n3")
    net.step("s", "n1", Locate(1))
    net.run()
    assert net.all_sent(Located) == [Located(1, 2, {"B": Place("n3", 2)})]


def test_a_stage_of_another_map_is_not_enough() -> None:
    net = star("log", stages=True)
    net.change("s", "AB")
    subscriber = net.subscriber("s")
    staged = Staged("A", 1, 1, {}, "n0", moves=1)
    assert not subscriber._is_enough(staged)
    assert subscriber._is_enough(Staged("A", 1, 1, {}, "n0", final=True, moves=1))
    net.step(BROKER, "s", staged)
    assert ("s", "n1", Locate(0)) in net.sent


def test_a_node_without_a_journal_is_told_what_has_moved() -> None:
    net = star()
    net.step("n1", "n1", MovesFound(3, {"A": Place("n3", 3)}))
    net.step("p", "n1", Ticket(1, "A", 1))
    net.run()
    assert net.all_sent(Moved) == [Moved("A", "n3", 3)]


@pytest.mark.parametrize("mode", ["log", "ticket"])
def test_everything_that_is_said_can_travel(mode: str) -> None:
    net = star(mode)
    net.change("s", "AB")
    net.publish("p", "A", "a1")
    net.hold_back(Granted)
    net.publish("p", "A", "a2")
    net.lose()
    move(net, "A", "n3")
    net.publish("p", "A", "a3")
    between = [body for source, target, body in net.sent if {source, target} <= net.tree.parents.keys()]
    kinds = {type(body.body if isinstance(body, Routed) else body) for body in between}
    assert kinds >= {HandOver, Vouch, Switch, Switched}
    decode = msgspec.msgpack.Decoder(BetweenNodes).decode
    for body in between:
        assert decode(msgspec.msgpack.encode(body)) == body


def test_a_topic_that_is_coupled_again_after_it_has_moved_is_collected_at_its_new_place() -> None:
    """Between two events of C: nobody holds B and C together any more, B moves, and somebody does again."""
    net = star("log")
    net.change("s", add="BC")
    net.publish("p", "B", "b1")
    net.publish("p", "C", "c1")
    net.change("s", remove="B")
    move(net, "B", "n3")
    net.change("t", add="BC")
    net.publish("p", "B", "b2")
    net.publish("p", "C", "c2")
    net.publish("p", "B", "b3")
    net.publish("p", "C", "c3")
    stamps = {(each.first, each.topic): each.entries for _, _, each in net.sent if isinstance(each, Stamped)}
    assert stamps[2, "C"] == {"B": 2}
    assert stamps[3, "C"] == {"B": 3}
