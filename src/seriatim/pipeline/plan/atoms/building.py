"""Builds parts where they are: a task takes the pairs of one part after the other, and has never more than one.

All tasks are given the same data in advance: the names and rates of groups.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from seriatim.pipeline.plan.graph import Floats, Ids
from seriatim.protocols.atoms.building import build_from_pairs
from seriatim.protocols.atoms.colocation import Forest, cut, forest_of
from seriatim.protocols.atoms.graph import SequencingGraph
from seriatim.protocols.atoms.overlaps import group_of

ATOMS_PER_TASK = 100_000
SEGMENT = 0  # the piece of a part that is its segment; those of its tree count from 1
SCHEMA = "part int, a int, b int, members long, after long, depth long, piece int, after_piece int"


class Known(NamedTuple):
    """What is known of all groups. `load_max`: events per second that a piece may see."""

    names: list[str]
    rates: Floats
    load_max: float


def build_parts(owned: DataFrame, known: Known, atoms: int) -> DataFrame:
    """One row per atom: its ids, its overlap, and where in its part it is. `after`: the next atom (the smaller id times
    the number of groups, plus the larger one), or -1 at the end of the part. `depth`: how many atoms come after it in
    the part. `piece`: of the part, and `after_piece` the next one's."""
    tasks = max(owned.sparkSession.sparkContext.defaultParallelism, atoms // ATOMS_PER_TASK + 1)
    together = owned.repartition(tasks, "part").sortWithinPartitions("part")
    return together.mapInArrow(partial(_built, known), SCHEMA)


def bearable(forest: Forest, load_max: float) -> float:
    """The load that pieces may have. Somebody must bear the heaviest place anyhow: where that is more than `load_max`,
    pieces may have twice as much, for cutting them smaller would help nobody."""
    loads = list(forest.entering)
    for place, after in enumerate(forest.after):
        if after >= 0:
            loads[after] += forest.leaving[place]
    heaviest = max(loads, default=0.0)
    return load_max if heaviest <= load_max else 2.0 * heaviest


# ── in a Python worker ────────────────────────────────────────────────────────────────────────────────────────────


class _Rows(NamedTuple):
    group: Ids
    other: Ids
    members: Ids
    rank: Ids


def _built(known: Known, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    atoms: list[tuple[int, ...]] = []
    for part, rows in _part_by_part(batches):
        atoms += _build(part, rows, known)
        if len(atoms) >= ATOMS_PER_TASK:
            yield _batch(atoms)
            atoms = []
    if atoms:
        yield _batch(atoms)


def _batch(atoms: list[tuple[int, ...]]) -> pa.RecordBatch:
    columns = zip([each.split() for each in SCHEMA.split(", ")], np.asarray(atoms, np.int64).T, strict=True)
    return pa.record_batch(
        {name: values if kind == "long" else values.astype(np.int32) for (name, kind), values in columns}
    )


def _part_by_part(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, _Rows]]:
    """Rows come sorted by part."""
    open_part, waiting = -1, [np.empty((0, 4), np.int64)]
    for batch in batches:
        if not batch.num_rows:
            continue
        part = batch.column(0).to_numpy()
        rows = np.stack([batch.column(place).to_numpy().astype(np.int64) for place in range(1, 5)], axis=1)
        starts = np.flatnonzero(np.concatenate([[True], part[1:] != part[:-1]]))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(part)], strict=True):
            if part[start] != open_part:
                if open_part >= 0:
                    yield open_part, _Rows(*np.concatenate(waiting).T)
                open_part, waiting = int(part[start]), []
            waiting.append(rows[start:end])
    if open_part >= 0:
        yield open_part, _Rows(*np.concatenate(waiting).T)


def _build(part: int, rows: _Rows, known: Known) -> list[tuple[int, ...]]:
    """The tree of a part, and then its segment."""
    count = len(known.names)
    outside = np.flatnonzero(rows.rank >= 0)
    segment = outside[_segment_order(rows.group[outside], rows.rank[outside])]
    group, other = rows.group[segment], rows.other[segment]
    low, high = np.minimum(group, other), np.maximum(group, other)
    keys = (low * count + high).tolist()
    found: list[tuple[int, ...]] = []
    inside = rows.rank < 0
    if inside.any():
        entries = set(group.tolist())
        head = keys[0] if keys else -1
        found = _build_tree(part, _Rows(*(column[inside] for column in rows)), entries, head, len(keys), known)
    columns = low.tolist(), high.tolist(), rows.members[segment].tolist(), [*keys, -1][1:], reversed(range(len(keys)))
    for *row, after, depth in zip(*columns, strict=True):
        found.append((part, *row, after, depth, SEGMENT, SEGMENT if depth else -1))
    return found


def _segment_order(group: Ids, rank: Ids) -> Ids:
    """Group by group, those with the fewest atoms first: everybody passes the segment from its beginning."""
    _, place, counts = np.unique(group, return_inverse=True, return_counts=True)
    return np.lexsort((rank, group, counts[place]))


def _build_tree(
    part: int, rows: _Rows, going_on: set[int], head: int, segment: int, known: Known
) -> list[tuple[int, ...]]:
    """`going_on`: the groups of this part with atoms in the segment, which begins with `head`."""
    ids = {group_of(known.names[each], 1): each for each in {*rows.group.tolist(), *rows.other.tolist()}}
    names = {each: name for name, each in ids.items()}
    pairs = []
    members = {}
    for one, other, shared in zip(rows.group.tolist(), rows.other.tolist(), rows.members.tolist(), strict=True):
        pair = min(names[one], names[other]), max(names[one], names[other])
        pairs.append(pair)
        members[pair] = shared
    graph = build_from_pairs(dict.fromkeys(ids, frozenset()), sorted(pairs))
    depths = graph.depths()
    _go_on(graph, [names[each] for each in going_on])
    rates = {name: float(known.rates[each]) for name, each in ids.items()}
    places, forest = forest_of(graph, rates)
    pieces = dict(zip(places, cut(forest, bearable(forest, known.load_max)), strict=True))
    found: list[tuple[int, ...]] = []
    for name, atom in graph.atoms.items():
        low, high = sorted(ids[each] for each in atom.pair)
        after, after_piece = head, SEGMENT if segment else -1
        if atom.next is not None:
            next_low, next_high = sorted(ids[each] for each in graph.atoms[atom.next].pair)
            after, after_piece = next_low * len(known.names) + next_high, 1 + pieces[atom.next]
        depth = depths[name] + segment
        found.append((part, low, high, members[atom.pair], after, depth, 1 + pieces[name], after_piece))
    return found


def _go_on(graph: SequencingGraph, groups: list[str]) -> None:
    """Groups with atoms in the segment walk to the root, and on from there."""
    if groups:
        root = next(name for name, atom in graph.atoms.items() if atom.next is None)
        for group in groups:
            graph.groups[group].end = root
