"""How few pass-through atoms a sequencing graph can have: a bound that holds for every graph with C1, C2 and direction.

**Parts add up.** Take a part of the overlap graph, keep its atoms and contract the others: paths stay paths and the
forest a forest. Visits of a part's groups to a part's atoms belong to no other part that shares no atom with it. So
bounds of parts without common atoms may be added.

**A clique of k groups.** Paths that meet pairwise in a forest have an atom v in common. Of the atoms before v that at
most t of the k groups pass, consider those nearest to v: the groups that pass them are all different, at most t at
each, and every other such atom lies behind one of them and has both its groups among those. So before v there are at
most ⌊k/t⌋·C(t,2) + C(k mod t, 2), after v as many, and all other atoms are passed by more than t groups.

**A part without cut groups** (removing any one leaves it connected) with n groups. At least two groups pass between any
two neighbouring atoms: otherwise one group would separate the two sides, or a side would have an atom with only one
group. Summing lengths minus one over groups gives 2m + P - n ≥ 2(m - 1), so P ≥ n - 2.
"""

from collections.abc import Iterable, Mapping

from seriatim.protocols.atoms.overlaps import Group, Pair


def clique_bound(size: int) -> int:
    """Pass-throughs that `size` groups, all coupled with each other, need at least."""
    atoms = size * (size - 1) // 2
    total = 0
    for most in range(2, size):
        whole, rest = divmod(size, most)
        cheap = 2 * (whole * (most * (most - 1) // 2) + rest * (rest - 1) // 2)
        total += max(1, atoms - cheap)
    return total


def lower_bound(pairs: Iterable[Pair]) -> int:
    """Pass-throughs that any sequencing graph for these coupled pairs has at least.

    The better of two ways to take the overlap graph apart: into blocks, or first into cliques and the rest into blocks.
    """
    neighbours: dict[Group, set[Group]] = {}
    for one, other in pairs:
        neighbours.setdefault(one, set()).add(other)
        neighbours.setdefault(other, set()).add(one)
    whole = _blocks_bound(neighbours)
    cliques = sum(clique_bound(len(clique)) for clique in _take_cliques(neighbours))
    return max(whole, cliques + _blocks_bound(neighbours))


def _take_cliques(neighbours: dict[Group, set[Group]]) -> Iterable[list[Group]]:
    """Cliques of three and more without common edges, greedily; their edges are taken out of `neighbours`."""
    for group in sorted(neighbours, key=lambda each: (-len(neighbours[each]), each)):
        while True:
            clique, candidates = [group], set(neighbours[group])
            while candidates:
                best = max(candidates, key=lambda each: (len(neighbours[each] & candidates), each))
                clique.append(best)
                candidates &= neighbours[best]
            if len(clique) < 3:
                break
            for one in clique:
                neighbours[one].difference_update(clique)
            yield clique


def _blocks_bound(neighbours: Mapping[Group, set[Group]]) -> int:
    """The sum of n - 2 over all blocks: Hopcroft and Tarjan's algorithm, without recursion."""
    order: dict[Group, int] = {}
    low: dict[Group, int] = {}
    total = 0
    for start in sorted(neighbours):
        if start in order:
            continue
        order[start] = low[start] = len(order)
        edges: list[Pair] = []
        stack = [(start, start, iter(sorted(neighbours[start])))]
        while stack:
            here, parent, rest = stack[-1]
            found = next(rest, None)
            if found is None:
                stack.pop()
                if stack:
                    low[parent] = min(low[parent], low[here])
                    if low[here] >= order[parent]:
                        block: set[Group] = set()
                        while True:
                            edge = edges.pop()
                            block.update(edge)
                            if edge == (parent, here):
                                break
                        total += len(block) - 2
            elif found not in order:
                order[found] = low[found] = len(order)
                edges.append((here, found))
                stack.append((found, here, iter(sorted(neighbours[found]))))
            elif found != parent and order[found] < order[here]:
                edges.append((here, found))
                low[here] = min(low[here], order[found])
    return total
