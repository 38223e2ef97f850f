"""Leaves come and go. That the order holds is the explorer's business."""

from typing import Any

import msgspec
import pytest

from seriatim.model import APPLICATION
from seriatim.order import Moves, Place, SequencingTree, ShapeChange
from seriatim.protocols.link import Frame
from seriatim.protocols.node import Stepped, TookOver
from seriatim.protocols.tree import SequencerNode, SequencerNodeState
from seriatim.protocols.tree.confirming import Outdated
from seriatim.protocols.tree.messages import (
    Arrived,
    BeforeLinks,
    BetweenNodes,
    CancelReshape,
    Locate,
    Located,
    Move,
    Moved,
    MoveEnded,
    NodeExpected,
    NodeLeft,
    Pass,
    Reign,
    Reshape,
    ReshapeEnded,
    ReshapeStep,
    Routed,
    ShapeChanged,
    Summary,
    Switched,
    SwitchShape,
    Ticket,
    Welcome,
)
from seriatim.protocols.tree.node import newcomer_state
from seriatim.protocols.with_broker import Begun, Ceded
from tests.protocols.tree.net import Net, options_for
from tests.protocols.tree.shapes import (
    LAYOUT,
    LEASE_MS,
    STAR,
    assert_shape,
    come,
    command,
    each_mode,
    grow,
    join,
    members,
    star,
)

# ── a leaf joins ──────────────────────────────────────────────────────────────────────────────────────────────────


@each_mode
def test_a_leaf_joins_and_topics_move_to_it(mode: str) -> None:
    net = star(mode)
    net.change("s", "AB")
    net.publish("p", "A", "a1")
    join(net)
    assert_shape(net, {"n0": None, "n1": "n0", "n2": "n0", "n3": "n1"})
    change = ShapeChange("join", "n3", "n1", 1)
    assert net.all_told("n0", ReshapeStep) == [ReshapeStep(change, "prepare"), ReshapeStep(change, "switch")]
    assert net.all_told("n0", ReshapeEnded) == [ReshapeEnded(change)]
    assert net.all_told("n1", NodeExpected) == [NodeExpected("n3", 1)]
    assert all(net.all_told(node, ShapeChanged) == [ShapeChanged(change)] for node in members(net))
    command(net, "n0", Move("A", "n3"))
    net.publish("p", "A", "a2")
    net.publish("q", "A", "a3")
    net.wait(200.0)
    assert net.notified("s") == ["a1", "a2", "a3"]
    assert "A" in net.node("n3").state.sequencer.homes
    if mode == "ticket":  # else it asks no node
        assert net.publisher("p").tree.home("A") == "n3"
        assert net.publisher("p").tree.parents == net.node("n0").inner.tree.parents


def test_a_tree_that_was_healed_keeps_its_nodes() -> None:
    """A new node would not know the era."""
    net = star()
    net.node("n0").state.sequencer.healing.era = 1_000
    command(net, "n0", Reshape("join", "n3", "n1"))
    net.wait(100.0)
    ended = net.all_told("n0", ReshapeEnded)
    assert len(ended) == 1 and "has lost its journal and was healed" in ended[0].reason
    assert_shape(net, {"n0": None, "n1": "n0", "n2": "n0"})


def test_the_process_of_a_new_leaf_may_start_late() -> None:
    net = star()
    command(net, "n0", Reshape("join", "n3", "n1"), Move("A", "n2"))
    net.wait(100.0)
    assert not net.all_told("n0", ReshapeEnded) and not net.all_told("n0", MoveEnded)
    assert net.node("n0").explain() == ["change 1 (n3 joins below n1): waits for n3 to be ready"]
    assert net.node("n1").explain() == ["n3 is welcomed: waits for its answer"]
    come(net, "n3")
    assert net.node("n3").explain() == ["n3 is not part of the tree yet: waits to be welcomed"]
    net.wait(20.0)
    assert [each.reason for each in net.all_told("n0", ReshapeEnded)] == [""]
    assert [each.move for each in net.all_told("n0", MoveEnded)] == [2]
    assert net.node("n3").inner.tree.home("A") == "n2"


