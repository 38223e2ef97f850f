"""From the tree that runs to the tree of a plan: which nodes come, in which order, and which go."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from seriatim.cli.changing import Changer
from seriatim.cli.node import how_to_start, topics_of
from seriatim.model import InputError, Node, RequestRefused, Topic
from seriatim.order import SequencingTree

KEPT_TREE = "plan for the tree as it is (`seriatim plan --nodes cluster.toml --keep-tree`)"


class Addition(Struct, frozen=True):
    """A node that the plan has and the cluster lacks: below `parent`, or above the root until now."""

    node: Node
    parent: Node | None = None
    above: Node | None = None

    @property
    def text(self) -> str:
        return f"node {self.node}: comes " + (f"below {self.parent}" if self.above is None else f"above {self.above}")

    @property
    def row(self) -> dict[str, Any]:
        return {"do": "add", "node": self.node, "parent": self.parent}


class Removal(Struct, frozen=True):
    """A node that the cluster has and the plan lacks."""

    node: Node

    @property
    def text(self) -> str:
        return f"node {self.node}: goes"

    @property
    def row(self) -> dict[str, Any]:
        return {"do": "remove", "node": self.node}


def check_reachable(tree: SequencingTree, wanted: Mapping[Node, Node | None], name: str) -> None:
    """InputError: the cluster cannot get this shape."""
    additions(tree, wanted, name)


def additions(tree: SequencingTree, wanted: Mapping[Node, Node | None], name: str) -> list[Addition]:
    """The nodes to add: new roots, then each node after its parent. InputError: a running node would have to change its
    parent."""
    found: list[Addition] = []
    parents, root = dict(tree.parents), tree.root
    while (above := wanted.get(root)) is not None and above not in parents:
        found.append(Addition(above, above=root))
        parents |= {above: None, root: above}
        root = above
    left = [node for node in wanted if node not in parents]
    while left:
        ready = [node for node in left if wanted[node] in parents]
        if not ready:
            node = left[0]
            if wanted[node] is None:
                problem = f"{name} has {node} as the root, and {root} is the root"
                raise InputError(f"nodes.{node}", problem, f"give {root} the parent {node}, or give {node} a parent")
            problem = f"{name} wants it below {wanted[node]}, which neither the plan nor the cluster has"
            raise InputError(f"nodes.{node}", problem, f"use one of {', '.join(sorted(parents))}")
        for node in ready:
            found.append(Addition(node, wanted[node]))
            parents[node] = wanted[node]
        left = [node for node in left if node not in parents]
    for node, parent in wanted.items():
        if parents[node] != parent:
            place = f"below {parents[node]}" if parents[node] is not None else "as the root"
            problem = (
                f"{name} wants it {f'below {parent}' if parent is not None else 'as the root'}, and it runs {place}"
            )
            raise InputError(f"nodes.{node}", f"{problem}; nodes that run keep their parents", KEPT_TREE)
    return found


def removals(
    tree: SequencingTree, wanted: Iterable[Node], homes: Mapping[Topic, Node], name: str, added: Iterable[Node] | None
) -> list[Removal]:
    """What goes, the lowest first. `added`: only these may go; None: all. InputError: it cannot go.

    `homes`: where topics live when the plan is applied.
    """
    leave_out = "or leave out --remove-nodes" if added is None else "or move them (`seriatim move`), and undo again"
    gone = [node for node in tree.parents if node not in set(wanted) and (added is None or node in set(added))]
    for node in gone:
        if node == tree.default_home:
            problem = f"{name} does not list it, and it is the default home: topics that nobody lists live there"
            raise InputError(f"nodes.{node}", problem, "list it, or leave out --remove-nodes")
        stays = [topic for topic in topics_of(tree, node) if homes.get(topic, node) == node]
        if stays:
            problem = f"{name} does not list it, and says no other home for {', '.join(stays[:10])}, which live there"
            raise InputError(f"nodes.{node}", problem, f"list these topics in [homes], {leave_out}")
        below = [each for each, parent in tree.parents.items() if parent == node and each not in gone]
        if below or tree.parents[node] is None:
            problem = f"{name} does not list it, and only leaves go"
            fix = f"list it; below it there {'is' if len(below) == 1 else 'are'} {', '.join(below) or 'others'}"
            raise InputError(f"nodes.{node}", problem, fix)
    return [Removal(node) for node in sorted(gone, key=lambda node: -len(tree.paths[node]))]


async def check_processes(changer: Changer, coming: Iterable[Addition], timeout_s: float) -> None:
    """RequestRefused: no process is there to run some of these; says which, and how to start it."""
    coming = list(coming)
    if not coming or (await changer.facts(timeout_s)).runs_new:
        return
    missing = [each for each in coming if await changer.waiting(each.node) is None]
    if missing:
        how = ". ".join(how_to_start(each.node, each.parent, each.above) for each in missing)
        names = ", ".join(each.node for each in missing)
        raise RequestRefused(f"no process waits to run {names}, and nothing has changed. {how}")
