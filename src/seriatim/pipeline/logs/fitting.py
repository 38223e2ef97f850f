"""From raw rows to the tables of `schemas.py`: `audit/rules.py` on Spark. `audit/fitting.py` is the same in Python.

Pure functions, `DataFrame → DataFrame`. A row that does not fit is marked with its problem (`_problem`), in the words
of the rules, and never dropped.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
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
    FloatType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from seriatim.audit import rules
from seriatim.audit.mapping import LINES, ColumnMapping
from seriatim.audit.rules import Field
from seriatim.pipeline.logs.reading import CORRUPT, cell
from seriatim.pipeline.schemas import DELIVERIES, ENTRIES, TYPES

WIDE = f"decimal({rules.NUMBER_DIGITS},{rules.FRACTION_DIGITS})"
DEFAULTS = {"index": 0, "flag": False}  # of a cell that is missing; others are null

LARGE, CLEAR = 1e29, 1e7  # of numbers with fractions: too large; so large that no digit is left out

Kinds: TypeAlias = Mapping[str, DataType]


def fit(
    raw: DataFrame,
    fields: Sequence[Field],
    sources: Mapping[str, tuple[str, ...]],
    mapping: ColumnMapping,
    kinds: Kinds | None = None,
) -> DataFrame:
    """The columns of these fields (null where the log has none), `_problem`, `_run`, and what `raw` tells of the place.

    With an order column also `_order`, what to order by, and `_kind`, whether it is a number or a time. `kinds` are the
    types of the columns of `raw`, for callers that may not look at its schema (a declarative pipeline).
    """
    if kinds is None:
        kinds = {field.name: field.dataType for field in raw.schema}
    problems = [f.col(CORRUPT)] if CORRUPT in kinds else []
    columns = []
    for field in fields:
        value = f.lit(DEFAULTS.get(field.kind))
        if field.name in sources:
            value, problem = _cell(kinds, field, sources[field.name])
            problems.append(problem)
        elif field.name == "subscriber" and mapping.subscriber_from_file:
            value = name_of(f.col("_file"))
        elif field.name == "topic" and mapping.topic_value is not None:
            value = f.lit(mapping.topic_value)
        elif field.name == "position":
            value = f.lit(0)
        # A map is what it is: a cast would also have to promise that no value of it is null.
        is_map = field.kind == "stamp" and field.name in sources
        columns.append((value if is_map else value.cast(TYPES[field.kind])).alias(field.name))
    if mapping.run_column in kinds:
        columns.append(_text(kinds, mapping.run_column).alias("_run"))
    if mapping.order_by not in (None, LINES):
        order, kind = _moment(kinds, str(mapping.order_by))
        problems.append(f.when(order.isNull(), _shown(kinds, str(mapping.order_by), rules.NOT_TIME)))
        columns += [order.alias("_order"), kind.alias("_kind")]
    columns += [f.col(name) for name in ("_file", "_block", "_row") if name in kinds]
    return raw.select(*columns, f.coalesce(*problems, f.lit(None).cast("string")).alias("_problem"))


def name_of(file: Column) -> Column:
    """`rules.name_of` a file, given its URI."""
    plain = f.url_decode(f.replace(f.regexp_extract(file, "([^/]*)$", 1), f.lit("+"), f.lit("%2B")))
    for suffix in rules.SUFFIXES:
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
    """Positions from the lines of a file, which must be one subscriber's own (`in_several_files`)."""
    lines = Window.partitionBy("subscriber").orderBy("_file", "_block", "_row")
    return frame.withColumn("position", f.row_number().over(lines).cast("bigint") - 1)


def in_several_files(frame: DataFrame) -> DataFrame:
    """The subscribers whose rows are in more than one file: lines do not order those."""
    files = frame.groupBy("subscriber").agg(f.min("_file").alias("one"), f.max("_file").alias("other"))
    return files.where("one <> other")


