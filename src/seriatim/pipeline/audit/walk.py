"""One walk along every subscriber's positions, with a key for each event: where does the key not rise?

The key is a hint and trusted for nothing. A row is *marked* if an earlier row of its sequence has a key as high as its
own or higher; `reach` is the highest of those. Unmarked rows are in the order of the keys, and so is every pair of rows
that no interval [k, reach] of a marked row covers: see docs/audit-at-scale.md.

Sequences are of three kinds: what a subscriber was notified of; what a publisher had seen before it published (its
publication stands at position `seen` of the subscriber of its name, after all lower positions); and what a publisher
published, in its own order.
"""

from typing import Any, NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.pipeline.audit.columns import before
from seriatim.pipeline.audit.keep import HANDED_OUT_MAX, handed_out, kept

Array = np.ndarray[Any, np.dtype[Any]]

PUBLISHED, NOTIFIED = 0, 1  # kinds of row; at one position, what was published comes first: it had not seen that row


class Keys(NamedTuple):
    """Events with their keys, or NaN."""

    e: Array
    k: Array


class Marks(NamedTuple):
    """The irregularities along the sequences of some subscribers. A table that would be empty is None."""

    repeats: DataFrame | None = None
    twice: DataFrame | None = None  # positions with two rows: s, p
    holes: DataFrame | None = None  # subscribers some of whose rows are missing: s, and the first such position
    intervals: DataFrame | None = None  # k, reach
    interval_count: int = 0
    covered_rows: int = 0
    keys: Keys | None = None


def walk_rows(rows: DataFrame, all_events: DataFrame, chain_rows: DataFrame | None, are_few: bool) -> Marks:
    """Group the rows by subscriber and sort them. If the events are few, every task gets all their keys."""
    keys = all_events.filter(F.col("n") > 0).select("e", "k", "suspect")
    # Keys that are many are hashed, part by part: sorting the rows for it would cost more than the walk.
    keyed = rows.select("s", "p", "e", "o").join(F.broadcast(keys) if are_few else keys.hint("shuffle_hash"), "e")
    notified = keyed.select("s", "p", F.lit(NOTIFIED).alias("kind"), "e", "k", "o", "suspect")
    steps = notified if chain_rows is None else notified.unionByName(_made(chain_rows))
    marked = kept(marks(steps, chain_rows is not None))
    is_row = F.col("kind") == NOTIFIED
    covers = F.coalesce(F.col("k") <= F.col("reach"), F.lit(False))
    skips = is_row & ((F.col("p") > F.col("expected")) | (F.col("p") < 0))  # there is no position below 0
    is_tied = is_row & (F.col("p") < F.col("expected"))
    # A repeat has the key of the first notification, so it is marked, or tagged, or suspect.
    may_repeat = is_row & (covers | F.col("o") | F.col("suspect"))
    counted = marked.agg(
        F.count_if(skips).alias("holes"),
        F.count_if(is_tied).alias("ties"),
        F.count_if(may_repeat).alias("repeats"),
        F.count_if(covers).alias("covered"),
    ).first()
    assert counted is not None
    repeats = None
    if counted["repeats"]:
        repeats = repeated(rows, marked.filter(may_repeat).select("s", "e").distinct(), counted["repeats"])
    missing = marked.filter(skips).groupBy("s").agg(F.min("expected").alias("position"))
    # A repeat orders nothing; a tagged row neither.
    intervals = without_repeats(marked.filter(covers & ~F.col("o")), repeats).select("k", "reach")
    return Marks(
        repeats=repeats,
        twice=marked.filter(is_tied).select("s", "p") if counted["ties"] else None,
        holes=kept(missing) if counted["holes"] else None,
        intervals=intervals if counted["covered"] else None,
        interval_count=counted["covered"],
        covered_rows=counted["covered"],
    )


