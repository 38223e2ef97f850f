"""From tables to a plan: Spark sums up, the driver decides.

    subscriptions ─► overlaps (Spark) ─► coupling graph ─► shapes and homes ─► plan.toml
    rates, sites ──────────────────────►

The graph has one entry per topic and one per coupled pair, whatever the number of subscribers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from seriatim.model import InputError, Node, Topic
from seriatim.pipeline.plan.cost import Cost, Model, lower_bound
from seriatim.pipeline.plan.graph import PAIRS_MAX, Floats, Graph, Ids, columns_of, sums_of
from seriatim.pipeline.plan.inputs import Inputs, Topics, rates_and_places, topics_of
from seriatim.pipeline.plan.network import NODES_MAX, Network, Shape, chain, shapes, star
from seriatim.pipeline.plan.overlaps import Wide, by_id, coupled_pairs, pairs_of, wide_of
from seriatim.pipeline.plan.placement import at, by_chance, by_hash, in_ranges, nearest, place
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.options import TreeOrder

PAIRWISE = TreeOptions(order="pairwise")
NOWHERE = "here"  # the site of everything, where none is known
Say = Callable[[str], None]


class PlacedTree(NamedTuple):
    name: str
    shape: Shape
    homes: Ids
    cost: Cost


class Summed(NamedTuple):
    """The sums that Spark has computed. `held` (`subscriber`, `id`) and `pairs` are cached tables."""

    topics: Topics
    held: DataFrame
    pairs: DataFrame
    wide: Wide
    graph: Graph
    pairwise: Graph | None = None  # what would be coupled in pairwise order, where that is not planned


class Plan(NamedTuple):
    """A tree and homes, and everything that was known when they were chosen."""

    summed: Summed
    model: Model
    shape: Shape
    home_ids: Ids
    cost: Cost
    bound: float

    @property
    def graph(self) -> Graph:
        return self.model.graph

    @property
    def homes(self) -> dict[Topic, Node]:
        nodes = self.shape.nodes
        return {name: nodes[home] for name, home in zip(self.graph.names, self.home_ids.tolist(), strict=True)}

    @property
    def events_per_s(self) -> float:
        return float(self.graph.rates.sum())

    def per_event(self, hops_per_s: float) -> float:
        return hops_per_s / self.events_per_s if self.events_per_s else 0.0

    def before(self) -> PlacedTree | None:
        """The cluster as it is now, if that is known."""
        now = self.model.network.now
        if now is None:
            return None
        root = now.default_home or now.root
        homes = [self.shape.nodes.index(now.homes.get(name, root)) for name in self.graph.names]
        return self._placed("as it is", Shape(self.model.network, now.parents, "as it is"), np.asarray(homes, np.int64))

    def rivals(self) -> list[PlacedTree]:
        """The naive placements, on the same graph and the same nodes. A star is the one at the first node."""
        model, network = self.model, self.model.network
        middle = star(network, network.nodes[0])
        line = chain(network)
        singles = [model.evaluate(middle, at(model, node)).hops_per_s for node in range(len(network.nodes))]
        ways = [
            ("one node", middle, at(model, 0)),
            ("one node, the best", middle, at(model, int(np.argmin(singles)))),
            ("homes by chance, star", middle, by_chance(model)),
            ("homes by hash, star", middle, by_hash(model)),
            ("the paper: ranges, chain", line, in_ranges(model)),
            ("nearest, star", middle, nearest(model, middle)),
        ]
        return [self._placed(*way) for way in ways]

    def in_pairwise_order(self) -> "Plan | None":
        """The best plan on the same nodes if only pairwise order were promised. None: no more is promised."""
        graph = self.summed.pairwise
        if graph is None:
            return None
        return make_plan(self.summed._replace(graph=graph, pairwise=None), self.model.network)

    def _placed(self, name: str, shape: Shape, homes: Ids) -> PlacedTree:
        return PlacedTree(name, shape, homes, self.model.evaluate(shape, homes))


@contextmanager
def kept_tables() -> Iterator[Callable[[DataFrame], DataFrame]]:
    """Gives a function that caches a table; all are dropped at the end of the block."""
    cached: list[DataFrame] = []

    def keep(table: DataFrame) -> DataFrame:
        cached.append(table.persist(StorageLevel.MEMORY_AND_DISK))
        return table

    try:
        yield keep
    finally:
        for table in cached:
            table.unpersist()


@contextmanager
def summed_up(
    inputs: Inputs, buckets: int = 0, order: TreeOrder = "global", say: Say = lambda line: None
) -> Iterator[Summed]:
    """Sum up the subscriptions on Spark. The tables stay cached while the block runs."""
    say("reading topics")
    topics = topics_of(inputs.held, buckets)
    count, rows, threshold = len(topics.names), sum(topics.holders), TreeOptions(order=order).threshold
    with kept_tables() as keep:
        held = keep(by_id(inputs.held, topics))
        say(f"{rows:,} subscriptions of {count:,} topics: counting who holds what together")
        wide = wide_of(held, count)
        counted = pairs_of(wide.without(held), count, rows)
        if order == "global" and wide.subscribers:
            counted = keep(counted)  # it is read twice
        pairs = keep(coupled_pairs(counted, wide, count, threshold))
        size = pairs.count()
        if size > PAIRS_MAX:
            fix = "plan over buckets, for example --buckets 1024: topics of a bucket are ordered together"
            raise InputError("subscriptions", f"{size:,} pairs of topics are coupled, more than {PAIRS_MAX:,}", fix)
        say(f"{size:,} coupled pairs")
        listed = _listed(pairs)
        rates, where, sites = rates_and_places(inputs, topics, held)
        graph = Graph(topics.names, rates, listed, where, sites, wide.masks, threshold)
        pairwise = None
        if order == "global" and (fewer := _pairwise(counted, wide, count, listed)) is not None:
            pairwise = Graph(topics.names, rates, fewer, where, sites, wide.masks, PAIRWISE.threshold)
        yield Summed(topics, held, pairs, wide, graph, pairwise)


def _listed(pairs: DataFrame) -> tuple[Ids, Ids, Ids]:
    columns = columns_of(pairs, "a", "b", "subscribers")
    by_ids = np.lexsort((columns[1], columns[0]))
    a, b, shared = (column[by_ids] for column in columns)
    return a, b, shared


def _pairwise(
    counted: DataFrame, wide: Wide, topic_count: int, listed: tuple[Ids, Ids, Ids]
) -> tuple[Ids, Ids, Ids] | None:
    """The pairs that are coupled in pairwise order, too. None: they are too many to be compared."""
    if not wide.subscribers:
        enough = listed[2] >= PAIRWISE.threshold
        return listed[0][enough], listed[1][enough], listed[2][enough]
    pairs = coupled_pairs(counted, wide, topic_count, PAIRWISE.threshold)  # also of what one wide subscription holds
    return _listed(pairs) if pairs.count() <= PAIRS_MAX else None


def make_plan(summed: Summed, network: Network | None = None, say: Say = lambda line: None) -> Plan:
    """Choose a tree and homes. Without a network: one node for each site that is known."""
    graph = summed.graph
    network = network or default_network(graph.sites)
    model = Model(graph, network)
    say(f"placing {graph.size:,} topics on {len(network.nodes)} nodes")
    affinity, weight = _affinity(graph)
    shape, homes, cost = place(model, list(shapes(network, affinity, weight, graph.sites)))
    return Plan(summed, model, shape, homes, cost, lower_bound(model))


def default_network(sites: tuple[str, ...], load_max: float | None = None) -> Network:
    """A node for each site, of the same name."""
    if len(sites) > NODES_MAX:
        raise InputError("sites", f"there are {len(sites)} sites", f"name at most {NODES_MAX} nodes and their sites")
    names = {"".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in site): site for site in sites}
    if len(names) < len(sites):
        raise InputError("sites", "two sites would give the same node name", "name the nodes and their sites yourself")
    return Network(names or {"root": NOWHERE}, None, load_max)


def _affinity(graph: Graph) -> tuple[Floats, Floats]:
    """[site, site]: events per second of coupled topics, by where most of their events are; and events per site."""
    count = len(graph.sites)
    if not count:
        return np.zeros((0, 0)), np.zeros(0)
    best = np.argmax(graph.where, axis=1)
    weights = np.minimum(graph.rates[graph.a], graph.rates[graph.b])
    flat = sums_of(best[graph.a] * count + best[graph.b], weights, count * count)
    return flat.reshape(count, count), graph.where.sum(axis=0)
