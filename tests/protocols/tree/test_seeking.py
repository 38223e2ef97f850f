"""Whom a client asks about nodes that do not answer."""

import pytest

from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree.messages import Locate, Move, Reshape
from seriatim.protocols.tree.seeking import ask_around
from seriatim.protocols.with_broker import Delivered
from tests.protocols.tree.net import Net, options_for
from tests.protocols.tree.shapes import command

TREE = SequencingTree({"n0": None, "n1": "n0", "n2": "n0"}, {"A": "n0"})


def whom(tree: SequencingTree, silent: str, turn: int) -> tuple[list[str], int]:
    effects = Effects()
    turn = ask_around(tree, silent.split(), turn, effects)
    assert all(message == Locate(0) for _, message in effects.send)
    return [node for node, _ in effects.send], turn


def test_if_all_answer_nobody_is_asked() -> None:
    assert whom(TREE, "", 7) == ([], 7)


def test_one_that_does_not_answer_is_asked_about_at_the_others_in_turn() -> None:
    asked = [whom(TREE, "n1", turn) for turn in range(3)]
    assert asked == [(["n0"], 1), (["n2"], 2), (["n0"], 3)]


@pytest.mark.parametrize("silent", ["n0 n1", "n1 n2", "n2 n0", "n0 n1 n2"])
def test_if_several_do_not_answer_every_node_has_its_turn(silent: str) -> None:
    """The others may have left, too, and one of these may be there."""
    asked = [whom(TREE, silent, turn)[0] for turn in range(3)]
    assert {node for nodes in asked for node in nodes} == {"n0", "n1", "n2"}
    assert all(1 <= len(nodes) <= 2 for nodes in asked)


def test_who_knows_one_node_asks_nobody_about_it() -> None:
    assert whom(SequencingTree.single("A"), "root", 0) == ([], 0)


def test_a_subscriber_that_waits_for_a_home_that_answers_still_finds_the_one_that_has_left() -> None:
    """A 1 cannot be taken before the numbers of B have come, so both homes count as silent, and there is no other
    node."""
    net = Net(SequencingTree({"n0": None, "n1": "n0"}, {"A": "n0", "B": "n1"}), options_for(jump_max=3))
    net.change("s", "AB")
    net.change("t", "AB")
    net.hold_back(Delivered, target="s")
    net.publish("p", "B", "b1", "b2", "b3", "b4", "b5")
    net.lose()
    net.publish("p", "A", "a1")
    net.publish("p", "B", "b6")
    command(net, "n0", Move("B", "n0"), Reshape("leave", "n1"))
    net.crash("n1")
    assert net.notified("s") == []
    net.wait(300.0)
    assert net.notified("s") == ["b1", "b2", "b3", "b4", "b5", "a1", "b6"]
