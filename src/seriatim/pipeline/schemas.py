"""The tables of the pipeline, in one place: simulator, runtime, archive and foreign logs all land in these columns.

The four tables of a history are the rows of `seriatim.model`, column for field (`audit/rules.py`). The archive adds
what the broker itself holds: events with their payload, stamps, and the order log.
"""

from pyspark.sql import types as T
from pyspark.sql.types import DataType, MapType, StructField, StructType

from seriatim.audit.rules import FIELDS, ORDER, Kind

TEXT, COUNT, INDEX, TIME, FLAG = T.StringType(), T.LongType(), T.IntegerType(), T.DoubleType(), T.BooleanType()
ENTRIES = MapType(TEXT, COUNT)  # of a stamp: topic → "its first k events come before me"; files promise no more
HEADERS = MapType(TEXT, TEXT)


def table_of(**columns: DataType) -> StructType:
    """Columns whose name ends in `_` may be null; the underscore is not part of the name."""
    return StructType([StructField(name.rstrip("_"), kind, name.endswith("_")) for name, kind in columns.items()])


TYPES: dict[Kind, DataType] = {
    "text": TEXT,
    "count": COUNT,
    "index": INDEX,
    "time": TIME,
    "number": TIME,
    "flag": FLAG,
    "stamp": ENTRIES,
}


_TABLES: dict[str, StructType] = {
    table: StructType([StructField(field.name, TYPES[field.kind], field.is_null) for field in fields])
    for table, fields in FIELDS.items()
}
PLACEMENTS = _TABLES[ORDER]  # the order log
HISTORY = {table: columns for table, columns in _TABLES.items() if table != ORDER}
DELIVERIES, PUBLICATIONS, SUBSCRIPTIONS, MESSAGES = HISTORY.values()

# What a broker holds. `topic` is what the event was published as; `log` is what it was ordered as (a bucket, or the
# topic itself), and (log, number, index) is its place. `received_at`: when the broker stored it, ms since 1970.
EVENTS = table_of(
    log=TEXT,
    number=COUNT,
    index=INDEX,
    topic=TEXT,
    event_id=TEXT,
    publisher_=TEXT,
    received_at=TIME,
    headers_=HEADERS,
    data=T.BinaryType(),
)
# One row per range: every number of `log` from `first` to `last` comes after these entries. Differences, as stamped.
STAMPS = table_of(log=TEXT, first=COUNT, last=COUNT, entries=ENTRIES, node=TEXT, received_at=TIME)
# The order log: numbers `first` … `last` of `log` are at `position` and those behind it. `epoch`: of the root.
PLACED = table_of(position=COUNT, log=TEXT, first=COUNT, last=COUNT, epoch=COUNT, received_at=TIME)
# Where stamps put ranges (replay/ordering.py). Without an ordinal: the log cannot go on, since this range
# comes after number `needed` of `waits_for`; `in_knot`: which in turn comes after this one.
PLACES = table_of(
    log=TEXT, first=COUNT, last=COUNT, component=TEXT, ordinal_=COUNT, waits_for_=TEXT, needed_=COUNT, in_knot=FLAG
)
# Events as they are replayed (replay/sequences.py), sorted by (order_key, log, number, index). `order_key`: the
# position in the order log, a negative number where stamps give the order, or for what one subscriber saw its own
# `position`. `order_position`: in the order log, where it has the event. `missing`: delivered, not archived.
REPLAY = StructType(
    [
        *table_of(order_key=COUNT, order_position_=COUNT),
        *(StructField(of.name, of.dataType, of.nullable or of.name in ("received_at", "data")) for of in EVENTS),
        *table_of(position_=COUNT, notified_at_=TIME, out_of_order=FLAG, missing=FLAG, replayed=FLAG),
    ]
)

LOST = "lost_to"  # a column of an archive's files: a row that has it stands for what is missing up to there
ARCHIVE: dict[str, StructType] = HISTORY | {"events": EVENTS, "stamps": STAMPS, ORDER: PLACED}

# What the planner reads beside subscriptions.
RATES = table_of(topic=TEXT, events_per_s=TIME, site_=TEXT)  # `site`: where these events are published
SITES = table_of(client=TEXT, site=TEXT)

# A sweep: one row per run to be made, and what came of it. `parameters` is a JSON object; `status` is done or failed.
GRID = table_of(run_id=TEXT, experiment=TEXT, parameters=TEXT, seed=COUNT)
RESULTS = StructType([*GRID, *table_of(status=TEXT, measures_=MapType(TEXT, TIME), error_=TEXT, elapsed_s=TIME)])
# What reports draw: a point of a curve, over seeds. `paper` is the paper's own number, where it states one.
MEASUREMENTS = table_of(
    experiment=TEXT, variant=TEXT, x=TEXT, measure=TEXT, mean=TIME, std=TIME, count=COUNT, paper_=TIME
)
