"""The edge: tables in and out, at any URI that Spark can read and write."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel, inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_type

from seriatim.audit import rules
from seriatim.audit.mapping import LINES, ColumnMapping
from seriatim.audit.rules import FIELDS, ORDER, Field, format_of
from seriatim.model import Delivery, History, InputError, LogError, Publication, Subscription
from seriatim.pipeline.archive.reading import read_logged
from seriatim.pipeline.logs import fitting
from seriatim.pipeline.logs.reading import (
    LOOKED_AT,
    Source,
    check_halves,
    columns_of,
    entries_of,
    read_lines,
    read_raw,
    source_of,
)
from seriatim.pipeline.schemas import ARCHIVE, HISTORY, LOST, PLACEMENTS
from seriatim.pipeline.spark.files import Entry, children, ends_a_line, files_below
from seriatim.pipeline.spark.unreadable import unreadable

RUNS_SHOWN = 21

_Row = TypeVar("_Row", Delivery, Publication, Subscription)


class Tables(NamedTuple):
    """A history as DataFrames in the columns of `schemas.py`. An unknown table is None; deliveries are always known.

    `files`: the Parquet files that hold the deliveries, these rows and no others; none, if it is not so simple. If an
    audit can open them, it reads them by itself, which is faster.

    `lost`: `History.lost` of each run; of the only one under "".
    """

    deliveries: DataFrame
    publications: DataFrame | None = None
    subscriptions: DataFrame | None = None
    messages: DataFrame | None = None
    files: tuple[str, ...] = ()
    lost: Mapping[str, Mapping[str, int]] = MappingProxyType({})


def tables_of(spark: SparkSession, history: History) -> Tables:
    """A history that is in memory, as tables. An empty table of the history is one that is not known."""

    def frame(name: str) -> DataFrame | None:
        rows = getattr(history, name)
        schema = HISTORY[name]
        if not rows and name != "deliveries":
            return None
        return spark.createDataFrame([tuple(getattr(row, field) for field in schema.names) for row in rows], schema)

    deliveries = frame("deliveries")
    assert deliveries is not None
    lost = {"": history.lost}
    return Tables(deliveries, frame("publications"), frame("subscriptions"), frame("messages"), lost=lost)


def read_tables(spark: SparkSession, uri: str, mapping: ColumnMapping | None = None) -> Tables:
    """Read logs of any origin: a folder with the tables of a history, files of deliveries alone, or an archive.

    The folder has `deliveries` and, if known, `publications`, `subscriptions` and `messages`, each as a file (.jsonl,
    .csv, .tsv, .parquet) or as a folder of such files. Deliveries alone may be a file, a folder or a pattern. All rows
    are read once and checked: one that does not fit, or rows of two runs, are a LogError. A table without rows is one
    that is not known, but for deliveries.
    """
    mapping = mapping or ColumnMapping()
    entries = entries_of(spark, uri)
    archive = _archive(spark, entries)
    if archive is not None:
        return archive
    by_table = _by_table(spark, entries)
    if not by_table and not mapping.is_foreign and len(entries) == 1 and entries[0].is_folder:
        below = [
            file.uri for file in files_below(spark, entries[0].uri, LOOKED_AT) if file.name.startswith("deliveries.")
        ]
        rules.check_is_one_run(uri, [file.rpartition("/")[0] for file in below])
    if by_table and mapping.is_foreign:
        by_table = {"deliveries": by_table["deliveries"]}
    own = ColumnMapping(run=mapping.run, run_column=mapping.run_column)

    def table(name: str) -> DataFrame | None:
        if name == "deliveries":
            return _table(spark, uri, name, by_table.get(name, entries), mapping)
        return _table(spark, uri, name, by_table[name], own) if name in by_table else None

    with ThreadPoolExecutor(len(HISTORY)) as threads:  # while Spark plans one check, it works at another
        deliveries, publications, subscriptions, messages = threads.map(
            inheritable_thread_target(spark)(table), HISTORY
        )
    assert deliveries is not None
    files = _files(spark, uri, by_table.get("deliveries", entries), mapping, deliveries)
    return Tables(deliveries, publications, subscriptions, messages, files)


def read_order(spark: SparkSession, uri: str, run: str | None = None) -> DataFrame:
    """Read an order log: a file, a folder or a pattern of JSON lines, CSV or Parquet, checked as other tables are."""
    frame = _table(spark, uri, ORDER, entries_of(spark, uri), ColumnMapping(run=run))
    assert frame is not None
    return frame


def together(by_run: Mapping[str, Tables]) -> Tables:
    """Many logs in the same tables, told apart by a column `run`: one audit judges them all."""

    def frame(name: str) -> DataFrame | None:
        frames = [
            table.withColumn("run", f.lit(run))
            for run, tables in by_run.items()
            if (table := getattr(tables, name)) is not None
        ]
        return reduce(DataFrame.unionByName, frames) if frames else None

    deliveries = frame("deliveries")
    if deliveries is None:
        raise InputError("by_run", "no log at all", "give at least one")
    lost = {run: tables.lost.get("", {}) for run, tables in by_run.items()}
    return Tables(deliveries, frame("publications"), frame("subscriptions"), lost=lost)


def history_of(tables: Tables, rows_max: int) -> History | None:
    """Tables that are small, as a history in memory (without stamps and messages); None if one has more rows."""

    def rows(frame: DataFrame | None, kind: type[_Row]) -> list[_Row] | None:
        found = frame.drop("stamp").limit(rows_max + 1).toArrow().to_pylist() if frame is not None else []
        return [kind(**row) for row in found] if len(found) <= rows_max else None

    deliveries = rows(tables.deliveries, Delivery)
    publications = rows(tables.publications, Publication)
    subscriptions = rows(tables.subscriptions, Subscription)
    if deliveries is None or publications is None or subscriptions is None:
        return None
    return History(deliveries, publications, subscriptions, lost=dict(tables.lost.get("", {})))


def write_table(frame: DataFrame, uri: str) -> None:
    """Write a table as Parquet; replaces what was there."""
    frame.write.mode("overwrite").parquet(uri)


def write_parquet(history: History, folder: Path) -> None:
    """A history in memory as Parquet files, without Spark: the tables that have rows, each as one file.

    `read_tables` reads these quickest. Stamps are left out: no audit looks at them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in HISTORY.items():
        rows = getattr(history, name)
        if not rows and name != "deliveries":
            continue
        fields = [field for field in schema.fields if field.name != "stamp"]
        columns = {
            field.name: pa.array([getattr(row, field.name) for row in rows], to_arrow_type(field.dataType))
            for field in fields
        }
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def _archive(spark: SparkSession, entries: list[Entry]) -> Tables | None:
    """If this is an archive: its tables. They are checked when they are opened, and name their rows themselves."""
    if len(entries) != 1 or not entries[0].is_folder:
        return None
    uri = entries[0].uri
    there = {child.name.removeprefix("table=") for child in children(spark, uri) if child.name.startswith("table=")}
    if there.isdisjoint(ARCHIVE):
        return None
    if "deliveries" not in there:
        fix = "archive the logs of subscribers too (they write them with --log broker:)"
        raise LogError(uri, f"an archive without deliveries, of {', '.join(sorted(there))}", fix)

    tables: dict[str, DataFrame] = {}
    lost: dict[str, int] = {}
    for name in ("deliveries", "publications", "subscriptions"):
        if name in there:
            tables[name], lost[name] = read_logged(spark, uri, name)
    return Tables(**tables, files=tuple(tables["deliveries"].inputFiles()), lost={"": lost})


