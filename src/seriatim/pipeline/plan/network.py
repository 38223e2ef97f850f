"""Nodes, sites, and the shapes a sequencing tree over them can have."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from seriatim.model import InputError, Node
from seriatim.order import SequencingTree
from seriatim.pipeline.plan.graph import Flags, Floats, Ids

NODES_MAX = 64
LOCAL = 0.01  # what a hop between nodes of one site counts, in wide-area hops: something, but little


class Network(Struct, frozen=True):
    """The nodes there are and the site of each. `now`: the tree they form, with the homes it has, if there is one.

    `keeps_tree`: only topics may move, so the tree stays as it is now.
    """

    sites: Mapping[Node, str]
    now: SequencingTree | None = None
    load_max: float | None = None  # events per second that one node may handle, those that only pass through included
    keeps_tree: bool = False

    def __post_init__(self) -> None:
        if not self.sites:
            raise InputError("nodes", "no node is named", "name at least one node")
        if len(self.sites) > NODES_MAX:
            raise InputError("nodes", f"there are {len(self.sites)} nodes", f"plan for at most {NODES_MAX} nodes")
        if self.now is not None and self.now.parents.keys() != self.sites.keys():
            raise InputError("nodes", "the tree has other nodes than the network", "name the same nodes")
        if self.keeps_tree and self.now is None:
            raise InputError("nodes", "the tree that is to be kept is not known", "name a file with the nodes' parents")
        if self.load_max is not None and not self.load_max > 0.0:
            raise InputError("load_max", f"{self.load_max} is not positive", "give events per second, above 0")

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.sites)


class Shape:
    """A rooted tree over the nodes of a network, as tables: how far it is from one node up to where it meets others."""

    def __init__(self, network: Network, parents: Mapping[Node, Node | None], name: str) -> None:
        self.name = name
        self.network = network
        self.parents = dict(parents)
        self.tree = SequencingTree(self.parents, {})
        self.nodes = network.nodes
        self.root = self.nodes.index(self.tree.root)

    @cached_property
    def tables(self) -> tuple[Ids, Floats, Ids]:
        """From each node up to its meeting point with each other: edges, their weight, and wide edges."""
        count = len(self.nodes)
        edges, wide = np.zeros((count, count), np.int64), np.zeros((count, count), np.int64)
        sites = self.network.sites
        for i, node in enumerate(self.nodes):
            path = self.tree.paths[node]
            for j, other in enumerate(self.nodes):
                steps = path.index(self.tree.meet_nodes(node, other))
                edges[i, j] = steps
                wide[i, j] = sum(sites[path[k]] != sites[path[k + 1]] for k in range(steps))
        return edges, wide + LOCAL * (edges - wide), wide

    @cached_property
    def on_way(self) -> Flags:
        """[node, how many edges up, other]: whether the way passes the other node."""
        depth = max(len(path) for path in self.tree.paths.values())
        passed = np.zeros((len(self.nodes), depth, len(self.nodes)), np.bool_)
        for i, node in enumerate(self.nodes):
            path = [self.nodes.index(step) for step in self.tree.paths[node]]
            for steps in range(depth):
                passed[i, steps, path[: steps + 1]] = True
        return passed


def chain(network: Network) -> Shape:
    """The paper's: each node is the child of the one before."""
    nodes = network.nodes
    return Shape(network, {node: nodes[i - 1] if i else None for i, node in enumerate(nodes)}, "chain")


def star(network: Network, root: Node) -> Shape:
    """One level: the first node of every site below the root, the others of a site below its first."""
    middle = network.sites[root]
    above = {site: None if site == middle else middle for site in heads(network)}
    return from_sites(network, above, f"star at {root}", root)


def heads(network: Network) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for node, site in network.sites.items():
        found.setdefault(site, node)
    return found


def from_sites(network: Network, above: Mapping[str, str | None], name: str, root: Node | None = None) -> Shape:
    """The tree of nodes that follows from a tree of sites."""
    head = heads(network)
    if root is not None:
        head[network.sites[root]] = root
    parents: dict[Node, Node | None] = {}
    for node, site in network.sites.items():
        parent_site = above[site]
        parents[node] = head[site] if node != head[site] else None if parent_site is None else head[parent_site]
    return Shape(network, parents, name)


def hierarchy(network: Network, affinity: Floats, weight: Floats, names: Sequence[str]) -> Shape:
    """Sites are joined two by two, those with most in common first; the lighter one's head goes below the other's.
    `affinity[i, j]`: what the topics of two sites (of `names`) have to do with each other. `weight`: events of a
    site."""
    above: dict[str, str | None] = dict.fromkeys(heads(network))
    places = {site: i for i, site in enumerate(names)}
    clusters = [[site] for site in above]

    def common(left: list[str], right: list[str]) -> float:
        known = [(places[x], places[y]) for x in left for y in right if x in places and y in places]
        return sum(float(affinity[i, j] + affinity[j, i]) for i, j in known) / (len(left) * len(right))

    def heavy(cluster: list[str]) -> float:
        return sum(float(weight[places[site]]) for site in cluster if site in places)

    while len(clusters) > 1:
        pairs = [(i, j) for i in range(len(clusters)) for j in range(i + 1, len(clusters))]
        i, j = max(pairs, key=lambda pair: common(clusters[pair[0]], clusters[pair[1]]))
        first, second = clusters[i], clusters[j]
        if heavy(second) > heavy(first):
            first, second = second, first
        above[second[0]] = first[0]  # a cluster's first site is the root of its tree
        clusters = [cluster for k, cluster in enumerate(clusters) if k not in (i, j)] + [[*first, *second]]
    return from_sites(network, above, "hierarchy")


def shapes(network: Network, affinity: Floats, weight: Floats, names: Sequence[str]) -> Iterator[Shape]:
    """What is tried: the tree as it is, a star at the head of every site, a hierarchy of sites, a chain."""
    if network.now is not None:
        yield Shape(network, network.now.parents, "as it is")
        if network.keeps_tree:
            return
    for node in heads(network).values():
        yield star(network, node)
    if len(set(network.sites.values())) > 2:
        yield hierarchy(network, affinity, weight, names)
    if len(network.nodes) > 2:
        yield chain(network)
