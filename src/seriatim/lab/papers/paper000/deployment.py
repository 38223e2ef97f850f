"""A whole system of paper 000 in its initial state: one manager per topic, subscriptions that exist from the start."""

from collections.abc import Iterable, Mapping

from seriatim.lab.papers.paper000.ens import Ens
from seriatim.lab.papers.paper000.publisher import Publisher
from seriatim.lab.papers.paper000.ranks import Ranks, manager_of
from seriatim.lab.papers.paper000.subscriber import Subscriber
from seriatim.lab.papers.paper000.topic_manager import TopicManager
from seriatim.model import BROKER, Address, InputError, Topic
from seriatim.protocols.machine import Machine


def deploy(
    topics: Iterable[Topic],
    subscriptions: Mapping[Address, Iterable[Topic]],
    publishers: Iterable[Address],
    retry_ms: float | None = None,
) -> dict[Address, Machine]:
    """Every machine by its address. `topics` are given highest rank first; all clocks are zero."""
    ranks = Ranks(topics)
    held = {name: frozenset(wanted) for name, wanted in subscriptions.items()}
    machines: dict[Address, Machine] = {
        BROKER: Ens({topic: [name for name, wanted in held.items() if topic in wanted] for topic in ranks.topics})
    }
    roles: list[tuple[Address, Machine]] = [
        *((manager_of(topic), TopicManager(topic, ranks, held)) for topic in ranks.topics),
        *((name, Subscriber(name, ranks, wanted)) for name, wanted in held.items()),
        *((name, Publisher(name, ranks, retry_ms)) for name in publishers),
    ]
    for address, machine in roles:
        if address in machines:
            raise InputError("name", f"{address!r} is used twice", "give every publisher and subscriber its own name")
        machines[address] = machine
    return machines
