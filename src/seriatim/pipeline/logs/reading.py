"""Rows of a log as they are in files: CSV, JSON lines or Parquet, not yet known to be deliveries.

Text is read as text, so that a cell that does not fit is seen, counted and shown (`fitting.py`) and never becomes a
null in silence. Where the order of lines matters, `_file`, `_block` and `_row` give a row's place in its file.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import islice
from threading import Lock
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from seriatim.audit import folders, rules
from seriatim.audit.rules import HEAD, SEPARATORS, check_heading, format_of
from seriatim.model import LogError
from seriatim.pipeline.arrow import delta
from seriatim.pipeline.spark.files import Entry, children, empty_below, files_below, find, marks, read_head
from seriatim.pipeline.spark.unreadable import told, unreadable

CORRUPT = "_corrupt"
LINE = "value"  # what Spark calls the only column of text
PLACE = ("_file", "_block", "_row")
LOOKED_AT = 1_000  # files of a folder that are looked at to know its format
COMPARED = 100  # files that are looked at to say which of them do not fit together
MAGIC_PARQUET = b"PAR1"
MAGIC_BYTES = 4_096  # of a file whose name does not tell its format
INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"

_one_at_a_time = Lock()  # a setting is the session's, and tables are read side by side


class Source(NamedTuple):
    """Files of one format."""

    where: str  # what to call it in messages
    uris: tuple[str, ...]
    format: str
    is_partitioned: bool = False
    is_empty: bool = False  # not one byte

    @property
    def tells_all_columns(self) -> bool:
        """Whether the first rows name every column: a line of JSON leaves out what it does not have."""
        return self.format != "jsonl"


def entries_of(spark: SparkSession, uri: str) -> list[Entry]:
    """The files and folders of a log. Raises LogError if there are none."""
    entries = find(spark, uri)
    if not entries:
        raise LogError(uri, "no such file or folder", "correct the path")
    return entries


def source_of(spark: SparkSession, where: str, entries: Iterable[Entry]) -> Source:
    """Files and folders that are one table. Raises LogError if they are of different formats, or there are none."""
    entries = list(entries)
    if len(entries) == 1 and entries[0].is_folder and marks(spark, entries[0].uri, [folders.DELTA], is_deep=False):
        return _delta_source(spark, where, entries[0])
    formats: list[tuple[str, str]] = []
    total = 0
    is_partitioned = False
    for entry in entries:
        check_entry(spark, entry)
        files = files_below(spark, entry.uri, LOOKED_AT) if entry.is_folder else [entry]
        is_partitioned |= rules.check_folders(where, [_folders(file, entry) for file in files])
        for file in files:
            total += file.bytes
            if file.bytes:
                formats.append((_format_of(spark, file), file.name))
        is_all = len(files) < LOOKED_AT or "parquet" not in dict(formats)
        for file in files if is_all else empty_below(spark, entry.uri):
            if not file.bytes and format_of(file.name) == "parquet":  # Spark would pass over it, as if it never was
                raise LogError(file.uri, "empty, which no Parquet file is", "copy the file again, or delete it")
    kind = rules.check_formats(where, formats) or "jsonl"
    is_partitioned |= any(
        child.is_folder and "=" in child.name and not child.is_hidden
        for entry in entries
        if entry.is_folder
        for child in children(spark, entry.uri)
    )
    return Source(where, tuple(entry.uri for entry in entries), kind, is_partitioned, total == 0)


def _delta_source(spark: SparkSession, where: str, entry: Entry) -> Source:
    """The files that have the rows of a Delta table, and no others."""
    table = delta.open_table(entry.uri)
    uris = delta.plain_files(table)
    if uris is None:
        if not str(spark.sparkContext.master).startswith("local"):
            problem = "a Delta table with partitions, deleted rows or renamed columns, read by Spark on a cluster"
            raise LogError(where, problem, "leave --master out, or write its rows as Parquet first")
        uris = [f"file:{file}" for file in delta.copied(table)]
    return Source(where, tuple(uris), "parquet", is_empty=not uris)


def check_entry(spark: SparkSession, entry: Entry) -> None:
    """Refuse a folder, or a part of one, whose files are not simply its rows (`audit/folders.py`)."""
    place = entry.uri.rstrip("/")
    if not entry.is_folder:
        place = place.rpartition("/")[0]
    found = marks(spark, place, folders.MARKS, is_deep=entry.is_folder)
    while folders.is_inside_table(place.rpartition("/")[2]):
        place = place.rpartition("/")[0]
        found |= marks(spark, place, folders.MARKS, is_deep=False)
    for where, names in found.items():
        folders.check_folder(where, names)


def _folders(file: Entry, entry: Entry) -> list[str]:
    """The names of the folders between an entry and a file in it."""
    return file.uri.removeprefix(entry.uri).strip("/").split("/")[:-1]


def _format_of(spark: SparkSession, entry: Entry) -> str:
    """csv, tsv, jsonl or parquet: from the name of a file, or else from how it begins."""
    by_name = format_of(entry.name)
    if by_name is not None:
        return by_name
    head = read_head(spark, entry, MAGIC_BYTES)
    if head.startswith(MAGIC_PARQUET):
        return "parquet"
    if head.lstrip().startswith(b"{"):
        return "jsonl"
    first = head.partition(b"\n")[0]
    if b"," in first:
        return "csv"
    if b"\t" in first:
        return "tsv"
    raise LogError(entry.uri, "neither Parquet, JSON lines nor CSV", "name it .parquet, .jsonl, .csv or .tsv if it is")


def columns_of(spark: SparkSession, source: Source) -> list[str]:
    """The columns of a source, in order. Those of JSON lines are taken from the first lines."""
    if source.is_empty:
        return []
    try:
        if source.format == "jsonl":
            # The first file may be empty, and a line may be no object: that is found later, with its place.
            rows = _loader(spark, source).text(list(source.uris))
            lines = [row.value for row in rows.limit(HEAD).collect()]
            keys = dict.fromkeys(name for name in rows.columns if name != LINE)  # those of folders
            for line in lines:
                keys.update(dict.fromkeys(rules.keys_of(line)))
            if not keys and any(line.strip() for line in lines):
                raise rules.not_json_lines(source.where)
            return list(keys)
        names = [name for name in _frame(spark, source, None).columns if name != CORRUPT]
        if source.format in SEPARATORS and _may_be_renamed(names):
            reader = _loader(spark, source).options(**_options(source) | {"header": "false"})
            heading = reader.csv(list(source.uris)).first()
            check_heading(heading or (), source.where)
        return names
    except (PySparkException, Py4JJavaError) as error:
        mixed = _mixed_types(spark, source) if "CANNOT_MERGE_SCHEMA" in told(error) else None
        raise mixed or unreadable(source.where, error) from None


def check_halves(spark: SparkSession, source: Source) -> None:
    """Refuse JSON with half characters, all of which are a question mark to Spark."""
    line = _loader(spark, source).text(list(source.uris)).where(f.col("value").rlike(rules.HALF)).first()
    if line is not None:
        raise rules.half_character(source.where, line.value)


def _mixed_types(spark: SparkSession, source: Source) -> LogError | None:
    """Two files of which a column has different types, looked for in the first files only: each costs a query."""
    seen: dict[str, tuple[str, str]] = {}
    for file in islice((file for uri in source.uris for file in files_below(spark, uri, COMPARED)), COMPARED):
        for name, kind in spark.read.parquet(file.uri).dtypes:
            first, where = seen.setdefault(name, (kind, file.uri))
            if first != kind:
                what = f"mixed types: column {name} is {kind} here and {first} in {where}"
                return LogError(file.uri, what, "write all files with the same types")
    return None


def _may_be_renamed(names: list[str]) -> bool:
    """Whether some may have been of one name: Spark then puts its place behind each."""
    stems = [name.removesuffix(str(i)).lower() for i, name in enumerate(names) if name.endswith(str(i))]
    return len(set(stems)) < len(stems)


def read_raw(spark: SparkSession, source: Source, columns: Iterable[str], with_place: bool) -> DataFrame:
    """These columns (of JSON: dots lead inside), `_corrupt` (what is wrong with it) and the place if wanted."""
    wanted = list(dict.fromkeys(columns))
    if source.is_empty:
        nothing = f.lit(None).cast("string")
        return spark.range(0).select(*(nothing.alias(name) for name in [*wanted, *(PLACE if with_place else ())]))
    return _chosen(_frame(spark, source, wanted), source, wanted, with_place)


def stream_raw(
    spark: SparkSession, source: Source, columns: Iterable[str], with_place: bool, files_max: int
) -> DataFrame:
    """Like `read_raw` for a stream of new files, at most `files_max` at a time. The columns are those of the files that
    exist now."""
    wanted = list(dict.fromkeys(columns))
    schema = _frame(spark, source, wanted).schema
    reader = spark.readStream.schema(schema).option("recursiveFileLookup", not source.is_partitioned)
    reader = reader.options(maxFilesPerTrigger=files_max, **_options(source))
    kind = {"jsonl": "json", "tsv": "csv"}.get(source.format, source.format)
    # A folder that is followed is one place; the pattern of several is resolved by Spark, again and again.
    frame = reader.format(kind).load(source.uris[0] if len(source.uris) == 1 else source.where)
    return _chosen(frame, source, wanted, with_place)


def read_lines(spark: SparkSession, source: Source) -> DataFrame:
    """The lines of JSON, with `_problem` where one is not one object: Spark passes over what follows an object."""
    line = f.trim(f.col(LINE), f.lit(" \t\r"))
    # Where it has one closing bracket, that is its end; elsewhere it must be the only value of a list.
    has_more = f.length(line) - f.length(f.replace(line, f.lit("}"))) > 1
    is_alone = f.json_array_length(f.concat(f.lit("["), line, f.lit("]"))) == 1
    is_one = line.startswith("{") & line.endswith("}") & (~has_more | f.coalesce(is_alone, f.lit(False)))
    shown = f.substring(f.make_valid_utf8(f.col(LINE)), 1, rules.SHOWN_MAX)
    problem = f.when(~is_one, f.concat(f.lit(f"{rules.NOT_JSON}: "), shown))
    lines = _loader(spark, source).text(list(source.uris)).where(f.length(line) > 0)
    return lines.select(problem.alias("_problem"), *_place(source))


def _options(source: Source) -> dict[str, str]:
    """How cells are read, so that a row that does not fit is kept as it is."""
    if source.format == "parquet":
        return {}
    options = {"columnNameOfCorruptRecord": CORRUPT}
    if source.format == "jsonl":
        return options | {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
    options |= {"header": "true", "sep": SEPARATORS[source.format], "quote": '"', "escape": '"'}
    return options | {"unescapedQuoteHandling": "RAISE_ERROR", "enforceSchema": "false"}


def _chosen(frame: DataFrame, source: Source, wanted: list[str], with_place: bool) -> DataFrame:
    known = [name for name in wanted if name in frame.columns]
    shown = [cell(name) for name in known]
    inner = [name for name in wanted if name not in known and _top(name) in frame.columns]
    shown += [_inside(name, frame.schema, source.where).alias(name) for name in inner]
    if CORRUPT in frame.columns:
        words = rules.NOT_JSON if source.format == "jsonl" else rules.OTHER_CELLS
        problems = [f.concat(f.lit(f"{words}: "), f.substring(CORRUPT, 1, rules.SHOWN_MAX))]
        if source.format in SEPARATORS:
            problems += [_not_utf8(name) for name in known]
        shown.append(f.coalesce(*problems).alias(CORRUPT))
    return frame.select(*shown, *(_place(source) if with_place else ()))


def _place(source: Source) -> list[Column]:
    """File, block and row."""
    is_indexed = source.format == "parquet"
    row = f.col("_metadata.row_index") if is_indexed else f.monotonically_increasing_id()
    block = f.lit(0).cast("bigint") if is_indexed else f.col("_metadata.file_block_start")
    return [f.col("_metadata.file_path").alias("_file"), block.alias("_block"), row.alias("_row")]


def _not_utf8(name: str) -> Column:
    """Two names of which Spark kept only this character would pass for one: a log in disorder would look in order.

    A cell that really has the character is refused too. It was a name that somebody before us could not read.
    """
    return f.when(cell(name).contains(rules.REPLACED), f.lit(rules.of_column([name], rules.NOT_UTF8)))


def cell(name: str) -> Column:
    """The column of this name, whatever characters it is made of."""
    return f.col(f"`{name.replace('`', '``')}`")


def _top(name: str) -> str:
    return name.partition(".")[0]


def _inside(name: str, schema: StructType, where: str) -> Column:
    """What is inside a column: of JSON, or of a Parquet column that has fields."""
    top, *parts = name.split(".")
    value, kind = cell(top), schema[top].dataType
    if isinstance(kind, StringType):
        return f.get_json_object(value, f"$.{'.'.join(parts)}")
    for part in parts:
        if not isinstance(kind, StructType) or part not in kind.names:
            there = f"its fields are {', '.join(kind.names)}" if isinstance(kind, StructType) else "it has no fields"
            raise LogError(where, f"no {part} in column {top}: {there}", f"correct {name}")
        value, kind = value.getField(part), kind[part].dataType
    return value


def _loader(spark: SparkSession, source: Source) -> DataFrameReader:
    reader = spark.read
    if not source.is_partitioned:
        reader = reader.option("recursiveFileLookup", True)
    return reader


def _frame(spark: SparkSession, source: Source, wanted: list[str] | None) -> DataFrame:
    uris = list(source.uris)
    reader = _loader(spark, source).options(**_options(source))
    if source.format == "parquet":
        with _folders_as_text(spark) if source.is_partitioned else nullcontext():
            return reader.option("mergeSchema", True).parquet(*uris)
    if source.format == "jsonl":
        names = dict.fromkeys(map(_top, wanted or ()))
        return reader.schema(_texts([*names, CORRUPT])).json(uris)
    return reader.schema(_texts([*reader.csv(uris).columns, CORRUPT])).csv(uris)


@contextmanager
def _folders_as_text(spark: SparkSession) -> Iterator[None]:
    """What folders are called is text: `subscriber=01` and `subscriber=1` are not both subscriber 1."""
    with _one_at_a_time, settings(spark, {INFERENCE: "false"}):
        yield


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings; afterwards it is as it was."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)


def _texts(names: list[str]) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])
