"""Random numbers that depend on nothing but a seed and a key, and choices made with them.

A row must be the same whatever the partition, the batch or the machine it is made in. So there is no generator with a
state: the random bits of an object are a hash of the seed, of their purpose, and of the object's key, as in
counter-based generators. The mixing is that of SplitMix64.
"""

from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seriatim.pipeline.workload.options import Workload

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ROUNDS_MAX = 6  # of drawing again what was drawn already; then the rest is drawn exactly


class Purpose(IntEnum):
    """The purpose of random bits; each purpose has its own bits."""

    WEIGHT = 1
    SIZE = 2
    CHOICE = 3
    LOCAL = 4
    REST = 5
    SUBSCRIBER_SITE = 6
    LEFT = 8
    MOMENT = 9
    EVENT_TOPIC = 10
    EVENT_LOCAL = 11
    EVENT_TIME = 12
    DELAY = 13
    INJECTION = 14


def uniform(seed: int, purpose: Purpose, *keys: Ids) -> Floats:
    """One number in [0, 1) for each tuple of keys."""
    bits: NDArray[np.uint64] = mix(np.asarray([(seed * 0x632BE59BD9B4E019 + purpose) % 2**64], np.uint64))
    for key in keys:
        bits = mix(bits + (key.astype(np.uint64) + np.uint64(1)) * GOLDEN)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The last steps of SplitMix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND
    return bits ^ (bits >> np.uint64(31))


class Popularities(NamedTuple):
    """The topics' weights, and their sums: over all topics, and within each site (which has every `sites`-th one)."""

    weights: Floats
    anywhere: Floats  # grows to 1
    local: Floats  # by site: those of site i grow from i to i + 1
    local_topics: Ids
    site_weights: Floats


@lru_cache(maxsize=4)
def popularities(workload: Workload) -> Popularities:
    """Computed once by every Python worker: too large to be sent along with each task."""
    ranks = np.arange(workload.topics, dtype=np.float64)
    if workload.popularity == "uniform":
        weights = np.ones(workload.topics)
    elif workload.popularity == "zipf":
        weights = (ranks + 1.0) ** -workload.exponent
    else:
        drawn = 1.0 - uniform(workload.seed, Purpose.WEIGHT, ranks.astype(np.int64))
        weights = np.sort(drawn ** (-1.0 / (workload.exponent - 1.0)))[::-1]
    weights = weights / weights.sum()
    local_topics = np.concatenate([np.arange(site, workload.topics, workload.sites) for site in range(workload.sites)])
    site_weights = np.asarray([weights[site :: workload.sites].sum() for site in range(workload.sites)])
    parts = [np.cumsum(weights[site :: workload.sites]) for site in range(workload.sites)]
    local = np.concatenate([part / part[-1] + site for site, part in enumerate(parts)])
    anywhere = np.cumsum(weights)
    return Popularities(weights, anywhere / anywhere[-1], local, local_topics, site_weights)


def choose(workload: Workload, places: Floats, local: NDArray[np.bool_], site: Ids) -> Ids:
    """Topics by popularity: where `local`, among those of the site only."""
    popular = popularities(workload)
    anywhere = np.searchsorted(popular.anywhere, places, side="right")
    if not local.any():
        return np.minimum(anywhere, workload.topics - 1)
    within = np.searchsorted(popular.local, site + places, side="right")
    chosen = np.where(local, popular.local_topics[np.minimum(within, workload.topics - 1)], anywhere)
    return np.minimum(chosen, workload.topics - 1)


class Choices(NamedTuple):
    """Flat: `topic` is the `place`-th choice of the `owner`-th client of the batch."""

    owner: Ids
    place: Ids
    topic: Ids


def choose_distinct(workload: Workload, clients: Ids, site: Ids, sizes: Ids) -> Choices:
    """For each client `sizes` different topics, one after the other by popularity among those not chosen yet.

    Drawing again what was drawn already is the same as drawing among the rest. Whoever still lacks topics after a few
    rounds (one that holds nearly all of them, say) gets the rest by an exponential race, which is again the same, and
    costs a look at every topic. The common topics are nobody's choice: they are held anyway.
    """
    owner = order = topic = np.empty(0, np.int64)
    drawn = np.zeros(len(clients), np.int64)
    lacking = sizes.copy()
    for _ in range(ROUNDS_MAX):
        open_ = np.flatnonzero(lacking)
        if not len(open_):
            break
        more = lacking[open_] * 2 + 4
        new_owner = np.repeat(open_, more)
        new_order = counts_within(more) + np.repeat(drawn[open_], more)
        drawn[open_] += more
        chosen = _draw(workload, clients[new_owner], site[new_owner], new_order)
        fresh = chosen >= workload.common
        new = np.stack([new_owner, new_order, chosen])[:, fresh]
        owner, order, topic = np.concatenate([[owner, order, topic], new], axis=1)
        owner, order, topic = _first_distinct(owner, order, topic, sizes)
        lacking = sizes - np.bincount(owner, minlength=len(clients))
    for client in np.flatnonzero(lacking):
        mine = topic[owner == client]
        rest = _race(workload, clients[client], site[client], mine)[: lacking[client]]
        new = np.stack([np.full(len(rest), client), drawn[client] + np.arange(len(rest)), rest])
        owner, order, topic = np.concatenate([[owner, order, topic], new], axis=1)
    sorting = np.lexsort((order, owner))
    owner, topic = owner[sorting], topic[sorting]
    return Choices(owner, counts_within(np.bincount(owner, minlength=len(clients))), topic)


def _draw(workload: Workload, client: Ids, site: Ids, order: Ids) -> Ids:
    places = uniform(workload.seed, Purpose.CHOICE, client, order)
    local = uniform(workload.seed, Purpose.LOCAL, client, order) < workload.local_share
    return choose(workload, places, local, site)


def _first_distinct(owner: Ids, order: Ids, topic: Ids, sizes: Ids) -> tuple[Ids, Ids, Ids]:
    """Of each owner the first `sizes` different topics."""
    sorting = np.lexsort((order, topic, owner))
    owner, order, topic = owner[sorting], order[sorting], topic[sorting]
    first = np.ones(len(owner), np.bool_)
    first[1:] = (owner[1:] != owner[:-1]) | (topic[1:] != topic[:-1])
    owner, order, topic = owner[first], order[first], topic[first]
    sorting = np.lexsort((order, owner))
    owner, order, topic = owner[sorting], order[sorting], topic[sorting]
    wanted = counts_within(np.bincount(owner, minlength=len(sizes))) < sizes[owner]
    return owner[wanted], order[wanted], topic[wanted]


def counts_within(sizes: Ids) -> Ids:
    """0, 1, … for each size."""
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)


def _race(workload: Workload, client: np.int64, site: np.int64, taken: Ids) -> Ids:
    """All topics that are not taken, in the order in which they would be drawn one after the other."""
    popular = popularities(workload)
    weights = popular.weights * (1.0 - workload.local_share)
    own = slice(int(site), None, workload.sites)
    weights[own] += workload.local_share * popular.weights[own] / popular.site_weights[site]
    topics = np.arange(workload.topics)
    waits = -np.log1p(-uniform(workload.seed, Purpose.REST, np.full(workload.topics, client), topics))
    with np.errstate(divide="ignore"):
        waits = waits / weights
    order = np.argsort(waits, kind="stable")
    return order[(order >= workload.common) & ~np.isin(order, taken)]
