"""Cuts the overlap graph into parts that are small enough to be built one by one, wherever they are.

Groups that are not connected by overlaps need no common atoms: every component is a part. A few popular groups make
one component of nearly everything. Its most connected groups are then taken out, as many as it needs for the rest to
fall apart; they are its *backbone*, and each of them is a part by itself.

All atoms of a backbone group must be on one path, so they form a chain, the *trunk*. It is put together from segments:

- An atom belongs to the part of its group that is not in the backbone; between two backbone groups to the weaker one.
- A part's atoms among its own groups are a tree (building.py of the protocol). Its atoms with the backbone are its
  segment. Its tree leads to its segment, and its segment to that of the part that comes after it.
- So a group of a part enters its tree or its segment, and leaves there. A backbone group enters the segment of the
  first part it overlaps with, and leaves in its own one. The trunk has one direction, and no loop.

Parts that only the strongest of the backbone overlap with come first, and the backbone's own segments last, the weakest
first: so weak ones come late and leave early.

How much to take out is found in one pass. Remove the k most connected groups: of the pairs that are left, a spanning
forest that prefers pairs of weak groups tells the components, for every k at once. Each task makes one of its own
pairs, of which there may be any number; only forests are brought together.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.pipeline.plan.graph import Flags, components_of
from seriatim.pipeline.plan.overlaps import Ids

PART_MAX = 40_000  # the sum, over the groups of a part, of the groups each overlaps with
PAIRS_PER_FOREST = 1_000_000


class Parts(NamedTuple):
    """For each group's id: its component, its part (a group's id as well), and whether it is in the backbone.

    `ranks`: 0 is the group that overlaps with most others.
    """

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
    forest = pairs.select("a", "b").mapInArrow(partial(_forest_made, ranks), "a int, b int").toArrow()
    one, other = (forest.column(place).to_numpy().astype(np.int64) for place in (0, 1))
    components = components_of(one, other, count)
    kept = spanning_forest(one, other, ranks)
    part, backbone = _fallen_apart(one[kept], other[kept], degrees, ranks, components, part_max)
    return Parts(components, part, backbone, ranks)


def owned_pairs(pairs: DataFrame, parts: Parts) -> DataFrame:
    """`part`, `group` (in the part), `other`, `members`, `rank` of the other one, or -1 if it is in the part, too."""
    schema = "part int, group int, other int, members long, rank int"
    return pairs.select("a", "b", "members").mapInArrow(partial(_owned, parts), schema)


class Order(NamedTuple):
    """The trunks. `part`: ids, by component and from the beginning of its trunk; and of each the atoms in its tree and
    in its segment, and how many atoms of the trunk come after its segment."""

    part: Ids
    component: Ids
    inside: Ids
    segment: Ids
    beyond: Ids


def order_of(owned: DataFrame, parts: Parts) -> Order:
    """Where in the trunk of its component each part is."""
    outside = F.col("rank") >= 0
    counted = owned.groupBy("part").agg(
        F.count_if(~outside).alias("inside"), F.count_if(outside).alias("segment"), F.max("rank").alias("reach")
    )
    table = counted.toArrow()
    part, inside, segment, reach = (
        table.column(name).to_numpy().astype(np.int64) for name in ("part", "inside", "segment", "reach")
    )
    alone = parts.backbone[part]
    component = parts.components[part]
    key = np.where(alone, -parts.ranks[part], reach)
    order = np.lexsort((part, key, alone, component))
    part, component, inside, segment = part[order], component[order], inside[order], segment[order]
    sums = np.cumsum(segment)
    last = np.searchsorted(component, component, "right") - 1
    return Order(part, component, inside, segment, sums[last] - sums)


def spanning_forest(a: Ids, b: Ids, ranks: Ids) -> Ids:
    """Places of pairs that connect what all of them connect; also among the groups from any rank on."""
    leader: dict[int, int] = {}

    def tree_of(group: int) -> int:
        while (above := leader.setdefault(group, group)) != group:
            leader[group] = leader[above]
            group = above
        return group

    weakest_first = np.argsort(-np.minimum(ranks[a], ranks[b]), kind="stable")
    kept = []
    for place, one, other in zip(
        weakest_first.tolist(), a[weakest_first].tolist(), b[weakest_first].tolist(), strict=True
    ):
        first, second = tree_of(one), tree_of(other)
        if first != second:
            leader[first] = second
            kept.append(place)
    return np.asarray(kept, np.int64)


def _fallen_apart(a: Ids, b: Ids, degrees: Ids, ranks: Ids, components: Ids, part_max: int) -> tuple[Ids, Flags]:
    """Groups come back one by one, the weakest first. In a component that then has a part too large, no more do."""
    weaker: dict[int, list[int]] = {}  # neighbours of a group, in the forest, that come back before it
    for one, other in zip(a.tolist(), b.tolist(), strict=True):
        first, second = (one, other) if ranks[one] < ranks[other] else (other, one)
        weaker.setdefault(first, []).append(second)
    part = np.arange(len(ranks))
    leader = list(range(len(ranks)))
    weights = degrees.tolist()
    whole: set[int] = set()  # components that are cut
    backbone = np.zeros(len(ranks), np.bool_)

    def part_of(group: int) -> int:
        while leader[group] != group:
            leader[group] = leader[leader[group]]
            group = leader[group]
        return group

    label = components.tolist()
    for group in np.argsort(-ranks).tolist():
        below = {part_of(each) for each in weaker.get(group, ())}
        weight = weights[group] + sum(weights[each] for each in below)
        if label[group] in whole or weight > part_max:
            whole.add(label[group])
            backbone[group] = True
            continue
        for each in below:
            leader[each] = group
        weights[group] = weight
    part[:] = [part_of(group) for group in range(len(leader))]
    return part, backbone


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
        arrays = [pa.array(one.astype(np.int32)), pa.array(other.astype(np.int32))]
        yield pa.RecordBatch.from_arrays(arrays, names=["a", "b"])


def _owned(parts: Parts, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        a, b, members = (batch.column(place).to_numpy().astype(np.int64) for place in range(3))
        # who owns: the one that is not in the backbone; of two that are, the weaker one
        first = np.where(parts.backbone[a] != parts.backbone[b], parts.backbone[b], parts.ranks[a] > parts.ranks[b])
        group, other = np.where(first, a, b), np.where(first, b, a)
        rank = np.where(parts.part[group] == parts.part[other], -1, parts.ranks[other])
        columns = [parts.part[group], group, other, members, rank]
        kinds = [pa.int32(), pa.int32(), pa.int32(), pa.int64(), pa.int32()]
        arrays = [pa.array(column.astype(kind.to_pandas_dtype())) for column, kind in zip(columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=["part", "group", "other", "members", "rank"])
