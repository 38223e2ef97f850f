"""From raw rows to the tables of `schemas.py`: what each cell means, which rows do not fit, and where they stand.

Pure functions, `DataFrame → DataFrame`. The rules are those of the plain reader (`seriatim.audit.foreign`): numbers may
be text, a time may be a number or ISO 8601, an empty cell is one that is not there. A row that does not fit is marked
with what is wrong with it (`_problem`), never dropped.
"""

from collections.abc import Mapping
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from seriatim.audit.foreign import FORMATS, NO, PARQUET, YES
from seriatim.audit.mapping import LINES, ColumnMapping
from seriatim.pipeline.logs.reading import CORRUPT, cell
from seriatim.pipeline.schemas import DELIVERIES

WIDE = "decimal(38,9)"  # whole numbers of any clock, and nine digits behind the point
SUFFIXES = [".gz", *FORMATS, *PARQUET, ".log", ".txt"]


Kinds: TypeAlias = Mapping[str, DataType]


def fit(
    raw: DataFrame,
    schema: StructType,
    sources: Mapping[str, tuple[str, ...]],
    mapping: ColumnMapping,
    kinds: Kinds | None = None,
) -> DataFrame:
    """The columns of `schema` (null where the log has none), `_problem`, `_run`, and what was in `raw` about the place.

    With an order column also `_order`, what to order by, and `_kind`, whether it is a number or a time. `kinds` are the
    types of the columns of `raw`, for whoever may not ask it (a declarative pipeline).
    """
    if kinds is None:
        kinds = {field.name: field.dataType for field in raw.schema}
    problems = [f.col(CORRUPT)] if CORRUPT in kinds else []
    columns = []
    for field in schema:
        if field.name in sources:
            value, problem = _cell(kinds, field.name, sources[field.name], field.dataType, not field.nullable)
            problems.append(problem)
        elif field.name == "subscriber" and mapping.subscriber_from_file:
            value = name_of(f.col("_file"))
        elif field.name == "topic" and mapping.topic_value is not None:
            value = f.lit(mapping.topic_value)
        elif isinstance(field.dataType, BooleanType):
            value = f.lit(False)
        elif isinstance(field.dataType, IntegerType):
            value = f.lit(0)
        elif field.name == "position":
            value = f.lit(0).cast(LongType())
        else:
            value = f.lit(None).cast(field.dataType)
        # A map is what it is: a cast would also have to promise that no value of it is null.
        columns.append((value if isinstance(field.dataType, MapType) else value.cast(field.dataType)).alias(field.name))
    if mapping.run_column in kinds:
        columns.append(_text(kinds, mapping.run_column).alias("_run"))
    if mapping.order_by not in (None, LINES):
        order, kind = _moment(kinds, str(mapping.order_by))
        missing = f.when(order.isNull(), _shown(kinds, str(mapping.order_by), "is neither a number nor a time"))
        problems.append(missing)
        columns += [order.alias("_order"), kind.alias("_kind")]
    columns += [f.col(name) for name in ("_file", "_block", "_row") if name in kinds]
    return raw.select(*columns, f.coalesce(*problems, f.lit(None).cast("string")).alias("_problem"))


def name_of(file: Column) -> Column:
    """A file's name without folders and suffixes: what its subscriber is called."""
    plain = f.url_decode(f.replace(f.regexp_extract(file, "([^/]*)$", 1), f.lit("+"), f.lit("%2B")))
    for suffix in SUFFIXES:
        plain = f.regexp_replace(plain, f"\\Q{suffix}\\E$", "")
    return plain


def place_by_order(frame: DataFrame, mapping: ColumnMapping, of: tuple[str, ...] = ("subscriber",)) -> DataFrame:
    """Deliveries with positions without holes, from `_order`; rows whose order is not known share one.

    Those are rows of equal value, and, unless the column is trusted, those of one file whose lines contradict it: a
    line reaches up to the largest value before it, and whatever lies between is not known to be before or after.
    `of` are the columns that say whose positions they are.
    """
    reach = f.col("_order")
    if not mapping.trust_order:
        lines = Window.partitionBy(*of, "_file").orderBy("_block", "_row")
        reach = f.max("_order").over(lines.rowsBetween(Window.unboundedPreceding, 0))
    own = Window.partitionBy(*of).orderBy("_order")
    earlier = own.rowsBetween(Window.unboundedPreceding, -1)
    is_next = f.coalesce(f.col("_order") > f.max("_reach").over(earlier), f.lit(True)).cast("bigint")
    position = f.sum("_next").over(own.rowsBetween(Window.unboundedPreceding, 0)) - 1
    # Only `select`: a declarative pipeline would look a table up at once for `withColumn`, and lose what it depends on.
    frame = frame.select("*", reach.alias("_reach")).select("*", is_next.alias("_next"))
    others = [name for name in dict.fromkeys([*of, *DELIVERIES.names]) if name != "position"]
    return frame.select(*others, position.alias("position"))


def place_by_line(frame: DataFrame) -> DataFrame:
    """Positions from the lines of a file, which must be one subscriber's own (`written_by_several`)."""
    lines = Window.partitionBy("subscriber").orderBy("_file", "_block", "_row")
    return frame.withColumn("position", f.row_number().over(lines).cast("bigint") - 1)


