"""The same workload on the tree and on the atoms: what a stamp weighs, how far and how long events go, who has most to
do, and what it costs to join."""

from collections.abc import Mapping
from itertools import accumulate
from random import Random
from statistics import fmean
from typing import Literal

from msgspec import Struct

from seriatim.lab.experiments.experiment import Measures
from seriatim.lab.experiments.ordered_systems import AtomsSystem, OrderedSystem
from seriatim.lab.experiments.paper004.atom_latency import CLUSTER, HOSTS, part_of
from seriatim.lab.experiments.paper004.atom_layouts import OURS, PRINTED, lay_out
from seriatim.lab.experiments.paper004.memberships import Memberships, hosts_named
from seriatim.lab.experiments.paper004.transit_stub import Router, Topology, clustered_hosts, transit_stub
from seriatim.model import BROKER, Address, Event, Node, Topic
from seriatim.order import SequencingTree
from seriatim.order.stamp import TopicIds, encode_entries
from seriatim.protocols import with_broker
from seriatim.protocols.broker import Broker
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import Publisher, Sequencer, Subscriber, TreeOptions

ATOMS_PRINTED = "atoms as printed"
ATOMS = "atoms"
ATOMS_BROKER = "atoms, by broker"
TREE_TICKET, TREE_LOG = "tree, one node, tickets", "tree, one node, logs"
REGIONS_TICKET, REGIONS_LOG = "tree by region, tickets", "tree by region, logs"
SYSTEMS = (ATOMS_PRINTED, ATOMS, ATOMS_BROKER, TREE_TICKET, TREE_LOG, REGIONS_TICKET, REGIONS_LOG)

NEVER_MS = 1e9  # leases and retries: nothing is lost here
Mode = Literal["log", "ticket"]

SIZES = {"small": 12, "large": 48}
EVENTS = 300
INTERVAL_MS = 50.0
JOINS = 5


class TreeSystem(OrderedSystem):
    """The sequencing tree. `regions`: a node in each transit domain that has hosts, below one in the middle, and topics
    at home where their members are; else one node in the middle."""

    def __init__(
        self, topology: Topology, hosts: Mapping[Address, Router], members: Memberships, mode: Mode, regions: bool
    ) -> None:
        super().__init__(topology, hosts)
        places = {"root": self.middle} | (region_nodes(topology, hosts) if regions else {})
        homes = {
            topic: min(
                places,
                key=lambda node: (sum(topology.delay(places[node], hosts[each]) for each in members[topic]), node),
            )
            for topic in members
        }
        parents: dict[Node, Node | None] = {node: None if node == "root" else "root" for node in places}
        shape = SequencingTree(parents, homes)
        options = TreeOptions(
            mode=mode, order="pairwise", retry_ms=NEVER_MS, lease_ms=NEVER_MS, patience_ms=NEVER_MS
        )  # what atoms promise
        self.world.told = self._on_told
        self.world.add(BROKER, self.middle, Broker())
        for node, router in places.items():
            self.sequencers.add(node)
            self.world.add(node, router, Sequencer(shape, node, options))
        for name, router in hosts.items():
            self.world.add(name, router, Subscriber(shape, name, options))
            self.world.add(f"{name} sends", router, Publisher(shape, f"{name} sends", options))
        for name in hosts:
            held = frozenset(topic for topic, each in members.items() if name in each)
            if held:
                self.world.simulator.command(name, with_broker.Change(held))
        self.settle()

    def command(self, event: Event) -> tuple[Address, Payload]:
        return event.publisher, with_broker.Publish((event,))

    def request(self, host: Address, topic: Topic) -> tuple[Address, Payload]:
        return host, with_broker.Change(frozenset({topic}))

    def _on_told(self, address: Address, payload: Payload, now: float) -> None:
        if type(payload) is with_broker.Changed:
            self.effective(address, now)


