"""The sequencing tree: which node numbers which topic, and where two topics meet.

Pure arithmetic. Topics move from home to home, nodes come and go, and not everybody learns of a change at the same
moment. So every role has its own *view*: the tree as it was configured, with the moves and the changes of shape that
this role knows of. They are plain data (`Moves`) and part of the role's state.

No change of shape changes where topics meet: a leaf that joins or leaves is home to nothing, and so is a new root. Only
the moves that follow do. So changes of shape and moves share one sequence of numbers, and whoever knows of all numbers
up to one knows where topics met then.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field

from seriatim.model import InputError, Node, Topic, TreeError, UnknownTopic


class Place(Struct, frozen=True, array_like=True):
    """Where a topic lives, and the number of the move that brought it there."""

    home: Node
    move: int


ShapeKind: TypeAlias = Literal["join", "leave", "root"]


class ShapeChange(Struct, frozen=True, array_like=True):
    """One change of the tree's shape. `move`: its number, in one sequence with the moves of topics; 0: not granted.

    - `join`: `node` is a new leaf below `at`.
    - `leave`: `node`, a leaf below `at`, is no longer there.
    - `root`: `node` is a new root above `at`, the root until then.

    The name of a node is never used for another one.
    """

    kind: ShapeKind
    node: Node
    at: Node
    move: int = 0


class Moves(Struct, array_like=True, omit_defaults=True):
    """The moves of topics that a role knows of. Moves are numbered by the root; they happen one after the other.

    `number`: every move up to this one is known. Single later ones may be known, too. `last` and `former`: the topic of
    the latest of them, and where it lived before: what is under way may still be about that. `shape`: the changes of
    the tree's shape, in their order. They have numbers of the same sequence; up to the last one here all are known.
    """

    number: int = 0
    places: dict[Topic, Place] = field(default_factory=dict)
    last: Topic = ""
    former: Node = ""
    shape: list[ShapeChange] = field(default_factory=list)

    def after(self, number: int) -> dict[Topic, Place]:
        """The topics that were moved after this move."""
        return {topic: place for topic, place in sorted(self.places.items()) if place.move > number}

    def shape_after(self, number: int) -> tuple[ShapeChange, ...]:
        """The changes of shape after this move."""
        return tuple(change for change in self.shape if change.move > number)

    def copy(self) -> "Moves":
        """A copy that shares nothing which can change."""
        return Moves(self.number, dict(self.places), self.last, self.former, list(self.shape))


class SequencingTree:
    """A rooted tree of nodes, and for every topic the node that is its home.

    `parents` maps each node to its parent and the root to None. A topic that `homes` does not list lives on
    `default_home`; without one it is unknown. One node is the smallest tree. `moves` are the known moves and changes of
    shape since then. `began` is the tree without them.
    """

    def __init__(
        self, parents: Mapping[Node, Node | None], homes: Mapping[Topic, Node], default_home: Node | None = None
    ) -> None:
        self.parents: dict[Node, Node | None] = dict(parents)
        self.homes: dict[Topic, Node] = dict(homes)
        self.default_home = default_home
        self.root = check_shape(self.parents, "parents", "parents[{!r}]".format, TreeError)
        _check_homes(self.parents, self.homes, default_home)
        self.moves = Moves()
        self.began = self
        self._gone: dict[Node, Node] = {}  # nodes that have left, and their parents
        self._shares_homes = False
        self._measure()

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
        view.paths, view._meets, view._gone, view.began = self.paths, self._meets, self._gone, self.began
        view.homes, view._shares_homes, view.moves = self.homes, True, moves
        view._reshape(moves.shape)
        for topic, place in moves.places.items():
            view._put(topic, place.home)
        if self.moves.places or self.moves.shape:
            view.learn(self.moves.number, self.moves.places, self.moves.shape)
        return view

    def learn(self, number: int, places: Mapping[Topic, Place], shape: Iterable[ShapeChange] = ()) -> list[Topic]:
        """These moves happened, and all up to `number` are known with them. Returns the topics of which it is news.

        `shape`: changes of shape. Of those that are not known here, none up to the last one of these is missing.
        """
        moves = self.moves
        changes = [change for change in shape if change.move > self.shaped]
        moves.shape += changes
        self._reshape(changes)
        news = [topic for topic, place in sorted(places.items()) if place.move > self.moved(topic)]
        for topic in news:
            moves.places[topic] = places[topic]
            self._put(topic, places[topic].home)
        moves.number = max(moves.number, number)
        return news

    def move(self, topic: Topic, place: Place) -> None:
        """Apply the next move. All earlier moves must be known."""
        self.moves.last, self.moves.former = topic, self.home(topic)
        self.learn(place.move, {topic: place})

    def reshape(self, change: ShapeChange) -> None:
        """Apply the next change of shape. All earlier moves must be known."""
        self.moves.last = self.moves.former = ""  # topics meet where they met before
        self.learn(change.move, {}, [change])

    @property
    def shaped(self) -> int:
        """The number of the latest change of shape that is known; 0: there was none."""
        return self.moves.shape[-1].move if self.moves.shape else 0

    def _reshape(self, changes: Iterable[ShapeChange]) -> None:
        """Apply them in their order. The configured tree may have some of them already, and later ones."""
        parents, gone = dict(self.parents), dict(self._gone)
        for change in changes:
            if change.kind == "leave":
                if change.node in parents:
                    gone[change.node] = parents.pop(change.node) or change.at
            elif change.node not in parents and change.node not in gone and change.at in parents:
                parents[change.node] = change.at if change.kind == "join" else None
                if change.kind == "root":
                    parents[change.at] = change.node
        if parents != self.parents:
            self.parents, self._gone = parents, gone
            self.root = next(node for node, parent in parents.items() if parent is None)
            self._measure()

    def _measure(self) -> None:
        """The way up from each node; also from one that has left, which somebody may still believe to be a home."""
        self.paths: dict[Node, tuple[Node, ...]] = {node: self._climb(node) for node in (*self.parents, *self._gone)}
        self._meets: dict[tuple[Node, Node], Node] = {}

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

    def children(self, node: Node) -> list[Node]:
        """The nodes just below this one."""
        return [child for child, parent in self.parents.items() if parent == node]

    def neighbours(self, node: Node) -> list[Node]:
        """The children of a node, and its parent if it has one."""
        parent = self.parents[node]
        return self.children(node) if parent is None else [*self.children(node), parent]

    def has_left(self, node: Node) -> bool:
        """Whether there was such a node, and is no longer."""
        return node in self._gone

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
        """The node nearest the root, of `nodes` on the way up from `start`; `start` if there are none."""
        return min(nodes, key=lambda node: len(self.paths[node]), default=start)

    def _climb(self, node: Node) -> tuple[Node, ...]:
        path, above = [node], self._gone
        while (parent := self.parents[path[-1]] if path[-1] in self.parents else above[path[-1]]) is not None:
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
