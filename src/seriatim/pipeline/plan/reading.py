"""The tables that a plan is made from, as files of any format: read as audits read logs (`seriatim.pipeline.logs`).

Text is read as text: a topic called 001 is not the topic 1. What must be a number or a time is made one here, and what
is none is an error that names file, column and value, before anything is planned.
"""

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, StringType, StructField, StructType

from seriatim.audit.mapping import ColumnMapping
from seriatim.model import InputError
from seriatim.pipeline.logs import fitting
from seriatim.pipeline.logs.reading import Source, columns_of, entries_of, read_raw, source_of
from seriatim.pipeline.plan.inputs import NEEDED, TIMES, check_known
from seriatim.pipeline.unreadable import unreadable

TEXT, TIME = StringType(), DoubleType()

# Columns that are read, if they are there. Rates are text until they are known to be numbers.
COLUMNS: dict[str, dict[str, DataType]] = {
    "subscriptions": {"subscriber": TEXT, "topic": TEXT, "until": TEXT},
    "rates": {"topic": TEXT, "events_per_s": TEXT, "site": TEXT},
    "sites": {"client": TEXT, "site": TEXT},
    "publications": {"topic": TEXT, "publisher": TEXT, **dict.fromkeys(TIMES, TIME)},
}
NUMBERS = ("events_per_s",)


def read_table(spark: SparkSession, name: str, uri: str) -> DataFrame:
    """Parquet, CSV (with a heading) or JSON lines: a file, a folder or a pattern. `name` is what messages call it.

    All rows are read once and checked.
    """
    source = source_of(spark, uri, entries_of(spark, uri))
    known = columns_of(spark, source)
    if not known:
        raise InputError(name, f"{uri} is empty", "give Parquet, .csv or .jsonl with rows in it")
    for column in NEEDED[name]:
        check_known(name, column, known)
    sources = {column: (column,) for column in COLUMNS[name] if column in known or _may_come(column, source)}
    schema = StructType([StructField(column, COLUMNS[name][column]) for column in sources])
    table = fitting.fit(read_raw(spark, source, sources, with_place=True), schema, sources, ColumnMapping())
    problem = F.col("_problem")
    for column in filter(sources.__contains__, NUMBERS):
        number = F.col(column).try_cast("double")
        shown = F.concat(F.lit(f"column {column}: "), F.substring(column, 1, 80), F.lit(" is not a number"))
        problem = F.coalesce(problem, F.when(F.col(column).isNotNull() & number.isNull(), shown))
    table = table.withColumn("_problem", problem)
    _check(name, uri, table, list(sources))
    return table.select(*(F.col(each).try_cast("double").alias(each) if each in NUMBERS else each for each in sources))


def _may_come(column: str, source: Source) -> bool:
    """A line of JSON leaves out what it does not have; but a log has one column of times, which every row has."""
    return not source.tells_all_columns and column not in TIMES


def _check(name: str, uri: str, table: DataFrame, columns: list[str]) -> None:
    """One pass over all rows. The digest reads every column, so that damage shows now, with the file's name."""
    first = F.min_by(F.struct("_file", "_problem"), F.col("_problem"))
    seen = table.agg(F.count("_problem").alias("bad"), first.alias("first"), F.bit_xor(F.xxhash64(*columns)))
    try:
        result = seen.collect()[0]
    except (PySparkException, Py4JJavaError) as error:
        raise unreadable(uri, error) from None
    if result.bad:
        what = f"{result.bad:,} rows do not fit, such as one of {result.first['_file']}, {result.first['_problem']}"
        raise InputError(name, what, "correct the table")
