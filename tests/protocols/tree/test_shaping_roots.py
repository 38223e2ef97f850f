"""A root grows above the old one, and whoever crashes while the tree changes goes on."""

import pytest

from seriatim.model import BROKER
from seriatim.order import SequencingTree, ShapeChange
from seriatim.protocols.tree import SequencerNode
from seriatim.protocols.tree.confirming import Outdated
from seriatim.protocols.tree.messages import (
    Arrived,
    Move,
    MoveEnded,
    Reign,
    Reshape,
    ReshapeEnded,
    Switched,
    SwitchShape,
    Welcome,
)
from seriatim.protocols.tree.node import newcomer_state
from seriatim.protocols.with_broker import Cede, Ceded, Ordered, OrderKept
from tests.protocols.tree.net import Net, options_for
from tests.protocols.tree.shapes import (
    LAYOUT,
    STAR,
    assert_shape,
    come,
    come_back,
    command,
    each_mode,
    grow,
    join,
    star,
)

# ── a root grows ──────────────────────────────────────────────────────────────────────────────────────────────────


@each_mode
@pytest.mark.parametrize("order_log", [True, False])
def test_a_new_root_grows_and_topics_move_to_it(mode: str, order_log: bool) -> None:
    net = star(mode, order_log=order_log)
    net.change("s", "ABC")
    net.publish("p", "A", "a1")
    net.publish("p", "C", "c1")
    net.wait(100.0)
    grow(net)
    net.publish("p", "B", "b1")
    net.wait(100.0)
    assert_shape(net, {"n0": "top", "n1": "n0", "n2": "n0", "top": None})
    change = ShapeChange("root", "top", "n0", 1)
    assert net.all_told("n0", ReshapeEnded) == [ReshapeEnded(change)]
    command(net, "top", Move("C", "top"))
    net.publish("p", "C", "c2")
    net.publish("p", "A", "a2")
    net.wait(100.0)
    assert net.notified("s") == ["a1", "c1", "b1", "c2", "a2"]
    if order_log:
        log = net.broker.state.order
        assert [(each.topic, each.first, each.last) for each in log.ranges] == [
            ("A", 1, 1),
            ("C", 1, 1),
            ("B", 1, 1),
            ("C", 2, 2),
            ("A", 2, 2),
        ]
        assert (log.writer, log.since) == ("top", 1)


def test_what_the_old_root_has_not_written_the_new_one_writes() -> None:
    net = star("log", order_log=True)
    net.change("s", "AB")
    net.hold_back(Ordered)
    net.publish("p", "A", "a1")
    net.wait(100.0)
    late = list(net.held_back)
    assert late
    assert net.broker.state.order.end < 1
    net.lose()
    grow(net)
    net.wait(100.0)
    assert net.broker.state.order.end == 1
    net.publish("p", "A", "a2")
    net.wait(100.0)
    for source, target, message in late:  # in flight all the while
        net.step(source, target, message)
    net.run()
    order = net.broker.state.order
    assert [(each.first, each.last) for each in order.ranges] == [(1, 1), (2, 2)]
    assert order.writer == "top"
    assert not net.all_told("n0", Outdated)


def test_the_old_root_hands_over_when_the_broker_refuses_it() -> None:
    net = star("log", order_log=True)
    net.hold_back(Ceded)
    grow(net)
    net.publish("p", "A", "a1")
    net.wait(100.0)
    assert net.node("n0").inner.tree.root == "n0"
    assert net.node("n0").explain()[0] == "change 1 (top becomes the root above n0): waits for the broker to know it"
    assert net.broker.state.order.end < 1, "it does not write meanwhile"
    net.release()
    net.wait(100.0)
    assert net.node("n0").inner.tree.root == "top"
    assert net.broker.state.order.end == 1


def test_the_old_root_and_the_new_one_come_back_together_while_the_broker_is_told() -> None:
    """Each takes itself for the root, and waits for the other one."""
    net = star("log", order_log=True)
    net.hold_back(Ceded)
    grow(net)
    net.lose()
    for node in ("n0", "top"):
        net.crash(node)
    net.add("n0", SequencerNode.come_back(STAR, "n0", net.options, net.journals["n0"], 2))
    newcomer = newcomer_state(net.options)
    net.add("top", SequencerNode.come_back(LAYOUT, "top", net.options, net.journals["top"], 2, newcomer))
    net.run()
    net.wait(100.0)
    assert net.node("n0").is_acting and net.node("top").is_acting
    assert_shape(net, {"n0": "top", "n1": "n0", "n2": "n0", "top": None})


