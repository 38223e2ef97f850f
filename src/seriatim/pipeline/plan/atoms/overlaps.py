"""All overlaps of groups, listed: each is an atom.

The tree's planner never lists what its widest subscriptions alone couple (../overlaps.py). An atom must be listed: so
those pairs are made here, topic by topic from the masks, after they have been counted. There may be too many of them.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.model import InputError
from seriatim.pipeline.plan.graph import Ids, implied_pairs
from seriatim.pipeline.plan.overlaps import Wide, both_of, pairs_of, wide_of

ATOMS_MAX = 5_000_000  # the driver writes them into one file: about 60 bytes each in its memory
TOPICS_PER_TASK = 2_000
SCHEMA = "pair long, members long, wide long"
TREE = "order by the tree, whose stamps name only what has changed (leave out --order atoms)"


def overlaps_of(held: DataFrame, topic_count: int, rows: int, threshold: int) -> DataFrame:
    """`a`, `b` (ids, a < b), `members`: all coupled pairs. `held`: `subscriber`, `id`; rows may repeat."""
    wide = wide_of(held, topic_count)
    made = pairs_of(wide.without(held), topic_count, rows).withColumnRenamed("subscribers", "members")
    if wide.subscribers:
        refuse_too_many(implied_pairs(wide.masks, threshold), wide)
        made = _with_wide(made, wide, topic_count, threshold)
    return made.where(F.col("members") >= threshold).select(*both_of("pair", topic_count), "members")


def refuse_too_many(atoms: int, wide: Wide | None = None) -> None:
    """A plan for more atoms than can be written is refused, with what causes them as far as it is known."""
    if atoms <= ATOMS_MAX:
        return
    fix = f"{TREE}, or plan for fewer groups"
    problem = f"{atoms:,} pairs of groups overlap, more than {ATOMS_MAX:,} atoms"
    if wide is not None:
        some = ", ".join(wide.subscribers[:5])
        problem += f"; {len(wide.subscribers)} subscribers that hold a thousand topics and more ({some}) cause them"
        fix = f"{TREE}, or plan without these subscribers"
    raise InputError("subscriptions", problem, fix)


def _with_wide(ordinary: DataFrame, wide: Wide, topic_count: int, threshold: int) -> DataFrame:
    """`pair`, `members`: those that others hold as well, and those that the wide ones couple by themselves. One wide
    subscriber holds all pairs of its thousands of topics, and couples none of them by itself."""
    held = np.flatnonzero(wide.masks)
    count = len(held) if len(wide.subscribers) >= threshold else 0
    topics = ordinary.sparkSession.range(count, numPartitions=max(1, -(-count // TOPICS_PER_TASK)))
    alone = partial(_pairs_by_masks, wide.masks, held, topic_count, threshold)
    both = partial(_counts_by_masks, wide.masks, topic_count)
    counted = ordinary.mapInArrow(both, SCHEMA).union(topics.mapInArrow(alone, SCHEMA))
    members = F.sum("members") + F.max("wide")
    return counted.groupBy("pair").agg(members.alias("members"))


# ── in a Python worker ────────────────────────────────────────────────────────────────────────────────────────────


def _pairs_by_masks(
    masks: Ids, held: Ids, topic_count: int, threshold: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for place in batch.column(0).to_numpy().tolist():
            one, others = int(held[place]), held[place + 1 :]
            wide = np.bitwise_count(masks[one] & masks[others]).astype(np.int64)
            some = wide >= threshold
            pairs = one * topic_count + others[some]
            yield pa.record_batch({"pair": pairs, "members": np.zeros(len(pairs), np.int64), "wide": wide[some]})


def _counts_by_masks(masks: Ids, topic_count: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        pairs, members = (batch.column(place).to_numpy().astype(np.int64) for place in (0, 1))
        wide = np.bitwise_count(masks[pairs // topic_count] & masks[pairs % topic_count]).astype(np.int64)
        yield pa.record_batch({"pair": pairs, "members": members, "wide": wide})
