"""Audit a log while it is written: Structured Streaming, the window of `window.py`, and state that survives a stop.

Deliveries are files of a folder (Parquet, JSON lines, CSV; each appears whole, as every writer of such folders does it)
or the log of a running cluster (`nats://…`). Every trigger reads the new rows, judges them with the window, appends the
findings to a table, and remembers the window. All of this is kept below one checkpoint:

    query/            Spark's own: which files belong to which batch
    rows/batch=…      rows that are in the window, as they came
    ids/batch=…       hashes of the events that left it
    state/batch=…     what a batch ended with; written last
    findings/batch=…  what was found

A batch that was interrupted is done again from the previous state, with the same files, and overwrites what it had
written: no finding is lost or reported twice. Memory is bounded by `WindowOptions` and by the rows of one batch
(`files_max`).
"""

from collections.abc import Callable

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from seriatim.audit import Anomaly, Report
from seriatim.audit.auditor import EMPTY
from seriatim.audit.folders import DELTA
from seriatim.audit.mapping import ColumnMapping
from seriatim.audit.report import Findings
from seriatim.audit.rules import EXAMPLES, FIELDS, misfits
from seriatim.brokers.urls import kind_or_none
from seriatim.model import InputError, LogError
from seriatim.pipeline.audit.verdicts import finding_table
from seriatim.pipeline.follow.rows import COLUMNS
from seriatim.pipeline.follow.runs import LOG, RUN, Runs
from seriatim.pipeline.follow.window import Judged, Seen, Totals, Window, WindowOptions
from seriatim.pipeline.logs import fitting
from seriatim.pipeline.logs.reading import check_entry, columns_of, entries_of, source_of, stream_raw
from seriatim.pipeline.source import register
from seriatim.pipeline.spark import files
from seriatim.pipeline.spark.files import marks
from seriatim.pipeline.spark.unreadable import unreadable

ORDER = ("fifo", "per-topic")  # a doubt about these is a doubt about every guarantee of order
NOT_FOLLOWED = "not checked while a log is followed: audit it when it is whole"


class FollowOptions(Struct, frozen=True, kw_only=True):
    """How a log is followed."""

    checkpoint: str
    findings: str | None = None  # where the table of findings is; below the checkpoint if not given
    trigger_ms: int = 5_000
    is_once: bool = False  # take what is there, then end
    files_max: int = 100  # of one batch
    run: str | None = None  # only rows of this run
    window: WindowOptions = field(default_factory=WindowOptions)

    def __post_init__(self) -> None:
        if not self.checkpoint:
            raise InputError(
                "checkpoint", "missing", "give a folder or URI that persists: a restart continues from there"
            )


class State(Struct):
    """The state at the end of a batch, beside the rows and ids that batches left: those of `rows_from` and `ids_from`
    on."""

    batch: int
    totals: Totals
    subscribers: dict[str, Seen]
    rows_from: int
    ids_from: int
    runs: Runs = field(default_factory=Runs)

    @property
    def files_from(self) -> int:
        """Ids that are forgotten are still needed to know which rows have left."""
        return min(self.rows_from, self.ids_from)


class BatchDone(Struct, frozen=True):
    """One batch, for progress reports. `is_repeat`: it was done before a stop, but Spark had not noted that."""

    batch: int
    judged: Judged | None
    totals: Totals

    @property
    def is_repeat(self) -> bool:
        return self.judged is None


