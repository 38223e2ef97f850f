"""The checks of order, at scale: agreement, fifo and causes, each as it is in the reference auditor.

Key → walk → intervals → blocks → tangles → the reference auditor's own words. Each step passes on only the rows that
the previous step could not clear, so that the cost of a log in order is one walk.
"""

from collections.abc import Sequence
from functools import partial, reduce
from math import ceil
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from seriatim.pipeline.audit.blocks import DIRTY, assign_keys, coarse_blocks, dirty_events, join_intervals
from seriatim.pipeline.audit.columnar.files import FileLog
from seriatim.pipeline.audit.columnar.walking import walk_files
from seriatim.pipeline.audit.columns import LogTables, before, row_of, told, with_hashes
from seriatim.pipeline.audit.events import chains, delivered, fill_keys
from seriatim.pipeline.audit.explain import FOUND, UNTOLD, explain
from seriatim.pipeline.audit.keep import handed_out, in_python, kept
from seriatim.pipeline.audit.options import AuditOptions
from seriatim.pipeline.audit.reporting import doubts
from seriatim.pipeline.audit.untangle import TANGLES, untangle
from seriatim.pipeline.audit.walk import (
    NOTIFIED,
    PUBLISHED,
    Keys,
    Marks,
    chain_marks,
    repeated,
    tied,
    walk_rows,
    with_publications,
    without_repeats,
)

HINTS = ("levelled", "notified", "received", "published")  # columns that may serve as a key, if all events have one


class Facts(NamedTuple):
    """The counts of a log, in all runs, before its walk. Small tables need not be counted again."""

    rows: int
    events: int  # delivered, or only published
    delivered: int
    published: int
    subscribers: int
    repeated: int  # events that somebody was notified of more than once; counted only in files
    has_publications: bool
    has_seen: bool  # publications say what their publishers had seen
    is_undivided: bool  # every table is in one part
    files: FileLog | None  # the deliveries, where tasks can read them by themselves


class Walked(NamedTuple):
    """The findings of one walk. A table that would be empty is None."""

    rows: DataFrame  # all deliveries: s, p, e, o
    chain_rows: DataFrame | None
    are_chains_ordered: bool
    repeats: DataFrame | None
    tied: DataFrame | None
    holes: DataFrame | None
    covered: DataFrame | None  # k, reach; perhaps there are none
    covered_max: int  # at most this many
    covered_rows: int  # of deliveries
    keys: Keys | None  # of all events that have one, where they are known here


def lacks_hint(hint: str) -> Column:
    return F.col(hint).isNull() | F.isnan(hint)


def covered_shares(rows: DataFrame, all_events: DataFrame, hints: Sequence[str], every: int) -> dict[str, float]:
    """How many rows of every Nth subscriber each hint would cover: the best hint covers the fewest."""
    sample = rows.filter((F.pmod(F.col("s"), F.lit(every)) == 0) & ~F.col("o")).select("s", "p", "e")
    known = sample.join(all_events.filter("shared and not reused").select("e", *hints), "e")
    walked = known.withColumns({f"{hint}_reach": F.max(hint).over(before("s", "p", "e")) for hint in hints})
    found = walked.agg(
        F.count(F.lit(1)).alias("rows"),
        *(F.count_if(F.col(hint) <= F.col(f"{hint}_reach")).alias(hint) for hint in hints),
    ).first()
    assert found is not None
    return {hint: found[hint] / max(1, found["rows"]) for hint in hints}


def with_positions(all_events: DataFrame, rows: DataFrame, subscribers: DataFrame, has_runs: bool) -> DataFrame:
    """Where there is no better hint: how far into its log, on average, a subscriber was notified of it: `place`."""
    ends = subscribers.select("s", "last")
    share = F.avg(F.col("p") / F.greatest(F.col("last") + 1, F.lit(1)))
    places = rows.join(ends, "s").groupBy(F.col("e").alias("e")).agg(share.alias("place"))  # a name of its own
    known = all_events.join(places, "e", "left")
    if has_runs:  # runs have nothing to do with each other: each gets a range of its own
        known = known.withColumn("place", F.col("place") + 2 * F.pmod(F.xxhash64("run"), F.lit(1 << 24)))
    return known


def with_hint(all_events: DataFrame, hint: str, has_publications: bool) -> DataFrame:
    """Each event's key, and whether it may be a repeat though it has none.

    Without publications an event that one subscriber alone was notified of can break no order: it needs no key.
    """
    judged = ~F.col("reused") if has_publications else ~F.col("reused") & F.col("shared")
    alone = ~F.col("shared") & (F.col("n") > 1)
    key = F.when(judged & ~F.isnan(hint), F.col(hint).cast("double"))
    return all_events.withColumns({"k": key, "suspect": F.col("reused") | alone})


