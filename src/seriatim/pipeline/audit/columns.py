"""The slim tables of an audit: 64-bit hashes stand for names, so that nothing wide is moved between machines.

    run      of a table that holds many logs; without the column there is one, called ""
    s, e, t  subscriber, event and topic, each hashed with its run; a publisher is hashed as a subscriber of its name
    p        position
    check    32 bits of another hash of the event id: two ids with one hash show themselves by it

Names come back only for what is shown, by a join with the tables as they were given.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StructType

from seriatim.model import InputError
from seriatim.pipeline.logs.tables import Tables
from seriatim.pipeline.schemas import DELIVERIES, PUBLICATIONS, SUBSCRIPTIONS, TEXT, TIME

RUN = "run"
CHECK = "check"  # what the other hash of an event id is for
DEFAULTS: Mapping[str, object] = {"out_of_order": False, "index": 0, "filtered": False}


class LogTables:
    """The tables of one or many logs, all columns there, every row with its run."""

    def __init__(self, tables: Tables, is_undivided: bool = False) -> None:
        self.has_runs = RUN in tables.deliveries.columns
        self.deliveries = complete(tables.deliveries, DELIVERIES, "deliveries")
        spark = tables.deliveries.sparkSession
        self.publications = complete(_or_empty(tables.publications, spark, PUBLICATIONS), PUBLICATIONS, "publications")
        self.subscriptions = complete(
            _or_empty(tables.subscriptions, spark, SUBSCRIPTIONS), SUBSCRIPTIONS, "subscriptions"
        )
        self.files = tables.files
        self.lost = tables.lost
        self.is_undivided = is_undivided
        if is_undivided:  # then every table made of these is in one part, too, and none is ever shuffled
            self.deliveries = self.deliveries.coalesce(1)
            self.publications = self.publications.coalesce(1)
            self.subscriptions = self.subscriptions.coalesce(1)
        self.has_publications = tables.publications is not None
        self.has_subscriptions = tables.subscriptions is not None


def _or_empty(frame: DataFrame | None, spark: SparkSession, schema: StructType) -> DataFrame:
    return frame if frame is not None else spark.createDataFrame([], schema)


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


def delivery_json() -> Column:
    """A delivery as a row of a witness."""
    return F.concat(F.lit("d"), F.to_json(F.struct(*DELIVERIES.names)))


def publication_json() -> Column:
    return F.concat(F.lit("p"), F.to_json(F.struct(*PUBLICATIONS.names)))


def subscription_json() -> Column:
    return F.concat(F.lit("s"), F.to_json(F.struct(*SUBSCRIPTIONS.names)))