def region_nodes(topology: Topology, hosts: Mapping[Address, Router]) -> dict[Node, Router]:
    """A node for each transit domain that has hosts, at its transit router that is nearest to them."""
    size = topology.shape.transit_routers
    there: dict[int, list[Router]] = {}
    for router in hosts.values():
        there.setdefault(topology.transit_of(router) // size, []).append(router)
    return {
        f"region {domain}": min(
            range(domain * size, (domain + 1) * size),
            key=lambda router: sum(topology.delay(router, each) for each in routers),
        )
        for domain, routers in sorted(there.items())
    }


class Workload(Struct, frozen=True):
    """How many topics, of how many members, who live together or anywhere; they publish by Zipf's law, or all alike."""

    topics: int
    size: str
    interest: str  # local or spread
    even: bool = False


def memberships(workload: Workload, topology: Topology, hosts: dict[Address, Router], seed: int) -> Memberships:
    """Local: the hosts nearest to one of them. Spread: any hosts."""
    random = Random(f"workload {seed}")
    names = hosts_named(HOSTS)
    size = SIZES[workload.size]
    found: Memberships = {}
    for index in range(workload.topics):
        if workload.interest == "local":
            centre = hosts[random.choice(names)]
            near = sorted(names, key=lambda name: (topology.delay(centre, hosts[name]), name))
            found[f"T{index:02}"] = sorted(near[:size])
        else:
            found[f"T{index:02}"] = sorted(random.sample(names, size))
    return found


def system_of(
    name: str, topology: Topology, hosts: dict[Address, Router], members: Memberships, seed: int
) -> OrderedSystem:
    """The system of this name, with everybody in it."""
    if name in (ATOMS_PRINTED, ATOMS, ATOMS_BROKER):
        layout = lay_out(topology, hosts, members, PRINTED if name == ATOMS_PRINTED else OURS, seed)
        return AtomsSystem(layout, by_broker=name == ATOMS_BROKER)
    mode: Mode = "log" if name in (TREE_LOG, REGIONS_LOG) else "ticket"
    return TreeSystem(topology, hosts, members, mode, regions=name in (REGIONS_TICKET, REGIONS_LOG))


def compare(workload: Workload, name: str, seed: int) -> Measures:
    """One system under one workload."""
    system, members = prepared(workload, name, seed)
    measures = publish_events(system, workload, members, seed)
    return measures | _joins(system, members, seed)


def prepared(workload: Workload, name: str, seed: int) -> tuple[OrderedSystem, Memberships]:
    """A system in which all members of the workload are in."""
    topology = transit_stub(seed)
    hosts = dict(clustered_hosts(topology, hosts_named(HOSTS), CLUSTER, Random(f"hosts {seed}")))
    members = memberships(workload, topology, hosts, seed)
    return system_of(name, topology, hosts, members, seed), members


def publish_events(system: OrderedSystem, workload: Workload, members: Memberships, seed: int) -> Measures:
    """Members publish to their topics; what was seen of it."""
    random = Random(f"events {seed}")
    topics = sorted(members)
    weights = list(accumulate(1.0 if workload.even else 1.0 / rank for rank in range(1, len(topics) + 1)))
    world = system.world
    world.handled.clear()
    at = world.simulator.now
    for index in range(EVENTS):
        at += random.expovariate(1.0 / INTERVAL_MS)
        topic = random.choices(topics, cum_weights=weights)[0]
        system.publish(random.choice(members[topic]), topic, f"e{index:04}", at)
    world.simulator.run(until_ms=at)
    system.settle()
    latencies, hops = [], []
    handed, hashed, entries = [], [], []
    named = sorted({name for seen in world.seen.values() for name in seen.entries})
    ids = {name: index for index, name in enumerate(named)}
    for seen in world.seen.values():
        for receiver, (time, made) in seen.notified.items():
            if receiver != seen.sender:
                latencies.append(time - seen.at)
                hops.append(made)
        entries.append(len(seen.entries))
        handed.append(len(encode_entries(seen.entries, ids)))
        hashed.append(len(encode_entries(seen.entries, TopicIds())))
    sequencing = {unit: count for unit, count in world.handled.items() if unit in system.sequencers}
    return {
        "notified": float(sum(len(seen.notified) for seen in world.seen.values())),
        "entries": fmean(entries),
        "stamp_bytes": fmean(handed),
        "stamp_bytes_hashed": fmean(hashed),
        "latency_ms": fmean(latencies),
        "latency_90_ms": part_of(latencies, 0.9),
        "hops": fmean(hops),
        "busiest": max(sequencing.values()) / EVENTS,
        "sequencing": sum(sequencing.values()) / EVENTS,
    }


def _joins(system: OrderedSystem, members: Memberships, seed: int) -> Measures:
    random = Random(f"joins {seed}")
    now = {topic: set(each) for topic, each in members.items()}
    times, messages = [], []
    for _ in range(JOINS):
        topic = random.choice([topic for topic in sorted(now) if len(now[topic]) < HOSTS])
        host = random.choice([name for name in hosts_named(HOSTS) if name not in now[topic]])
        now[topic].add(host)
        joined = system.join(host, topic)
        if joined.effective_at is None:
            raise AssertionError(f"{host} never joined {topic}")
        times.append(joined.effective_at - joined.asked_at)
        messages.append(joined.messages)
    return {"join_ms": fmean(times), "join_messages": fmean(messages)}