def walk(rows: DataFrame, all_events: DataFrame, facts: Facts, options: AuditOptions) -> Walked:
    """Go along all sequences once, and look closer at what is marked."""
    rows = rows.select("s", "p", "e", "o")
    chain_rows = kept(fill_keys(chains(all_events))) if facts.has_publications else None
    found = None
    if facts.files is not None and facts.delivered <= options.file_keys_max:
        found = _walk_files(rows, all_events, chain_rows, facts, options)
    if found is None:
        found = [walk_rows(rows, all_events, chain_rows, facts.events <= options.keys_max)]
    repeats = _union([each.repeats for each in found])
    parts = [each.intervals for each in found]
    if chain_rows is not None:
        parts.append(chain_marks(chain_rows))
    covered = _union(parts)
    twice = _union([each.twice for each in found])
    return Walked(
        rows,
        chain_rows,
        chain_rows is None or chain_rows.filter("not ordered").isEmpty(),
        repeats,
        kept(tied(rows, twice)) if twice is not None else None,
        _union([each.holes for each in found]),
        covered.groupBy("k").agg(F.max("reach").alias("reach")) if covered is not None else None,
        sum(each.interval_count for each in found) + facts.published,
        sum(each.covered_rows for each in found),
        found[0].keys if chain_rows is None else None,
    )


def _union(frames: Sequence[DataFrame | None]) -> DataFrame | None:
    there = [frame for frame in frames if frame is not None]
    return reduce(DataFrame.unionByName, there) if there else None


def _walk_files(
    rows: DataFrame, all_events: DataFrame, chain_rows: DataFrame | None, facts: Facts, options: AuditOptions
) -> list[Marks] | None:
    """Walk along rows where they lie. Spark moves the rows of some subscribers only, and walks along those.

    These are the torn ones, and publishers that say what they had seen: their publications stand among their rows.
    None if they are more than half of all, or if the files are too much in disorder.
    """
    assert facts.files is not None
    authors = None
    if facts.has_seen and chain_rows is not None:
        authors = kept(chain_rows.filter("ordered and seen is not null").select(F.col("a").alias("s")).distinct())
        if 2 * authors.count() > facts.subscribers:
            return None
    taken = all_events.filter(delivered()).select("e", "k").toArrow()
    keys = Keys(taken.column("e").to_numpy(), taken.column("k").to_numpy())
    found = walk_files(rows.sparkSession, facts.files, keys, options.stretches_max)
    if found is None:
        return None
    in_place, moved = found
    if facts.repeated:
        in_place = in_place._replace(repeats=repeated(rows, all_events.filter("again").select("e"), facts.repeated))
    if authors is not None:
        moved = authors if moved is None else moved.unionByName(authors).distinct()
    if moved is None:
        return [in_place]
    if in_place.holes is not None:
        in_place = in_place._replace(holes=in_place.holes.join(moved, "s", "left_anti"))
    theirs = rows.join(handed_out(kept(moved), facts.subscribers), "s", "left_semi")
    return [
        in_place,
        walk_rows(theirs, all_events, chain_rows, facts.events <= options.keys_max)._replace(repeats=None),
    ]


def blocks_of(
    walked: Walked, all_events: DataFrame, facts: Facts, options: AuditOptions
) -> tuple[DataFrame, DataFrame] | None:
    """The events that a closer look is needed at, in blocks: e, block; and their deliveries: s, p, e, o, block."""
    if walked.covered is None:
        return None
    covered, covered_max, found_max = walked.covered, walked.covered_max, facts.events
    if covered_max > options.cuts_max:
        covered = kept(covered)
        covered_max = covered.count()
    known = _with_published(all_events, walked.chain_rows)
    if covered_max <= options.cuts_max:
        pairs = covered.toArrow()
        if not pairs.num_rows:
            return None
        low, high = join_intervals(pairs.column("k").to_numpy(), pairs.column("reach").to_numpy())
        if walked.keys is not None:
            inside = assign_keys(walked.keys, low, high)
            found, found_max = all_events.sparkSession.createDataFrame(inside, DIRTY), inside.num_rows
        else:
            found = dirty_events(known, low, high, facts.is_undivided)
    else:
        found = known.filter("k is not null").select("e", F.lit(0).cast("long").alias("block"))
    return _cut_again(found, found_max, walked, all_events, facts, options)


def _with_published(all_events: DataFrame, chain_rows: DataFrame | None) -> DataFrame:
    """Events with the keys that the walk went by: those nobody was notified of have one of their publisher's others."""
    known = all_events.select("e", "k")
    if chain_rows is None:
        return known
    filled = chain_rows.select("e", F.col("k").alias("filled"))
    return known.join(filled, "e", "left").select("e", F.coalesce("filled", "k").alias("k"))


