"""The cost of a plan: wide-area hops per second, for given homes and a given tree.

An event of topic T is published at some site. It counts the messages between different sites that must be exchanged,
one after the other, until its stamp is back where the event is:

- *access*: if home(T) is at another site, two: the news of the event (log mode) or the ticket (ticket mode), and the
  stamp;
- *climb*: two for every edge between sites on the way from home(T) up to the highest meet(T, U), U in group(T): the
  pass up, the finished stamp down.

The work of the broker itself (events and stamps on their way to subscribers) is the same under every plan and not
counted; nor are confirmations, for which nobody waits. A range of events that is stamped at once counts as one.

*The lower bound*: no plan can cost less. Every topic pays at least its access at the best node. And a topic that meets
another one without climbing an edge between sites has its home at the site of the meeting point. So cut the graph into
disjoint stars: a centre and topics coupled with it. If the centre climbs k such edges, its way up touches k + 1 sites,
its own among them; each other topic of the star is homed at one of these sites, or climbs an edge itself. The cheapest
choice of these sites bounds the star, and the sum over stars bounds the plan. Loads are left out: with a load bound the
true optimum may be higher.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seriatim.pipeline.plan.graph import Flags, Floats, Graph, Ids
from seriatim.pipeline.plan.network import Network, Shape

TOPICS_FEW = 20_000
SETS_MAX = 2_000  # sets of sites that are tried for a star; beyond, its other topics are taken to be homed anywhere


class Cost(NamedTuple):
    """The cost of one plan. Arrays are per topic; `loads` per node: events per second that it numbers or lets pass."""

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
        here = np.pad(graph.where, ((0, 0), (0, 1)))[:, self.site_of]  # the last column: a site without any event
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


def lower_bound(model: Model) -> float:
    """Wide-area hops per second: the best of the bounds that a few ways to choose centres give, or of one way if there
    are many topics."""
    graph = model.graph
    busy: Floats = (graph.degrees + 1).astype(np.float64)
    orders = [busy * graph.rates, busy, graph.rates]
    return max(_bound(model, order) for order in orders[: 1 if graph.size > TOPICS_FEW else 3])


def _bound(model: Model, importance: Floats) -> float:
    graph = model.graph
    sites = np.unique(np.asarray(list(model.network.sites.values())), return_index=True)[1]
    by_site: Floats = model.access[:, sites]  # [topic, site that has a node]
    best = by_site.min(axis=1)
    free = np.ones(graph.size, np.bool_)
    bound = 0.0
    wide = np.flatnonzero(graph.is_wide)
    first = [int(wide[np.argmax(importance[wide])])] if len(wide) else []
    for centre in first + np.argsort(-importance, kind="stable").tolist():
        if not free[centre]:
            continue
        others = graph.listed(centre)
        if first and centre == first[0]:
            classes = graph.classes
            others = np.union1d(others, np.flatnonzero(classes.coupled[classes.of_topic[centre]][classes.of_topic]))
        leaves = others[free[others] & (others != centre)]
        free[centre] = False
        free[leaves] = False
        bound += _star(by_site, best, model.twice, centre, leaves)
    return bound


def _star(by_site: Floats, best: Floats, twice: Floats, centre: int, leaves: Ids) -> float:
    if not len(leaves):
        return float(best[centre])
    count = by_site.shape[1]
    climbing = best[leaves] + twice[leaves]
    anywhere = float(best[leaves].sum())
    least, tried = np.inf, 0
    for climbed in range(count):
        base = float(best[centre]) + climbed * float(twice[centre])
        if base + anywhere >= least:
            break
        for sites in combinations(range(count), climbed + 1):
            tried += 1
            if tried > SETS_MAX:
                return min(least, base + anywhere)
            chosen = list(sites)
            homed = float(np.minimum(by_site[leaves][:, chosen].min(axis=1), climbing).sum())
            own = float(by_site[centre, chosen].min()) + climbed * float(twice[centre])
            least = min(least, own + homed)
    return least
