"""Which pieces share a sequencing node, and on which host each node lives. On the driver: there are few pieces.

Tasks have cut the trees of their parts into pieces that a host can bear (building.py). The tasks could not see the
events that pass from one part to the next; so the same cutting is done once more, over pieces instead of atoms.

A host is chosen so that events go between sites as seldom as possible: to the node where they enter, and from node to
node; no host gets more than its share of the load as long as another has room.
"""

from typing import NamedTuple

import numpy as np

from seriatim.pipeline.plan.atoms.building import bearable
from seriatim.pipeline.plan.graph import Floats, Ids, sums_of
from seriatim.pipeline.plan.network import LOCAL, Network
from seriatim.protocols.atoms.colocation import Forest, cut, flowing

ROUNDS_MAX = 10
ROOM = 1.25  # times the mean load: what a host may have if nothing else is said


class Groups(NamedTuple):
    """Of each group, by id: its atoms, the length of its path, and where that begins and ends; -1: it has none."""

    atoms: Ids
    lengths: Ids
    entries: Ids
    ends: Ids
    entry_pieces: Ids
    end_pieces: Ids


class Pieces(NamedTuple):
    """How many atoms each has, and the piece that it leads to, or -1."""

    atoms: Ids
    after: Ids


class Nodes(NamedTuple):
    """Sequencing nodes. `of_piece`: the node of each piece. Of each node: atoms, the node it leads to, the groups that
    pass it, the events per second that do, and its host; and of each host what it has to bear."""

    of_piece: Ids
    atoms: Ids
    after: Ids
    groups: Ids
    loads: Floats
    hosts: Ids
    host_loads: Floats
    hops: Ids  # of each group: how often it goes from one host to another
    wide_hops: Ids  # … of another site
    access: Floats  # events per second of each group that are published at another site than where they enter


def place(
    pieces: Pieces,
    groups: Groups,
    rates: Floats,
    published: tuple[Floats, tuple[str, ...]],
    network: Network,
    load_max: float,
) -> Nodes:
    """`published`: how many events per second of each group are at each site, and the sites."""
    of_piece = _joined(pieces, groups, rates, load_max)
    size = int(of_piece.max(initial=-1)) + 1
    walking = np.flatnonzero(groups.entries >= 0)
    entry, end = of_piece[groups.entry_pieces[walking]], of_piece[groups.end_pieces[walking]]
    after = np.full(size, -1, np.int64)
    leads = np.flatnonzero(pieces.after >= 0)
    between = of_piece[leads] != of_piece[pieces.after[leads]]
    after[of_piece[leads[between]]] = of_piece[pieces.after[leads[between]]]
    forest = _flow(after, entry, end, rates[walking])
    leaving, leavers = np.asarray(forest.leaving), np.asarray(forest.leavers, np.int64)
    led = np.flatnonzero(after >= 0)
    loads = np.asarray(forest.entering) + sums_of(after[led], leaving[led], size)
    came = np.bincount(entry, minlength=size)
    passing = came + sums_of(after[led], leavers[led], size).astype(np.int64)
    where, sites = published
    at_sites = np.zeros((size, len(sites)))
    np.add.at(at_sites, entry, where[walking])
    hosts = _hosts(after, leaving, loads, at_sites, sites, network)
    host_loads = sums_of(hosts, loads, len(network.nodes))
    same = led[hosts[led] == hosts[after[led]]]
    host_loads -= sums_of(hosts[same], leaving[same], len(network.nodes))
    site_of = _site_numbers(network, sites)
    hops, wide_hops = (_changes(after, each, entry, end, walking, len(rates)) for each in (hosts, site_of[hosts]))
    access = np.zeros(len(rates))
    if len(sites):
        here = site_of[hosts[entry]]
        known = here < len(sites)
        at_home = np.where(known, where[walking, np.where(known, here, 0)], 0.0)
        access[walking] = where[walking].sum(axis=1) - at_home
    counts = sums_of(of_piece, pieces.atoms.astype(np.float64), size).astype(np.int64)
    return Nodes(of_piece, counts, after, passing, loads, hosts, host_loads, hops, wide_hops, access)


