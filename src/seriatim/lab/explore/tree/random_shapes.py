"""Random worlds in which the tree changes: leaves come and go, and roots grow, mixed with moves of topics."""

from dataclasses import replace
from random import Random

from seriatim.lab.explore.engine.walk import TICKS
from seriatim.lab.explore.engine.world import Budget
from seriatim.model import Address, Node, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import CancelMove, CancelReshape, Move, Reshape

NEWCOMERS_MAX = 4
STEPS_MAX = 6


class _Operator:
    """What the operator asks for, and what it believes of the tree and of where topics live. Some of it is refused or
    cancelled, so it may be wrong."""

    def __init__(
        self, random: Random, tree: SequencingTree, topics: list[Topic], scripts: dict[Address, list[Payload]]
    ) -> None:
        self.random, self.topics, self.scripts = random, topics, scripts
        self.parents: dict[Node, Node | None] = dict(tree.parents)
        self.homes = {topic: tree.home(topic) for topic in topics}
        self.root = tree.root
        self.first = set(tree.parents)  # clients know these at first, so one of them stays
        self.newcomers: list[Node] = []
        for command in scripts.get(self.root, ()):
            if isinstance(command, Move):
                self.homes[command.topic] = command.to

    def say(self, *commands: Payload) -> None:
        """To who is the root by then."""
        self.scripts.setdefault(self.root, []).extend(commands)

    def move(self, topic: Topic, to: Node) -> None:
        self.homes[topic] = to
        self.say(Move(topic, to))
        if self.random.random() < 0.1:
            self.say(CancelMove(topic))

    def move_some_to(self, node: Node) -> None:
        for topic in self.topics:
            if self.random.random() < 0.4:
                self.move(topic, node)

    def join(self) -> None:
        node, at = self._newcomer(), self.random.choice(sorted(self.parents))
        self.parents[node] = at
        self._reshape(Reshape("join", node, at))
        self.move_some_to(node)

    def grow(self) -> None:
        node = self._newcomer()
        self._reshape(Reshape("root", node))
        self.parents[node], self.parents[self.root], self.root = None, node, node
        self.move_some_to(node)

    def leave(self) -> None:
        """Mostly after everything has left that lives there; else it is refused."""
        leaves = sorted(self.parents.keys() - set(self.parents.values()) - {self.root})
        if len(self.first & self.parents.keys()) == 1:
            leaves = [node for node in leaves if node not in self.first]
        if not leaves:
            return
        node = self.random.choice(leaves)
        if self.random.random() < 0.9:
            for topic in [topic for topic, home in self.homes.items() if home == node]:
                self.move(topic, self.random.choice(sorted(self.parents.keys() - {node})))
        self._reshape(Reshape("leave", node))
        del self.parents[node]

    def _newcomer(self) -> Node:
        self.newcomers.append(f"m{len(self.newcomers) + 1}")
        return self.newcomers[-1]

    def _reshape(self, command: Reshape) -> None:
        self.say(command)
        if self.random.random() < 0.1:
            self.say(CancelReshape(command.node))


def reshape_tree(
    scripts: dict[Address, list[Payload]], tree: SequencingTree, topics: list[Topic], name: str
) -> list[Node]:
    """In many worlds the tree changes. Changes the scripts; returns the nodes that come.

    A chance of its own, so that the other worlds stay the same.
    """
    random = Random(f"trees {name}")
    if random.random() < 0.6:
        return []
    operator = _Operator(random, tree, topics, scripts)
    for _ in range(random.choice([1, 2, 3, 4, STEPS_MAX])):
        kind = random.choice(["join", "join", "leave", "leave", "grow", "move"])
        if kind in ("join", "grow") and len(operator.newcomers) == NEWCOMERS_MAX:
            kind = "leave"
        match kind:
            case "join":
                operator.join()
            case "grow":
                operator.grow()
            case "leave":
                operator.leave()
            case _:
                operator.move(random.choice(topics), random.choice(sorted(operator.parents)))
    return operator.newcomers


def budgets_with(
    budgets: dict[Address, Budget], newcomers: list[Node], tree: SequencingTree, options: TreeOptions, name: str
) -> dict[Address, Budget]:
    """Nodes that come have faults where others have. At most one node starts from an older copy of its journal.

    An old root that was alone has none if there is no order log: only the new root has seen what is missing.
    """
    random = Random(f"shape budgets {name}")
    if not budgets or not newcomers:
        return budgets
    found = dict(budgets)
    for node in newcomers:
        fate = random.random()
        crashes, takeovers = int(fate < 0.3), int(0.3 <= fate < 0.5)
        found[node] = Budget(ticks=TICKS, losses=random.randint(0, 2), crashes=crashes, takeovers=takeovers)
    if options.mode == "log" and not options.tells_stages and random.random() < 0.3:
        found = {node: replace(each, copies=0) for node, each in found.items()}
        node = random.choice(newcomers)
        found[node] = replace(found[node], copies=1)
    if len(tree.parents) == 1 and not options.keeps_order_log:
        found[tree.root] = replace(found[tree.root], copies=0)
    return found