def _files(
    spark: SparkSession, uri: str, entries: list[Entry], mapping: ColumnMapping, deliveries: DataFrame
) -> tuple[str, ...]:
    """The files that these deliveries are read from, if their rows are the rows of the log as they are."""
    source = source_of(spark, uri, entries)
    if source.format != "parquet" or source.is_partitioned or source.is_empty or mapping != ColumnMapping():
        return ()
    # Outside of an archive a row with `lost_to` is a row like any other. The files are asked of the table itself, since
    # others may have come after it was made.
    return () if LOST in columns_of(spark, source) else tuple(deliveries.inputFiles())


def _by_table(spark: SparkSession, entries: list[Entry]) -> dict[str, list[Entry]]:
    """If this is the folder of a history: what is in it, by table."""
    if len(entries) != 1 or not entries[0].is_folder:
        return {}
    by_table: dict[str, list[Entry]] = {}
    for child in children(spark, entries[0].uri):
        name = child.name.partition(".")[0]
        is_table = name == "deliveries" or child.is_folder or format_of(child.name) is not None
        if name in HISTORY and is_table:  # people keep other files beside their logs, such as messages.log
            by_table.setdefault(name, []).append(child)
    rules.check_tables(entries[0].uri, {name: [each.name for each in found] for name, found in by_table.items()})
    return by_table