def with_publications(rows: DataFrame, chain_rows: DataFrame | None, events: DataFrame) -> DataFrame:
    """Deliveries, and the publications of these events where their publisher made them: s, p, kind, e, o."""
    notified = rows.select("s", "p", F.lit(NOTIFIED).alias("kind"), "e", "o")
    if chain_rows is None:
        return notified
    return notified.unionByName(_made(chain_rows).join(events.select("e"), "e").select(*notified.columns))


def _made(chain_rows: DataFrame) -> DataFrame:
    return chain_rows.filter(F.col("seen").isNotNull() & F.col("ordered")).select(
        F.col("a").alias("s"),
        F.col("seen").alias("p"),
        F.lit(PUBLISHED).alias("kind"),
        "e",
        "k",
        F.lit(False).alias("o"),
        F.lit(False).alias("suspect"),
    )


def marks(rows: DataFrame, has_causes: bool) -> DataFrame:
    """The rows that are not simply next: s, p, kind, e, k, o, suspect, expected (position), reach."""
    earlier = before("s", "p", "kind", "e")
    is_row = F.col("kind") == NOTIFIED
    last = F.max(F.when(is_row, F.col("p")) if has_causes else F.col("p")).over(earlier)
    ordered = F.max(F.when(is_row & ~F.col("o"), F.col("k"))).over(earlier)
    walked = rows.withColumns({"expected": F.coalesce(last, F.lit(-1)) + 1, "ordered_reach": ordered})
    if has_causes:  # a tagged notification is out of order, and yet it was seen
        walked = walked.withColumn("seen_reach", F.max(F.when(is_row, F.col("k"))).over(earlier))
    else:
        walked = walked.withColumn("seen_reach", F.lit(None).cast("double"))
    walked = walked.withColumn("reach", F.when(is_row, F.col("ordered_reach")).otherwise(F.col("seen_reach")))
    covered = F.col("k") <= F.col("reach")
    irregular = is_row & ((F.col("p") != F.col("expected")) | F.col("o") | F.col("suspect"))
    return walked.filter(irregular | F.coalesce(covered, F.lit(False))).drop("ordered_reach", "seen_reach")


def chain_marks(chain_rows: DataFrame) -> DataFrame:
    """The publications whose key is not above those of their publisher's earlier ones: k, reach."""
    return chain_rows.select("k", F.max("k").over(before("chain", "rank")).alias("reach")).filter(
        F.col("k") <= F.col("reach")
    )


def repeated(rows: DataFrame, perhaps: DataFrame, perhaps_max: int) -> DataFrame | None:
    """Events that a subscriber was notified of more than once: s, e, and the position that counts, `place`.

    No other rows are looked at than those of `perhaps`, by its columns, which has at most `perhaps_max`.
    """
    if perhaps_max > HANDED_OUT_MAX:
        perhaps = kept(perhaps)
    counted = (
        rows.join(handed_out(perhaps, perhaps_max), perhaps.columns, "left_semi")
        .groupBy("s", "e")
        .agg(F.count(F.lit(1)).alias("times"), F.min(F.when(~F.col("o"), F.col("p"))).alias("place"))
    )
    found = kept(counted.filter(F.col("times") > 1).select("s", "e", "place"))
    return None if found.isEmpty() else found


def without_repeats(rows: DataFrame, repeats: DataFrame | None) -> DataFrame:
    """Rows (s, p, kind, e, o) without those that are repeats. A publication is none, and tagged rows stay."""
    if repeats is None:
        return rows
    known = repeats.select("s", "e", "place", F.lit(True).alias("is_repeated"))
    return rows.join(known, ["s", "e"], "left").filter(
        (F.col("kind") == PUBLISHED) | F.col("is_repeated").isNull() | F.col("o") | (F.col("p") == F.col("place"))
    )


def tied(rows: DataFrame, twice: DataFrame) -> DataFrame:
    """Positions that two events claim: s, p. `twice` (s, p) are those with two rows."""
    there = rows.join(twice.distinct(), ["s", "p"], "left_semi")
    return there.groupBy("s", "p").agg(F.min("e").alias("one"), F.max("e").alias("other")).filter("one != other")
