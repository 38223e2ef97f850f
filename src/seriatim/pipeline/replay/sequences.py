"""Replay: the sequence that a subscriber saw, or the one that a subscriber of these topics would have seen.

    saw(…)                what one subscriber was notified of, from the delivery log, in the order of its positions
    would_have_seen(…)    all events of some topics, in the order of their keys (ordering.py)

Both give a `Replay`: events in the columns of `schemas.REPLAY`, and what is missing. Nothing is passed over in silence:
a number that was stamped and has no event, a delivery that has no event, a hole in a subscriber's positions, a log that
ends early because something before it is not archived yet, a cut that leaves out what came before.

*What the stamps promise.* Two events of which one comes after the other by the stamps are replayed in the order in
which every subscriber saw them. Stamps order topics that were held together: by two subscribers, in causal clusters by
one. For others (`never_ordered`) keys follow the broker's clock. A single subscriber that held both may have seen
another order; `saw` shows it.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import NamedTuple

from msgspec import Struct, field
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from seriatim.model import InputError, Number, Topic
from seriatim.pipeline.replay.ordering import order_key_column, placed, places, with_names, with_order_keys
from seriatim.pipeline.schemas import REPLAY

_NUMBERS = re.compile(r"[^=,]+=\d+(,[^=,]+=\d+)*")
ORDER = ("sequence", "log", "number", "index")  # what REPLAY is sorted by, and `order_key` sorts the same


class Bound(Struct, frozen=True):
    """From or up to where a replay goes: a time (since 1970, by the broker's clock), or a number for each topic. Topics
    that are not named are not bounded."""

    time_ms: float | None = None
    numbers: dict[Topic, Number] = field(default_factory=dict)


NO_BOUND = Bound()


def parse_bound(text: str, what: str = "bound") -> Bound:
    """A time without a zone is UTC."""
    if _NUMBERS.fullmatch(text):
        pairs = [pair.split("=") for pair in text.split(",")]
        numbers = {topic.strip(): int(number) for topic, number in pairs}
        if len(numbers) < len(pairs):
            raise InputError(what, f"{text!r} names a topic twice", "name it once")
        return Bound(numbers=numbers)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        fix = "give a time (2026-07-14T09:30:00Z) or numbers (orders=120,payments=7)"
        raise InputError(what, f"{text!r} is neither a time nor numbers of topics", fix) from None
    return Bound(time_ms=(time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


class Replay(NamedTuple):
    """`events` is not sorted: `in_sequence` does that, once, where it is shown or written."""

    events: DataFrame
    missing: DataFrame  # (kind, name, first, last, reason): numbers of a log, positions of a subscriber, or messages
    changes: DataFrame | None = None  # (position, change, topic, number): what a subscriber joined and left, and when
    places: DataFrame | None = None  # of ranges; those of logs that end early are `ordering.held`. Kept: unpersist it.
    logs: tuple[Topic, ...] = ()  # what was merged


def in_sequence(events: DataFrame) -> DataFrame:
    """Sorted as they are replayed. Written to files, part-00000 comes first, then part-00001."""
    return events.orderBy(*ORDER)


# ── what a subscriber would have seen ─────────────────────────────────────────────────────────────────────────────


def would_have_seen(
    events: DataFrame,
    stamps: DataFrame,
    topics: Sequence[Topic],
    since: Bound = NO_BOUND,
    until: Bound = NO_BOUND,
    skip_gaps: bool = False,
) -> Replay:
    """All events of these topics, in a sequence that a subscriber of exactly these could have been notified of. `since`
    is included. `until`: a time is not included, numbers are. `skip_gaps`: see `merger.Merger`."""
    if not topics:
        raise InputError("topics", "no topic is named", "name at least one")
    wanted = F.col("topic").isin(list(topics))
    names = events.where(wanted).select("topic", "log").distinct().collect()  # not more than topics
    log_of = {row["topic"]: row["log"] for row in names}
    logs = sorted(set(log_of.values()))
    if unknown := sorted(set(topics) - set(log_of)):
        raise InputError("topics", f"the archive has no event of {', '.join(unknown)}", "check the names")
    of_logs = events.where(F.col("log").isin(logs))
    stamps = with_names(stamps.where(F.col("log").isin(logs)), logs)
    found = places(stamps, logs, skip_gaps).persist()
    chosen = _bounded(of_logs.where(wanted), "received_at", since, until)
    keyed = with_order_keys(chosen, found).withColumnRenamed("ordinal", "sequence")
    missing = _holes(of_logs, found, _of_logs(since, log_of, min), _of_logs(until, log_of, max))
    if until.numbers:
        missing = missing.union(_left_out(stamps, _of_logs(until, log_of, max)))
    return Replay(_as_replay(keyed), missing, places=found, logs=tuple(logs))


def never_ordered(stamps: DataFrame, logs: Sequence[Topic]) -> list[tuple[Topic, Topic]]:
    """Pairs of these logs of which no stamp of either names the other."""
    named = with_names(stamps.where(F.col("log").isin(list(logs))), logs)
    inside = named.select("log", F.explode(F.map_keys("entries")).alias("other"))
    rows = inside.where(F.col("other").isin(list(logs))).distinct().collect()  # pairs of what was asked for
    ordered = {frozenset((row["log"], row["other"])) for row in rows}
    return [pair for pair in combinations(sorted(set(logs)), 2) if frozenset(pair) not in ordered]


def _of_logs(bound: Bound, log_of: dict[Topic, Topic], choose: Callable[[int, int], int]) -> Bound:
    """The same bound for logs, of which several topics may share one."""
    numbers: dict[Topic, int] = {}
    for topic, number in bound.numbers.items():
        if topic not in log_of:
            raise InputError("bound", f"{topic} is not replayed", "name topics of the replay only")
        log = log_of[topic]
        numbers[log] = choose(numbers.get(log, number), number)
    return Bound(bound.time_ms, numbers)


def _left_out(stamps: DataFrame, until: Bound) -> DataFrame:
    """Where a cut is not a place at which a subscriber can stand: something within it comes after something beyond."""
    bounds = F.create_map(*[F.lit(part) for pair in until.numbers.items() for part in pair])
    named = stamps.select("log", "first", F.explode("entries").alias("other", "needed"))
    inside = named.where(F.col("first") <= F.coalesce(bounds[F.col("log")], F.col("first")))
    beyond = inside.withColumn("bound", bounds[F.col("other")]).where(F.col("needed") > F.col("bound"))
    worst = beyond.groupBy("other", "bound").agg(F.max_by(F.struct("log", "first", "needed"), "needed").alias("by"))
    reason = F.concat(
        F.lit("beyond the cut, but "), "by.log", F.lit(" "), "by.first", F.lit(", which is within it, comes after")
    )
    return worst.select(F.lit("number"), "other", F.col("bound") + 1, "by.needed", reason)


def _bounded(events: DataFrame, time: str, since: Bound, until: Bound) -> DataFrame:
    if since.time_ms is not None:
        events = events.where(F.col(time) >= since.time_ms)
    if until.time_ms is not None:
        events = events.where(F.col(time) < until.time_ms)
    for topic, number in since.numbers.items():
        events = events.where((F.col("topic") != topic) | (F.col("number") >= number))
    for topic, number in until.numbers.items():
        events = events.where((F.col("topic") != topic) | (F.col("number") <= number))
    return events


def _as_replay(events: DataFrame) -> DataFrame:
    """Fill in what is not there, in the order of `schemas.REPLAY`."""
    for each in REPLAY:
        if each.name not in events.columns and each.name not in ("order_key", "replayed"):
            value = F.lit(None) if each.nullable else F.lit(0)
            events = events.withColumn(each.name, value.cast(each.dataType))
    events = events.withColumn("order_key", order_key_column("sequence")).withColumn("replayed", F.lit(True))
    return events.select(*[F.col(each.name).cast(each.dataType) for each in REPLAY])


# ── what is missing ───────────────────────────────────────────────────────────────────────────────────────────────


def _holes(events: DataFrame, places: DataFrame, since: Bound, until: Bound) -> DataFrame:
    """Numbers that have a place and no event, in stretches. A stretch is told by the times of its neighbours."""
    spans = placed(places).groupBy("log").agg(F.min("first").alias("begin"), F.max("last").alias("end"))
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
    reason = F.lit("stamped, but the archive has no event: deleted or expired before it was archived, or a void")
    before = F.lit("before the first stamp of the archive")
    early = spans.where("begin > 1").select("log", F.lit(1).cast("long"), F.col("begin") - 1, none, none, before)
    holes = stretches.where(F.col("first") <= F.col("last")).withColumn("reason", reason).union(early)
    if since.time_ms is not None:
        holes = holes.where(F.col("before").isNull() | (F.col("before") >= since.time_ms))
        holes = holes.where(F.col("first") > 1)  # what lies before the first event lies before the bound
    if until.time_ms is not None:
        holes = holes.where(F.col("after").isNull() | (F.col("after") < until.time_ms))
    for log, number in since.numbers.items():
        holes = holes.where((F.col("log") != log) | (F.col("last") >= number))
    for log, number in until.numbers.items():
        holes = holes.where((F.col("log") != log) | (F.col("first") <= number))
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
) -> Replay:
    """What one subscriber was notified of, in its order, late ones (`out_of_order`) where they came. What its filter
    left out it was not notified of.

    Times are those of notification. A delivery of which the archive has no event is there without its data, and is
    told in `missing`. So is what is `lost` (from `read_gaps`) of the delivery logs: whose rows it held, nobody knows.
    """
    own = _bounded(deliveries.where(F.col("subscriber") == subscriber), "notified_at", since, until)
    seen = {"event_id": "seen_id", "topic": "seen_topic", "number": "seen_number", "index": "seen_index"}
    told = own.where(~F.coalesce("filtered", F.lit(False)))
    told = told.select("position", *seen, "notified_at", "out_of_order").withColumnsRenamed(seen)
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
    joined = joined.withColumn("log", F.coalesce("log", "seen_topic")).withColumn("sequence", F.col("position"))
    joined = joined.withColumn("number", F.coalesce("number", F.lit(0)))  # foreign logs have none
    replayed = _as_replay(joined)
    reason = F.lit("delivered, but the archive has no such event").alias("reason")
    places = ("'event' AS kind", "topic AS name", "number AS first", "number AS last")
    without = replayed.where("missing").select(*map(F.expr, places), reason)
    changes = None if subscriptions is None else _changes(subscriptions.where(F.col("subscriber") == subscriber))
    missing = without.union(_position_holes(own, subscriber, since))
    if lost is not None:
        reason = F.concat("problem", F.lit(f"; {subscriber} may have rows in it"))
        missing = missing.union(lost.select(F.lit("message"), "stream", "first", "last", reason))
    return Replay(replayed, missing, changes)


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
