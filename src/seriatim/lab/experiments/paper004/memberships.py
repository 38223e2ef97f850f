"""Who belongs to which group: sizes by Zipf's law or by chance, as section 4 of paper 004 has them.

The paper says that sizes are *proportional* to 1/rank, and not what the factor is. `SIZES` are three readings of it; a
run of experiment `004-sizes` compares them. Ours is the one in which a group of mean size holds the same share of the
hosts however many groups there are: with any fixed factor the groups that are added are ever smaller, and the stress
of sequencing nodes falls towards nothing, where the paper's settles.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias

from seriatim.model import Address, InputError, Topic

Memberships: TypeAlias = dict[Topic, list[Address]]

SHARE = 0.08  # of the hosts, that a group of mean size holds; calibrated on Fig. 6

Size: TypeAlias = Callable[[int, int, int], float]  # of rank, groups, hosts


def _harmonic(count: int) -> float:
    return sum(1.0 / rank for rank in range(1, count + 1))


SIZES: Mapping[str, Size] = {
    "mean share": lambda rank, groups, hosts: SHARE * hosts * groups / _harmonic(groups) / rank,
    "sum of hosts": lambda rank, groups, hosts: hosts / _harmonic(hosts) / rank,
    "first is everybody": lambda rank, groups, hosts: hosts / rank,
}
MEAN_SHARE = "mean share"


def hosts_named(count: int) -> list[Address]:
    return [f"h{index:03}" for index in range(count)]


def zipf_memberships(groups: int, hosts: int, seed: int, sizes: str = MEAN_SHARE) -> Memberships:
    """Groups with sizes by rank, the largest first, and members by chance."""
    size = SIZES[sizes]
    names = hosts_named(hosts)
    random = Random(f"members {seed}")
    return {
        f"T{rank:02}": sorted(random.sample(names, max(1, min(hosts, round(size(rank, groups, hosts))))))
        for rank in range(1, groups + 1)
    }


def occupancy_memberships(groups: int, hosts: int, occupancy: float, seed: int) -> Memberships:
    """Every host is in every group with the same probability. Groups without members are left out."""
    if not 0.0 <= occupancy <= 1.0:
        raise InputError("occupancy", f"{occupancy} is not a probability", "give a value from 0 to 1")
    random = Random(f"occupancy {seed}")
    found = {
        f"T{group:02}": [name for name in hosts_named(hosts) if random.random() < occupancy] for group in range(groups)
    }
    return {topic: members for topic, members in found.items() if members}