def in_several_files(frame: DataFrame) -> DataFrame:
    """The subscribers whose rows are in more than one file: lines do not order those."""
    files = frame.groupBy("subscriber").agg(f.min("_file").alias("one"), f.max("_file").alias("other"))
    return files.where("one <> other")


# ── cells ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _cell(
    kinds: Kinds, name: str, columns: tuple[str, ...], kind: DataType, is_required: bool
) -> tuple[Column, Column]:
    """The value of a field, and what is wrong with it, if anything."""
    column = columns[0]
    there = _there(kinds, column)
    if isinstance(kind, StringType):
        texts = [_text(kinds, each) for each in columns]
        value = texts[0] if len(texts) == 1 else f.concat_ws("/", *map(_escaped, texts))
        missing = f.lit(False)
        for text in texts:
            missing = missing | text.isNull()
        value = f.when(~missing, value)
        # Whoever shows such bytes as text makes one name of two.
        problem = f.when(~f.is_valid_utf8(value), f.lit(f"column {', '.join(columns)}: not UTF-8"))
        if is_required:
            problem = problem.when(missing, f.lit(f"column {', '.join(columns)}: empty, and it is the {name}"))
        return value, problem
    if isinstance(kind, BooleanType):
        text = f.lower(f.trim(_text(kinds, column)))
        value = f.when(text.isin(*sorted(YES)), True).when(text.isin(*sorted(NO)), False)
        return f.coalesce(value, f.lit(False)), f.when(
            there & value.isNull(), _shown(kinds, column, "is neither true nor false")
        )
    if isinstance(kind, MapType):
        value = cell(column)
        value = f.from_json(value, kind) if isinstance(kinds[column], StringType) else value
        return value, f.when(there & value.isNull(), _shown(kinds, column, "is not a stamp"))
    if isinstance(kind, DoubleType):
        order, is_kind = _moment(kinds, column)
        value = f.when(is_kind == "time", order / 1000).otherwise(order).cast("double")
        return value, f.when(there & value.isNull(), _shown(kinds, column, "is neither a number nor a time"))
    value = _whole(kinds, column)
    problem = f.when(there & value.isNull(), _shown(kinds, column, "is not a whole number")).when(
        value < 0, _shown(kinds, column, "is negative")
    )
    if is_required and isinstance(kind, LongType):
        problem = f.when(~there, f.lit(f"column {column}: empty")).otherwise(problem)
    return (f.coalesce(value, f.lit(0)) if isinstance(kind, IntegerType) else value), problem


def _text(kinds: Kinds, column: str) -> Column:
    """A cell as text, different ones as different texts: bytes in hexadecimal digits, and what has parts as JSON."""
    kind, value = kinds[column], cell(column)
    if isinstance(kind, BinaryType):
        value = f.lower(f.hex(value))
    elif isinstance(kind, StructType | ArrayType | MapType):
        value = f.to_json(value)
    return f.nullif(value.cast("string"), f.lit(""))


def _there(kinds: Kinds, column: str) -> Column:
    if isinstance(kinds[column], StringType):
        return _text(kinds, column).isNotNull()
    return cell(column).isNotNull()


def _escaped(text: Column) -> Column:
    return f.replace(f.replace(text, f.lit("%"), f.lit("%25")), f.lit("/"), f.lit("%2F"))


def _whole(kinds: Kinds, column: str) -> Column:
    is_text = isinstance(kinds[column], StringType | BinaryType)
    number = f.trim(cell(column).cast("string")) if is_text else cell(column)
    wide = number.try_cast(WIDE)
    return f.coalesce(
        number.try_cast("bigint") if not _is_fractional(kinds, column) else f.lit(None),
        f.when(wide == f.floor(wide), wide).try_cast("bigint"),
    )


def _is_fractional(kinds: Kinds, column: str) -> bool:
    kind = kinds[column]
    return isinstance(kind, NumericType) and kind.typeName() in ("float", "double", "decimal")


def _moment(kinds: Kinds, column: str) -> tuple[Column, Column]:
    """A number as it is, a time as microseconds since 1970; and which of them it is."""
    kind = kinds[column]
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return f.unix_micros(cell(column).cast("timestamp")).cast(WIDE), f.lit("time")
    if isinstance(kind, NumericType):
        return cell(column).try_cast(WIDE), f.lit("number")
    text = f.trim(cell(column).cast("string"))
    number = text.try_cast(WIDE)
    # What Spark takes for a time is more than ISO 8601 ("12:30" is today): a date must be there.
    time = f.when(text.rlike(r"^\d{4}-\d\d-\d\d"), f.unix_micros(text.try_cast("timestamp")).cast(WIDE))
    return f.coalesce(number, time), f.when(number.isNotNull(), "number").when(time.isNotNull(), "time")


def _shown(kinds: Kinds, column: str, what: str) -> Column:
    text = f.substring(f.make_valid_utf8(_text(kinds, column)), 1, 80)
    return f.concat(f.lit(f"column {column}: "), f.coalesce(f.concat(text, f.lit(f" {what}")), f.lit("empty")))
