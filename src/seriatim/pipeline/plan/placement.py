"""Homes: where to start, and how to get better.

*Naive* placements, to compare with: everything at one node, homes by chance, by hash, and the paper's (topics in equal
ranges along a chain). *Starts*: every topic where most of its events are; every component of coupled topics together
where most of theirs are. *Local search*: move one topic at a time while that makes the whole plan cheaper, counting
what the move does to every topic coupled with it. Candidates are found for all topics at once: those that would
themselves be cheaper elsewhere, and those that alone make others climb. Then whole groups: all topics of a small group
to one node. The search ends by itself or at a fixed amount of work, so that a plan does not depend on the machine.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seriatim.model import InputError
from seriatim.pipeline.plan.cost import Cost, Model
from seriatim.pipeline.plan.graph import Floats, Ids
from seriatim.pipeline.plan.network import Shape

SWEEPS_MAX = 12
WORK_MAX = 60_000_000  # coupled topics looked at, in all searches for one plan
VISITS_MAX = 50_000  # topics looked at
KICKS = 24  # how often the best plan so far is disturbed, in the hope of a better one
KICKED = 4  # topics and their groups
GROUP_MAX = 64  # topics that are moved together
LEAST_GAIN = 1e-9  # of the whole cost


def by_hash(model: Model) -> Ids:
    """A topic's home follows from its name, as in a hash ring."""
    count = len(model.network.nodes)
    digests = (hashlib.blake2b(name.encode("utf-8"), digest_size=8).digest() for name in model.graph.names)
    return np.asarray([int.from_bytes(digest, "big") % count for digest in digests], np.int64)


def by_chance(model: Model, seed: int = 1) -> Ids:
    return np.random.default_rng(seed).integers(0, len(model.network.nodes), model.graph.size)


def in_ranges(model: Model) -> Ids:
    """Paper 000: topics in their order (of popularity), in equal ranges along the chain; the first at its root."""
    return np.arange(model.graph.size) * len(model.network.nodes) // model.graph.size


def at(model: Model, node: int) -> Ids:
    return np.full(model.graph.size, node, np.int64)


def nearest(model: Model, shape: Shape) -> Ids:
    """Every topic where most of its events are; what is nowhere, at the root."""
    access = model.access.copy()
    access[:, shape.root] -= 1e-12 * model.twice + 1e-15
    homes: Ids = np.argmin(access, axis=1)
    return homes


def together(model: Model, shape: Shape) -> Ids:
    """Every component of coupled topics at one node: nothing ever climbs."""
    labels = model.graph.components
    sums = np.stack([np.bincount(labels, column, model.graph.size) for column in model.access.T], axis=1)
    sums[:, shape.root] -= 1e-12 * sums.max(initial=1.0)
    homes: Ids = np.argmin(sums, axis=1)[labels]
    return homes


@dataclass
class Budget:
    """How much may still be looked at: work, not time, so that the same input gives the same plan."""

    work: int = WORK_MAX
    visits: int = VISITS_MAX

    @property
    def is_spent(self) -> bool:
        return self.work <= 0 or self.visits <= 0