class _Reading(NamedTuple):
    """The data that reading one table needs."""

    spark: SparkSession
    source: Source
    fields: tuple[Field, ...]
    sources: dict[str, tuple[str, ...]]  # field → columns
    wanted: list[str]
    mapping: ColumnMapping

    @property
    def where(self) -> str:
        return self.source.where

    def fitted(self, with_place: bool) -> DataFrame:
        raw = read_raw(self.spark, self.source, self.wanted, with_place)
        return fitting.fit(raw, self.fields, self.sources, self.mapping)


def _table(spark: SparkSession, uri: str, name: str, entries: list[Entry], mapping: ColumnMapping) -> DataFrame | None:
    where = entries[0].uri if len(entries) == 1 else uri
    source = source_of(spark, where, entries)
    if source.is_empty and name not in ("deliveries", ORDER):
        return None
    known = columns_of(spark, source)
    if not known:  # files without a row have no columns either
        source = source._replace(is_empty=True)
    fields, names = FIELDS[name], (PLACEMENTS if name == ORDER else HISTORY[name]).names
    sources = mapping.sources_of(name, known, where, source.tells_all_columns) if known else {}
    wanted = [column for columns in sources.values() for column in columns]
    if mapping.order_by not in (None, LINES):
        wanted.append(str(mapping.order_by))
    if mapping.run_column in known or not source.tells_all_columns:
        wanted.append(mapping.run_column)
    reading = _Reading(spark, source, fields, sources, wanted, mapping)
    fitted = reading.fitted(mapping.subscriber_from_file or (mapping.order_by is not None and not mapping.trust_order))
    if source.format != "parquet":
        # Text is slow to read, and an audit goes over its rows some ten times. `spark.catalog.clearCache()` gives the
        # space back.
        fitted = fitted.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        has_rows = _check(reading, fitted)
    except LogError:
        fitted.unpersist()
        raise
    if not has_rows and name not in ("deliveries", ORDER):
        return None
    if mapping.run is not None and "_run" in fitted.columns:
        fitted = fitted.where(f.col("_run").isNull() | (f.col("_run") == mapping.run))
    return _placed(fitted, where, mapping).select(*names)


