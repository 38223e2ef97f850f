"""Which groups must be ordered against each other: those that share members.

Only a member of both groups sees the messages of both in an order, and only two such members can disagree. So two
groups are *coupled*, and get an atom, if they share `threshold` members: two for one common order, one for causal order
too. Two incarnations of one topic are coupled if they share anybody: the older one comes first.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from seriatim.model import Address, Topic

Group: TypeAlias = str  # one incarnation of a topic: its members never change
AtomId: TypeAlias = str
Pair: TypeAlias = tuple[Group, Group]  # in order
Members: TypeAlias = frozenset[Address]

_AMPERSANDS = re.compile("&+")


def group_of(topic: Topic, incarnation: int) -> Group:
    """The name of an incarnation, counted from 1. An & is doubled: no group is called what an atom is called."""
    return f"{topic.replace('&', '&&')}.{incarnation}"


def topic_of(group: Group) -> Topic:
    return group.rpartition(".")[0].replace("&&", "&")


def incarnation_of(group: Group) -> int:
    return int(group.rpartition(".")[2])


def pair_of(one: Group, other: Group) -> Pair:
    return (one, other) if one < other else (other, one)


def atom_of(one: Group, other: Group) -> AtomId:
    """The atom of two groups; there is one."""
    return "&".join(pair_of(one, other))


def groups_of(atom: AtomId) -> Pair | None:
    """The two groups of an atom; None: not the name of an atom.

    An & of a name is doubled, so the one run of them that is odd begins with the one that joins the groups.
    """
    for run in _AMPERSANDS.finditer(atom):
        if len(run.group()) % 2:
            one, other = atom[: run.start()], atom[run.start() + 1 :]
            return (one, other) if all(each.rpartition(".")[2].isdecimal() for each in (one, other)) else None
    return None


def are_coupled(one: Group, members: Members, other: Group, others: Members, threshold: int) -> bool:
    """Whether messages of these two groups need an order."""
    needed = 1 if topic_of(one) == topic_of(other) else threshold
    return len(members & others) >= needed


def coupled_pairs(memberships: Mapping[Group, Iterable[Address]], threshold: int) -> dict[Pair, int]:
    """All coupled pairs, with how many members they share.

    Counted member by member, so that groups that share nobody cost nothing.
    """
    holds: dict[Address, list[Group]] = {}
    for group in sorted(memberships):
        for member in memberships[group]:
            holds.setdefault(member, []).append(group)
    counts: dict[Pair, int] = {}
    for groups in holds.values():
        for index, one in enumerate(groups):
            for other in groups[index + 1 :]:
                pair = (one, other)
                counts[pair] = counts.get(pair, 0) + 1
    topics = {group: topic_of(group) for group in memberships}
    return {
        pair: count
        for pair, count in sorted(counts.items())
        if count >= threshold or topics[pair[0]] == topics[pair[1]]
    }
