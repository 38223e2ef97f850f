"""Which order a replay follows: positions where the order log has them, stamps where it does not.

*Positions.* The order log is the order of all events, and every subscriber's sequence is part of it. A number's key is
its position. Numbers that the order log has not reached are left out, and reported.

*Before the order log.* A cluster may be older than its order log, and retention removes the log's beginning. Numbers
below the first one that has a position come before all numbers that have one. They come first, in the order of their
stamps, with negative keys. For a log without any position, and for one whose positions begin after a gap, these are the
numbers that were stored before the order log begins.

*Gaps.* Where the order log lost something in the middle, a log's numbers have no position between two that have. The
replay ends before the first position that may be theirs. With `skip_gaps` it continues: then their keys are counted
back from the next position of their log. That keeps the order of each log; order across the gap is not proven.

*Stamps.* Without an order log (pairwise order, archives of earlier versions) stamps alone give the order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from seriatim.model import InputError, Number, Position, Topic
from seriatim.pipeline.replay.ordering import places, ranges_of, with_names
from seriatim.pipeline.replay.positions import Gap, OrderedLog, check_sound, first_hole, gaps, lanes, runs

By: TypeAlias = Literal["positions", "stamps"]
GAPS_MAX = 10_000  # in the middle of an order log; among more, the first ones decide

LAGS = "the order log has not come this far"


class Extent(NamedTuple):
    """The part of one log that a replay wants: numbers from `first` to `last`. `stored_before`: the last number that
    was stored before the order log begins."""

    first: Number
    last: Number
    stored_before: Number = 0


class Order(NamedTuple):
    """An order: `ranges` with keys (positions.RANGES). `places`: those of stamps, kept; it also has what is held.

    `notes` say where the order is not that of the order log, `ends` what is left out.
    """

    by: By
    ranges: DataFrame
    places: DataFrame | None = None
    notes: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


class Known(NamedTuple):
    """The extent of an order log. `lanes`: by log; `began_at`: when the broker stored the first of it, in ms; `hole`:
    the first position that is missing between two."""

    order: DataFrame
    lanes: Mapping[Topic, OrderedLog]
    began_at: float
    hole: Position | None


def known(order: DataFrame | None) -> Known | None:
    """Look at an order log. None: there is none, or it is empty. InputError: it is not sound."""
    if order is None:
        return None
    found = lanes(order)
    if not found:
        return None
    check_sound(order)
    begin, end = min(each.begin for each in found.values()), max(each.end for each in found.values())
    is_whole = sum(each.numbers for each in found.values()) == end - begin + 1
    began_at = min(each.stored_at for each in found.values())
    return Known(order, found, began_at, None if is_whole else first_hole(order, begin))


def by_stamps(stamps: DataFrame | None, logs: Sequence[Topic], skip_gaps: bool = False) -> Order:
    """The order of the stamps of these logs."""
    if stamps is None:
        fix = "archive one of them: seriatim archive --tables events,order,stamps"
        raise InputError("order", "neither an order log nor stamps are there", fix)
    named = with_names(stamps.where(F.col("log").isin(list(logs))), logs)
    found = places(named, logs, skip_gaps).persist()
    return Order("stamps", ranges_of(found), found)


def by_positions(
    log: Known, extents: Mapping[Topic, Extent], stamps: DataFrame | None = None, skip_gaps: bool = False
) -> Order:
    """The order of the order log for what is wanted of these logs, and of stamps for what lies before it."""
    wanted = log.order.where(F.col("log").isin(list(extents)))
    ends = [_lags(of, max(each.first, end + 1)) for of, each, end in _ends(log, extents) if each.last > end]
    bounds = {of: _bound(log, of, each) for of, each in extents.items()}
    early = {of: bound for of, bound in bounds.items() if extents[of].first < bound}
    ranges, notes, found = runs(wanted), [], None
    lost = _lost(log, wanted, extents, bounds)
    if lost and skip_gaps:
        ranges = ranges.unionByName(_counted_back(wanted, _behind_hole(log, extents, bounds)))
        notes = [
            f"the order log has no position for {_numbers(each)}: its order across topics is not proven"
            for each in lost
        ]
    elif lost:
        stop = _stop(log, lost[0])
        ranges = _cut(ranges, stop)
        which = ", ".join(_numbers(each) for each in lost[:3])
        ends.insert(
            0,
            f"the replay ends before position {stop}: the order log has no position for {which}; "
            "--skip-gaps continues after it",
        )
    if early and stamps is None:
        ends += [
            f"{of} before {bound} lies before the order log, and there are no stamps" for of, bound in early.items()
        ]
    elif early:
        assert stamps is not None
        before = places(_early(stamps, early), sorted(early), skip_gaps).persist()
        ranges, found = ranges_of(before).unionByName(ranges), before
        notes += [
            f"{of} before {bound} lies before the order log: it comes first, in the order of stamps"
            for of, bound in early.items()
        ]
    return Order("positions", ranges, found, tuple(notes), tuple(ends))


def _ends(log: Known, extents: Mapping[Topic, Extent]) -> Iterable[tuple[Topic, Extent, Number]]:
    """For each log the last number that has a place."""
    for of, each in sorted(extents.items()):
        yield of, each, log.lanes[of].last if of in log.lanes else each.stored_before


def _lags(of: Topic, number: Number) -> str:
    return f"{of} ends before {number}: {LAGS}"


def _bound(log: Known, of: Topic, extent: Extent) -> Number:
    """Numbers below this one lie before the order log."""
    lane = log.lanes.get(of)
    if lane is None:
        return extent.stored_before + 1
    if log.hole is None or lane.begin < log.hole:
        return lane.first
    return min(lane.first, extent.stored_before + 1)


def _numbers(gap: Gap) -> str:
    return f"{gap.log} {gap.first}" if gap.first == gap.last else f"{gap.log} {gap.first}…{gap.last}"


def _lost(log: Known, order: DataFrame, extents: Mapping[Topic, Extent], bounds: Mapping[Topic, Number]) -> list[Gap]:
    """The gaps that concern what is wanted, in the order of their positions."""
    rows = gaps(order).orderBy("after", "log").limit(GAPS_MAX).collect()
    found = [*_behind_hole(log, extents, bounds), *(Gap(*row) for row in rows)]
    inside = [each for each in found if each.last >= extents[each.log].first and each.first <= extents[each.log].last]
    return sorted(inside, key=lambda each: (each.after, each.log))


def _behind_hole(log: Known, extents: Mapping[Topic, Extent], bounds: Mapping[Topic, Number]) -> list[Gap]:
    """Logs whose first numbers are lost in a gap of the order log: their positions begin behind it."""
    found = []
    for of, bound in bounds.items():
        lane = log.lanes.get(of)
        first = max(bound, extents[of].first)
        if lane is not None and log.hole is not None and bound <= first < lane.first and lane.begin > log.hole:
            found.append(Gap(of, first, lane.first - 1, log.hole - 1, lane.begin))
    return found


def _stop(log: Known, gap: Gap) -> Position:
    """The first position that may belong to a number that the order log has lost."""
    hole = first_hole(log.order, gap.after)
    return gap.before if hole is None else min(hole, gap.before)


def _cut(ranges: DataFrame, stop: Position) -> DataFrame:
    """Ranges of positions up to before this one."""
    last = F.least(F.col("last"), F.col("first") + (F.lit(stop - 1) - F.col("position")))
    return ranges.where(F.col("position") < stop).withColumn("last", last)


def _counted_back(order: DataFrame, more: Sequence[Gap]) -> DataFrame:
    """Ranges for the numbers in gaps: a number's key is that of the next one that has a position, less the distance."""
    found = gaps(order)
    if more:
        found = found.union(order.sparkSession.createDataFrame(more, found.schema))
    key = (F.col("before") - 1 - F.col("last") + F.col("first")).alias("key")
    none = F.lit(None).cast("long").alias("position")
    return found.select("log", "first", "last", key, F.lit(True).alias("rises"), none)


def _early(stamps: DataFrame, bounds: Mapping[Topic, Number]) -> DataFrame:
    """The stamps of numbers below these bounds, and of their entries what lies below them too."""
    logs = sorted(bounds)
    named = with_names(stamps.where(F.col("log").isin(logs)), logs)
    ends = F.create_map(*[F.lit(part) for log in logs for part in (log, bounds[log] - 1)])
    inside = named.where(F.col("first") <= ends[F.col("log")])

    def is_early(other: Column, _: Column) -> Column:
        return ends[other].isNotNull()

    entries = F.transform_values(
        F.map_filter("entries", is_early), lambda other, needed: F.least(needed, ends[other]).cast("long")
    )
    clipped = F.map_filter(entries, lambda _, needed: needed > 0)
    return inside.withColumns({"last": F.least(F.col("last"), ends[F.col("log")]), "entries": clipped})
