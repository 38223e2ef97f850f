"""The tables that a plan is made from, as files of any format: read as audits read logs (`seriatim.pipeline.logs`).

Text is read as text: a topic called 001 is not the topic 1. Numbers and times are converted here. A value that cannot
be converted is an error that names file, column and value, before anything is planned.
"""

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from seriatim.audit.mapping import ColumnMapping
from seriatim.audit.rules import Field, misfits
from seriatim.model import InputError
from seriatim.pipeline.logs import fitting
from seriatim.pipeline.logs.reading import Source, columns_of, entries_of, read_raw, source_of
from seriatim.pipeline.plan.inputs import NEEDED, TIMES, check_known
from seriatim.pipeline.spark.unreadable import unreadable

# Columns that are read, if they are there.
FIELDS: dict[str, tuple[Field, ...]] = {
    "subscriptions": (Field("subscriber", "text"), Field("topic", "text"), Field("until", "text")),
    "rates": (Field("topic", "text"), Field("events_per_s", "number"), Field("site", "text")),
    "sites": (Field("client", "text"), Field("site", "text")),
    "publications": (Field("topic", "text"), Field("publisher", "text"), *(Field(name, "time") for name in TIMES)),
}


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
    fields = [field for field in FIELDS[name] if field.name in known or _may_come(field.name, source)]
    sources = {field.name: (field.name,) for field in fields}
    table = fitting.fit(read_raw(spark, source, sources, with_place=True), fields, sources, ColumnMapping())
    _check(name, uri, table, list(sources))
    return table.select(*sources)


def _may_come(column: str, source: Source) -> bool:
    """A line of JSON leaves out what it does not have; but a log has one column of times, which every row has."""
    return not source.tells_all_columns and column not in TIMES


def _check(name: str, uri: str, table: DataFrame, columns: list[str]) -> None:
    """One pass over all rows. The digest reads every column, so that damage shows now, with the file's name."""
    first = F.min_by(F.struct("_file", "_problem"), F.col("_problem"))
    count = F.count(F.lit(1)).alias("rows")
    seen = table.agg(count, F.count("_problem").alias("bad"), first.alias("first"), F.bit_xor(F.xxhash64(*columns)))
    try:
        result = seen.collect()[0]
    except (PySparkException, Py4JJavaError) as error:
        raise unreadable(uri, error) from None
    if result.bad:
        refusal = misfits(uri, result.bad, result.rows, [f"{result.first['_file']}, {result.first['_problem']}"])
        raise InputError(name, refusal.problem, refusal.fix)
