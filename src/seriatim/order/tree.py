"""The sequencing tree: which node numbers which topic, and where two topics meet.

Pure arithmetic. The shape is fixed, and shared by all roles. Topics move from home to home, and not everybody learns of
a move at the same moment, so every role has its own *view*: the tree as it was configured, with the moves that this
role knows of. They are plain data (`Moves`) and part of the role's state.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from seriatim.model import InputError, Node, Topic, TreeError, UnknownTopic


class Place(Struct, frozen=True, array_like=True):
    """Where a topic lives, and the number of the move that brought it there."""

    home: Node
    move: int


class Moves(Struct, array_like=True, omit_defaults=True):
    """The moves of topics that a role knows of. Moves are numbered by the root; they happen one after the other.

    `number`: every move up to this one is known. Single later ones may be known, too. `last` and `former`: the topic of
    the latest of them, and where it lived before: what is under way may still be about that.
    """

    number: int = 0
    places: dict[Topic, Place] = field(default_factory=dict)
    last: Topic = ""
    former: Node = ""

    def after(self, number: int) -> dict[Topic, Place]:
        """The topics that were moved after this move."""
        return {topic: place for topic, place in sorted(self.places.items()) if place.move > number}


class SequencingTree:
    """A rooted tree of nodes, and for every topic the node that is its home.

    `parents` maps each node to its parent and the root to None. A topic that `homes` does not list lives on
    `default_home`; without one it is unknown. One node is the smallest tree. `moves` are the known moves since then.
    """

    def __init__(
        self, parents: Mapping[Node, Node | None], homes: Mapping[Topic, Node], default_home: Node | None = None
    ) -> None:
        self.parents: dict[Node, Node | None] = dict(parents)
        self.homes: dict[Topic, Node] = dict(homes)
        self.default_home = default_home
        self.root = check_shape(self.parents, "parents", "parents[{!r}]".format, TreeError)
        _check_homes(self.parents, self.homes, default_home)
        self.paths: dict[Node, tuple[Node, ...]] = {node: self._climb(node) for node in self.parents}
        self.moves = Moves()
        self._shares_homes = False
        self._meets: dict[tuple[Node, Node], Node] = {}

    @classmethod
    def single(cls, topics: Iterable[Topic] = (), node: Node = "root") -> "SequencingTree":
        """One node that is home to every topic, also to topics not listed here."""
        return cls({node: None}, dict.fromkeys(topics, node), default_home=node)

    @classmethod
    def chain(cls, homes: Mapping[Topic, int], length: int) -> "SequencingTree":
        """The paper's layout: n1 is the root, n2 its child, n3 the child of n2, and so on."""
        _check_size("length", length)
        parents = {f"n{i}": f"n{i - 1}" if i > 1 else None for i in range(1, length + 1)}
        return cls(parents, {topic: f"n{i}" for topic, i in homes.items()})

    @classmethod
    def star(cls, homes: Mapping[Topic, int], leaves: int) -> "SequencingTree":
        """n0 is the root; n1 … n`leaves` are its children."""
        _check_size("leaves", leaves)
        parents: dict[Node, Node | None] = {"n0": None} | {f"n{i}": "n0" for i in range(1, leaves + 1)}
        return cls(parents, {topic: f"n{i}" for topic, i in homes.items()})

    def view(self, moves: Moves) -> "SequencingTree":
        """The tree as somebody sees it who knows of these moves, and of those that this tree knows of.

        `moves` is part of a state: it is changed by `move`, and holds everything that a later view of it needs.
        """
        view = object.__new__(SequencingTree)
        view.parents, view.default_home, view.root = self.parents, self.default_home, self.root
        view.paths, view._meets = self.paths, self._meets
        view.homes, view._shares_homes, view.moves = self.homes, True, moves
        for topic, place in moves.places.items():
            view._put(topic, place.home)
        if self.moves.places:
            view.learn(self.moves.number, self.moves.places)
        return view

    def learn(self, number: int, places: Mapping[Topic, Place]) -> list[Topic]:
        """These moves happened, and all up to `number` are known with them. Returns the topics of which it is news."""
        moves = self.moves
        news = [topic for topic, place in sorted(places.items()) if place.move > self.moved(topic)]
        for topic in news:
            moves.places[topic] = places[topic]
            self._put(topic, places[topic].home)
        moves.number = max(moves.number, number)
        return news

    def move(self, topic: Topic, place: Place) -> None:
        """This is the next move; every one before it is known."""
        self.moves.last, self.moves.former = topic, self.home(topic)
        self.learn(place.move, {topic: place})

    def _put(self, topic: Topic, home: Node) -> None:
        if self._shares_homes:
            self.homes, self._shares_homes = dict(self.homes), False
        self.homes[topic] = home

    def moved(self, topic: Topic) -> int:
        """The number of the move that brought the topic to its home; 0: it began there."""
        place = self.moves.places.get(topic)
        return place.move if place is not None else 0

    def home_at(self, topic: Topic, number: int) -> Node:
        """The home of a topic when this move was the latest, or the one before the latest that is known here."""
        moves = self.moves
        return moves.former if number < moves.number and topic == moves.last else self.home(topic)

    def home(self, topic: Topic) -> Node:
        """The node where this topic's numbers are given."""
        node = self.homes.get(topic, self.default_home)
        if node is None:
            raise UnknownTopic(topic)
        return node

    def knows(self, topic: Topic) -> bool:
        """Whether the topic has a home."""
        return self.default_home is not None or topic in self.homes

    def meet(self, topic: Topic, other: Topic) -> Node:
        """The lowest node above both homes: where the two topics are ordered against each other."""
        return self.meet_nodes(self.home(topic), self.home(other))

    def meet_nodes(self, node: Node, other: Node) -> Node:
        """Lowest common ancestor of two nodes (a node is its own ancestor)."""
        if node == other:
            return node
        known = self._meets.get((node, other))
        if known is None:
            above = set(self.paths[other])
            known = next(step for step in self.paths[node] if step in above)
            self._meets[node, other] = known
        return known

    def neighbours(self, node: Node) -> list[Node]:
        """The children of a node, and its parent if it has one."""
        children = [child for child, parent in self.parents.items() if parent == node]
        parent = self.parents[node]
        return children if parent is None else [*children, parent]

    def next_hop(self, node: Node, target: Node) -> Node:
        """The neighbour of `node` on the way to `target`, another node."""
        assert node != target, "already there"
        down = self.paths[target]
        if node in down:
            return down[down.index(node) - 1]
        parent = self.parents[node]
        assert parent is not None, "the root is above every node"
        return parent

    def highest(self, nodes: Iterable[Node], start: Node) -> Node:
        """Of `nodes`, all on the way up from `start`, the one nearest the root; `start` if there are none."""
        return min(nodes, key=lambda node: len(self.paths[node]), default=start)

    def _climb(self, node: Node) -> tuple[Node, ...]:
        path = [node]
        while (parent := self.parents[path[-1]]) is not None:
            path.append(parent)
        return tuple(path)

    def __repr__(self) -> str:
        return f"SequencingTree({self.parents!r}, {self.homes!r}, default_home={self.default_home!r})"