class Search:
    """Local search on one shape. `homes` is the best result so far."""

    def __init__(self, model: Model, shape: Shape, homes: Ids, budget: Budget | None = None) -> None:
        self.model = model
        self.graph = model.graph
        self.homes = homes.copy()
        self.shape = shape
        self._edges, self._weights, self._wide = shape.tables
        self._members = model.members(self.homes)
        self._most = model.network.load_max
        self.cost = model.evaluate(shape, self.homes, self._members)
        self._loads = self.cost.loads.copy()
        self._budget = budget or Budget()
        self._pinned = self.graph.is_wide  # these move together, or not at all

    def run(self) -> "Search":
        """Search until nothing gets better or the budget is used up."""
        for _ in range(SWEEPS_MAX):
            before = self.cost.weighed
            self._relieve()
            moved = sum(self._try_to_move(topic) for topic in self._candidates())
            self._settle()
            moved += sum(self._try_to_gather(topic) for topic in self._climbers())
            self._settle()
            is_better = self.cost.weighed < before * (1.0 - LEAST_GAIN)
            if not moved or not is_better or self._budget.is_spent:
                break
        self._relieve()
        return self

    def _settle(self) -> None:
        self._budget.work -= self.graph.size
        self.cost = self.model.evaluate(self.shape, self.homes, self._members)
        self._loads = self.cost.loads.copy()

    def _candidates(self) -> list[int]:
        """Topics that could gain by a move, alone or for others; those that promise most come first."""
        graph, model, homes = self.graph, self.model, self.homes
        self._budget.work -= 2 * len(graph.a)
        met = model.met(homes, self._members)
        climbs = np.zeros(model.access.shape)
        for node in range(model.access.shape[1]):
            np.maximum(climbs, self._weights[None, :, node], out=climbs, where=met[:, node, None])
        own = model.access + model.twice[:, None] * climbs
        now = own[np.arange(graph.size), homes]
        promise = now - own.min(axis=1)
        weight = climbs[np.arange(graph.size), homes]
        for this, that in ((graph.a, graph.b), (graph.b, graph.a)):  # `that` alone makes `this` climb so high
            alone = self._members[this, homes[that]] == 1
            alone &= (weight[this] > 0.0) & (self._weights[homes[this], homes[that]] >= weight[this])
            promise += np.bincount(that[alone], (model.twice * weight)[this[alone]], graph.size)
        promise[self._pinned] = 0.0
        return self._most_first(promise)

    def _most_first(self, gains: Floats) -> list[int]:
        """The topics with a gain worth a move, the largest gain first."""
        chosen = np.flatnonzero(gains > LEAST_GAIN * max(self.cost.weighed, 1e-300))
        found: list[int] = chosen[np.argsort(-gains[chosen], kind="stable")].tolist()
        return found

    def _try_to_move(self, topic: int) -> bool:
        if self._budget.is_spent:
            return False
        self._budget.visits -= 1
        changes = self._changes(topic)
        if self._most is not None:
            has_room = self._loads + self.graph.rates[topic] <= self._most
            has_room[self.homes[topic]] = True
            changes = np.where(has_room, changes, np.inf)
        node = int(np.argmin(changes))
        if not changes[node] < -LEAST_GAIN * self.cost.weighed:
            return False
        self._move(topic, node)
        return True

    def _changes(self, topic: int) -> Floats:
        """How much the whole plan would change if the topic were homed at each node: exact."""
        graph, home = self.graph, self.homes[topic]
        others = graph.listed(topic)
        self._budget.work -= len(others)
        own = self.model.access[topic] + self.model.twice[topic] * self._climbs_of(topic)
        if len(others):
            own = own + self._others_at(topic, others, int(home))
        changes: Floats = own - own[home]
        return changes

    def _climbs_of(self, topic: int) -> Floats:
        """What the topic itself would climb from each node."""
        met = np.flatnonzero(self._members[topic])
        return self._weights[:, met].max(axis=1) if len(met) else np.zeros(len(self._weights))

    def _others_at(self, topic: int, others: Ids, home: int) -> Floats:
        """What the topics coupled with it would climb, all together, for each home it could have."""
        weights = self._weights[self.homes[others]]
        present = self._members[others] > 0
        present[:, home] = self._members[others, home] > 1
        without = np.where(present, weights, 0.0).max(axis=1)
        sums: Floats = self.model.twice[others] @ np.maximum(without[:, None], weights)
        return sums

    def _move(self, topic: int, node: int) -> None:
        others, home = self.graph.listed(topic), self.homes[topic]
        self._members[others, home] -= 1
        self._members[others, node] += 1
        self._loads[home] -= self.graph.rates[topic]
        self._loads[node] += self.graph.rates[topic]
        self.homes[topic] = node

    # ── several topics at once ────────────────────────────────────────────────────────────────────────────────────

    def _climbers(self) -> list[int]:
        """Topics with small groups that climb: perhaps the group should be in one place."""
        return self._most_first(self.cost.climb * (self.graph.degrees <= GROUP_MAX) * ~self._pinned)

    def _try_to_gather(self, topic: int) -> bool:
        """Bring a topic and its whole group to one of the nodes where some of them are, if that is cheaper."""
        if self._budget.is_spent:
            return False
        group = [topic, *self.graph.listed(topic).tolist()]
        if self._pinned[group].any():
            return False
        homes = [int(self.homes[each]) for each in group]
        best, target = 0.0, -1
        for node in sorted(set(homes)):
            change = self._gather(group, node)
            for each, home in zip(group, homes, strict=True):  # back again
                if self.homes[each] != home:
                    self._move(each, home)
            if change < best:
                best, target = change, node
        if target < 0 or not best < -LEAST_GAIN * self.cost.weighed:
            return False
        self._gather(group, target)
        return True

    def _gather(self, group: list[int], node: int) -> float:
        change = 0.0
        for each in group:
            if self.homes[each] != node:
                self._budget.visits -= 1
                if self._most is not None and self._loads[node] + self.graph.rates[each] > self._most:
                    return np.inf
                change += float(self._changes(each)[node])
                self._move(each, node)
        return change

    # ── loads ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _relieve(self) -> None:
        """Take topics away from nodes that have too much to do, those first for which that costs least per event."""
        if self._most is None:
            return
        for _ in range(4):
            busy = np.flatnonzero(self._loads > self._most)
            if not len(busy):
                return
            for node in busy.tolist():
                for topic in self._cheapest_first(node):
                    if self._loads[node] <= self._most:
                        break
                    self._send_away(topic, node)
            self._settle()

    def _cheapest_first(self, node: int) -> Iterator[int]:
        mine = np.flatnonzero(self.homes == node)
        elsewhere = np.delete(self.model.access[mine], node, axis=1)
        if not elsewhere.shape[1]:
            return
        price = (elsewhere.min(axis=1) - self.model.access[mine, node]) / np.maximum(self.graph.rates[mine], 1e-300)
        yield from mine[np.lexsort((-self.graph.rates[mine], price))].tolist()

    def _send_away(self, topic: int, node: int) -> None:
        changes = self._changes(topic) if not self._pinned[topic] else self.model.access[topic].copy()
        has_room = self._loads + self.graph.rates[topic] <= self._most
        has_room[node] = False
        if has_room.any():
            self._move(topic, int(np.argmin(np.where(has_room, changes, np.inf))))


