"""What a plan costs: wide-area hops per second, for given homes and a given tree.

An event of topic T is published at some site. What is counted are the messages between different sites that must be
exchanged, one after the other, until its stamp is back where the event is:

- *access*: if home(T) is at another site, two: the news of the event (log mode) or the ticket (ticket mode), and the
  stamp;
- *climb*: two for every edge between sites on the way from home(T) up to the highest meet(T, U), U in group(T): the
  pass up, the finished stamp down.

What the broker itself does (events and stamps on their way to subscribers) is the same under every plan and not
counted; nor are confirmations, for which nobody waits. A range of events that is stamped at once counts as one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seriatim.pipeline.plan.graph import Flags, Floats, Graph
from seriatim.pipeline.plan.network import Network, Shape
from seriatim.pipeline.plan.overlaps import Ids


class Cost(NamedTuple):
    """Of one plan. Arrays are per topic, `loads` per node: events per second that it numbers or lets pass."""

    weighed: float  # what is minimised: hops per second, hops within a site for a little
    access: Floats
    climb: Floats
    steps: Ids  # edges climbed
    loads: Floats

    @property
    def hops_per_s(self) -> float:
        return float(self.access.sum() + self.climb.sum())


class Model:
    """A graph on a network: everything about costs that depends neither on homes nor on the tree."""

    def __init__(self, graph: Graph, network: Network) -> None:
        self.graph = graph
        self.network = network
        places = {site: place for place, site in enumerate(graph.sites)}
        self.site_of = np.asarray([places.get(site, -1) for site in network.sites.values()])
        known = graph.where.sum(axis=1)
        here = np.stack(
            [graph.where[:, place] if place >= 0 else np.zeros(graph.size) for place in self.site_of.tolist()], axis=1
        )
        self.access: Floats = 2.0 * (known[:, None] - here)
        self.twice = 2.0 * graph.rates

    def members(self, homes: Ids) -> NDArray[np.int32]:
        """[topic, node]: how many topics of the topic's listed group are homed there."""
        graph, count = self.graph, len(self.network.nodes)
        keys = np.concatenate([graph.a * count + homes[graph.b], graph.b * count + homes[graph.a]])
        return np.bincount(keys, minlength=graph.size * count).reshape(graph.size, count).astype(np.int32)

    def met(self, homes: Ids, members: NDArray[np.int32]) -> Flags:
        """[topic, node]: whether some topic of the whole group is homed there (its own home may count, too)."""
        classes = self.graph.classes
        if not classes.coupled.any():
            return members > 0
        count = len(self.network.nodes)
        keys = classes.of_topic * count + homes
        present = np.bincount(keys, minlength=len(classes.sizes) * count).reshape(-1, count) > 0
        return (members > 0) | (classes.coupled.astype(np.int64) @ present > 0)[classes.of_topic]

    def evaluate(self, shape: Shape, homes: Ids, members: NDArray[np.int32] | None = None) -> Cost:
        """The cost of a plan."""
        edges, weights, wide = shape.tables
        met = self.met(homes, self.members(homes) if members is None else members)
        steps = np.zeros(self.graph.size, np.int64)
        weight, hops = np.zeros(self.graph.size), np.zeros(self.graph.size)
        for node in range(len(shape.nodes)):
            there = met[:, node]
            steps = np.where(there, np.maximum(steps, edges[homes, node]), steps)
            weight = np.where(there, np.maximum(weight, weights[homes, node]), weight)
            hops = np.where(there, np.maximum(hops, wide[homes, node]), hops)
        access = self.access[np.arange(self.graph.size), homes]
        loads = self.graph.rates @ shape.on_way[homes, steps]
        weighed = float(access.sum() + self.twice @ weight)
        return Cost(weighed, access, self.twice * hops, steps, loads)

    def is_overloaded(self, cost: Cost) -> bool:
        """Whether a node has more to do than it may."""
        most = self.network.load_max
        return most is not None and bool((cost.loads > most * (1.0 + 1e-9)).any())