def test_a_new_leaf_knows_what_has_moved() -> None:
    net = star()
    command(net, "n0", Move("A", "n2"))
    join(net)
    net.step("p", "n3", Ticket(1, "A", 1))
    net.run()
    shape = (ShapeChange("join", "n3", "n1", 2),)
    assert net.all_sent(Moved) == [Moved("A", "n2", 1, shape)]
    assert net.node("n3").inner.tree.homes == {"A": "n2", "B": "n2", "C": "n0"}, "its layout names no homes"


def test_a_change_that_is_cancelled_leaves_the_tree_as_it_is_and_may_be_asked_for_again() -> None:
    net = star()
    command(net, "n0", Reshape("join", "n3", "n1"), Reshape("join", "n9", "n1"))
    command(net, "n0", CancelReshape("n9"), CancelReshape("n3"))
    come(net, "n3")
    net.wait(100.0)
    assert [(each.change.node, each.reason) for each in net.all_told("n0", ReshapeEnded)] == [
        ("n9", "cancelled"),
        ("n3", "cancelled"),
    ]
    assert not net.node("n3").inner.is_member
    assert not net.node("n0").explain() and not net.node("n1").explain()
    command(net, "n0", Reshape("join", "n3", "n1"))
    assert_shape(net, {"n0": None, "n1": "n0", "n2": "n0", "n3": "n1"})


def test_an_answer_to_a_cancelled_welcome_is_not_one_to_the_next() -> None:
    net = star()
    come(net, "n3")
    net.hold_back(Arrived)
    command(net, "n0", Reshape("join", "n3", "n1"), CancelReshape("n3"), Reshape("join", "n3", "n1"))
    late = [each for each in net.held_back if each[2] == Arrived(1, 1)]
    assert late
    net.held_back[:] = late
    net.release()
    assert net.node("n0").inner.tree.parents == STAR.parents
    net.wait(20.0)
    assert_shape(net, {"n0": None, "n1": "n0", "n2": "n0", "n3": "n1"})


def test_a_change_beyond_the_switch_is_not_cancelled() -> None:
    net = star()
    net.hold_back(Switched)
    join(net)
    command(net, "n0", CancelReshape("n3"))
    net.release()
    assert [each.reason for each in net.all_told("n0", ReshapeEnded)] == [""]


def test_until_it_is_welcomed_a_new_node_answers_nobody() -> None:
    net = star("log")
    come(net, "n3")
    net.step("p", "n3", Ticket(1, "A", 1))
    net.step("p", "n3", Locate(0))
    net.step("n0", "n3", Welcome(ShapeChange("join", "n3", "n0", 1), {}, {}, None, Moves()))
    net.run()
    assert {(to, type(body)) for source, to, body in net.sent if source == "n3"} == {("n1", Summary)}, "greetings"
    assert not net.journals["n3"]


def test_topics_are_not_moved_to_a_leaf_before_everybody_knows_it() -> None:
    net = star()
    net.hold_back(SwitchShape, target="n2")
    join(net)
    command(net, "n0", Move("A", "n3"))
    under_way = net.node("n0").inner.move_under_way
    assert under_way is not None
    assert under_way.change == ShapeChange("join", "n3", "n1", 1)
    net.release()
    assert [each.to for each in net.all_told("n0", MoveEnded)] == ["n3"]


# ── a leaf leaves ─────────────────────────────────────────────────────────────────────────────────────────────────


@each_mode
def test_a_leaf_leaves_when_no_topic_lives_there_any_more(mode: str) -> None:
    net = star(mode, order_log=mode == "log")
    net.change("s", "AB")
    join(net)
    command(net, "n0", Move("A", "n3"))
    net.publish("p", "A", "a1")
    command(net, "n0", Move("A", "n2"), Reshape("leave", "n3"))
    net.wait(50.0)
    assert_shape(net, STAR.parents)
    assert net.all_told("n3", NodeLeft) == [NodeLeft(4)]
    assert net.node("n3").inner.has_left
    net.crash("n3")
    net.publish("p", "A", "a2")
    net.wait(50.0)
    assert net.notified("s") == ["a1", "a2"]


def test_a_leaf_that_was_always_there_leaves() -> None:
    net = star()
    command(net, "n0", Move("A", "n2"), Reshape("leave", "n1"))
    assert_shape(net, {"n0": None, "n2": "n0"})
    net.crash("n1")
    net.publish("p", "A", "a1")
    assert not net.published("p"), "it asks n1"
    net.wait(50.0)
    assert net.published("p") == [("a1", 1)], "n0 or n2 has told it where A lives"