def _joined(pieces: Pieces, groups: Groups, rates: Floats, load_max: float) -> Ids:
    """Nodes: pieces that one host can bear together."""
    walking = np.flatnonzero(groups.entries >= 0)
    forest = _flow(pieces.after, groups.entry_pieces[walking], groups.end_pieces[walking], rates[walking])
    nodes = np.asarray(cut(forest, bearable(forest, load_max)), np.int64)
    used = np.unique(nodes[pieces.atoms > 0])
    numbers = np.zeros(int(nodes.max(initial=-1)) + 1, np.int64)
    numbers[used] = np.arange(len(used))
    return numbers[nodes]


def _flow(after: Ids, entry: Ids, end: Ids, rates: Floats) -> Forest:
    """What enters, passes and leaves each place, if groups with these rates walk from `entry` to `end`."""
    size = len(after)
    comers = np.bincount(entry, minlength=size) - np.bincount(end, minlength=size)
    entering, ending = sums_of(entry, rates, size), sums_of(end, rates, size)
    return flowing(after.tolist(), entering.tolist(), ending.tolist(), comers.tolist())


def _site_numbers(network: Network, sites: tuple[str, ...]) -> Ids:
    """The place of each host's site among the sites; others come after them."""
    places = {site: number for number, site in enumerate(sites)}
    return np.asarray([places.setdefault(network.sites[node], len(places)) for node in network.nodes], np.int64)


def _hosts(
    after: Ids, leaving: Floats, loads: Floats, at_sites: Floats, sites: tuple[str, ...], network: Network
) -> Ids:
    """The host of each node. Every move makes the sum smaller, so it ends."""
    count = len(network.nodes)
    hosts = np.full(len(after), -1, np.int64)
    if not len(after):
        return hosts
    site_of = _site_numbers(network, sites)
    near: list[list[tuple[int, float]]] = [[] for _ in after]
    for node, other in enumerate(after.tolist()):
        if other >= 0:
            near[node].append((other, float(leaving[node])))
            near[other].append((node, float(leaving[node])))
    published = np.pad(at_sites, ((0, 0), (0, max(0, int(site_of.max()) + 1 - at_sites.shape[1]))))
    access = published.sum(axis=1, keepdims=True) - published[:, site_of]
    room = max(network.load_max or 0.0, ROOM * float(loads.sum()) / count)
    bears = np.zeros(count)
    numbers = np.arange(count)

    def best_for(node: int) -> int:
        cost = access[node].copy()
        for other, rate in near[node]:
            if hosts[other] >= 0:
                host = hosts[other]
                cost += rate * np.where(site_of == site_of[host], LOCAL * (numbers != host), 1.0)
        fits = bears + loads[node] <= room
        here = hosts[node]
        if here >= 0:
            fits[here] = True
        if not fits.any():
            return int(np.argmin(bears))
        return min(np.flatnonzero(fits).tolist(), key=lambda host: (round(cost[host], 9), host != here, bears[host]))

    for node in np.argsort(-loads, kind="stable").tolist():
        hosts[node] = best_for(node)
        bears[hosts[node]] += loads[node]
    for _ in range(ROUNDS_MAX if count > 1 else 0):
        moved = False
        for node in range(len(after)):
            here, best = int(hosts[node]), best_for(node)
            if best != here:
                bears[here] -= loads[node]
                bears[best] += loads[node]
                hosts[node] = best
                moved = True
        if not moved:
            break
    return hosts


def _changes(after: Ids, marks: Ids, entry: Ids, end: Ids, walking: Ids, count: int) -> Ids:
    """How often the mark changes on the way of each group."""
    to_root = np.zeros(len(after), np.int64)
    done = after < 0
    while not done.all():
        ready = np.flatnonzero(~done & done[after])
        to_root[ready] = to_root[after[ready]] + (marks[ready] != marks[after[ready]])
        done[ready] = True
    found = np.zeros(count, np.int64)
    found[walking] = to_root[entry] - to_root[end]
    return found
