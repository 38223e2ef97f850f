"""One walk along every subscriber's positions, with a key for each event: where does the key not rise?

The key is a hint and trusted for nothing. A row is *marked* if an earlier row of its sequence has a key as high as its
own or higher; `reach` is the highest of those. What is not marked is in the order of the keys, and so is every pair of
rows that no interval [k, reach] of a marked row covers: see docs/audit-at-scale.md.

Sequences are of three kinds: what a subscriber was notified of; what a publisher had seen before it published (its
publication stands at position `seen` of the subscriber of its name, after all lower positions); and what a publisher
published, in its own order.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from seriatim.pipeline.audit.keep import HANDED_OUT_MAX, handed_out, kept

PUBLISHED, NOTIFIED = 0, 1  # kinds of row; at one position, what was published comes first: it had not seen that row


def with_keys(rows: DataFrame, all_events: DataFrame, are_few: bool) -> DataFrame:
    """Deliveries as (s, p, e, o, k, suspect). Without a key: not judged for order; suspect: perhaps a repeat."""
    keys = all_events.filter(F.col("n") > 0).select("e", "k", "suspect")
    # Keys that are many are hashed, part by part: sorting the rows for it would cost more than the walk.
    return rows.select("s", "p", "e", "o").join(F.broadcast(keys) if are_few else keys.hint("shuffle_hash"), "e")


def with_publications(rows: DataFrame, chain_rows: DataFrame | None, events: DataFrame) -> DataFrame:
    """Deliveries, and the publications of these events where their publisher made them: s, p, kind, e, o."""
    notified = rows.select("s", "p", F.lit(NOTIFIED).alias("kind"), "e", "o")
    if chain_rows is None:
        return notified
    return notified.unionByName(_made(chain_rows).join(events.select("e"), "e").select(*notified.columns))


def sequences(keyed: DataFrame, chain_rows: DataFrame | None) -> DataFrame:
    """What the walk goes along: deliveries, and publications where their publisher made them."""
    notified = keyed.select("s", "p", F.lit(NOTIFIED).alias("kind"), "e", "k", "o", "suspect")
    return notified if chain_rows is None else notified.unionByName(_made(chain_rows))


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
    before = (
        Window.partitionBy("s").orderBy("p", "kind", "e").rowsBetween(Window.unboundedPreceding, Window.currentRow - 1)
    )
    is_row = F.col("kind") == NOTIFIED
    last = F.max(F.when(is_row, F.col("p")) if has_causes else F.col("p")).over(before)
    ordered = F.max(F.when(is_row & ~F.col("o"), F.col("k"))).over(before)
    walked = rows.withColumns({"expected": F.coalesce(last, F.lit(-1)) + 1, "ordered_reach": ordered})
    if has_causes:  # a tagged notification is out of order, and yet it was seen
        walked = walked.withColumn("seen_reach", F.max(F.when(is_row, F.col("k"))).over(before))
    else:
        walked = walked.withColumn("seen_reach", F.lit(None).cast("double"))
    walked = walked.withColumn("reach", F.when(is_row, F.col("ordered_reach")).otherwise(F.col("seen_reach")))
    covered = F.col("k") <= F.col("reach")
    irregular = is_row & ((F.col("p") != F.col("expected")) | F.col("o") | F.col("suspect"))
    return walked.filter(irregular | F.coalesce(covered, F.lit(False))).drop("ordered_reach", "seen_reach")


def chain_marks(chain_rows: DataFrame) -> DataFrame:
    """The publications whose key is not above those of their publisher's earlier ones: k, reach."""
    before = Window.partitionBy("chain").orderBy("rank").rowsBetween(Window.unboundedPreceding, Window.currentRow - 1)
    return chain_rows.select("k", F.max("k").over(before).alias("reach")).filter(F.col("k") <= F.col("reach"))


def may_repeat(marked: DataFrame) -> DataFrame:
    """What may have been notified more than once: s, e.

    A repeat has the key of the first notification, so it is marked, or tagged, or suspect.
    """
    return marked.filter((F.col("kind") == NOTIFIED) & _may_repeat()).select("s", "e").distinct()


def repeated(rows: DataFrame, perhaps: DataFrame, perhaps_max: int) -> DataFrame:
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
    return counted.filter(F.col("times") > 1).select("s", "e", "place")


def _may_repeat() -> Column:
    return F.col("o") | F.col("suspect") | F.coalesce(F.col("k") <= F.col("reach"), F.lit(False))


def intervals(marked: DataFrame, repeats: DataFrame | None) -> DataFrame:
    """What the marked rows cover: k, reach. A repeat orders nothing; a tagged row neither."""
    rows = marked.filter((F.col("k") <= F.col("reach")) & ~F.col("o"))
    if repeats is not None:
        known = repeats.select("s", "e", "place", F.lit(True).alias("is_repeated"))
        rows = rows.join(known, ["s", "e"], "left").filter(
            (F.col("kind") == PUBLISHED) | F.col("is_repeated").isNull() | (F.col("p") == F.col("place"))
        )
    return rows.select("k", "reach")


def twice_taken(marked: DataFrame) -> DataFrame:
    """Positions with two rows: s, p."""
    return marked.filter((F.col("kind") == NOTIFIED) & (F.col("p") < F.col("expected"))).select("s", "p")


def tied(rows: DataFrame, twice: DataFrame) -> DataFrame:
    """Positions that two events claim: s, p. `twice` (s, p) are those with two rows."""
    there = rows.join(twice.distinct(), ["s", "p"], "left_semi")
    return there.groupBy("s", "p").agg(F.min("e").alias("one"), F.max("e").alias("other")).filter("one != other")


def skips() -> Column:
    """Whether a marked row leaves positions out before it. One below 0 counts as such: there is no such position."""
    return (F.col("p") > F.col("expected")) | (F.col("p") < 0)


def holes(marked: DataFrame) -> DataFrame:
    """Subscribers some of whose rows are missing: s, and the first position without a row."""
    missing = marked.filter((F.col("kind") == NOTIFIED) & skips())
    return missing.groupBy("s").agg(F.min("expected").alias("position"))
