"""A lower bound: no plan can cost less.

Every topic pays at least its access at the best node. And a topic that meets another one without climbing an edge
between sites has its home at the site of the meeting point. So cut the graph into disjoint stars: a centre and topics
coupled with it. If the centre climbs k such edges, its way up touches k + 1 sites, its own among them; each other topic
of the star is homed at one of these sites, or climbs an edge itself. The cheapest choice of these sites bounds the
star, and the sum over stars bounds the plan. Loads are left out: with a load bound the true optimum may lie higher.
"""

from itertools import combinations

import numpy as np

from seriatim.pipeline.plan.cost import Model
from seriatim.pipeline.plan.graph import Floats
from seriatim.pipeline.plan.overlaps import Ids

TOPICS_FEW = 20_000
SETS_MAX = 2_000  # sets of sites that are tried for a star; beyond, its other topics are taken to be homed anywhere


def lower_bound(model: Model) -> float:
    """Wide-area hops per second: the best of the bounds that a few ways to choose centres give, or of one way if there
    are many topics."""
    graph = model.graph
    busy: Floats = (graph.degrees + 1).astype(np.float64)
    orders = [busy * graph.rates, busy, graph.rates]
    return max(_bound(model, order) for order in orders[: 1 if graph.size > TOPICS_FEW else 3])


def _bound(model: Model, importance: Floats) -> float:
    graph = model.graph
    by_site = _by_site(model)
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


def _by_site(model: Model) -> Floats:
    """[topic, site that has a node]: access."""
    sites = np.unique(np.asarray(list(model.network.sites.values())), return_index=True)[1]
    by_site: Floats = model.access[:, sites]
    return by_site


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
