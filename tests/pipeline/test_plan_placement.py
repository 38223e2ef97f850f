"""Homes and trees: never worse than the naive ones, never below the bound, near the best there is, and as the protocol
counts its own messages. No Spark: this is the driver's part."""

from itertools import pairwise, product

import numpy as np
import pytest

from seriatim.lab.sim import Scenario, Simulation
from seriatim.lab.sim.engine import Simulator
from seriatim.lab.sim.scenario import Changing, Publishing
from seriatim.model import InputError, Subscription
from seriatim.order import SequencingTree
from seriatim.pipeline.plan.cost import Model, lower_bound
from seriatim.pipeline.plan.graph import Graph
from seriatim.pipeline.plan.network import Network, Shape, chain, hierarchy, shapes, star
from seriatim.pipeline.plan.placement import Search, at, by_chance, by_hash, in_ranges, nearest, place, together
from seriatim.protocols.link import Frame
from seriatim.protocols.tree.messages import Finished, Pass, Routed

SITES = ("america", "asia", "europe")


def random_graph(seed: int, topics: int, pairs: int, sites: int = 3, masks: bool = False) -> Graph:
    random = np.random.default_rng(seed)
    rates = random.exponential(10.0, topics)
    shares = random.dirichlet([0.3] * sites, topics)
    drawn = {tuple(sorted(random.choice(topics, 2, replace=False).tolist())) for _ in range(pairs)}
    wide = random.integers(0, 8, topics) if masks else np.zeros(topics, np.int64)
    common = np.bitwise_count(wide)
    listed = [pair for pair in sorted(drawn) if np.bitwise_count(wide[pair[0]] & wide[pair[1]]) < 2]
    assert common.shape == (topics,)
    a, b = (np.asarray([pair[side] for pair in listed], np.int64) for side in (0, 1))
    names = [f"t{i}" for i in range(topics)]
    return Graph(names, rates, (a, b, np.full(len(a), 2)), shares * rates[:, None], SITES[:sites], wide)


def network_of(sites: int, nodes: int, load_max: float | None = None) -> Network:
    return Network({f"n{i}": SITES[i % sites] for i in range(nodes)}, None, load_max)


def coupled(graph: Graph, topic: int) -> list[int]:
    """The whole group, the slow way."""
    wide = np.flatnonzero(np.bitwise_count(graph.masks & graph.masks[topic]) >= graph.threshold)
    return sorted({*graph.listed(topic).tolist(), *wide.tolist()} - {topic})


def hops_of(graph: Graph, shape: Shape, homes: list[int]) -> float:
    """The cost as its definition says it, with the protocol's own tree, topic by topic."""
    network = shape.network
    tree = SequencingTree(
        shape.parents, {name: shape.nodes[home] for name, home in zip(graph.names, homes, strict=True)}
    )
    total = 0.0
    for topic, name in enumerate(graph.names):
        home = tree.home(name)
        near = graph.where[topic, graph.sites.index(network.sites[home])]
        total += 2.0 * (graph.where[topic].sum() - near)
        top = tree.highest({tree.meet(name, graph.names[other]) for other in coupled(graph, topic)}, home)
        path = tree.paths[home]
        way = path[: path.index(top) + 1]
        wide = sum(network.sites[x] != network.sites[y] for x, y in pairwise(way))
        total += 2.0 * graph.rates[topic] * wide
    return total


