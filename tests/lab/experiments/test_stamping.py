"""Stamps under load: the model of the paper's layout against the paper's own machines, and the queue of a server."""

from random import Random

import pytest

from seriatim.lab.experiments.paper000.sites import (
    NAMES,
    RANKINGS,
    SERVERS,
    SITES,
    TOPICS_EACH_SITE,
    populate,
    site_of_topic,
    tree_of,
)
from seriatim.lab.experiments.paper000.stamping import Load, Request, Server, StampingWorld, paper_route
from seriatim.lab.papers.paper000.messages import CreateTimestamp, EventTimestamp, FillInTimestamp
from seriatim.lab.papers.paper000.ranks import Ranks, manager_of
from seriatim.lab.papers.paper000.topic_manager import TopicManager
from seriatim.model import Address, Topic
from seriatim.protocols.machine import Effects, Payload
from tests.nonsense import Nonsense


def printed_way(topic: Topic, managers: dict[Address, TopicManager]) -> tuple[list[Topic], int]:
    """The topics whose managers a timestamp visits in the printed algorithm, and its entries at the end."""
    target: Address = manager_of(topic)
    message: Payload = CreateTimestamp("e", "p", topic)
    visited = []
    while not isinstance(message, EventTimestamp):
        manager = managers[target]
        visited.append(manager.topic)
        ((target, message),) = manager.step("p", message, 0.0).send
        assert isinstance(message, FillInTimestamp | EventTimestamp)
    return visited, len(message.timestamp)


@pytest.mark.parametrize("pattern", ["geographic", "spray"])
def test_a_stamp_visits_the_servers_of_the_printed_algorithm(pattern: str) -> None:
    population = populate(pattern, clients=300, topics_each=8, seed=1)
    ranks = Ranks(NAMES)
    holders: dict[int, dict[Address, list[Topic]]] = {topic: {} for topic in range(len(NAMES))}
    for client, held in population.subscriptions.items():
        for topic in held:
            holders[topic][client] = [NAMES[other] for other in held]
    managers = {manager_of(NAMES[topic]): TopicManager(NAMES[topic], ranks, who) for topic, who in holders.items()}
    seen = set()
    for topic in Random(2).sample([topic for topic, who in holders.items() if who], 80):
        visited, entries = printed_way(NAMES[topic], managers)
        servers = [SERVERS[site_of_topic(NAMES.index(each))] for each in visited]
        once = tuple(dict.fromkeys(servers))
        assert once == (SERVERS[site_of_topic(topic)], *paper_route(topic, population.coupled[topic]))
        assert entries == len(population.coupled[topic]) + 1
        seen.add(len(once))
    assert len(seen) > 1, "no stamp left its server: nothing was compared"


class Echo:
    """Answers at once."""

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        effects.send.append((source, message))
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


def test_a_server_takes_stamps_one_after_the_other() -> None:
    server = Server(Echo(), lambda message: 2, entry_ms=3.0)
    assert server.step("a", Request(1, NAMES[0]), 10.0).wake_at == 16.0
    assert server.step("b", Request(2, NAMES[0]), 11.0).wake_at == 16.0
    assert server.tick(15.0).send == []
    done = server.tick(16.0)
    assert [target for target, _ in done.send] == ["a"] and done.wake_at == 22.0
    assert [target for target, _ in server.tick(30.0).send] == ["b"]
    assert server.step("c", Request(3, NAMES[0]), 40.0).wake_at == 46.0, "an idle server begins at once"
    assert server.step("d", Nonsense("not a stamp"), 41.0).send == [("d", Nonsense("not a stamp"))]


@pytest.mark.parametrize("layout", ["paper", "chain", "star", "two levels", "central"])
def test_every_request_is_answered_and_servers_keep_up_with_a_light_load(layout: str) -> None:
    population = populate("spray", clients=100, topics_each=4, seed=3)
    world = StampingWorld(population, Load(layout=layout, rate=100.0, seed=3))
    measures = world.run(2_000.0, 5_000.0)
    assert measures["stamps_per_s"] == pytest.approx(100.0, rel=0.2)
    assert 20.0 < measures["latency_ms"] < 1_000.0
    assert 1.0 <= measures["servers_per_stamp"] <= 2 * SITES
    assert all(
        0.0 <= measures[f"forwarded[{site + 1}]"] < 1.0 for site in range(SITES) if site == 0 or layout != "central"
    )
    again = StampingWorld(populate("spray", 100, 4, 3), Load(layout=layout, rate=100.0, seed=3)).run(2_000.0, 5_000.0)
    assert again == measures, "a run depends on nothing but its seed"


def test_clients_that_wait_bound_what_is_under_way() -> None:
    """Five servers make at most 5 / 0.9 ms = 5,556 stamps/s. Who waits is slowed down, the others pile up requests."""
    latency = {}
    for waits in (True, False):
        population = populate("geographic", clients=200, topics_each=2, seed=1)
        load = Load(layout="paper", rate=20_000.0, seed=1, waits=waits)
        measures = StampingWorld(population, load).run(500.0, 500.0)
        assert measures["stamps_per_s"] < 5_600
        latency[waits] = measures["latency_ms"]
    assert latency[True] < 2 * 200 / 5_556 * 1_000  # Little's law: no more than 200 under way
    assert latency[False] > 4 * latency[True]


@pytest.mark.parametrize("ranking", RANKINGS)
def test_a_ranking_holds_every_topic_once_its_own_first(ranking: str) -> None:
    population = populate("geographic", clients=5, topics_each=1, seed=1, ranking=ranking)
    for site, topics in enumerate(population.rankings):
        assert sorted(topics) == list(range(len(NAMES)))
        assert {site_of_topic(topic) for topic in topics[:TOPICS_EACH_SITE]} == {site}


def test_all_layouts_are_made_of_the_same_servers() -> None:
    for layout in ("chain", "star", "two levels"):
        assert sorted(tree_of(layout).parents) == SERVERS
    assert list(tree_of("central").parents) == ["n1"]
