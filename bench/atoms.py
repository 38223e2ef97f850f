"""How long it takes to make a sequencing graph, how good it is, and what co-location and placement make of it.

Memberships have Zipf sizes as in section 4.1 of paper 004: the group of rank r has `scale` · hosts / (r · H) members,
where H is the harmonic number that makes the sizes of scale 1 add up to the number of hosts. Times are processor time
of one core.

Run: python bench/atoms.py [growth] [quality] [changes] [colocation] [placement] [machines]
"""

import sys
from collections.abc import Callable
from math import hypot
from random import Random
from statistics import mean
from time import process_time

from seriatim.model import APPLICATION, Event
from seriatim.protocols.atoms import SequencingGraph, build, check, lower_bound, plan_of
from seriatim.protocols.atoms.changing import apply_decay, apply_growth, plan_decay, plan_growth
from seriatim.protocols.atoms.colocation import (
    colocate_along_paths,
    colocate_by_overlaps,
    hops,
    loads,
    receiver_loads,
)
from seriatim.protocols.atoms.host import AtomHost
from seriatim.protocols.atoms.ingress import Ingress
from seriatim.protocols.atoms.messages import Publish
from seriatim.protocols.atoms.options import AtomsOptions
from seriatim.protocols.atoms.overlaps import Group, coupled_pairs, group_of, topic_of
from seriatim.protocols.atoms.placement import (
    Site,
    latencies,
    node_paths,
    place_by_distances,
    place_by_neighbours,
)
from seriatim.protocols.atoms.receiver import Receiver

Memberships = dict[Group, list[str]]


def zipf(groups: int, hosts: int, scale: float, seed: int = 1) -> Memberships:
    """Groups with sizes by rank and members by chance."""
    random = Random(seed)
    harmonic = sum(1 / rank for rank in range(1, hosts + 1))
    found = {}
    for rank in range(1, groups + 1):
        size = max(1, min(hosts, round(scale * hosts / rank / harmonic)))
        found[group_of(f"T{rank}", 1)] = [f"r{host}" for host in random.sample(range(hosts), size)]
    return found


def clustered(groups: int, hosts: int, scale: float, seed: int = 1) -> Memberships:
    """The same sizes, but members live together: a group is a run of neighbouring hosts. Most interest is local."""
    random = Random(seed)
    found = {}
    for group, members in zipf(groups, hosts, scale, seed).items():
        start = random.randrange(hosts)
        found[group] = [f"r{(start + step) % hosts}" for step in range(len(members))]
    return found


def everybody(groups: int, hosts: int, scale: float) -> Memberships:
    """The most atoms there can be: any two groups overlap."""
    return {group_of(f"T{rank}", 1): ["r0", "r1"] for rank in range(1, groups + 1)}


def growth() -> None:
    """Time against size, up to ten times as many groups over ten times as many hosts."""
    print(f"{'groups':>7} {'hosts':>7} {'memberships':>12} {'atoms':>9} {'build':>9} {'check':>9} {'valid':>6}")
    cases: list[tuple[str, Callable[..., Memberships], int, int, float]] = [
        ("Zipf", zipf, 1_000, 10_000, 1.0),
        ("Zipf, sizes x4", zipf, 1_000, 10_000, 4.0),
        ("Zipf, largest = everybody", zipf, 1_000, 10_000, 9.79),
        ("clustered, sizes x4", clustered, 1_000, 10_000, 4.0),
        ("all overlap", everybody, 1_000, 10_000, 1.0),
        ("Zipf, 10x", zipf, 10_000, 100_000, 1.0),
        ("Zipf, sizes x4, 10x", zipf, 10_000, 100_000, 4.0),
    ]
    for name, make, groups, hosts, scale in cases:
        members = make(groups, hosts, scale)
        began = process_time()
        graph = build(members)
        built = process_time()
        check(graph)
        checked = process_time()
        rows = sum(map(len, members.values()))
        print(
            f"{groups:>7,} {hosts:>7,} {rows:>12,} {len(graph.atoms):>9,} {built - began:>7.2f} s "
            f"{checked - built:>7.2f} s {'yes':>6}  {name}",
            flush=True,
        )