def shapes_of(graph: Graph, network: Network) -> list[Shape]:
    count = len(graph.sites)
    return list(shapes(network, np.ones((count, count)), np.ones(count), graph.sites))


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_the_cost_is_what_the_tree_itself_says(seed: int, masks: bool) -> None:
    graph = random_graph(seed, 14, 18, masks=masks)
    network = network_of(3, 5)
    model = Model(graph, network)
    for shape in shapes_of(graph, network):
        homes = by_chance(model, seed)
        assert model.evaluate(shape, homes).hops_per_s == pytest.approx(hops_of(graph, shape, homes.tolist()))


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_groups_stamps_and_components_are_what_the_definition_says(seed: int, masks: bool) -> None:
    graph = random_graph(seed, 30, 25, masks=masks)
    groups = [coupled(graph, topic) for topic in range(30)]
    assert graph.group_sizes.tolist() == [len(group) for group in groups]
    assert graph.pair_count == sum(map(len, groups)) // 2
    expected = [
        sum(graph.rates[other] / (graph.rates[other] + graph.rates[topic]) for other in group)
        for topic, group in enumerate(groups)
    ]
    assert graph.difference_entries.tolist() == pytest.approx(expected, rel=0.01)
    labels = graph.components
    for topic, group in enumerate(groups):
        assert all(labels[topic] == labels[other] for other in group)
    for label in set(labels.tolist()):
        reached, todo = {label}, [label]
        while todo:
            new = set(groups[todo.pop()]) - reached
            reached |= new
            todo += new
        assert reached == set(np.flatnonzero(labels == label).tolist())


@pytest.mark.parametrize("seed", range(12))
def test_the_search_is_near_the_best_and_the_bound_below_it(seed: int) -> None:
    graph = random_graph(seed, 6, 5)
    network = network_of(3, 3)
    model = Model(graph, network)
    candidates = shapes_of(graph, network)
    best = min(
        model.evaluate(shape, np.asarray(homes)).hops_per_s
        for shape in candidates
        for homes in product(range(3), repeat=6)
    )
    found = place(model, candidates)[2].hops_per_s
    assert lower_bound(model) <= best * (1 + 1e-9)
    assert best * (1 - 1e-9) <= found <= best * 1.02 + 1e-9, f"seed {seed}"


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_plan_is_no_worse_than_any_naive_one(seed: int, masks: bool) -> None:
    graph = random_graph(seed, 60, 60, masks=masks)
    network = network_of(3, 4)
    model = Model(graph, network)
    found = place(model, shapes_of(graph, network))[2]
    middle, line = star(network, "n0"), chain(network)
    naive = [
        (middle, at(model, 0)),
        (middle, by_chance(model)),
        (middle, by_hash(model)),
        (line, in_ranges(model)),
        (middle, nearest(model, middle)),
        (middle, together(model, middle)),
    ]
    assert found.weighed <= min(model.evaluate(shape, homes).weighed for shape, homes in naive) * (1 + 1e-9)
    assert lower_bound(model) <= found.hops_per_s * (1 + 1e-9)


def test_what_each_step_of_the_search_promises_is_what_happens() -> None:
    graph = random_graph(3, 40, 60)
    network = network_of(3, 4)
    model = Model(graph, network)
    shape = star(network, "n1")
    search = Search(model, shape, by_chance(model))
    for topic in range(40):
        before = model.evaluate(shape, search.homes).weighed
        changes = search._changes(topic)
        node = int(np.argmin(changes))
        search._move(topic, node)
        assert model.evaluate(shape, search.homes).weighed == pytest.approx(before + changes[node])
        assert (search._members == model.members(search.homes)).all()


def test_local_interest_stays_local() -> None:
    """Two sites whose topics have nothing to do with each other: no event leaves its site."""
    a, b = np.asarray([0, 1, 3, 4]), np.asarray([1, 2, 4, 5])
    where = np.zeros((6, 2))
    where[:3, 0] = where[3:, 1] = 10.0
    graph = Graph([f"t{i}" for i in range(6)], np.full(6, 10.0), (a, b, np.full(4, 2)), where, SITES[:2])
    network = network_of(2, 2)
    _, homes, cost = place(Model(graph, network), shapes_of(graph, network))
    assert homes.tolist() == [0, 0, 0, 1, 1, 1]
    assert cost.hops_per_s == 0.0