def test_an_older_journal_of_the_old_root_is_refused_by_the_broker() -> None:
    """It is alone, so nobody else could tell it."""
    tree = SequencingTree.single("A", node="n0")
    net = Net(tree, options_for("log", order_log=True))
    net.change("s", "A")
    old = [*net.journals["n0"]]
    grow(net)
    net.wait(100.0)
    net.add("n0", SequencerNode.come_back(tree, "n0", net.options, old))
    net.run()
    (outdated,) = net.all_told("n0", Outdated)
    assert outdated.source == BROKER
    assert outdated.reason == "another root writes the order log since change 1; the journal knows of 0"
    newest = SequencerNode.come_back(tree, "n0", net.options, net.journals["n0"])
    net.add("n0", newest)
    net.run()
    assert newest.is_acting and newest.inner.tree.root == "top"


def test_an_older_journal_without_an_order_log_learns_from_the_new_root() -> None:
    tree = SequencingTree.single("A", node="n0")
    net = Net(tree, options_for("ticket"))
    net.add("n0", SequencerNode(tree, "n0", net.options))
    old = [*net.journals["n0"]]
    grow(net)
    net.add("n0", SequencerNode.come_back(tree, "n0", net.options, old))
    net.run()
    command(net, "top", Move("A", "top"))
    assert [each.reason for each in net.all_told("n0", Outdated)] == [
        "it has a link with this node that the journal does not know of"
    ]


def test_wishes_that_wait_at_the_old_root_are_sent_to_the_new_one() -> None:
    net = star()
    command(net, "n0", Reshape("root", "top"), Move("A", "n2"), Reshape("leave", "n1"))
    come(net, "top")
    net.wait(50.0)
    reason = "n0 is not the root; ask top"
    assert [each.reason for each in net.all_told("n0", MoveEnded)] == [reason]
    assert [(each.change.node, each.reason) for each in net.all_told("n0", ReshapeEnded)] == [
        ("n1", reason),
        ("top", ""),
    ]
    command(net, "n0", Reshape("leave", "n1"))
    assert net.all_told("n0", ReshapeEnded)[-1].reason == reason


def test_who_asks_for_the_root_again_is_told_that_it_is_there() -> None:
    net = star("log", order_log=True)
    net.hold_back(Ceded)
    grow(net)
    command(net, "n0", Reshape("root", "top"))
    net.release()
    for root in ("n0", "top"):
        command(net, root, Reshape("root", "top"))
        assert {each.reason for each in net.all_told(root, ReshapeEnded)} == {""}
    assert len(net.all_told("n0", ReshapeEnded)) == 2


def test_another_root_grows_above_the_new_one() -> None:
    net = star("log", order_log=True)
    net.change("s", "AB")
    grow(net)
    layout = SequencingTree({"top": "crown", "crown": None}, {})
    net.add("crown", SequencerNode(layout, "crown", net.options, newcomer_state(net.options)))
    command(net, "top", Reshape("root", "crown"))
    net.publish("p", "A", "a1")
    net.wait(100.0)
    assert_shape(net, {"n0": "top", "n1": "n0", "n2": "n0", "top": "crown", "crown": None})
    assert (net.broker.state.order.writer, net.broker.state.order.since) == ("crown", 2)
    assert [each.position for each in net.all_sent(OrderKept)][-1] == 1


# ── coming back ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [Welcome, Arrived, SwitchShape, Switched, Reign, Cede, Ceded])
@pytest.mark.parametrize("whom", ["n0", "n1", "new"])
@pytest.mark.parametrize("what", ["join", "root"])
def test_whoever_crashes_in_the_middle_goes_on(what: str, whom: str, kind: type) -> None:
    net = star("log", order_log=True)
    net.change("s", "AB")
    new, parent = ("n3", "n1") if what == "join" else ("top", "n0")
    net.hold_back(kind)
    come(net, new)
    command(net, "n0", Reshape(what, new, parent))  # type: ignore[arg-type]
    net.publish("p", "A", "a1")
    if whom == "new":
        come_back(net, new)
    else:
        net.take_over(whom)
    net.lose()
    net.publish("p", "A", "a2")
    net.wait(200.0)
    parents: dict[str, str | None] = (
        {**STAR.parents, "n3": "n1"} if what == "join" else {"n0": "top", "n1": "n0", "n2": "n0", "top": None}
    )
    assert_shape(net, parents)
    assert net.notified("s") == ["a1", "a2"]
    assert net.broker.state.order.end == 2


def test_all_take_over_and_keep_the_shape() -> None:
    net = star("log", order_log=True)
    net.change("s", "AB")
    join(net)
    grow(net)
    command(net, "top", Move("A", "n3"), Move("A", "n2"), Reshape("leave", "n3"))
    for node in STAR.parents:
        net.take_over(node)
    come_back(net, "top")
    net.publish("p", "A", "a1")
    net.wait(100.0)
    assert_shape(net, {"n0": "top", "n1": "n0", "n2": "n0", "top": None})
    assert net.notified("s") == ["a1"]
