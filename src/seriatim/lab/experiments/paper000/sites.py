"""The five sites of paper 000's prototype: topics on servers, clients beside them, and who asks for what.

Server i is home to topics 200(i-1)+1 … 200i. The paper says that each site has its own popularity, in which the topics
of its own server come first, but not how a site ranks the topics of others. Our ranking continues with the next server
and wraps around at the last: of `RANKINGS` it is the only one under which servers 1 and 2 forward next to nothing and 4
and 5 do forward (experiment `000-rankings`).
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import TypeAlias

from msgspec import Struct

from seriatim.lab.experiments.paper000.interest import EXPONENTS, TOPICS, Popularity, groups
from seriatim.model import Address, Node, Topic
from seriatim.order import SequencingTree

Site: TypeAlias = int  # from 0

SITES = 5
TOPICS_EACH_SITE = TOPICS // SITES
SHAPE = {"geographic": "0.901", "spray": "0.349"}  # the paper's two patterns
NAMES: list[Topic] = [f"t{index:04}" for index in range(1, TOPICS + 1)]
SERVERS: list[Node] = [f"n{site + 1}" for site in range(SITES)]

# Every shape is made of the five servers and nothing else, so that all have the same hardware.
SHAPES: dict[str, dict[Node, Node | None]] = {
    "chain": {"n1": None, "n2": "n1", "n3": "n2", "n4": "n3", "n5": "n4"},
    "star": {"n1": None, "n2": "n1", "n3": "n1", "n4": "n1", "n5": "n1"},
    "two levels": {"n1": None, "n2": "n1", "n3": "n1", "n4": "n2", "n5": "n3"},
    "central": {"n1": None},
}


def site_of_topic(topic: int) -> Site:
    return topic // TOPICS_EACH_SITE


def _topics(sites: Iterable[Site]) -> list[int]:
    return [site * TOPICS_EACH_SITE + index for site in sites for index in range(TOPICS_EACH_SITE)]


def _others(site: Site) -> list[Site]:
    return [other for other in range(SITES) if other != site]


def _one_from_each(site: Site) -> list[int]:
    """The first topic of every other server, then the second of each, and so on."""
    return [other * TOPICS_EACH_SITE + index for index in range(TOPICS_EACH_SITE) for other in _others(site)]


# How a site may rank the topics of other sites, after those of its own.
RANKINGS: dict[str, Callable[[Site], list[int]]] = {
    "next server": lambda site: _topics((site + step) % SITES for step in range(1, SITES)),
    "by id": lambda site: _topics(_others(site)),
    "nearest server": lambda site: _topics(sorted(_others(site), key=lambda other: abs(other - site))),
    "one from each": _one_from_each,
}
RANKING = "next server"


def tree_of(layout: str) -> SequencingTree:
    """The sequencing tree of a layout; central: everything at the first site."""
    parents = SHAPES[layout]
    homes = {name: SERVERS[site_of_topic(index)] if len(parents) > 1 else "n1" for index, name in enumerate(NAMES)}
    return SequencingTree(parents, homes)


class Population(Struct):
    """Clients, what they hold, and the groups that follow from it. Topics are indexes from 0."""

    sites: dict[Address, Site]
    subscriptions: dict[Address, frozenset[int]]
    coupled: list[list[int]]
    rankings: list[list[int]]  # by site: its topics, the most popular first
    popularity: Popularity

    @property
    def outside(self) -> float:
        """The part of the clients that hold a topic of another site."""
        holds = [
            any(site_of_topic(topic) != self.sites[client] for topic in held)
            for client, held in self.subscriptions.items()
        ]
        return sum(holds) / len(holds)

    def draw(self, client: Address) -> int:
        """The topic of the client's next publication."""
        return self.rankings[self.sites[client]][self.popularity.draw()]


def populate(pattern: str, clients: int, topics_each: int, seed: int, ranking: str = RANKING) -> Population:
    """Clients in equal parts on all sites, each holding as many topics of its site's popularity."""
    popularity = Popularity(EXPONENTS[SHAPE[pattern]], Random(f"interest {seed}"))
    rankings = [_topics([site]) + RANKINGS[ranking](site) for site in range(SITES)]
    sites = {f"c{index:04}": index % SITES for index in range(clients)}
    subscriptions = {
        client: frozenset(rankings[site][rank] for rank in popularity.subscription(topics_each))
        for client, site in sites.items()
    }
    return Population(sites, subscriptions, groups(subscriptions.values()), rankings, popularity)
