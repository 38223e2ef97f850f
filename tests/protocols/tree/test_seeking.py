"""Whom a client asks about nodes that do not answer."""

import pytest

from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree.messages import Locate
from seriatim.protocols.tree.seeking import ask_around

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
