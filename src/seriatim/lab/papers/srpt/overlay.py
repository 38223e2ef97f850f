"""Where a topic's tree runs: its root, and the parent of each node. Pure arithmetic on ids, no state.

The papers run SRPT on the same hypercube as VCube-PS: the tree of a topic is the spanning tree that VCube builds for
the topic's root over *all* nodes, whoever subscribes. A node's parent therefore never changes; what changes is which
nodes take part, and those on the way from a subscriber to the root that do not subscribe are the forwarders.
"""

from collections.abc import Iterable, Mapping
from zlib import crc32

from seriatim.model import Address, InputError, Topic
from seriatim.protocols.vcube.cube import Cube, Id, cluster_of, nearest


class Overlay:
    """The nodes of the trees, and the root of each topic: given, or drawn by a hash of the topic's name."""

    def __init__(self, ids: Iterable[Id], roots: Mapping[Topic, Id] | None = None, prefix: str = "node") -> None:
        self._cube = Cube(ids)
        self.ids = self._cube.ids
        self.prefix = prefix
        self._roots = dict(roots or {})
        for topic, root in self._roots.items():
            if root not in self._cube:
                raise InputError(f"root of {topic!r}", f"there is no node {root}", "name one of the nodes")

    def __contains__(self, id: Id) -> bool:
        return id in self._cube

    def root(self, topic: Topic) -> Id:
        """The node that numbers everything published on the topic."""
        root = self._roots.get(topic)
        return self.ids[crc32(topic.encode()) % len(self.ids)] if root is None else root

    def parent(self, topic: Topic, id: Id) -> Id | None:
        """The next node on the way to the root; None: it is the root."""
        node, parent = self.root(topic), None
        while node != id:
            parent = node
            following = nearest(self.ids, node, cluster_of(node, id))
            assert following is not None, "the node itself is in that cluster"
            node = following
        return parent

    def address(self, id: Id) -> Address:
        return f"{self.prefix}{id}"

    def id_at(self, address: Address) -> Id | None:
        """The node that is reached there; None: no node is."""
        digits = address.removeprefix(self.prefix)
        if not address.startswith(self.prefix) or not digits.isdecimal():
            return None
        return int(digits) if int(digits) in self._cube else None
