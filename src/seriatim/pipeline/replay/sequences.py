"""Replay: the sequence that a subscriber saw, or the one that a subscriber of these topics would have seen.

    saw(…)                what one subscriber was notified of, from the delivery log, in the order of its positions
    would_have_seen(…)    all events of some topics, in the order of the order log, or of stamps (choosing.py)

Both give a `Replay`: events in the columns of `schemas.REPLAY`, and a list of what is missing. Nothing is left out
silently: a number that was ordered and has no event, a delivery that has no event, a hole in a subscriber's positions,
a log that ends early because the order log or the stamps do not go on, a cut that leaves out what came before.

*The promise.* By positions, every subscriber's sequence is part of the replay. By stamps, two events of which one comes
after the other are replayed in the order in which every subscriber saw them. Stamps order topics that were held
together: by two subscribers, in global order by one. For others (`never_ordered`) keys follow the broker's clock. A
single subscriber that held both may have seen another order; `saw` shows it.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from seriatim.model import InputError, Topic
from seriatim.pipeline.replay.bounds import (
    NO_BOUND,
    Bound,
    at_positions,
    clipped,
    extents_of,
    inside,
    left_out,
    numbers_column,
    of_logs,
)
from seriatim.pipeline.replay.choosing import By, by_positions, by_stamps, known
from seriatim.pipeline.replay.ordering import with_names
from seriatim.pipeline.replay.positions import with_keys, with_positions
from seriatim.pipeline.schemas import REPLAY

ORDER = ("order_key", "log", "number", "index")  # what REPLAY is sorted by
NEAR_NAMES = 5  # shown when one is not known


class Replay(NamedTuple):
    """`events` is not sorted: `in_sequence` does that, once, where it is shown or written."""

    events: DataFrame
    missing: DataFrame  # (kind, name, first, last, reason): numbers of a log, positions of a subscriber, or messages
    changes: DataFrame | None = None  # (position, change, topic, number): what a subscriber joined and left, and when
    places: DataFrame | None = None  # of stamps; those of logs that end early are `ordering.held`. Kept: unpersist it.
    logs: tuple[Topic, ...] = ()  # what the topics are ordered as
    by: By | None = None  # what gave the order
    notes: tuple[str, ...] = ()  # where the order is another one
    ends: tuple[str, ...] = ()  # what is left out because it has no place


def in_sequence(events: DataFrame) -> DataFrame:
    """Sorted as they are replayed. Written to files, part-00000 comes first, then part-00001."""
    return events.orderBy(*ORDER)


# ── what a subscriber would have seen ─────────────────────────────────────────────────────────────────────────────


def would_have_seen(
    events: DataFrame,
    topics: Sequence[Topic],
    *,
    order: DataFrame | None = None,
    stamps: DataFrame | None = None,
    since: Bound = NO_BOUND,
    until: Bound = NO_BOUND,
    skip_gaps: bool = False,
) -> Replay:
    """All events of these topics, in a sequence that a subscriber of exactly these could have been notified of.

    `order`: the order log; without one, or if it is empty, `stamps` give the order. `since` is included. `until`: a
    time is not included, numbers and positions are. `skip_gaps`: continue after positions or stamps that are missing.
    """
    if not topics:
        raise InputError("topics", "no topic is named", "name at least one")
    log = known(order)
    if log is None and (since.position is not None or until.position is not None):
        raise InputError("bound", "without an order log there are no positions", "give a time, or numbers of topics")
    wanted = events.where(F.col("topic").isin(list(topics)))
    log_of, extents = extents_of(wanted, log.began_at if log is not None else 0.0, since, until)
    logs = sorted(set(log_of.values()))
    if unknown := sorted(set(topics) - set(log_of)):
        raise InputError("topics", f"the archive has no event of {', '.join(unknown)}", "check the names")
    begin, end = of_logs(since, log_of, min), of_logs(until, log_of, max)
    if log is not None:
        begin, end = at_positions(log, extents, begin, since=True), at_positions(log, extents, end, since=False)
        found = by_positions(log, clipped(extents, begin, end), stamps, skip_gaps)
    else:
        found = by_stamps(stamps, logs, skip_gaps)
    missing = _holes(events.where(F.col("log").isin(logs)), found.ranges, begin, end)
    if until.numbers:
        missing = missing.union(left_out(log, stamps, logs, end))
    keyed = with_keys(wanted.where(inside("received_at", since, until)), found.ranges)
    if since.position is not None:
        keyed = keyed.where(F.col("order_key") >= since.position)
    if until.position is not None:
        keyed = keyed.where(F.col("order_key") <= until.position)
    return Replay(_as_replay(keyed), missing, None, found.places, tuple(logs), found.by, found.notes, found.ends)


def never_ordered(stamps: DataFrame, logs: Sequence[Topic]) -> list[tuple[Topic, Topic]]:
    """Pairs of these logs of which no stamp of either names the other."""
    named = with_names(stamps.where(F.col("log").isin(list(logs))), logs)
    inside = named.select("log", F.explode(F.map_keys("entries")).alias("other"))
    rows = inside.where(F.col("other").isin(list(logs))).distinct().collect()  # pairs of what was asked for
    ordered = {frozenset((row["log"], row["other"])) for row in rows}
    return [pair for pair in combinations(sorted(set(logs)), 2) if frozenset(pair) not in ordered]


def _as_replay(events: DataFrame) -> DataFrame:
    """Fill in what is not there, in the order of `schemas.REPLAY`."""
    for each in REPLAY:
        if each.name not in events.columns and each.name != "replayed":
            value = F.lit(None) if each.nullable else F.lit(0)
            events = events.withColumn(each.name, value.cast(each.dataType))
    events = events.withColumn("replayed", F.lit(True))
    return events.select(*[F.col(each.name).cast(each.dataType) for each in REPLAY])


# ── what is missing ───────────────────────────────────────────────────────────────────────────────────────────────


def _holes(events: DataFrame, ranges: DataFrame, since: Bound, until: Bound) -> DataFrame:
    """Numbers that have a place and no event, in stretches. A stretch is told by the times of its neighbours."""
    spans = ranges.groupBy("log").agg(F.min("first").alias("begin"), F.max("last").alias("end"))
    numbers = events.groupBy("log", "number").agg(F.min("received_at").alias("at")).join(spans, "log")
    numbers = numbers.where(F.col("number").between(F.col("begin"), F.col("end"))).select("log", "number", "at")
    none = F.lit(None).cast("double")
    ends = F.explode(F.array(F.col("begin") - 1, F.col("end") + 1))
    edges = spans.select("log", ends.alias("number"), none.alias("at"))
    following = Window.partitionBy("log").orderBy("number")
    stretches = numbers.union(edges).select(
        "log",
        (F.col("number") + 1).alias("first"),
        (F.lead("number").over(following) - 1).alias("last"),
        F.col("at").alias("after"),
        F.lead("at").over(following).alias("before"),
    )
    reason = F.lit("ordered, but the archive has no event: deleted or expired before it was archived, or a void")
    before = F.lit("before the first position or stamp of the archive")
    early = spans.where("begin > 1").select("log", F.lit(1).cast("long"), F.col("begin") - 1, none, none, before)
    holes = stretches.where(F.col("first") <= F.col("last")).withColumn("reason", reason).union(early)
    if since.time_ms is not None:
        holes = holes.where(F.col("before").isNull() | (F.col("before") >= since.time_ms))
        holes = holes.where(F.col("first") > 1)  # what lies before the first event lies before the bound
    if until.time_ms is not None:
        holes = holes.where(F.col("after").isNull() | (F.col("after") < until.time_ms))
    holes = holes.where(F.col("last") >= F.coalesce(numbers_column(since), F.col("last")))
    holes = holes.where(F.col("first") <= F.coalesce(numbers_column(until), F.col("first")))
    return holes.select(F.lit("number").alias("kind"), F.col("log").alias("name"), "first", "last", "reason")


# ── what a subscriber saw ─────────────────────────────────────────────────────────────────────────────────────────


def saw(
    events: DataFrame,
    deliveries: DataFrame,
    subscriber: str,
    subscriptions: DataFrame | None = None,
    since: Bound = NO_BOUND,
    until: Bound = NO_BOUND,
    lost: DataFrame | None = None,
    order: DataFrame | None = None,
) -> Replay:
    """What one subscriber was notified of, in its order, late ones (`out_of_order`) where they came. What its filter
    left out it was not notified of.

    Times are those of notification. A delivery of which the archive has no event is there without its data, and is
    told in `missing`. So is what is `lost` (from `read_gaps`) of the delivery logs: whose rows it held, nobody knows.
    `order`: the order log. It says at which `order_position` an event is where the delivery log does not; bounds that
    are positions go from the first event at or behind it to the last one that is not beyond it.
    """
    own = deliveries.where((F.col("subscriber") == subscriber) & inside("notified_at", since, until))
    joined = _with_events(own, events)
    if order is not None:
        joined = with_positions(joined.drop("position"), order)
        joined = joined.withColumn("order_position", F.coalesce("order_position", "position"))
        joined = joined.withColumn("position", F.col("seen_position"))
    if since.position is not None or until.position is not None:
        own, joined = _between_positions(own, joined, since, until)
    replayed = _as_replay(joined.withColumn("order_key", F.col("position")))
    reason = F.lit("delivered, but the archive has no such event").alias("reason")
    places = ("'event' AS kind", "topic AS name", "number AS first", "number AS last")
    without = replayed.where("missing").select(*map(F.expr, places), reason)
    changes = None if subscriptions is None else _changes(subscriptions.where(F.col("subscriber") == subscriber))
    missing = without.union(_position_holes(own, subscriber, since))
    if lost is not None:
        reason = F.concat("problem", F.lit(f"; {subscriber} may have rows in it"))
        missing = missing.union(lost.select(F.lit("message"), "stream", "first", "last", reason))
    return Replay(replayed, missing, changes)


def check_subscriber(subscriber: str, deliveries: DataFrame, subscriptions: DataFrame | None = None) -> None:
    """Raise InputError unless the logs know this subscriber; the error lists the names that are nearest.

    Who subscribed and was notified of nothing is known. A client is called by the name it asked for and `~…`, which
    makes it unique: the logs have the whole name.
    """
    known = deliveries.select("subscriber")
    if subscriptions is not None:
        known = known.union(subscriptions.select("subscriber"))
    if not known.where(F.col("subscriber") == subscriber).isEmpty():
        return
    asked_for = F.substring_index("subscriber", "~", 1)
    wanted_name = F.lit(subscriber.lower())
    distance = F.least(*(F.levenshtein(F.lower(name), wanted_name) for name in (F.col("subscriber"), asked_for)))
    ordered = known.distinct().withColumns({"is_short": asked_for == subscriber, "distance": distance})
    near = ordered.orderBy(F.desc("is_short"), "distance", "subscriber").limit(NEAR_NAMES + 1).collect()
    wanted = [row for row in near if row["is_short"]] or near
    names = ", ".join(row["subscriber"] for row in wanted[:NEAR_NAMES])
    more = " and more" if len(wanted) > NEAR_NAMES else ""
    fix = f"did you mean {names}{more}?" if near else "the archive has no delivery logs; clients write them with --log"
    raise InputError("--subscriber", f"the delivery logs of this archive do not know {subscriber!r}", fix)


def _between_positions(own: DataFrame, joined: DataFrame, since: Bound, until: Bound) -> tuple[DataFrame, DataFrame]:
    """The rows of a subscriber from the first one at or behind a position of the order log to the last one before."""
    at, is_late = F.col("order_position"), F.coalesce("out_of_order", F.lit(False))
    begin = F.min(F.when(~is_late & (at >= (since.position or 0)), F.col("position")))
    last = until.position
    end = F.max(F.when(~is_late & ((at <= last) if last is not None else F.lit(True)), F.col("position")))
    first, until_own, count = joined.agg(begin, end, F.count(at)).collect()[0]
    if not count:
        fix = "give times, or archive the order log too: seriatim archive --tables"
        raise InputError("bound", "no position of these events is known", fix)
    within = F.lit(False) if first is None or until_own is None else F.col("position").between(first, until_own)
    return own.where(within), joined.where(within)


def _with_events(own: DataFrame, events: DataFrame) -> DataFrame:
    """Deliveries of one subscriber, without what its filter left out, with their events."""
    seen = {"event_id": "seen_id", "topic": "seen_topic", "number": "seen_number", "index": "seen_index"}
    told = own.where(~F.coalesce("filtered", F.lit(False)))
    told = told.withColumn("seen_position", F.col("position"))
    told = told.select("position", "seen_position", *seen, "notified_at", "out_of_order", "order_position")
    told = told.withColumnsRenamed(seen)
    same_place = (F.col("number") == F.col("seen_number")) & (F.col("index") == F.col("seen_index"))
    matches = (
        (F.col("topic") == F.col("seen_topic"))
        & (F.col("event_id") == F.col("seen_id"))
        & (F.col("seen_number").isNull() | same_place)
    )
    joined = told.join(events, matches, "left")
    for name in ("topic", "number", "index"):
        joined = joined.withColumn(name, F.coalesce(F.col(f"seen_{name}"), F.col(name)))
    joined = joined.withColumn("missing", F.col("event_id").isNull()).withColumn("event_id", F.col("seen_id"))
    joined = joined.withColumn("log", F.coalesce("log", "seen_topic"))
    return joined.withColumn("number", F.coalesce("number", F.lit(0)))  # foreign logs have none


def _position_holes(own: DataFrame, subscriber: str, since: Bound) -> DataFrame:
    following = Window.partitionBy(F.lit(0)).orderBy("position")  # one subscriber's: one task
    positions = own.select("position")
    if since == NO_BOUND:
        positions = positions.union(own.sparkSession.createDataFrame([(-1,)], "position long"))
    stretches = positions.select(
        F.lit("position").alias("kind"),
        F.lit(subscriber).alias("name"),
        (F.col("position") + 1).alias("first"),
        (F.lead("position").over(following) - 1).alias("last"),
        F.lit("missing in the delivery log").alias("reason"),
    )
    return stretches.where(F.col("first") <= F.col("last"))


def _changes(subscriptions: DataFrame) -> DataFrame:
    joined = subscriptions.selectExpr("since AS position", "'joined' AS change", "topic", "start AS number")
    left = subscriptions.where("until IS NOT NULL").selectExpr("until", "'left'", "topic", "end")
    return joined.union(left).orderBy("position", "change", "topic")


def as_text(events: DataFrame) -> DataFrame:
    """For formats that have no bytes and no maps (CSV): data in base64, headers as JSON."""
    return events.withColumn("data", F.base64("data")).withColumn("headers", F.to_json("headers"))


def sentence(kind: str, name: str, first: int, last: int, reason: str) -> str:
    """A row of `missing` as a sentence."""
    stretch = f"{first}" if first == last else f"{first}…{last}"
    return f"{name}, {kind} {stretch}: {reason}"
