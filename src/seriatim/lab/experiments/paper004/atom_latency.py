"""How much longer messages take through the sequencing atoms than straight: paper 004, §4.2, played by the machines."""

from collections.abc import Iterable
from random import Random
from statistics import fmean

from msgspec import Struct

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.ordered_systems import AtomsSystem
from seriatim.lab.experiments.paper004.atom_layouts import EVERY_ROUTER, AtomLayout, lay_out
from seriatim.lab.experiments.paper004.memberships import MEAN_SHARE, hosts_named, zipf_memberships
from seriatim.lab.experiments.paper004.transit_stub import clustered_hosts, transit_stub
from seriatim.model import Address, Topic

HOSTS = 128
CLUSTER = 8  # hosts; the paper says only that clusters are of similar size
BINS = 10


def layout_of(parameters: Parameters, seed: int) -> AtomLayout:
    """Everything about one run that is decided before the first message."""
    topology = transit_stub(seed)
    names = hosts_named(HOSTS)
    hosts = clustered_hosts(topology, names, int(parameters.get("cluster", CLUSTER)), Random(f"hosts {seed}"))
    members = zipf_memberships(int(parameters["groups"]), HOSTS, seed, str(parameters.get("sizes", MEAN_SHARE)))
    return lay_out(
        topology, hosts, members, str(parameters["layout"]), seed, str(parameters.get("machines", EVERY_ROUTER))
    )


class Delivery(Struct, frozen=True):
    """One message at one receiver, and how long it took."""

    topic: Topic
    sender: Address
    receiver: Address
    taken_ms: float


def played(layout: AtomLayout) -> list[Delivery]:
    """Every host sends one message to each of its groups, when the one before it is all over.

    What it sends to itself is left out: the straight way has no length.
    """
    system, found = AtomsSystem(layout, by_broker=False), []
    for topic, members in layout.members.items():
        for sender in members:
            id = f"{sender} {topic}"
            system.publish(sender, topic, id, system.world.simulator.now)
            system.world.simulator.run_to_end()
            seen = system.world.seen[id]
            times = [(receiver, time) for receiver, (time, _) in seen.notified.items() if receiver != sender]
            found += [Delivery(topic, sender, receiver, time - seen.at) for receiver, time in times]
    return found


def run_stretch(parameters: Parameters, seed: int) -> Measures:
    """The stretch of each destination, over all messages that it gets: time through the atoms ÷ time straight.

    `ratios` is another reading: the mean over messages of their own stretches. Close pairs decide it.
    """
    layout = layout_of(parameters, seed)
    through: dict[Address, list[tuple[float, float]]] = {}
    for each in played(layout):
        straight = layout.topology.delay(layout.hosts[each.sender], layout.hosts[each.receiver])
        through.setdefault(each.receiver, []).append((each.taken_ms, straight))
    stretches, ratios = [], []
    for times in through.values():
        apart = [(taken, straight) for taken, straight in times if straight]
        if apart:
            stretches.append(sum(taken for taken, _ in times) / sum(straight for _, straight in times))
            ratios.append(fmean(taken / straight for taken, straight in apart))
    return {
        "stretch_median": part_of(stretches, 0.5),
        "stretch_90": part_of(stretches, 0.9),
        "stretch_max": max(stretches),
        "ratios_median": part_of(ratios, 0.5),
        "ratios_max": max(ratios),
        "nodes": float(len(layout.places)),
        "hops": fmean(len(path) - 1 for path in layout.paths.values()),
    }


def run_penalty(parameters: Parameters, seed: int) -> Measures:
    """The relative delay penalty of every pair, by how far apart the two are: mean over tenths of the pairs.

    `highest_among_close`: the part of the highest hundredth of all penalties that is within the closest tenth.
    """
    layout = layout_of(parameters, seed)
    ratios: dict[tuple[Address, Address], list[float]] = {}
    for each in played(layout):
        ratios.setdefault((each.sender, each.receiver), []).append(each.taken_ms)
    pairs = []
    for (sender, receiver), times in ratios.items():
        straight = layout.topology.delay(layout.hosts[sender], layout.hosts[receiver])
        if straight:
            pairs.append((straight, fmean(times) / straight))
    pairs.sort()
    measures: Measures = {}
    for place in range(BINS):
        tenth = pairs[place * len(pairs) // BINS : (place + 1) * len(pairs) // BINS]
        measures[f"penalty[{place + 1}]"] = fmean(penalty for _, penalty in tenth)
        measures[f"straight_ms[{place + 1}]"] = fmean(straight for straight, _ in tenth)
    highest = sorted(range(len(pairs)), key=lambda index: -pairs[index][1])[: max(1, len(pairs) // 100)]
    measures["highest_among_close"] = sum(index < len(pairs) // BINS for index in highest) / len(highest)
    measures["penalty_max"] = pairs[highest[0]][1]
    return measures


def part_of(values: Iterable[float], part: float) -> float:
    """The value that this part of all values does not exceed."""
    given = sorted(values)
    return given[min(len(given) - 1, int(part * len(given)))]
