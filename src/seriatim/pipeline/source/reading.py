"""The classes that Spark calls: the data source, its batch reader and its stream reader.

Planning happens on the driver, from the server's list of streams; every task then reads its ranges over its own
connection. Between two offsets there is always the same data, so a batch that is repeated is the same batch: what
Structured Streaming needs for exactly once.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from seriatim.model import InputError
from seriatim.pipeline.source.options import SourceOptions, read_options
from seriatim.pipeline.source.planning import RangesPartition, deal_out, latest, ranges_between

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from seriatim.brokers.bulk import Catalogue, Kind, Stream

NAME = "seriatim"


def register(spark: "SparkSession") -> None:
    """Make `format("seriatim")` known to a session, where Spark does not find it by itself."""
    spark.dataSource.register(SeriatimSource)


class SeriatimSource(DataSource):
    """A table of a cluster, as it is on the broker."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._read_options = read_options(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return self._read_options.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        _check_schema(schema, self._read_options)
        return TableReader(self._read_options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        _check_schema(schema, self._read_options)
        return TableStreamReader(self._read_options)


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    if schema.names != options.schema.names:
        raise InputError("schema", "the columns of a table of seriatim are fixed", "leave .schema(...) out")


class _RangeReader:
    """Reads the ranges of one partition, in a task."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        from seriatim.pipeline.source.rows import Converter  # Arrow: not before it is needed

        assert isinstance(partition, RangesPartition)
        converter = Converter(self._options, partition.topics)
        for part in partition.ranges:
            if part.gone:
                yield from converter.lost(part, [(part.first, part.last)])
                continue
            for messages in self._options.reader.read(part.stream, part.first, part.last):
                yield from converter.convert(messages, part)


class TableReader(_RangeReader, DataSourceReader):
    """Reads everything that the broker holds when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        catalogue = _catalogue(self._options)
        streams = _streams(self._options, catalogue)
        return _partitions(self._options, catalogue, {}, latest({}, streams, self._options.start, None))


class TableStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new messages, from an offset on."""

    _target: "list[Stream] | None" = None  # of a run that ends with what is there when it begins

    def initialOffset(self) -> dict[str, Any]:
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _streams(self._options, _catalogue(self._options))

    def getDefaultReadLimit(self) -> ReadLimit:
        count = self._options.max_messages
        return ReadMaxRows(count) if count is not None else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        streams = self._target
        if streams is None:
            streams = _streams(self._options, _catalogue(self._options))
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return latest(start, streams, self._options.start, count)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return _partitions(self._options, _catalogue(self._options), start, end)


# ── the server's side of it ───────────────────────────────────────────────────────────────────────────────────────


def _catalogue(options: SourceOptions) -> "Catalogue":
    return options.reader.catalogue(options.topics if options.table == "events" else "")


def _streams(options: SourceOptions, catalogue: "Catalogue") -> "list[Stream]":
    kinds: dict[str, tuple[Kind, ...]] = {
        "events": ("log", "slots"),
        "stamps": ("stamps", "slots"),
        "order": ("order",),
    }
    found = [each for kind in kinds.get(options.table, ("logs",)) for each in catalogue.of(kind, options.topics)]
    return found if options.table in kinds else [each for each in found if each.holds == options.table]


def _partitions(
    options: SourceOptions, catalogue: "Catalogue", start: Mapping[str, Any], end: Mapping[str, Any]
) -> Sequence[InputPartition]:
    ranges = ranges_between(start, end, _streams(options, catalogue), options.start)
    topics = catalogue.topics if options.table == "stamps" else ()
    return [RangesPartition(each, topics) for each in deal_out(ranges, options.parallelism, options.partition_bytes)]