def _check_size(field: str, size: int) -> None:
    if size < 1:
        raise TreeError(field, f"{size} is too small", "give at least 1")


def check_shape(
    parents: Mapping[Node, Node | None], whole: str, part: Callable[[Node], str], error: type[InputError]
) -> Node:
    """The root of what is a tree. Else an error that says why it is not; `whole` and `part` name fields in it."""
    if not parents:
        raise error(whole, "the tree has no nodes", "name at least one node, with parent None")
    for node, parent in parents.items():
        if not node:
            raise error(whole, "a node has an empty name", "give every node a name")
        if parent is not None and parent not in parents:
            raise error(part(node), f"unknown parent {parent!r}", f"add {parent!r} or correct the name")
    roots = [node for node, parent in parents.items() if parent is None]
    if len(roots) > 1:
        raise error(whole, f"more than one root: {', '.join(roots)}", "give all but one of them a parent")
    rooted: set[Node] = set()  # nodes whose way up is known to end, so that a long chain is walked only once
    for start in parents:
        climbed: list[Node] = []
        above: Node | None = start
        while above is not None and above not in rooted:
            rooted.add(above)
            climbed.append(above)
            above = parents[above]
        if above in climbed:
            cycle = " → ".join([*climbed[climbed.index(above) :], above])
            raise error(part(start), f"cycle {cycle}", "give one of them a parent outside the cycle, or no parent")
    return roots[0]


def _check_homes(parents: Mapping[Node, Node | None], homes: Mapping[Topic, Node], default: Node | None) -> None:
    for topic, node in homes.items():
        if not topic:
            raise TreeError("homes", "a topic has an empty name", "give every topic a name")
        if node not in parents:
            raise TreeError(f"homes[{topic!r}]", f"unknown node {node!r}", f"use one of {', '.join(sorted(parents))}")
    if default is not None and default not in parents:
        raise TreeError("default_home", f"unknown node {default!r}", f"use one of {', '.join(sorted(parents))}")