class Follower:
    """Follows one log. `start` it, wait for the query, then ask for the `report`."""

    def __init__(
        self, spark: SparkSession, options: FollowOptions, tell: Callable[[BatchDone], None] | None = None
    ) -> None:
        self._spark, self._options, self._tell = spark, options, tell
        self._batch = -1
        self._state: State | None = None
        self._window = Window(options.window)
        self._runs = Runs(options.run)
        self._anomalies: list[Anomaly] = []
        self.error: InputError | None = None
        """Why the query ended, if the log was to blame."""

    def start(self, deliveries: DataFrame) -> StreamingQuery:
        """Begin, or continue from the checkpoint. `deliveries` is a stream as `follow_deliveries` makes it."""
        options = self._options
        writer = deliveries.writeStream.foreachBatch(self._guarded).queryName("seriatim audit")
        writer = writer.option("checkpointLocation", files.join(options.checkpoint, "query"))
        if options.is_once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{options.trigger_ms} milliseconds").start()

    def wait(self, query: StreamingQuery) -> None:
        """Wait until the query ends. LogError: rows do not fit, or none belongs to the run that is followed."""
        try:
            query.awaitTermination()
        except StreamingQueryException:
            if self.error is not None:
                raise self.error from None
            raise
        self._recall()
        if (absence := self._runs.absence()) is not None:
            raise absence

    def report(self, limit: int = 10) -> Report:
        """What is known so far; the anomalies shown are those found since the start of this process."""
        self._recall()
        window = self._window
        totals, findings = window.totals, Findings(limit)
        findings.counts.update(totals.counts)
        for anomaly in self._anomalies:
            if findings.wants(anomaly.name):
                findings.add(anomaly.name, anomaly.sentence, anomaly.witness)
        _doubts(window, findings)
        if (absence := self._runs.absence()) is not None:
            findings.doubt(f"{absence.problem}; {absence.fix}", *ORDER)
        events, shared = window.notified()
        return findings.report(totals.deliveries, len(window.subscribers), events, shared, totals.out_of_order)

    # ── one batch ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _guarded(self, frame: DataFrame, batch: int) -> None:
        try:
            self._do(frame, batch)
        except InputError as error:
            self.error = error
            raise

    def _do(self, frame: DataFrame, batch: int) -> None:
        if self._stored(batch) is not None:  # done, but Spark was stopped before it noted that
            self._restore(batch)
            self._told(BatchDone(batch, None, self._window.totals))
            return
        if self._batch != batch - 1:
            self._restore(batch - 1)
        judged = self._window.add(self._runs.chosen(_checked(frame)), batch)
        self._keep(batch, judged)
        self._anomalies += [finding.anomaly for finding in judged.findings]
        self._told(BatchDone(batch, judged, self._window.totals))

    def _told(self, done: BatchDone) -> None:
        if self._tell is not None:
            self._tell(done)

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def findings(self) -> str:
        """The folder of the table of findings."""
        return self._options.findings or files.join(self._options.checkpoint, "findings")

    def _keep(self, batch: int, judged: Judged) -> None:
        """Write what this batch changes; the state last, for with it the batch is done."""
        if judged.findings:
            found = finding_table(self._spark, ((each.anomaly, each.count) for each in judged.findings))
            found.coalesce(1).write.mode("overwrite").parquet(files.join(self.findings, f"batch={batch}"))
        self._write("rows", batch, judged.kept)
        if len(judged.left):
            self._write("ids", batch, pa.table({"id": pa.array(judged.left.view(np.int64))}))
        window, before = self._window, self._state
        state = State(
            batch=batch,
            totals=window.totals,
            subscribers=window.subscribers,
            rows_from=window.rows_from(batch + 1),
            ids_from=window.ids_from(batch + 1),
            runs=self._runs,
        )
        if not files.create(self._spark, self._uri("state", batch), msgspec.json.encode(state)):
            what = f"the state of batch {batch} was written by somebody else"
            raise InputError(self._options.checkpoint, what, "let one process follow a log with one checkpoint")
        if before is not None:  # nobody needs what came before this any more
            files.remove(self._spark, self._uri("state", before.batch))
            for kind, since, until in (
                ("rows", before.rows_from, state.rows_from),
                ("ids", before.files_from, state.files_from),
            ):
                for gone in range(since, until):
                    files.remove(self._spark, self._uri(kind, gone))
        self._batch, self._state = batch, state

    def _recall(self) -> None:
        """Restore the state of the last stop, if this process has done no batch."""
        if self._batch < 0:
            self._restore(self._last_batch())

    def _restore(self, batch: int) -> None:
        """Restore the state after this batch."""
        if batch < 0:
            return
        state = self._stored(batch)
        if state is None:
            fix = "give another checkpoint to begin again: this one does not belong to this log, or was damaged"
            raise InputError(self._options.checkpoint, f"no state of batch {batch}", fix)
        runs = state.runs.asked_for(self._options.run, self._options.checkpoint)
        there = {entry.name for entry in files.children(self._spark, files.join(self._options.checkpoint, "ids"))}
        left = {
            each: self._read("ids", each)["id"].to_numpy().view(np.uint64)
            for each in range(state.files_from, batch + 1)
            if f"batch={each}" in there
        }
        rows = [self._read("rows", each) for each in range(state.rows_from, batch + 1)]
        self._window = Window.restored(
            self._options.window,
            state.totals,
            state.subscribers,
            pa.concat_tables(rows) if rows else None,
            left,
            state.ids_from,
        )
        self._batch, self._state, self._runs = batch, state, runs

    def _stored(self, batch: int) -> State | None:
        data = files.read(self._spark, self._uri("state", batch))
        return None if data is None else msgspec.json.decode(data, type=State)

    def _last_batch(self) -> int:
        names = [entry.name for entry in files.children(self._spark, files.join(self._options.checkpoint, "state"))]
        return max((int(name.partition("=")[2]) for name in names), default=-1)

    def _write(self, kind: str, batch: int, table: pa.Table) -> None:
        """A folder with one file, in place of what an interrupted batch left. The rows are here: no need for Spark."""
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer)
        files.remove(self._spark, self._uri(kind, batch))
        files.replace(self._spark, files.join(self._uri(kind, batch), "rows.parquet"), buffer.getvalue().to_pybytes())

    def _read(self, kind: str, batch: int) -> pa.Table:
        return self._spark.read.parquet(self._uri(kind, batch)).toArrow()

    def _uri(self, kind: str, batch: int) -> str:
        return files.join(self._options.checkpoint, kind, f"batch={batch}")