@each_mode
def test_a_subscriber_whose_home_has_left_finds_the_new_one(mode: str) -> None:
    net = star(mode)
    net.change("s", "AB")
    command(net, "n0", Move("A", "n2"), Reshape("leave", "n1"))
    net.crash("n1")
    net.change("s", remove="A")
    net.change("t", "A")
    net.wait(100.0)
    assert net.subscriber("s").state.changing is None
    assert net.subscriber("t").state.changing is None
    assert net.subscriber("t").tree.parents == {"n0": None, "n2": "n0"}


def test_a_subscriber_with_a_lease_finds_the_new_home_before_the_lease_is_over() -> None:
    net = star("log", subscriber_lease_ms=LEASE_MS)
    net.change("s", "AB")
    command(net, "n0", Move("A", "n2"), Reshape("leave", "n1"))
    net.crash("n1")
    net.wait(6 * LEASE_MS)
    net.publish("p", "A", "a1")
    assert net.notified("s") == ["a1"]
    assert "n1" not in net.subscriber("s").state.confirmed


def test_the_last_word_of_a_leaf_may_be_repeated() -> None:
    net = star()
    command(net, "n0", Move("A", "n2"))
    net.holds_back = lambda source, target, message: (source, target) == ("n0", "n1") and _is_acknowledgement(message)
    command(net, "n0", Reshape("leave", "n1"))
    net.lose()
    assert not net.all_told("n1", NodeLeft), "it does not know that it was heard"
    assert_shape(net, {"n0": None, "n2": "n0"})
    net.wait(20.0)
    assert net.all_told("n1", NodeLeft) == [NodeLeft(2)]


def _is_acknowledgement(message: object) -> bool:
    return isinstance(message, Frame) and message.body is None


def test_an_older_journal_of_a_leaf_that_has_left_is_refused() -> None:
    net = star()
    lived = [*net.journals["n1"]]
    command(net, "n0", Move("A", "n2"))
    lived = [*net.journals["n1"]]
    command(net, "n0", Reshape("leave", "n1"))
    net.add("n1", SequencerNode.come_back(STAR, "n1", net.options, lived))
    net.run()
    assert len(net.all_told("n1", Outdated)) == 1
    net.add("n1", SequencerNode.come_back(STAR, "n1", net.options, net.journals["n1"]))
    net.run()
    assert len(net.all_told("n1", Outdated)) == 1, "the last one is confirmed by its former parent"
    assert net.node("n1").is_acting


def newcomer_from(net: Net, journal: list[Any], epoch: int) -> SequencerNode:
    """Another process runs n3, which began as a new node, with this journal."""
    net.journals["n3"] = [*journal]
    machine = SequencerNode.come_back(LAYOUT, "n3", net.options, journal, epoch, newcomer_state(net.options))
    net.add("n3", machine)
    net.run()
    return machine


@each_mode
def test_an_older_journal_of_a_new_leaf_is_refused_before_anything_is_written_to_it(mode: str) -> None:
    """It is from before the welcome, so it knows no neighbour to ask. Meanwhile a topic waits for the leaf."""
    net = star(mode)
    net.change("s", "AB")
    net.publish("p", "A", "a1")
    join(net)
    newest = [*net.journals["n3"]]
    net.crash("n3")
    command(net, "n0", Move("A", "n3"))
    assert net.node("n0").explain() == ["move 2: A from n1 to n3: waits for n1 to hand it over, n3 to take it"]
    assert "1 messages to n3: wait for its acknowledgement" in net.node("n1").explain()
    copy = newcomer_from(net, [], 2)
    assert [each.reason for each in net.all_told("n3", Outdated)] == [
        "it has a link with this node that the journal does not know of"
    ]
    assert not copy.is_acting
    assert not net.journals["n3"], "its epoch would make it the newest"
    assert newcomer_from(net, newest, 3).is_acting
    net.wait(50.0)
    assert [each.reason for each in net.all_told("n0", MoveEnded)] == [""]
    net.publish("p", "A", "a2")
    net.wait(50.0)
    assert net.notified("s") == ["a1", "a2"]


