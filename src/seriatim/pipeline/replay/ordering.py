"""The order of stamps on Spark, for numbers without a position in an order log: stamps → the place of every range.

    places(stamps, logs)          one row per range with its ordinal, and one per log that cannot go on, with the reason
    ranges_of(places)             what is placed, as ranges for positions.with_keys

`merger.py` says what an ordinal is and why it never changes. Two logs that no chain of stamps connects are independent,
so one task merges each connected *component*, and reads its stamps sorted by time: Spark sorts on disk, and the merger
remembers little beyond the ranges that are held. The cost is that of the ranges, not of the events. The components are
found in one task as well, from the distinct pairs of logs that name each other. Nothing comes to the driver but one row
per log, the component of each, on its way to every task.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from seriatim.model import InputError, Topic
from seriatim.order import TopicNames, topic_id
from seriatim.pipeline.replay.merger import Merger
from seriatim.pipeline.schemas import PLACES

TOGETHER_MAX = 16  # so few logs are merged by one task, joined or not: looking for components takes longer
FORGET_EVERY = 1_000  # ranges
DECLARES = -1  # in place of a time: a row that only says that its log is in the set
BEFORE = 1 << 62  # keys of stamps are ordinals less this: negative, so before every position

_COMPONENTS = "log string, component string"


# ── places of ranges ──────────────────────────────────────────────────────────────────────────────────────────────


def places(stamps: DataFrame, logs: Sequence[Topic] | None = None, skip_gaps: bool = False) -> DataFrame:
    """Stamps → places (schemas.py). `logs`: the set to merge; default: every log that has a stamp. A row without
    ordinal is the first range of a log that cannot be placed: it waits for number `needed` of the log `waits_for`,
    which has no stamp yet, or, if `in_knot`, waits itself in a circle with this one."""
    if logs is not None and not logs:
        raise InputError("logs", "the set is empty", "name at least one log")
    wanted = stamps if logs is None else stamps.where(F.col("log").isin(list(logs)))
    in_log = Window.partitionBy("log").orderBy("first", "last")
    received_us = F.floor(F.col("received_at") * 1000 + 0.5).cast("long")
    earlier = in_log.rowsBetween(Window.unboundedPreceding, 0)
    latest, row = F.max(received_us).over(earlier), F.row_number().over(in_log)
    timed = wanted.select("log", "first", "last", "entries", latest.alias("received_us"), row.alias("row"))
    # The first row of each log twice: once to declare the log, before anything is merged.
    copies = F.when(F.col("row") == 1, F.array(F.lit(True), F.lit(False))).otherwise(F.array(F.lit(False)))
    rows = timed.withColumn("declares", F.explode(copies))
    rows = rows.withColumn("received_us", F.when(F.col("declares"), F.lit(DECLARES)).otherwise(F.col("received_us")))
    if logs is not None and len(logs) <= TOGETHER_MAX:
        in_turn = rows.withColumn("component", F.lit(min(logs))).repartition(1)
    else:
        in_turn = rows.join(F.broadcast(components(wanted)), "log").repartition("component")
    in_turn = in_turn.select("component", "received_us", "log", "first", "last", "entries")
    in_turn = in_turn.sortWithinPartitions("component", "received_us", "log", "first", "last")
    return in_turn.mapInArrow(partial(merge, logs=tuple(sorted(set(logs or ()))), skip_gaps=skip_gaps), PLACES)


def with_names(stamps: DataFrame, logs: Sequence[Topic]) -> DataFrame:
    """Entries with the names of these logs, also where the archive has only an id in place of a name."""
    known = F.create_map(*[F.lit(part) for pair in opaque_names(logs).items() for part in pair])
    return stamps.withColumn("entries", F.transform_keys("entries", lambda key, _: F.coalesce(known[key], key)))


def opaque_names(logs: Iterable[Topic]) -> dict[Topic, Topic]:
    """From the opaque name of a log to its name (order/stamp.py)."""
    nobody = TopicNames()
    return {nobody[topic_id(log)]: log for log in logs}


def placed(places: DataFrame) -> DataFrame:
    return places.where(F.col("ordinal").isNotNull())


def ranges_of(places: DataFrame) -> DataFrame:
    """Ranges with keys, for `positions.with_keys`. All numbers of a range share its key."""
    key = (F.col("ordinal") - BEFORE).alias("key")
    none = F.lit(None).cast("long").alias("position")
    return placed(places).select("log", "first", "last", key, F.lit(False).alias("rises"), none)


def held(places: DataFrame) -> DataFrame:
    """For each log that cannot go on: its first range without a place. At most one row per log."""
    return places.where(F.col("ordinal").isNull())


def components(stamps: DataFrame) -> DataFrame:
    """Each log that has stamps with the component it is in, called after the least of its logs."""
    pairs = stamps.select("log", F.explode_outer(F.map_keys("entries")).alias("other")).distinct()
    return pairs.repartition(1).mapInArrow(join_pairs, _COMPONENTS)


def join_pairs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pairs (log, a log that it names) → logs with the least log that they are joined with."""
    pairs: set[tuple[Topic, Topic | None]] = set()
    for batch in batches:
        pairs.update(zip(batch.column("log").to_pylist(), batch.column("other").to_pylist(), strict=True))
    parent = {log: log for log, _ in pairs}
    names = opaque_names(parent)

    def root(log: Topic) -> Topic:
        while parent[log] != log:
            parent[log] = log = parent[parent[log]]
        return log

    for log, named in pairs:
        other = names.get(named, named) if named is not None else None
        if other in parent:
            least, most = sorted((root(log), root(other)))
            parent[most] = least
    logs = sorted(parent)
    yield pa.record_batch({"log": logs, "component": [root(log) for log in logs]})


