"""The defects of a sequencing graph, found by a check that does not know how ours is made."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from seriatim.protocols.atoms.overlaps import AtomId, Group


def problems_of(paths: Mapping[Group, Sequence[AtomId]], owned: Mapping[Group, Iterable[AtomId]]) -> list[str]:
    """What is wrong with a sequencing graph, given as the path of each group and the atoms that must be on it.

    C1: one path, that passes each atom once, holds all atoms of the group. C2: all paths together, without their
    directions, have no loop. Direction: no edge is walked both ways.
    """
    found: list[str] = []
    leader: dict[AtomId, AtomId] = {}
    walked: dict[tuple[AtomId, AtomId], Group] = {}

    def tree_of(atom: AtomId) -> AtomId:
        while (above := leader.setdefault(atom, atom)) != atom:
            leader[atom] = leader.get(above, above)
            atom = above
        return atom

    for group, path in paths.items():
        if len(set(path)) != len(path):
            found.append(f"C1: {group} passes an atom twice: {' '.join(path)}")
        missing = sorted(set(owned.get(group, ())) - set(path))
        if missing:
            found.append(f"C1: the path of {group} leaves out {', '.join(missing[:3])}")
        for edge in itertools.pairwise(path):
            if edge in walked:
                continue
            if edge[::-1] in walked:
                found.append(f"direction: {group} goes {edge[0]} → {edge[1]}, {walked[edge[::-1]]} the other way")
                continue
            walked[edge] = group
            one, other = map(tree_of, edge)
            if one == other:
                found.append(f"C2: {edge[0]} → {edge[1]} of {group} closes a loop")
            leader[one] = other
    return found