def test_a_new_node_that_is_started_again_records_its_epoch_with_the_welcome() -> None:
    net = star()
    come(net, "n3")
    for epoch in (2, 3):
        machine = newcomer_from(net, net.journals["n3"], epoch)
        net.wait(20.0)
        assert not net.journals["n3"] and not machine.is_acting
    command(net, "n0", Reshape("join", "n3", "n1"))
    assert machine.is_acting
    first, second, *_ = net.journals["n3"]
    assert first == TookOver(3) and isinstance(second, Stepped) and isinstance(second.message, Welcome)
    assert_shape(net, {"n0": None, "n1": "n0", "n2": "n0", "n3": "n1"})
    assert newcomer_from(net, net.journals["n3"], 4).is_acting


# ── the operator ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("whom", "wish", "reason"),
    [
        ("n1", Reshape("join", "n3", "n1"), "n1 is not the root; ask n0"),
        ("n0", Reshape("join", "", "n1"), "the new node has no name; give it one"),
        ("n0", Reshape("join", "n3", "n9"), "there is no node n9; use one of n0, n1, n2"),
        ("n0", Reshape("join", "n2", "n1"), "there is a node n2 already, below n0; choose another name"),
        ("n0", Reshape("root", "n0"), "there is a node n0 already, the root; choose another name"),
        ("n0", Reshape("root", "top", "n1"), "a new root grows above the root, which is n0, not n1"),
        ("n0", Reshape("leave", "n9"), "there is no node n9; use one of n0, n1, n2"),
        ("n0", Reshape("leave", "n0"), "n0 is the root, and the root does not leave; only leaves do"),
        ("n0", Reshape("leave", "n1"), "A lives on n1; move topics elsewhere first"),
    ],
)
def test_what_cannot_be_done_is_refused(whom: str, wish: Reshape, reason: str) -> None:
    net = star()
    command(net, whom, wish)
    assert [each.reason for each in net.all_told(whom, ReshapeEnded)] == [reason]
    assert_shape(net, STAR.parents)


def test_a_leaf_with_others_below_it_or_with_what_nobody_lists_does_not_leave() -> None:
    tree = SequencingTree({"n0": None, "n1": "n0", "n2": "n1"}, {}, default_home="n2")
    net = Net(tree, options_for())
    command(net, "n0", Reshape("leave", "n1"), Reshape("leave", "n2"))
    assert [each.reason for each in net.all_told("n0", ReshapeEnded)] == [
        "n2 is below n1; only leaves leave",
        "topics that no node lists live on n2; a default home does not leave",
    ]


def test_a_name_is_not_used_again() -> None:
    net = star()
    join(net)
    command(net, "n0", Reshape("leave", "n3"), Reshape("join", "n3", "n1"))
    assert [each.reason for each in net.all_told("n0", ReshapeEnded)] == [
        "",
        "",
        "there was a node n3 before, and names of nodes are not used again; choose another name",
    ]


def test_what_is_so_already_has_been_done() -> None:
    net = star()
    join(net)
    command(net, "n0", Reshape("join", "n3", "n1"))
    change = ShapeChange("join", "n3", "n1", 1)
    assert net.all_told("n0", ReshapeEnded) == [ReshapeEnded(change), ReshapeEnded(change)]


def test_a_repeat_is_answered_once_whether_it_waits_or_is_under_way() -> None:
    net = star()
    command(net, "n0", *[Reshape("join", "n3", "n1"), Reshape("leave", "n2")] * 2)
    assert len(net.node("n0").state.sequencer.moving.wishes) == 1
    come(net, "n3")
    net.wait(20.0)
    assert [each.change.node for each in net.all_told("n0", ReshapeEnded)] == ["n3", "n2"]


def test_a_leaf_joins_after_one_has_left_that_topics_began_on() -> None:
    net = star()
    command(net, "n0", Move("B", "n1"), Reshape("leave", "n2"))
    join(net)
    assert_shape(net, {"n0": None, "n1": "n0", "n3": "n1"})
    assert net.node("n3").inner.tree.home("B") == "n1"


