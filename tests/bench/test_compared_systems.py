"""Tree and atoms side by side: both deliver everything, both in one order, and the meters count what can be counted."""

from itertools import combinations

import pytest

from bench.compared_systems import (
    ATOMS,
    ATOMS_BROKER,
    EVENTS,
    SYSTEMS,
    TREE_LOG,
    TREE_TICKET,
    Workload,
    compare,
    prepared,
    publish_events,
)
from seriatim.model import BROKER

WORKLOAD = Workload(8, "small", "spread")


@pytest.mark.parametrize("name", SYSTEMS)
def test_everybody_gets_everything_and_any_two_agree(name: str) -> None:
    system, members = prepared(WORKLOAD, name, 1)
    publish_events(system, WORKLOAD, members, 1)
    orders = system.world.orders
    assert len(system.world.seen) == EVENTS
    assert sum(map(len, orders.values())) == EVENTS * 12, "every topic has twelve members"
    for one, other in combinations(sorted(orders), 2):
        common = set(orders[one]) & set(orders[other])
        first, second = ([event for event in orders[each] if event in common] for each in (one, other))
        assert first == second, f"{one} and {other} disagree"


def test_hops_messages_and_times_are_those_that_can_be_counted() -> None:
    """One node in the middle: a ticket is a round trip, then the broker's two hops; a log needs only these two."""
    workload = Workload(1, "large", "spread")
    ticket, log, atoms, broker = (compare(workload, name, 1) for name in (TREE_TICKET, TREE_LOG, ATOMS, ATOMS_BROKER))
    assert (atoms["hops"], broker["hops"]) == (2.0, 3.0)
    assert ticket["hops"] == pytest.approx(4.0, abs=0.4), "a publisher's next event may wait for the one before it"
    assert log["hops"] == pytest.approx(2.0, abs=0.4)
    assert ticket["busiest"] == pytest.approx(2.0, abs=0.1), "ticket and settled"
    assert log["busiest"] == pytest.approx(2.0, abs=0.1), "grown and kept"
    assert atoms["busiest"] == broker["busiest"] == 1.0
    assert ticket["entries"] == log["entries"] == atoms["entries"] == 0.0, "one topic is ordered against nothing"
    assert ticket["latency_ms"] == pytest.approx(2.0 * log["latency_ms"], rel=0.15)


def test_a_member_that_joins_is_in_and_gets_what_comes_later() -> None:
    for name in (ATOMS_BROKER, TREE_LOG):
        system, members = prepared(WORKLOAD, name, 2)
        host = next(host for host in sorted(system.hosts) if host not in members["T03"] and host in members["T04"])
        joined = system.join(host, "T03")
        assert joined.effective_at is not None
        assert joined.messages > 0
        system.publish(members["T03"][0], "T03", "later", system.world.simulator.now)
        system.settle()
        assert host in system.world.seen["later"].notified


def test_the_broker_is_in_the_middle() -> None:
    system, _ = prepared(WORKLOAD, TREE_LOG, 1)
    topology, at = system.world.topology, system.world.at[BROKER]
    total = sum(topology.delay(at, router) for router in system.hosts.values())
    for transit in range(topology.shape.transit_count):
        assert total <= sum(topology.delay(transit, router) for router in system.hosts.values())