def test_a_node_is_given_no_more_than_it_may_have() -> None:
    graph = random_graph(1, 40, 20, sites=1)
    total = float(graph.rates.sum())
    network = network_of(1, 4, load_max=total * 0.6)
    model = Model(graph, network)
    cost = place(model, shapes_of(graph, network))[2]
    assert cost.loads.max() <= total * 0.6 * (1 + 1e-9)
    assert cost.loads.sum() >= total * (1 - 1e-9)


def test_too_much_for_all_nodes_is_said() -> None:
    graph = random_graph(1, 40, 20, sites=1)
    network = network_of(1, 2, load_max=float(graph.rates.sum()) * 0.3)
    with pytest.raises(InputError, match="add nodes") as raised:
        place(Model(graph, network), shapes_of(graph, network))
    assert raised.value.field == "load_max"


def test_a_hierarchy_joins_the_sites_that_have_most_in_common() -> None:
    network = network_of(3, 3)  # n0 america, n1 asia, n2 europe
    affinity = np.asarray([[0.0, 1.0, 9.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    shape = hierarchy(network, affinity, np.asarray([5.0, 3.0, 4.0]), SITES)
    assert shape.parents == {"n0": None, "n1": "n0", "n2": "n0"}


# ── against the simulator ─────────────────────────────────────────────────────────────────────────────────────────


class Hops:
    """Counts passes up and finished stamps down between nodes of different sites, as the simulator sends them."""

    def __init__(self, simulator: Simulator, network: Network) -> None:
        self.count = 0
        self._sites = network.sites
        simulator._record = self._seen  # type: ignore[method-assign]

    def _seen(self, source: str, target: str, message: object, sent: float, received: float | None) -> None:
        if isinstance(message, Frame) and self._sites[source] != self._sites[target]:
            body = message.body.body if isinstance(message.body, Routed) else message.body
            self.count += isinstance(body, Pass | Finished)


@pytest.mark.parametrize("seed", range(4))
def test_the_simulator_sends_as_many_messages_between_sites_as_predicted(seed: int) -> None:
    random = np.random.default_rng(seed)
    topics = [f"t{i}" for i in range(8)]
    holdings = {f"s{i}": frozenset(random.choice(topics, 3, replace=False).tolist()) for i in range(8)}
    published = random.choice(topics, 300, p=random.dirichlet([1.0] * 8)).tolist()
    network = network_of(3, 4)
    shape = chain(network)
    shared = {
        (i, j): count
        for i, x in enumerate(topics)
        for j, y in enumerate(topics)
        if i < j and (count := sum({x, y} <= held for held in holdings.values())) >= 2
    }
    a, b = (np.asarray([pair[side] for pair in shared], np.int64) for side in (0, 1))
    rates = np.asarray([published.count(topic) for topic in topics], np.float64)
    graph = Graph(topics, rates, (a, b, np.asarray(list(shared.values()))), None, SITES)
    model = Model(graph, network)
    homes = by_chance(model, seed)
    predicted = model.evaluate(shape, homes).climb.sum()
    scenario = Scenario(
        seed=seed,
        protocol="tree",
        mode="ticket",
        order="pairwise",
        own_order=False,
        broker="fifo",
        delay="local",
        parents=shape.parents,
        homes={topic: shape.nodes[home] for topic, home in zip(topics, homes.tolist(), strict=True)},
        publishers=("p1",),
        subscribers=tuple(holdings),
        acts=(
            *(Changing(0.0, subscriber, add=held) for subscriber, held in holdings.items()),
            *(Publishing(2_000.0 + 20.0 * place_, "p1", (topic,)) for place_, topic in enumerate(published)),
        ),
        faults=(),
        loss=0.0,
        duplication=0.0,
        duration_ms=10_000.0,
    )
    run = Simulation(scenario, record_messages=True)
    hops = Hops(run.world.simulator, network)
    outcome = run.finish()
    assert outcome.is_fine
    assert len(outcome.history.publications) == 300
    assert {row.subscriber for row in outcome.history.subscriptions if isinstance(row, Subscription)} == set(holdings)
    assert hops.count == pytest.approx(predicted, rel=0.1)
