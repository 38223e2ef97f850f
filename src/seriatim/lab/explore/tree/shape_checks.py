"""What changes of the tree promise of a world at rest.

All nodes know the same shape and the same moves. Nothing is under way. Who has left owes nothing, and nobody believes
that a topic lives there.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from seriatim.lab.explore.engine.checks import Stopped, Violation, inner, stuck
from seriatim.model import Node
from seriatim.order import SequencingTree


def running(world: Stopped, names: Iterable[Node]) -> dict[Node, Any] | None:
    """The sequencers that run, without those that have left. None: one of them failed, which is a violation already."""
    nodes = {node: inner(world.machine(node)) for node in names}
    machines = {node: machine for node, machine in nodes.items() if machine is not None}
    if not machines:
        return None
    tree = shape_now(machines.values())
    return machines if all(node in machines or tree.has_left(node) for node in nodes) else None


def shape_now(machines: Iterable[Any]) -> SequencingTree:
    """The tree as the node knows it that knows most."""
    members = [machine for machine in machines if machine.is_member and not machine.has_left]
    tree: SequencingTree = max(members, key=lambda machine: machine.tree.moves.number).tree
    return tree


def shape_violations(world: Stopped, names: Sequence[Node]) -> list[Violation]:
    nodes = running(world, names)
    if nodes is None:
        return []
    tree, found = shape_now(nodes.values()), []
    for node, machine in nodes.items():
        moving = machine.state.moving
        if moving.move is not None:
            found.append(stuck(node, f"has not ended step {moving.move.number}", machine.explain()))
        if machine.has_left:
            owed = [*machine.state.homes, *machine.state.order.ranges, *machine.state.joins]
            if owed:
                found.append(Violation("loss", f"{node} has left the tree, and keeps {owed[0]}"))
        elif machine.is_member and (machine.tree.parents, machine.tree.homes) != (tree.parents, tree.homes):
            known, latest = machine.tree.moves.number, tree.moves.number
            found.append(Violation("shape", f"{node} knows of step {known}, and others of step {latest}"))
        elif machine.is_member != (node in tree.parents):
            found.append(Violation("shape", f"{node} takes itself for a part of the tree, or does not, and is wrong"))
    if len([node for node, machine in nodes.items() if machine.is_member and machine.tree.root == node]) != 1:
        found.append(Violation("shape", "there is more than one root, or none"))
    strays = sorted(topic for topic, home in tree.homes.items() if home not in tree.parents)
    if strays:
        found.append(Violation("shape", f"{strays[0]} lives on {tree.homes[strays[0]]}, which has left"))
    return found
