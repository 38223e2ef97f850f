"""The slim tables of an audit: 64-bit hashes stand for names, so that nothing wide is moved between machines.

    run      of a table that holds many logs; without the column there is one, called ""
    s, e, t  subscriber, event and topic, each hashed with its run; a publisher is hashed as a subscriber of its name
    p        position
    check    32 bits of another hash of the event id: two ids with one hash show themselves by it

Names come back only for shown rows, by a join with the tables as they were given.
"""

import re
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StructType

from seriatim.model import InputError
from seriatim.pipeline.logs.tables import Tables
from seriatim.pipeline.schemas import HISTORY, TEXT, TIME

RUN = "run"
CHECK = "check"  # what the other hash of an event id is for
PLACE = "struct<number: bigint, index: bigint>"
ENDLESS = 1 << 62  # above every index
INDEX_BITS = 20
DEFAULTS: Mapping[str, object] = {"out_of_order": False, "index": 0, "filtered": False}


class LogTables:
    """The tables of one or many logs, all columns there, every row with its run."""

    def __init__(self, tables: Tables, is_undivided: bool = False) -> None:
        spark = tables.deliveries.sparkSession

        def whole(name: str) -> DataFrame:
            given, schema = getattr(tables, name), HISTORY[name]
            frame = complete(given if given is not None else spark.createDataFrame([], schema), schema, name)
            # If undivided, every table made of these is in one part, too, and none is ever shuffled.
            return frame.coalesce(1) if is_undivided else frame

        self.has_runs = RUN in tables.deliveries.columns
        self.has_publications = tables.publications is not None
        self.has_subscriptions = tables.subscriptions is not None
        self.deliveries, self.publications, self.subscriptions = map(
            whole, ("deliveries", "publications", "subscriptions")
        )
        self.files, self.lost, self.is_undivided = tables.files, tables.lost, is_undivided


def complete(frame: DataFrame, schema: StructType, table: str) -> DataFrame:
    """The columns of the schema, and `run`; those that may be absent are null, or what the model gives them."""
    present = {field.name: field.dataType for field in frame.schema}
    columns = [_text(RUN, present[RUN]) if RUN in present else F.lit("").alias(RUN)]
    for field in schema.fields:
        default = F.lit(DEFAULTS.get(field.name)).cast(field.dataType)
        if field.name not in present:
            if not field.nullable and field.name not in DEFAULTS:
                raise InputError(f"{table}.{field.name}", "this column is missing", "add it; docs/audit.md lists them")
            columns.append(default.alias(field.name))
        elif field.name in DEFAULTS:
            columns.append(F.coalesce(F.col(field.name).cast(field.dataType), default).alias(field.name))
        elif field.dataType == TEXT:
            columns.append(_text(field.name, present[field.name]))
        elif field.dataType == TIME:
            columns.append(_known_time(F.col(field.name).cast(TIME)).alias(field.name))
        else:
            columns.append(F.col(field.name).cast(field.dataType).alias(field.name))
    return frame.select(*columns)


def _text(name: str, kind: DataType) -> Column:
    """Bytes in hexadecimal digits, as the reader shows them: taken for text, those that are not UTF-8 get mixed up."""
    column = F.lower(F.hex(name)) if isinstance(kind, BinaryType) else F.col(name)
    return column.cast(TEXT).alias(name)


def _known_time(column: Column) -> Column:
    """A time that is not a number, or endless, is not known: it orders nothing, and no witness can show it."""
    return F.when(F.abs(column) < float("inf"), column)


def hashed(salt: int, *names: str) -> Column:
    """What stands for a name of a run."""
    return F.xxhash64(F.lit(salt), F.col(RUN), *(F.col(name) for name in names))


def checked(salt: int) -> Column:
    """The other hash of an event id."""
    return F.shiftright(F.xxhash64(F.lit(salt), F.lit(CHECK), F.col(RUN), F.col("event_id")), 32).cast("int")


def slim_deliveries(deliveries: DataFrame, salt: int, has_runs: bool) -> DataFrame:
    """What is judged of each delivery. The run only where there are several: the hashes know it."""
    return deliveries.select(
        *([RUN] if has_runs else []),
        hashed(salt, "subscriber").alias("s"),
        F.col("position").alias("p"),
        hashed(salt, "event_id").alias("e"),
        hashed(salt, "topic").alias("t"),
        F.col("out_of_order").alias("o"),
        checked(salt).alias("check"),
        "notified_at",
        "received_at",
        "number",
        "index",
    )


def with_hashes(frame: DataFrame, salt: int, **names: str) -> DataFrame:
    """The table as given, and a hash for each name: `with_hashes(deliveries, salt, s="subscriber")`."""
    return frame.withColumns({short: hashed(salt, name) for short, name in names.items()})


def row_of(table: str) -> Column:
    """A row of this table as part of a witness; `explain.decode` reads it."""
    return F.concat(F.lit(table[0]), F.to_json(F.struct(*HISTORY[table].names)))


def before(group: str, *order: str) -> WindowSpec:
    """Of each row, the rows of its group that come before it."""
    return Window.partitionBy(group).orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow - 1)


def told(template: str, **columns: Column) -> Column:
    """A sentence. `{name}` stands for the column of this name, or for the one that is given by it."""
    words = re.split(r"\{(\w+)\}", template)  # every second one is a name
    return F.concat(*(columns.get(word, F.col(word)) if i % 2 else F.lit(word) for i, word in enumerate(words)))


# ── places: where an event is in its topic, a number, and in a message of several events an index ─────────────────────


def place_of(number: str = "number", index: str = "index") -> Column:
    return F.when(F.col(number).isNotNull(), F.struct(F.col(number), F.col(index).cast("long")).cast(PLACE))


def pack_place(number: Column, index: Column) -> Column:
    """A place as one number, so that groups are hashed and not sorted; null if it does not fit."""
    fits = number.between(0, (1 << (62 - INDEX_BITS)) - 1) & index.between(0, (1 << INDEX_BITS) - 1)
    return F.when(fits, F.shiftleft(number, INDEX_BITS).bitwiseOR(index))


def unpack_place(name: str) -> Column:
    number = F.shiftright(name, INDEX_BITS).alias("number")
    index = F.col(name).bitwiseAND(F.lit((1 << INDEX_BITS) - 1)).alias("index")
    return F.when(F.col(name).isNotNull(), F.struct(number, index).cast(PLACE))


def shown(number: str, index: str) -> Column:
    """A place as the reference auditor shows it."""
    text = F.col(number).cast("string")
    return F.when(F.col(index) > 0, F.concat(text, F.lit(" index "), F.col(index).cast("string"))).otherwise(text)


def shown_place(name: str) -> Column:
    return shown(f"{name}.number", f"{name}.index")