def follow_deliveries(
    spark: SparkSession, uri: str, mapping: ColumnMapping | None = None, files_max: int = 100
) -> DataFrame:
    """Deliveries as they are written to a folder, or to the log of a running cluster (`nats://…`).

    The `Follower` is told which run to follow. It also knows which rows came before a restart.
    """
    mapping = mapping or ColumnMapping()
    if mapping.run is not None:
        raise InputError("mapping", "names a run", "give it with FollowOptions(run=…)")
    if mapping.order_by is not None:
        fix = "give the column of the position: rows that come later would change every place"
        raise InputError("order_by", "a log that is still written has no order by a column", fix)
    if kind_or_none(uri) is not None:
        register(spark)
        live = spark.readStream.format("seriatim").option("url", uri).option("table", "deliveries").load()
        nothing = f.lit(None).cast("string")
        return live.select(*COLUMNS, nothing.alias("_problem"), nothing.alias(RUN))
    entries = entries_of(spark, uri)
    for entry in entries:
        if marks(spark, entry.uri, [DELTA], is_deep=False):
            raise LogError(uri, "a Delta table, and only folders of files are followed", "audit it without --follow")
        check_entry(spark, entry)
    source = source_of(spark, uri, entries)
    known = columns_of(spark, source)
    if not known:
        raise LogError(uri, "no row yet, so its columns are not known", "start when the first file is there")
    sources = mapping.sources(known, uri, source.tells_all_columns)
    wanted = [column for columns in sources.values() for column in columns]
    has_runs = mapping.run_column in known or not source.tells_all_columns
    if has_runs:
        wanted.append(mapping.run_column)
    raw = stream_raw(spark, source, wanted, mapping.subscriber_from_file, files_max)
    fitted = fitting.fit(raw, FIELDS["deliveries"], sources, mapping)
    run = f.col("_run") if has_runs else f.lit(None).cast("string")
    return fitted.select(*COLUMNS, "_problem", run.alias(RUN))


def _checked(frame: DataFrame) -> pa.Table:
    """The rows of a batch. Raises LogError if one does not fit: half a log must not pass for the whole."""
    try:
        rows = frame.toArrow()
    except (PySparkException, Py4JJavaError) as error:  # a damaged file, or one with other columns
        raise unreadable(LOG, error) from None
    bad = rows.filter(rows["_problem"].is_valid())
    if len(bad):
        raise misfits(LOG, len(bad), len(rows), bad["_problem"].slice(0, EXAMPLES).to_pylist(), "new rows")
    return rows.drop_columns(["_problem"])


def _doubts(window: Window, findings: Findings) -> None:
    """The reasons why a verdict is unknown, if any."""
    totals = window.totals
    findings.doubt(NOT_FOLLOWED, "fifo", "causal", "integrity", "completeness")
    if not totals.deliveries:
        findings.doubt(EMPTY, *ORDER)
    for count, reason in (
        (totals.late, "rows came after their event, or their place, had left the window: not judged"),
        (totals.forgotten, "events were forgotten: a row that comes so late is not noticed"),
        (totals.tied, "rows share a position or repeat one: their order is not known"),
        (totals.reused, "rows have an id that stands for two events: their order is not known"),
        (totals.unjudged, "rows of a disagreement too large to look at: not judged"),
    ):
        if count:
            findings.doubt(f"{count:,} {reason}", *ORDER)
    missing = window.missing()
    if missing:
        name, count = next(iter(missing.items()))
        more = f", and of {len(missing) - 1:,} more" if len(missing) > 1 else ""
        findings.doubt(f"{count:,} rows of {name}{more} are missing (positions with holes)", *ORDER)