def quality() -> None:
    """Pass-throughs beside a bound below which no graph can be; mean over seeds."""
    print(f"{'':34} {'atoms':>8} {'passes':>10} {'bound':>8} {'ratio':>6} {'one chain':>10} {'longest':>8}")
    families: list[tuple[str, Callable[[int], Memberships]]] = [
        ("8 groups, 128 hosts, Zipf", lambda seed: zipf(8, 128, 2.0, seed)),
        ("32 groups, 128 hosts, Zipf", lambda seed: zipf(32, 128, 2.0, seed)),
        ("64 groups, 128 hosts, Zipf", lambda seed: zipf(64, 128, 2.0, seed)),
        ("64 groups, 128 hosts, clustered", lambda seed: clustered(64, 128, 2.0, seed)),
        ("32 groups, all overlap", lambda seed: {group_of(f"T{index}", 1): ["a", "b"] for index in range(32)}),
        ("1,000 groups, 10,000 hosts, Zipf", lambda seed: zipf(1_000, 10_000, 1.0, seed)),
        ("1,000, 10,000, clustered", lambda seed: clustered(1_000, 10_000, 1.0, seed)),
    ]
    for name, make in families:
        rows = []
        for seed in range(1, 6):
            members = make(seed)
            graph = build(members)
            check(graph)
            pairs = coupled_pairs(members, 2)
            rows.append(
                (
                    len(graph.atoms),
                    graph.pass_through(),
                    lower_bound(pairs),
                    naive(members),
                    max(graph.lengths().values()),
                )
            )
        atoms, passes, bound, chain, longest = (mean(column) for column in zip(*rows, strict=True))
        print(
            f"{name:34} {atoms:>8,.0f} {passes:>10,.0f} {bound:>8,.0f} {passes / max(bound, 1):>6.1f} "
            f"{chain:>10,.0f} {longest:>8,.0f}",
            flush=True,
        )


def naive(members: Memberships) -> int:
    """Pass-throughs if all atoms stand in one chain, in the order of their names: also a valid graph."""
    places: dict[Group, list[int]] = {}
    pairs = sorted(coupled_pairs(members, 2))
    for place, pair in enumerate(pairs):
        for group in pair:
            places.setdefault(group, []).append(place)
    return sum(each[-1] - each[0] + 1 for each in places.values()) - 2 * len(pairs)


def changes() -> None:
    """Compare a graph after many changes with a newly built one, and measure what planning a change costs."""
    print(f"{'changes':>8} {'atoms':>7} {'passes':>9} {'anew':>9} {'ratio':>6} {'per change':>11}")
    random = Random(1)
    members = {group: frozenset(each) for group, each in zipf(64, 128, 2.0).items()}
    graph = build(members)
    incarnations = {topic_of(group): 1 for group in members}
    began = process_time()
    for count in range(1, 501):
        topic = random.choice(sorted(incarnations))
        old = group_of(topic, incarnations[topic])
        left = set(members.pop(old))
        left ^= {f"r{random.randrange(128)}"}  # one joins or leaves
        incarnations[topic] += 1
        new = group_of(topic, incarnations[topic])
        members[new] = frozenset(left) or frozenset({"r0"})
        apply_growth(graph, plan_growth(graph, new, members[new], 2, old))
        apply_decay(graph, plan_decay(graph, old))
        if count in (10, 50, 100, 200, 500):
            spent = (process_time() - began) / count * 1000
            check(graph)
            anew = build(members).pass_through()
            print(
                f"{count:>8} {len(graph.atoms):>7,} {graph.pass_through():>9,} {anew:>9,} "
                f"{graph.pass_through() / anew:>6.1f} {spent:>8.1f} ms",
                flush=True,
            )


def colocation() -> None:
    """Sequencing nodes, hops and loads. Every group has the same rate; those that only pass a node count, too."""
    print(f"{'':40} {'nodes':>6} {'hops':>7} {'load max':>9} {'busiest receiver':>17}")
    for name, members in (
        ("32 groups, 128 hosts, Zipf", zipf(32, 128, 2.0)),
        ("64 groups, 128 hosts, Zipf", zipf(64, 128, 2.0)),
        ("64 groups, 128 hosts, clustered", clustered(64, 128, 2.0)),
        ("1,000 groups, 10,000 hosts, clustered", clustered(1_000, 10_000, 1.0)),
    ):
        graph = build(members)
        rates = dict.fromkeys(graph.groups, 1.0)
        receiver = max(receiver_loads(graph, rates).values())
        printed = colocate_by_overlaps(graph, Random(1))
        load = max(loads(graph, printed, rates).values())
        rows = [
            ("atoms alone", {atom: index for index, atom in enumerate(graph.atoms)}),
            ("paper, two steps", printed),
            ("along paths, same load", colocate_along_paths(graph, load, rates)),
            ("along paths, busiest receiver", colocate_along_paths(graph, receiver, rates)),
        ]
        print(name)
        for way, nodes in rows:
            print(
                f"  {way:38} {len(set(nodes.values())):>6} {mean(hops(graph, nodes).values()):>7.2f} "
                f"{max(loads(graph, nodes, rates).values()):>9.0f} {receiver:>17.0f}",
                flush=True,
            )


