"""From and up to where a replay goes: a time, a position of the order log, or numbers of topics."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct, field
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from seriatim.model import InputError, Number, Position, Topic
from seriatim.pipeline.replay.choosing import Extent, Known
from seriatim.pipeline.replay.ordering import with_names

_NUMBERS = re.compile(r"[^=,]+=\d+(,[^=,]+=\d+)*")
DIGITS_MAX = 18  # of a position


class Bound(Struct, frozen=True):
    """From or up to where a replay goes: a time (since 1970, by the broker's clock), a position of the order log, or a
    number for each topic. Topics that are not named are not bounded."""

    time_ms: float | None = None
    numbers: dict[Topic, Number] = field(default_factory=dict)
    position: Position | None = None


NO_BOUND = Bound()


def parse_bound(text: str, what: str = "bound") -> Bound:
    """Digits alone are a position. A time without a zone is UTC."""
    if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX:
        return Bound(position=int(text))
    if _NUMBERS.fullmatch(text):
        pairs = [pair.split("=") for pair in text.split(",")]
        numbers = {topic.strip(): int(number) for topic, number in pairs}
        if len(numbers) < len(pairs):
            raise InputError(what, f"{text!r} names a topic twice", "name it once")
        return Bound(numbers=numbers)
    try:
        time = datetime.fromisoformat("" if text.isdigit() else text)
    except ValueError:
        fix = "give a time (2026-07-14T09:30:00Z), a position (4711) or numbers (orders=120,payments=7)"
        raise InputError(what, f"{text!r} is neither a time, a position nor numbers of topics", fix) from None
    return Bound(time_ms=(time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


# ── bounds of logs ────────────────────────────────────────────────────────────────────────────────────────────────────


def extents_of(
    events: DataFrame, began_at: float, since: Bound, until: Bound
) -> tuple[dict[Topic, Topic], dict[Topic, Extent]]:
    """The log of each topic, and what is wanted of each log. `began_at`: when the order log begins."""
    wanted = F.when(inside("received_at", since, until), F.col("number"))
    early = F.max(F.when(F.col("received_at") < began_at, F.col("number")))
    found = events.groupBy("topic", "log").agg(F.min(wanted), F.max(wanted), F.coalesce(early, F.lit(0)))
    log_of: dict[Topic, Topic] = {}
    extents: dict[Topic, Extent] = {}
    for topic, log, first, last, stored_before in found.collect():  # not more than topics
        log_of[topic] = log
        if first is not None:
            known = extents.get(log, Extent(first, last, stored_before))
            early_to = max(known.stored_before, stored_before)
            extents[log] = Extent(min(known.first, first), max(known.last, last), early_to)
    return log_of, extents


def at_positions(log: Known, extents: Mapping[Topic, Extent], bound: Bound, since: bool) -> Bound:
    """A bound that is a position as numbers of logs."""
    position = bound.position
    if position is None:
        return bound
    beyond = F.lit(position) - F.col("position")
    here = log.order.where(F.col("log").isin(list(extents)))
    if since:
        ends = here.where(F.col("last") - F.col("first") >= beyond)
        number = F.min(F.col("first") + F.greatest(beyond, F.lit(0)))
    else:
        ends = here.where(beyond >= 0)
        number = F.max(F.least(F.col("last"), F.col("first") + beyond))
    numbers = {row[0]: row[1] for row in ends.groupBy("log").agg(number).collect()}
    for each, extent in extents.items():
        if each not in numbers and since:
            numbers[each] = extent.last + 1
        elif each not in numbers:
            numbers[each] = log.lanes[each].first - 1 if each in log.lanes else extent.stored_before
    return Bound(bound.time_ms, numbers)


def clipped(extents: Mapping[Topic, Extent], since: Bound, until: Bound) -> dict[Topic, Extent]:
    """The part of each log that lies within these bounds."""
    found = {
        log: Extent(
            max(each.first, since.numbers.get(log, each.first)),
            min(each.last, until.numbers.get(log, each.last)),
            each.stored_before,
        )
        for log, each in extents.items()
    }
    return {log: each for log, each in found.items() if each.first <= each.last}


def of_logs(bound: Bound, log_of: dict[Topic, Topic], choose: Callable[[int, int], int]) -> Bound:
    """Turn a bound on topics into one on logs. `choose` decides between topics that share a log."""
    numbers: dict[Topic, int] = {}
    for topic, number in bound.numbers.items():
        if topic not in log_of:
            raise InputError("bound", f"{topic} is not replayed", "name topics of the replay only")
        log = log_of[topic]
        numbers[log] = choose(numbers.get(log, number), number)
    return Bound(bound.time_ms, numbers, bound.position)


def left_out(log: Known | None, stamps: DataFrame | None, logs: Sequence[Topic], until: Bound) -> DataFrame:
    """Where a cut is not a place at which a subscriber can stand: something within it comes after something beyond."""
    if log is not None:
        return _left_out_by_positions(log, logs, until)
    assert stamps is not None
    stamps = with_names(stamps.where(F.col("log").isin(list(logs))), logs)
    named = stamps.select("log", "first", F.explode("entries").alias("other", "needed"))
    inside = named.where(F.col("first") <= F.coalesce(numbers_column(until), F.col("first")))
    beyond = inside.withColumn("bound", numbers_column(until, "other")).where(F.col("needed") > F.col("bound"))
    worst = beyond.groupBy("other", "bound").agg(F.max_by(F.struct("log", "first", "needed"), "needed").alias("by"))
    return worst.select(F.lit("number"), "other", F.col("bound") + 1, "by.needed", _beyond("by.log", "by.first"))


def _left_out_by_positions(log: Known, logs: Sequence[Topic], until: Bound) -> DataFrame:
    """The last position within the cut, and what of each log is before it and beyond the cut."""
    order = log.order.where(F.col("log").isin(list(logs))).withColumn("bound", numbers_column(until))
    inside = order.where(F.col("bound").isNull() | (F.col("first") <= F.col("bound")))
    number = F.least(F.col("last"), F.coalesce("bound", "last"))
    end = F.struct((F.col("position") + number - F.col("first")).alias("at"), "log", number.alias("number"))
    last = inside.agg(F.max(end).alias("by"))
    beyond = order.where(F.col("last") > F.col("bound")).crossJoin(F.broadcast(last))
    before = F.least(F.col("last"), F.col("first") + F.col("by.at") - F.col("position"))
    seen = beyond.withColumn("to", before).where((F.col("to") > F.col("bound")) & (F.col("to") >= F.col("first")))
    worst = seen.groupBy("log", "bound").agg(F.max("to").alias("to"), F.first("by").alias("by"))
    return worst.select(F.lit("number"), "log", F.col("bound") + 1, "to", _beyond("by.log", "by.number"))


def _beyond(log: str, number: str) -> Column:
    return F.concat(F.lit("beyond the cut, but "), log, F.lit(" "), number, F.lit(", which is within it, comes after"))


def inside(time: str, since: Bound, until: Bound) -> Column:
    """Whether an event is within these times and numbers. Positions are looked at where they are known."""
    found = F.lit(True)
    if since.time_ms is not None:
        found &= F.col(time) >= since.time_ms
    if until.time_ms is not None:
        found &= F.col(time) < until.time_ms
    for topic, number in since.numbers.items():
        found &= (F.col("topic") != topic) | (F.col("number") >= number)
    for topic, number in until.numbers.items():
        found &= (F.col("topic") != topic) | (F.col("number") <= number)
    return found


def numbers_column(bound: Bound, log: str = "log") -> Column:
    """The number at which a log is bounded; null: it is not."""
    if not bound.numbers:
        return F.lit(None).cast("long")
    known = F.create_map(*[F.lit(part) for pair in bound.numbers.items() for part in pair])
    return known[F.col(log)].cast("long")