def place(model: Model, shapes: list[Shape]) -> tuple[Shape, Ids, Cost]:
    """The best homes and the best shape that the budget allows to find. All shapes and starts are priced; the search is
    made from the cheapest on, first one of each shape. What is left of the budget goes into disturbing the best plan
    and searching again."""
    budget = Budget()
    best: Search | None = None
    for shape, homes in _starts(model, shapes):
        if best is None or not budget.is_spent:
            best = _better(model, best, Search(model, shape, homes, budget).run())
    assert best is not None, "a network has at least one shape"
    random = np.random.default_rng(1)
    for _ in range(KICKS):
        if budget.is_spent:
            break
        kicked = Search(model, best.shape, _kicked(model, best, random), budget).run()
        best = _better(model, best, kicked)
    if model.is_overloaded(best.cost):
        raise InputError("load_max", _too_much(model, best.cost), "add nodes, or allow a node more events per second")
    return best.shape, best.homes, best.cost


def _starts(model: Model, shapes: list[Shape]) -> list[tuple[Shape, Ids]]:
    starts: list[tuple[int, float, int, Shape, Ids]] = []
    for shape in shapes:
        ways = (nearest(model, shape), together(model, shape), at(model, shape.root))
        priced = sorted((model.evaluate(shape, homes).weighed, way) for way, homes in enumerate(ways))
        for rank, (price, way) in enumerate(priced):
            starts.append((rank, price, len(starts), shape, ways[way]))
    return [(shape, homes) for *_, shape, homes in sorted(starts, key=lambda start: start[:3])]


def _better(model: Model, best: Search | None, other: Search) -> Search:
    if best is None:
        return other
    prices = [(model.is_overloaded(each.cost), each.cost.weighed) for each in (best, other)]
    return other if prices[1] < prices[0] else best


def _kicked(model: Model, search: Search, random: np.random.Generator) -> Ids:
    """Move some topics that cost something, each with its group, to other nodes."""
    homes = search.homes.copy()
    costs = search.cost.access + search.cost.climb
    if not costs.sum() > 0.0:
        return homes
    count = min(KICKED, int(np.count_nonzero(costs)))
    for topic in random.choice(len(homes), count, replace=False, p=costs / costs.sum()).tolist():
        node = int(random.integers(len(model.network.nodes)))
        group = model.graph.listed(topic)
        homes[topic] = node
        homes[group[random.random(len(group)) < 0.5][:GROUP_MAX]] = node
    homes[model.graph.is_wide] = search.homes[model.graph.is_wide]
    return homes


def _too_much(model: Model, cost: Cost) -> str:
    nodes = model.network.nodes
    node = int(np.argmax(cost.loads))
    load = f"{nodes[node]} would handle {cost.loads[node]:,.0f} of {model.graph.rates.sum():,.0f} events/s"
    each = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    allowed = f"{model.network.load_max:,.0f} are allowed for each of {each}"
    return f"no placement was found: {load}, and {allowed}"