def _cut_again(
    found: DataFrame, found_max: int, walked: Walked, all_events: DataFrame, facts: Facts, options: AuditOptions
) -> tuple[DataFrame, DataFrame]:
    """Cut blocks that are too large for one task by coarse cuts. They have at most this many events."""
    rows = walked.rows.join(handed_out(found, found_max), "e")
    if facts.rows <= options.block_rows_max:
        return found, rows
    rows = kept(rows)
    large = kept(rows.groupBy("block").count().filter(F.col("count") > options.block_rows_max))
    total = large.agg(F.sum("count")).first()
    if total is None or not total[0]:
        return found, rows
    inside = found.join(large.select("block"), "block", "left_semi").select("e")
    events = kept(_with_published(all_events, walked.chain_rows).join(inside, "e").filter("k is not null"))
    steps = with_publications(rows.join(large.select("block"), "block", "left_semi"), walked.chain_rows, events)
    steps = without_repeats(steps, walked.repeats)
    own = walked.chain_rows.join(inside, "e", "left_semi") if walked.chain_rows is not None else None
    again = coarse_blocks(kept(steps), own, events, max(2, ceil(total[0] / options.block_rows)), options.rounds)
    rest = found.join(large.select("block"), "block", "left_anti").select("e", "block")
    blocks = kept(rest.unionByName(again.select("e", (-1 - F.col("block")).alias("block"))))
    return blocks, kept(walked.rows.join(blocks, "e"))


def too_large(rows: DataFrame, group: str, rows_max: int) -> DataFrame | None:
    """The groups (blocks, or tangles) of events with more deliveries than may be judged together, if there are any."""
    large = kept(rows.groupBy(group).agg(F.count(F.lit(1)).alias("rows")).filter(F.col("rows") > rows_max))
    return None if large.isEmpty() else large


def size_doubt(all_events: DataFrame, found: DataFrame, group: str, large: DataFrame, option: str) -> DataFrame:
    """Why the events of these groups are not judged."""
    rows = all_events.join(found, "e").join(large, group).groupBy("run").agg(F.max("rows").alias("rows"))
    text = "{rows} rows that cannot be told apart are more than " + option + " allows: their order was not judged"
    return doubts(rows, "order", 3, reason=told(text, rows=F.format_number("rows", 0)))


def untold_doubt(found: DataFrame) -> DataFrame:
    """A doubt about events that are in disorder without a witness: such an order cannot be called valid."""
    example = found.filter(F.col("name") == UNTOLD).groupBy("run").agg(F.min("tie").alias("event_id"))
    reason = told("{event_id}: in disorder, but its rows do not show what is wrong; are all names UTF-8?")
    return doubts(example, "order", 3, reason=reason)


def tangles_of(rows: DataFrame, walked: Walked, found: DataFrame, facts: Facts, options: AuditOptions) -> DataFrame:
    """The events that are in disorder, each with its tangle: e, tangle. `rows` (s, p, e, o, block): those of blocks."""
    notified = rows.selectExpr("block", "s", "p", f"{NOTIFIED} as kind", "e", "o", "0L as chain", "0L as rank")
    if walked.chain_rows is not None:
        seen = "cast(if(ordered, coalesce(seen, -1), -1) as bigint) as p"
        made = walked.chain_rows.join(found, "e").selectExpr(
            "block", "a as s", seen, f"{PUBLISHED} as kind", "e", "false as o", "chain", "bigint(rank) as rank"
        )
        notified = notified.unionByName(made)
    tasks = 1 if facts.rows <= options.block_rows else max(1, ceil(rows.count() / options.block_rows))
    if not facts.is_undivided:
        notified = notified.repartition(tasks, "block")
    return in_python(notified.drop("block"), untangle, TANGLES, facts.is_undivided)


def explained(
    log: LogTables,
    walked: Walked,
    found: DataFrame,
    facts: Facts,
    limit: int,
    salt: int,
    hopeless: DataFrame | None = None,
) -> DataFrame:
    """What is wrong in each tangle, in the columns of `FOUND`. `hopeless` (e) are events with circular causes."""
    found = handed_out(found, facts.events)
    deliveries = with_hashes(log.deliveries, salt, e="event_id", s="subscriber").join(found, "e")
    unflagged, no = F.lit(False).alias("flag"), F.lit(False).alias("hopeless")
    rows = deliveries.select("tangle", "run", "s", "e", row_of("deliveries").alias("row"), unflagged, no)
    if walked.chain_rows is not None:
        order = walked.chain_rows.select("e", (~F.col("ordered")).alias("flag"))
        publications = with_hashes(log.publications, salt, e="event_id").join(found, "e").join(order, "e")
        if hopeless is not None:
            publications = publications.join(hopeless.withColumn("is_hopeless", F.lit(True)), "e", "left")
            no = F.col("is_hopeless").isNotNull().alias("hopeless")
        nobody = F.lit(None).cast("long").alias("s")
        made = publications.select(
            "tangle", "run", nobody, "e", row_of("publications").alias("row"), "flag", no
        ).distinct()
        rows = rows.unionByName(made)
    rows = (rows.coalesce(1) if facts.is_undivided else rows.repartition("tangle")).sortWithinPartitions("tangle")
    return in_python(rows, partial(explain, limit=limit), FOUND, facts.is_undivided)