def _check(reading: _Reading, fitted: DataFrame) -> bool:
    """One pass over all rows: whether there are any. Raises LogError if one does not fit, or they are of two runs."""
    mapping = reading.mapping
    nothing = f.lit(None).cast("string")
    run = f.col("_run") if "_run" in fitted.columns else nothing
    kind = f.col("_kind") if "_kind" in fitted.columns else nothing
    texts = [f.col(field.name) for field in reading.fields if field.kind == "text"]
    has_mark = f.lit(False)
    if reading.source.format == "jsonl":
        has_mark = reduce(Column.__or__, [f.contains(text, f.lit("?")) for text in (*texts, run)])
    # The digest reads every column that is used later, so that damage shows now, with the file's name.
    seen = fitted.agg(
        f.count(f.lit(1)).alias("rows"),
        f.count("_problem").alias("bad"),
        f.min(run).alias("first_run"),
        f.max(run).alias("last_run"),
        f.count_if(run == f.lit(mapping.run or "")).alias("of_run"),
        f.min(kind).alias("one_kind"),
        f.max(kind).alias("other_kind"),
        f.bool_or(has_mark).alias("has_mark"),
        f.bit_xor(f.xxhash64(*(field.name for field in reading.fields if field.kind != "stamp"))).alias("digest"),
    )
    try:
        result = seen.collect()[0]
    except (PySparkException, Py4JJavaError) as error:
        raise unreadable(reading.where, error) from None
    if result.bad:
        raise rules.misfits(reading.where, result.bad, result.rows, _examples(reading, reading.fitted(with_place=True)))
    if reading.source.format == "jsonl" and result.rows:
        _check_lines(reading)
    if result.has_mark and reading.source.format == "jsonl":
        check_halves(reading.spark, reading.source)  # one of the marks may stand for half a character
    if result.one_kind != result.other_kind:
        raise rules.mixed_order(reading.where, str(mapping.order_by))
    if mapping.run is None and result.first_run != result.last_run:
        raise rules.runs_mixed(reading.where, _runs(fitted))
    if mapping.run is not None and not result.of_run and result.first_run is not None:
        raise rules.no_such_run(reading.where, mapping.run, _runs(fitted))
    if mapping.subscriber_from_file:
        for row in fitting.in_several_files(fitted).orderBy("subscriber").limit(1).collect():
            raise rules.called_alike(row.other, row.one, row.subscriber)
    return bool(result.rows)


def _runs(fitted: DataFrame) -> list[str]:
    runs = fitted.select("_run").where(f.col("_run").isNotNull()).distinct().orderBy("_run").limit(RUNS_SHOWN)
    return [row[0] for row in runs.collect()]


def _check_lines(reading: _Reading) -> None:
    """Refuse lines of JSON that are more than one object."""
    lines = read_lines(reading.spark, reading.source)
    bad, rows = lines.agg(f.count("_problem"), f.count(f.lit(1))).collect()[0]
    if bad:
        raise rules.misfits(reading.where, bad, rows, _examples(reading, lines))


def _examples(reading: _Reading, placed: DataFrame) -> Iterator[str]:
    """The first few rows that do not fit, with their file and row (a heading and empty lines do not count)."""
    order = ("_file", "_block", "_row")
    for row in placed.where(f.col("_problem").isNotNull()).orderBy(*order).limit(rules.EXAMPLES).collect():
        here = f.struct(*(f.lit(row[name]).alias(name) for name in order[1:]))
        place, problem = f.struct(*order[1:]), row["_problem"]
        own = placed.where(f.col("_file") == row["_file"])
        before, after = own.agg(f.count_if(place < here), f.count_if(place > here)).collect()[0]
        is_broken = problem.startswith((rules.NOT_JSON, rules.OTHER_CELLS))
        if is_broken and not after and not ends_a_line(reading.spark, row["_file"]):
            problem = f"{rules.CUT_OFF}: {problem.partition(': ')[2]}"
        yield f"{row['_file']} row {before + 1}, {problem}"


def _placed(fitted: DataFrame, where: str, mapping: ColumnMapping) -> DataFrame:
    if mapping.order_by is None:
        return fitted
    if mapping.order_by != LINES:
        return fitting.place_by_order(fitted, mapping)
    several = fitting.in_several_files(fitted).orderBy("subscriber").limit(1).collect()
    if several:
        raise rules.in_several_files(where, several[0].subscriber)
    return fitting.place_by_line(fitted)