# ── cells ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _cell(kinds: Kinds, field: Field, columns: tuple[str, ...]) -> tuple[Column, Column]:
    """The value of a field, and what is wrong with it, if anything."""
    column = columns[0]
    if field.kind == "text":
        return _name(kinds, field, columns)
    is_there, text = _is_there(kinds, column), _text(kinds, column)
    match field.kind:
        case "flag" if isinstance(kinds[column], BooleanType):
            return f.coalesce(cell(column), f.lit(False)), f.lit(None).cast("string")
        case "time" if isinstance(kinds[column], DoubleType | FloatType):
            value = _rounded(cell(column).cast("double"))
            return value, f.when(is_there & value.isNull(), _shown(kinds, column, rules.NOT_TIME))
        case "flag":
            word = f.lower(f.trim(text))
            value = f.when(word.isin(*sorted(rules.YES)), True).when(word.isin(*sorted(rules.NO)), False)
            problem = f.when(is_there & value.isNull(), _shown(kinds, column, rules.NOT_FLAG))
            return f.coalesce(value, f.lit(False)), problem
        case "stamp":
            value = cell(column)
            is_wrong = f.lit(False)
            if isinstance(kinds[column], StringType):
                value = f.from_json(value, ENTRIES)
                is_wrong = is_there & (value.isNull() | f.exists(f.map_values(value), Column.isNull))
            return value, f.when(is_wrong, _shown(kinds, column, rules.NOT_STAMP))
        case "time" | "number":
            order, kind = _moment(kinds, column)
            value = f.when(kind == "time", order / 1000).otherwise(order).cast("double")
            words = rules.NOT_TIME
            if field.kind == "number":
                value, words = f.when(kind == "number", order.cast("double")), rules.NOT_NUMBER
            return value, f.when(is_there & value.isNull(), _shown(kinds, column, words))
        case _:
            return _count(kinds, field, column, is_there)


def _name(kinds: Kinds, field: Field, columns: tuple[str, ...]) -> tuple[Column, Column]:
    texts = [_text(kinds, each) for each in columns]
    value = texts[0] if len(texts) == 1 else f.concat_ws("/", *map(_escaped, texts))
    missing = reduce(Column.__or__, [text.isNull() for text in texts])
    value = f.when(~missing, value)
    # Shown as text, two names with such bytes could look like one.
    problem = f.when(~f.is_valid_utf8(value), f.lit(rules.of_column(columns, rules.NOT_UTF8)))
    if field.is_needed:
        problem = problem.when(missing, f.lit(rules.empty_name(columns, field.name)))
    return value, problem


def _count(kinds: Kinds, field: Field, column: str, is_there: Column) -> tuple[Column, Column]:
    value = _whole(kinds, column)
    problem = f.when(is_there & value.isNull(), _shown(kinds, column, rules.NOT_WHOLE))
    problem = problem.when(value < 0, _shown(kinds, column, rules.NEGATIVE))
    if field.kind == "index":
        problem = problem.when(value > rules.INDEX_MAX, _shown(kinds, column, rules.TOO_LARGE))
        return f.coalesce(f.when(value <= rules.INDEX_MAX, value), f.lit(0)), problem
    if field.is_needed:
        problem = f.when(~is_there, f.lit(rules.of_column([column], rules.EMPTY))).otherwise(problem)
    return value, problem


def _text(kinds: Kinds, column: str) -> Column:
    """A cell as text, different ones as different texts: bytes in hexadecimal digits, and what has parts as JSON."""
    kind, value = kinds[column], cell(column)
    if isinstance(kind, BinaryType):
        value = f.lower(f.hex(value))
    elif isinstance(kind, StructType | ArrayType | MapType):
        value = f.to_json(value)
    return f.nullif(value.cast("string"), f.lit(""))


def _is_there(kinds: Kinds, column: str) -> Column:
    return (_text(kinds, column) if isinstance(kinds[column], StringType) else cell(column)).isNotNull()


def _escaped(text: Column) -> Column:
    return f.replace(f.replace(text, f.lit("%"), f.lit("%25")), f.lit("/"), f.lit("%2F"))


def _rounded(value: Column) -> Column:
    """A number with as many digits as are kept of any; null if it is none, or too large. Costs nothing for clocks."""
    size = f.abs(value)
    return f.when(
        ~f.isnan(value) & (size < LARGE), f.when(size >= CLEAR, value).otherwise(f.round(value, rules.FRACTION_DIGITS))
    )


def _whole(kinds: Kinds, column: str) -> Column:
    if isinstance(kinds[column], IntegralType):
        return cell(column).cast("bigint")
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
    # What Spark takes for a time is more than ISO 8601: "12:30" is today.
    time = f.when(text.rlike(rules.TIME), f.unix_micros(text.try_cast("timestamp")).cast(WIDE))
    return f.coalesce(number, time), f.when(number.isNotNull(), "number").when(time.isNotNull(), "time")


def _shown(kinds: Kinds, column: str, problem: str) -> Column:
    text = f.substring(f.make_valid_utf8(_text(kinds, column)), 1, rules.SHOWN_MAX)
    told = f.coalesce(f.concat(text, f.lit(f" {problem}")), f.lit(rules.EMPTY))
    return f.concat(f.lit(rules.of_column([column], "")), told)
