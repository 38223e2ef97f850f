"""At which nodes the holders of a topic wait for its stamps.

The *level* of a subscriber, for a topic it holds, is the highest node where that topic meets another one that it holds.
Entries that a stamp collects above its level name no topic of the subscriber. All topics homed on one node have the
same level for one subscriber, because a topic meets itself nowhere but at home. So a change of a subscription costs one
look at its topics, and one count for each of them that is homed here and changed its level.

All of it follows from the subscriptions, so it is kept nowhere.
"""

from collections.abc import Callable, Iterable

from seriatim.model import Node, Topic
from seriatim.order.tree import SequencingTree


def level(tree: SequencingTree, home: Node, topics: Iterable[Topic]) -> Node:
    """The highest node where a topic of this home meets one of these; the home, if it meets none of them above."""
    return tree.highest({tree.meet_nodes(home, tree.home(topic)) for topic in topics if tree.knows(topic)}, home)


class LevelTable:
    """For each topic homed on `node`: how many subscriptions have which level."""

    __slots__ = ("_counts", "_homed", "_node", "_tree")

    def __init__(self, tree: SequencingTree, node: Node, homed: Callable[[Topic], bool]) -> None:
        self._tree = tree
        self._node = node
        self._homed = homed
        self._counts: dict[Topic, dict[Node, int]] = {}

    def of(self, topic: Topic) -> tuple[Node, ...]:
        """The nodes at which somebody waits for stamps of this topic."""
        counts = self._counts.get(topic)
        return tuple(sorted(counts)) if counts is not None else ()

    def change(self, before: frozenset[Topic], after: frozenset[Topic]) -> None:
        """A subscription changed from one set of topics to another."""
        was, is_now = level(self._tree, self._node, before), level(self._tree, self._node, after)
        gone, new = (before, after) if was != is_now else (before - after, after - before)
        for topic in filter(self._homed, gone):
            self._count(topic, was, -1)
        for topic in filter(self._homed, new):
            self._count(topic, is_now, +1)

    def _count(self, topic: Topic, node: Node, by: int) -> None:
        counts = self._counts.setdefault(topic, {})
        counts[node] = counts.get(node, 0) + by
        if not counts[node]:
            del counts[node]
            if not counts:
                del self._counts[topic]
