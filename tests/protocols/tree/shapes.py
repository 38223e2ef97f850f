"""What the tests of trees that change have in common."""

from typing import Any

import pytest

from seriatim.model import APPLICATION
from seriatim.order import SequencingTree
from seriatim.protocols.tree import SequencerNode
from seriatim.protocols.tree.messages import (
    CancelReshape,
    Move,
    Reshape,
)
from seriatim.protocols.tree.node import newcomer_state
from tests.protocols.tree.net import Net, options_for

STAR = SequencingTree.star({"A": 1, "B": 2, "C": 0}, leaves=2)
LAYOUT = SequencingTree({"n0": "top", "n1": "n0", "n2": "n0", "n3": "n1", "top": None}, {})
LEASE_MS = 300.0

each_mode = pytest.mark.parametrize("mode", ["ticket", "log"])


def star(mode: str = "ticket", **options: Any) -> Net:
    return Net(STAR, options_for(mode, **options))


def come(net: Net, node: str) -> None:
    """The process of a new node starts."""
    net.add(node, SequencerNode(LAYOUT, node, net.options, newcomer_state(net.options)))


def come_back(net: Net, node: str) -> None:
    """Another process takes over a node that began as a new one."""
    net.add(
        node,
        SequencerNode.take_over(LAYOUT, node, net.options, net.journals[node], newcomer_state(net.options)),
    )
    net.run()


def command(net: Net, root: str, *commands: Reshape | CancelReshape | Move) -> None:
    for each in commands:
        net.step(APPLICATION, root, each)
    net.run()


def join(net: Net) -> None:
    come(net, "n3")
    command(net, "n0", Reshape("join", "n3", "n1"))


def grow(net: Net) -> None:
    come(net, "top")
    command(net, "n0", Reshape("root", "top"))


def members(net: Net) -> list[str]:
    return [name for name, machine in net.machines.items() if isinstance(machine, SequencerNode)]


def assert_shape(net: Net, parents: dict[str, str | None]) -> None:
    for node in parents:
        assert net.node(node).inner.tree.parents == parents, node
        assert net.node(node).neighbours == frozenset(SequencingTree(parents, {}).neighbours(node)), node
        assert not net.node(node).explain(), node