def test_changes_and_moves_keep_their_turn() -> None:
    net = star()
    come(net, "n3")
    command(
        net,
        "n0",
        Reshape("join", "n3", "n1"),
        Move("A", "n3"),
        Move("A", "n2"),
        Reshape("leave", "n3"),
        Move("B", "n1"),
    )
    ends = [each for each in net.told["n0"] if isinstance(each, ReshapeEnded | MoveEnded)]
    numbers = [each.change.move if isinstance(each, ReshapeEnded) else each.move for each in ends]
    assert numbers == [1, 2, 3, 4, 5]
    assert not any(each.reason for each in ends)


def test_only_the_operator_and_neighbours_change_the_tree() -> None:
    net = star()
    change = ShapeChange("join", "n3", "n1", 1)
    net.step("hostile", "n0", Reshape("join", "n3", "n1"))
    net.step("hostile", "n1", SwitchShape(change))
    net.step("hostile", "n1", Arrived(1))
    net.step("hostile", "n1", Reign(change))
    net.step("hostile", "n0", Ceded(1, 1))
    net.run()
    assert_shape(net, STAR.parents)


# ── maps ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_any_node_tells_how_the_tree_has_changed_since() -> None:
    net = star()
    command(net, "n0", Move("A", "n2"))
    join(net)
    net.step("s", "n2", Locate(1))
    net.run()
    assert net.all_sent(Located) == [Located(1, 2, {}, (ShapeChange("join", "n3", "n1", 2),))]


def test_a_stage_of_an_older_shape_is_not_enough_for_a_newer_map() -> None:
    net = star("log", stages=True)
    net.change("s", "AB")
    net.change("t", "AB")
    grow(net)
    command(net, "top", Move("B", "top"))
    net.hold_back(Located)
    net.publish("p", "A", "a1")
    net.publish("p", "B", "b1")
    net.publish("p", "A", "a2")
    net.release()
    net.wait(100.0)
    assert net.notified("s") == net.notified("t") == ["a1", "b1", "a2"]
    assert net.subscriber("s").tree.root == "top"
    assert any(isinstance(each, Pass) and each.top == "top" for _, _, each in net.sent)


def test_a_client_that_knows_no_node_any_more_is_told_by_its_application() -> None:
    net = Net(SequencingTree.single("A", node="n0"), options_for())
    net.change("s", "A")
    net.publisher("p")
    grow(net)
    command(net, "top", Move("A", "top"), Reshape("leave", "n0"))
    net.crash("n0")
    net.publish("p", "A", "a1")
    net.wait(100.0)
    assert not net.published("p")
    moves = net.node("top").state.sequencer.moves
    found = Located(0, moves.number, moves.after(0), moves.shape_after(0))
    for client in "ps":
        net.step(APPLICATION, client, found)
    net.wait(100.0)
    assert net.published("p") == [("a1", 1)]
    assert net.notified("s") == ["a1"]


def test_states_of_before_are_read_as_they_were() -> None:
    net = star("log", order_log=True)
    net.change("s", "AB")
    state = net.node("n1").state
    before = msgspec.to_builtins(state)[:-1]  # without the links of those that have left
    before[0][13] = before[0][13][:1]  # of what moves, only the number of the latest move
    read = msgspec.convert(before, SequencerNodeState)
    assert read == state
    assert SequencerNode(STAR, "n1", net.options, read).inner.is_member
    places = {"A": Place("n2", 1)}
    assert msgspec.convert([1, {"A": ["n2", 1]}, "A", "n1"], Moves) == Moves(1, places, "A", "n1", [])


@pytest.mark.parametrize("order_log", [True, False])
def test_everything_that_is_said_can_travel(order_log: bool) -> None:
    net = star("log", order_log=order_log)
    net.change("s", "AB")
    net.publish("p", "A", "a1")
    join(net)
    grow(net)
    command(net, "top", Move("A", "n2"), Reshape("leave", "n3"))
    nodes = {"n0", "n1", "n2", "n3", "top"}
    between = [body for source, target, body in net.sent if {source, target} <= nodes]
    kinds = {type(body.body if isinstance(body, Routed) else body) for body in between}
    assert kinds >= {Welcome, Arrived, SwitchShape, Reign, Switched}
    decode = msgspec.msgpack.Decoder(BetweenNodes | BeforeLinks).decode
    for body in between:
        assert decode(msgspec.msgpack.encode(body)) == body
    for each in net.all_sent(Begun):
        assert each.since in (0, 1)
