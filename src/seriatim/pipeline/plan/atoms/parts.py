"""Cuts the overlap graph into parts that are small enough to be built individually, on any task.

Groups that are not connected by overlaps need no common atoms: every component is a part. A few popular groups make one
component of nearly everything. Its most connected groups are then taken out, just enough for the rest to fall apart;
they are its *backbone*, and each of them is a separate part.

All atoms of a backbone group must be on one path, so they form a chain, the *trunk*. It is put together from segments:

- An atom belongs to the part of its group that is not in the backbone; between two backbone groups to the weaker one.
- A part's atoms among its own groups are a tree (building.py of the protocol). Its atoms with the backbone are its
  segment. Its tree leads to its segment, and its segment to that of the part that comes after it.
- So a group of a part enters its tree or its segment, and leaves there. A backbone group enters the segment of the
  first part it overlaps with, and leaves in its own one. The trunk has one direction, and no loop.

Parts that only the strongest of the backbone overlap with come first, and the backbone's own segments last, the weakest
first: so weak ones come late and leave early.

How much to take out is found in one pass. Remove the k most connected groups: of the pairs that are left, a spanning
forest that prefers pairs of weak groups tells the components, for every k at once. Each task makes one from its own
pairs, of which there may be any number; only forests are merged.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.pipeline.plan.graph import Flags, Ids, columns_of, components_of

PART_MAX = 40_000  # the sum, over the groups of a part, of the groups each overlaps with
PAIRS_PER_FOREST = 1_000_000


class Parts(NamedTuple):
    """For each group's id: its component, its part (a group's id as well), and whether it is in the backbone. `ranks`:
    0 is the group that overlaps with most others."""

    components: Ids
    part: Ids
    backbone: Flags
    ranks: Ids


def parts_of(pairs: DataFrame, count: int, part_max: int = PART_MAX) -> Parts:
    """`pairs`: `a`, `b`; ids are below `count`."""
    ends = pairs.select("a").union(pairs.select("b")).groupBy("a").count().toArrow()
    degrees = np.zeros(count, np.int64)
    degrees[ends.column(0).to_numpy()] = ends.column(1).to_numpy()
    ranks = np.empty(count, np.int64)
    ranks[np.lexsort((np.arange(count), -degrees))] = np.arange(count)
    forest = pairs.select("a", "b").mapInArrow(partial(_forest_made, ranks), "a int, b int")
    one, other = columns_of(forest, "a", "b")
    components = components_of(one, other, count)
    kept = spanning_forest(one, other, ranks)
    part, backbone = _fallen_apart(one[kept], other[kept], degrees, ranks, components, part_max)
    return Parts(components, part, backbone, ranks)


def owned_pairs(pairs: DataFrame, parts: Parts) -> DataFrame:
    """`part`, `group` (in the part), `other`, `members`, `rank` of the other one, or -1 if it is in the part, too."""
    schema = "part int, group int, other int, members long, rank int"
    return pairs.select("a", "b", "members").mapInArrow(partial(_owned, parts), schema)


class Order(NamedTuple):
    """The trunks. `part`: ids, by component and from the beginning of its trunk; and of each the atoms in its segment,
    and how many atoms of the trunk come after its segment."""

    part: Ids
    component: Ids
    segment: Ids
    beyond: Ids


def order_of(owned: DataFrame, parts: Parts) -> Order:
    """Where in the trunk of its component each part is."""
    outside = F.col("rank") >= 0
    counted = owned.groupBy("part").agg(F.count_if(outside).alias("segment"), F.max("rank").alias("reach"))
    part, segment, reach = columns_of(counted, "part", "segment", "reach")
    alone = parts.backbone[part]
    component = parts.components[part]
    key = np.where(alone, -parts.ranks[part], reach)
    order = np.lexsort((part, key, alone, component))
    part, component, segment = part[order], component[order], segment[order]
    sums = np.cumsum(segment)
    last = np.searchsorted(component, component, "right") - 1
    return Order(part, component, segment, sums[last] - sums)


def _leader_of(leader: list[int], group: int) -> int:
    """The group that stands for all it is joined with; ways to it get shorter."""
    while leader[group] != group:
        leader[group] = leader[leader[group]]
        group = leader[group]
    return group


def spanning_forest(a: Ids, b: Ids, ranks: Ids) -> Ids:
    """Places of pairs that connect what all of them connect; also among the groups from any rank on."""
    leader = list(range(len(ranks)))
    weakest_first = np.argsort(-np.minimum(ranks[a], ranks[b]), kind="stable")
    kept = []
    for place, one, other in zip(
        weakest_first.tolist(), a[weakest_first].tolist(), b[weakest_first].tolist(), strict=True
    ):
        first, second = _leader_of(leader, one), _leader_of(leader, other)
        if first != second:
            leader[first] = second
            kept.append(place)
    return np.asarray(kept, np.int64)


def _fallen_apart(a: Ids, b: Ids, degrees: Ids, ranks: Ids, components: Ids, part_max: int) -> tuple[Ids, Flags]:
    """Groups come back one after the other, the weakest first, until a part of the component becomes too large."""
    weaker: dict[int, list[int]] = {}  # neighbours of a group, in the forest, that come back before it
    for one, other in zip(a.tolist(), b.tolist(), strict=True):
        first, second = (one, other) if ranks[one] < ranks[other] else (other, one)
        weaker.setdefault(first, []).append(second)
    leader = list(range(len(ranks)))
    weights = degrees.tolist()
    whole: set[int] = set()  # components that are cut
    backbone = np.zeros(len(ranks), np.bool_)
    label = components.tolist()
    for group in np.argsort(-ranks).tolist():
        below = {_leader_of(leader, each) for each in weaker.get(group, ())}
        weight = weights[group] + sum(weights[each] for each in below)
        if label[group] in whole or weight > part_max:
            whole.add(label[group])
            backbone[group] = True
            continue
        for each in below:
            leader[each] = group
        weights[group] = weight
    return np.asarray([_leader_of(leader, group) for group in range(len(leader))], np.int64), backbone


# ── in a Python worker ────────────────────────────────────────────────────────────────────────────────────────────


def _forest_made(ranks: Ids, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pairs of one partition, as a forest. Some millions of them are in memory at a time, and no more."""
    columns: tuple[list[Ids], list[Ids]] = [], []
    waiting = 0

    def reduced() -> tuple[Ids, Ids]:
        one, other = (np.concatenate(column) for column in columns)
        kept = spanning_forest(one, other, ranks)
        return one[kept], other[kept]

    for batch in batches:
        for place, column in enumerate(columns):
            column.append(batch.column(place).to_numpy().astype(np.int64))
        waiting += batch.num_rows
        if waiting >= PAIRS_PER_FOREST:
            one, other = reduced()
            columns, waiting = ([one], [other]), 0
    if columns[0]:
        one, other = reduced()
        yield pa.record_batch({"a": one.astype(np.int32), "b": other.astype(np.int32)})


def _owned(parts: Parts, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        a, b, members = (batch.column(place).to_numpy().astype(np.int64) for place in range(3))
        # who owns: the one that is not in the backbone; of two that are, the weaker one
        first = np.where(parts.backbone[a] != parts.backbone[b], parts.backbone[b], parts.ranks[a] > parts.ranks[b])
        group, other = np.where(first, a, b), np.where(first, b, a)
        rank = np.where(parts.part[group] == parts.part[other], -1, parts.ranks[other])
        small = {"part": parts.part[group], "group": group, "other": other, "rank": rank}
        columns = {name: column.astype(np.int32) for name, column in small.items()} | {"members": members}
        yield pa.record_batch({name: columns[name] for name in ("part", "group", "other", "members", "rank")})