def placement() -> None:
    """Mean way of a message, from a member through the nodes to the members, on a plane; straight ways are 1."""
    print(f"{'':40} {'printed':>8} {'ours':>8} {'ours/printed':>13}")
    for groups in (8, 16, 32, 64):
        for name, colocate in (("paper's nodes", printed_nodes), ("pieces along paths", pieces)):
            theirs: list[float] = []
            ours: list[float] = []
            for seed in range(1, 6):
                members = zipf(groups, 128, 2.0, seed)
                graph = build(members)
                site = plane(256, 128, seed)
                paths = node_paths(graph, colocate(graph, seed))
                straight = latencies(dict.fromkeys(members, ()), members, {}, site)
                for placed, column in (
                    (place_by_neighbours(paths, site, Random(seed)), theirs),
                    (place_by_distances(paths, members, site), ours),
                ):
                    found = latencies(paths, members, placed, site)
                    column.append(mean(found[group] / straight[group] for group in members if straight[group]))
            ratio = mean(ours) / mean(theirs)
            print(f"{groups:>3} groups, {name:28} {mean(theirs):>8.2f} {mean(ours):>8.2f} {ratio:>13.2f}", flush=True)


def printed_nodes(graph: SequencingGraph, seed: int) -> dict[str, int]:
    return colocate_by_overlaps(graph, Random(seed))


def pieces(graph: SequencingGraph, seed: int) -> dict[str, int]:
    rates = dict.fromkeys(graph.groups, 1.0)
    return colocate_along_paths(graph, max(loads(graph, printed_nodes(graph, seed), rates).values()), rates)


def plane(machines: int, hosts: int, seed: int) -> Site:
    """Machines and members at random places of a square."""
    random = Random(seed)
    places = [(random.random(), random.random()) for _ in range(machines)]

    def distance(one: int, other: int) -> float:
        (a, b), (c, d) = places[one], places[other]
        return hypot(a - c, b - d)

    return Site(range(machines), {f"r{host}": random.randrange(machines) for host in range(hosts)}, distance)


def machines() -> None:
    """What one event costs: at the ingress, at one host with all atoms of its path, and at a receiver."""
    events = 5_000
    print(f"{'':34} {'own atoms':>10} {'passed':>7} {'ingress':>10} {'host':>10} {'receiver':>10}")
    for overlapping in (2, 8, 32):
        topics = {f"T{index}": ["r", "s"] for index in range(overlapping)}
        plan = plan_of(topics, ["h"], ["i"])
        options = AtomsOptions()
        ingress, host, receiver = (
            role(plan, name, options) for role, name in ((Ingress, "i"), (AtomHost, "h"), (Receiver, "r"))
        )
        topic = "T0"
        spent = [0.0, 0.0, 0.0]
        for index in range(events):
            began = process_time()
            sent = ingress.step(APPLICATION, Publish(Event(str(index), topic, "p")), 0.0).send[0][1]
            numbered = process_time()
            item = host.step("i", sent, 0.0).send[0][1]
            sequenced = process_time()
            assert receiver.step("h", item, 0.0).notify
            done = process_time()
            for place, time in enumerate((numbered - began, sequenced - numbered, done - sequenced)):
                spent[place] += time
        group = group_of(topic, 1)
        costs = " ".join(f"{each / events * 1e6:>7.1f} us" for each in spent)
        name = f"{overlapping} groups, all overlap"
        print(f"{name:34} {overlapping - 1:>10} {len(plan.graph.path(group)):>7} {costs}", flush=True)


SECTIONS = {section.__name__: section for section in (growth, quality, changes, colocation, placement, machines)}

if __name__ == "__main__":
    for wanted in sys.argv[1:] or SECTIONS:
        print(f"\n── {wanted} ──")
        SECTIONS[wanted]()
