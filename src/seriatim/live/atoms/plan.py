"""A plan of atoms in a live cluster: the host of each pair of topics, if the plan fits the present subscribers.

Live groups start when somebody subscribes, so a plan only says which host an atom lives on. Subscribers are compared
by the names they were given (`connect(name=...)`), without what makes each process and subscription unique.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seriatim.model import Address, Node, Topic
from seriatim.protocols.atoms import GraphError
from seriatim.protocols.atoms.overlaps import topic_of
from seriatim.protocols.atoms.registrar import pair_name
from seriatim.protocols.atoms.written import Written, digest_of, graph_of, is_atoms, matches, parse
from seriatim.runtime.tables import read_toml


def read_atoms_plan(path: Path) -> Written | None:
    """The plan in a file, checked. None: it is a plan of a tree."""
    table = read_toml(path, "plan.toml")
    if not is_atoms(table):
        return None
    plan = parse(table)
    graph_of(plan)
    return plan


def given_name(receiver: Address) -> str:
    """What the application called its connection: `ann` of `ann~5f3c/2`."""
    return receiver.partition("~")[0]


def placement_of(
    plan: Written,
    members: Mapping[Topic, Iterable[Address]],
    hosts: Sequence[Node],
    threshold: int,
    known: Mapping[str, Node] | None = None,
) -> dict[str, Node]:
    """The host of each pair of topics. GraphError: the plan is for other hosts, another order, or other members.

    `known`: where atoms are placed already. A plan that agrees with it is accepted, even if members have changed.
    """
    if set(plan.hosts) != set(hosts):
        there = ", ".join(sorted(set(plan.hosts) ^ set(hosts)))
        raise GraphError("hosts", f"the plan and the cluster differ in {there}", "plan again for these hosts")
    if plan.threshold != threshold:
        problem = f"the plan couples topics that share {plan.threshold}, the cluster those that share {threshold}"
        raise GraphError("threshold", problem, "plan again, with or without causal order as the cluster")
    found = {}
    for atom in graph_of(plan).atoms.values():
        one, other = atom.pair
        found[pair_name(topic_of(one), topic_of(other))] = atom.host
    if members and found != known:
        names = {topic: {given_name(each) for each in who} for topic, who in members.items()}
        matches(plan, {topic: (len(who), digest_of(who)) for topic, who in names.items()})
    return found