def merge(
    batches: Iterator[pa.RecordBatch], logs: Sequence[Topic] = (), skip_gaps: bool = False
) -> Iterator[pa.RecordBatch]:
    """Sorted ranges, component by component → their places. `logs`: also in the set, with stamps or without."""
    component: str | None = None
    declared: list[Topic] = []
    names: dict[Topic, Topic] = {}
    merger: Merger | None = None
    fed = 0
    for of, received_us, log, first, last, entries in _rows(batches):
        if of != component:
            if merger is not None and component is not None:
                yield _batch(merger, component, is_complete=True)
            component, declared, merger = of, [], None
        if received_us == DECLARES:
            declared.append(log)
            continue
        if merger is None:
            merger = Merger((*declared, *logs), skip_gaps)
            names = opaque_names((*declared, *logs))
        merger.feed(log, first, last, {names.get(other, other): k for other, k in entries.items()}, received_us)
        fed += 1
        if fed % FORGET_EVERY == 0:
            merger.promise(received_us)
            merger.forget()
            yield _batch(merger, of)
    if merger is not None and component is not None:
        yield _batch(merger, component, is_complete=True)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, int, Topic, int, int, dict[Topic, int]]]:
    for batch in batches:
        entries = batch.column("entries")
        keys, values = entries.keys.to_pylist(), entries.items.to_pylist()
        ends = entries.offsets.to_pylist()
        columns = [batch.column(name).to_pylist() for name in ("component", "received_us", "log", "first", "last")]
        for row, (component, received_us, log, first, last) in enumerate(zip(*columns, strict=True)):
            span = slice(ends[row], ends[row + 1])
            yield component, received_us, log, first, last, dict(zip(keys[span], values[span], strict=True))


def _batch(merger: Merger, component: str, is_complete: bool = False) -> pa.RecordBatch:
    rows: list[tuple[object, ...]]
    rows = [(each.log, each.first, each.last, component, each.ordinal, None, None, False) for each in merger.take()]
    if is_complete:
        knot = {each.log for each in merger.knot()}
        for each in merger.held():
            in_knot = each.log in knot
            rows.append((each.log, each.first, each.last, component, None, each.waits_for, each.needed, in_knot))
    schema = to_arrow_schema(PLACES)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def describe_held(rows: Iterable[tuple[Topic, int, int, Topic, int, bool]]) -> list[str]:
    """What `held` says, in sentences: (log, first, last, waits_for, needed, in_knot)."""
    said = []
    for log, first, last, waits_for, needed, in_knot in rows:
        if in_knot:
            said.append(
                f"{log} {first}…{last} comes after {waits_for} {needed}, and that in turn after {log} {first}: each "
                f"pair of these logs has an order, but all together have none; replay fewer topics, or one subscriber"
            )
        elif waits_for == log:
            said.append(f"{log} ends before {first}: the stamps up to {needed} are missing")
        else:
            said.append(f"{log} ends before {first}: it comes after {waits_for} {needed}, which has no stamp yet")
    return said
