"""The auditor at scale: tables in, the reference auditor's report out, and tables of everything behind it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce

from msgspec.structs import replace
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from seriatim.audit import ANOMALIES, Anomaly, Report
from seriatim.audit.lost import knows_owed
from seriatim.model import InputError
from seriatim.pipeline.audit.causes import (
    causal_doubts,
    circular_doubt,
    fifo_doubts,
    hopeless,
    hopeless_events,
    unpublished_doubt,
)
from seriatim.pipeline.audit.columnar.files import file_log
from seriatim.pipeline.audit.columnar.grouping import events_of_files
from seriatim.pipeline.audit.columnar.names import sample_of_files, totals_of_files
from seriatim.pipeline.audit.columns import LogTables, slim_deliveries
from seriatim.pipeline.audit.completeness import (
    MAY_BE_LOST,
    different,
    gaps,
    not_subscribed,
    owed,
    ranked,
    received,
    received_as_numbered,
    stay_counts,
    stay_doubts,
    stays,
    voids_known,
    with_ease,
    with_first_missing,
    with_places,
    with_voids,
)
from seriatim.pipeline.audit.doubts import doubts, summary
from seriatim.pipeline.audit.events import (
    delivered,
    events,
    events_of_rows,
    published,
    subscribers,
    topics,
    totals,
    with_times,
)
from seriatim.pipeline.audit.explain import CIRCULAR, FOUND, UNTOLD, decode
from seriatim.pipeline.audit.integrity import (
    contradicted,
    has_several_places,
    not_held,
    repeats,
    reused,
    reused_doubt,
    row_doubts,
    spans,
    uncovered,
    unpublished,
)
from seriatim.pipeline.audit.keep import count_few, kept, planned_simply
from seriatim.pipeline.audit.levels import delays_of, every_of, sample_of_rows, with_levels
from seriatim.pipeline.audit.options import AuditOptions
from seriatim.pipeline.audit.order import (
    HINTS,
    Known,
    Sizes,
    Walked,
    blocks_of,
    covered_shares,
    explained,
    lacks_hint,
    size_doubt,
    tangles_of,
    too_large,
    untold_doubt,
    walk,
    with_hint,
    with_positions,
)
from seriatim.pipeline.audit.reporting import LogCounts, absent, report_of
from seriatim.pipeline.audit.workers import side_by_side
from seriatim.pipeline.logs.tables import Tables

SALTS = 3  # tries
SAMPLE_ROWS, SAMPLE_SUBSCRIBERS = 200_000, 5  # at least, to choose between hints
SHARE_BAD = 0.1  # of rows that the best hint covers: then positions are tried too


class SparkAudit:
    """The result: `reports` by run, or `report` of the only one; `anomalies` and `doubts`, all of them, as tables."""

    def __init__(self, reports: dict[str, Report], anomalies: DataFrame, doubts: DataFrame) -> None:
        self.reports = reports
        self.anomalies = anomalies
        self.doubts = doubts

    @property
    def report(self) -> Report:
        if set(self.reports) != {""}:
            raise InputError("report", f"the tables hold {len(self.reports)} runs", "use `reports`, by run")
        return self.reports[""]


def audit_tables(tables: Tables, limit: int = 10, options: AuditOptions | None = None) -> SparkAudit:
    """Judge a log, or many at once if the tables have a column `run`: what `seriatim.audit.audit` says of each."""
    if limit < 1:
        raise InputError("limit", f"{limit} is too small", "show at least 1 anomaly of each name")
    options = options or AuditOptions()
    few = count_few(tables[:3], options.undivided_rows)
    with planned_simply(tables.deliveries.sparkSession, few):
        for salt in range(options.salt, options.salt + SALTS):
            try:
                return _Audit(LogTables(tables, few is not None), limit, replace(options, salt=salt)).result()
            except HashCollision:
                continue
    raise InputError("salt", f"ids collide with {SALTS} salts", "check how the ids were made; this is not chance")


class _Audit:
    """One audit: the tables that several checks need, and what they found so far."""

    def __init__(self, log: LogTables, limit: int, options: AuditOptions) -> None:
        self.log = log
        self.is_undivided = log.is_undivided
        self.limit = limit
        self.options = options
        self.salt = options.salt
        self.spark = log.deliveries.sparkSession
        self.found: list[DataFrame] = []
        self.doubts: list[DataFrame] = []
        self.rows = slim_deliveries(log.deliveries, self.salt, log.has_runs)

    def result(self) -> SparkAudit:
        self._count()
        walked = self._walk()
        side_by_side(
            self.spark,
            lambda: self._check_order(walked),
            lambda: self._doubt_order(walked),
            lambda: self._check_integrity(walked),
            lambda: self._check_completeness(walked),
        )
        return self._report(self._tagged_only(walked))

    def _count(self) -> None:
        log = self.log
        self.publications = kept(published(log, self.salt)) if log.has_publications else None
        self.files = None if log.is_undivided else file_log(log.files, log.has_runs, self.options)
        self.totals = kept(totals_of_files(self.spark, self.files) if self.files else totals(log, self.salt))
        self.subscribers = subscribers(self.totals)
        counted = self._count_names()
        each = self._each(every_of(sum(told["deliveries"] for told in counted.values())))
        self.events = kept(events(each, self.publications))
        self._count_events(counted)
        self.is_levelled = not _taken(counted, "lacks_levelled")
        self.repeated = _taken(counted, "repeated")
        self.several_places = _taken(counted, "several_places")
        if _taken(counted, "collided"):
            raise HashCollision
        self.runs = {name: LogCounts(**told) for name, told in counted.items()}
        self.is_numbered = all(run.numbered == run.deliveries for run in self.runs.values())
        self.sizes = Sizes(
            rows=sum(run.deliveries for run in self.runs.values()),
            events=sum(run.events + run.published for run in self.runs.values()),
            delivered=sum(run.events for run in self.runs.values()),
            published=sum(run.published for run in self.runs.values()),
            is_undivided=self.is_undivided,
        )

    def _each(self, every: int) -> DataFrame:
        """One row per event that was delivered."""
        if self.files is not None:
            sample = sample_of_files(self.spark, self.files, every)
            return events_of_files(self.spark, self.files, *delays_of(sample))
        delays = delays_of(sample_of_rows(self.rows, every))
        return events_of_rows(with_levels(self.rows, *delays), self.log.has_runs)

    # ── order ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _walk(self) -> Walked:
        """Walk by the times of notifications. If they are a poor hint, which is rare, try other hints."""
        if self.is_levelled:
            walked = self._walk_by("levelled")
            if self.is_undivided or walked.covered_rows <= SHARE_BAD * self.sizes.rows:
                return walked
        hint = self._best_hint()
        return walked if hint == "levelled" else self._walk_by(hint)

    def _walk_by(self, hint: str) -> Walked:
        has_seen = any(run.seen for run in self.runs.values())
        subscribers = sum(run.subscribers for run in self.runs.values())
        known = Known(self.log.has_publications, has_seen, subscribers, self.repeated, self.files)
        self.events = with_hint(self.events, hint, self.log.has_publications)
        return walk(self.rows, self.events, known, self.sizes, self.options)

    def _best_hint(self) -> str:
        """The hint that the rows of a sample of subscribers follow best. Not for small logs: it takes too long."""
        self.events = kept(with_times(self.events, self.rows))
        lacking = self.events.agg(*(_count(delivered() & lacks_hint(hint)).alias(hint) for hint in HINTS)).first()
        assert lacking is not None
        hints = [hint for hint in HINTS if not lacking[hint]]
        if hints and self.is_undivided:
            return hints[0]
        shares = covered_shares(self.rows, self.events, hints, self._sample()) if hints else {}
        if min(shares.values(), default=1) > SHARE_BAD:
            self.events = kept(with_positions(self.events, self.rows, self.subscribers, self.log.has_runs))
            hints = [*hints, "place"]
            shares = covered_shares(self.rows, self.events, hints, self._sample()) if len(hints) > 1 else {}
        return min(hints, key=lambda hint: shares.get(hint, 0))

    def _sample(self) -> int:
        """Every Nth subscriber, so that the sample has enough rows and enough subscribers."""
        subscribers = sum(run.subscribers for run in self.runs.values())
        return max(1, min(self.sizes.rows // SAMPLE_ROWS, subscribers // SAMPLE_SUBSCRIBERS))

    def _check_order(self, walked: Walked) -> None:
        sizes, options = self.sizes, self.options
        dirty = blocks_of(walked, self.events, sizes, options)
        if dirty is None:
            return
        blocks, rows = dirty
        large = too_large(rows, "block", options.task_rows_max) if sizes.rows > options.task_rows_max else None
        if large is not None:
            self.doubts.append(size_doubt(self.events, blocks, "block", large, "task_rows_max"))
            blocks = kept(blocks.join(large, "block", "left_anti"))
            rows = kept(rows.join(large, "block", "left_anti"))
        tangles = tangles_of(rows, walked, blocks, sizes, options)
        large = None
        if sizes.rows > options.tangle_rows_max:
            large = too_large(rows.drop("block").join(tangles, "e"), "tangle", options.tangle_rows_max)
        if large is not None:
            self.doubts.append(size_doubt(self.events, tangles, "tangle", large, "tangle_rows_max"))
            tangles = kept(tangles.join(large, "tangle", "left_anti"))
        found = explained(self.log, walked, tangles, sizes, self.limit, self.salt)
        has_seen = any(run.seen for run in self.runs.values())
        if has_seen and walked.chain_rows is not None and self.publications is not None:
            first = hopeless(found, walked.chain_rows, walked.rows, self.salt)
            if first is not None:
                self.doubts.append(circular_doubt(first, walked.chain_rows, self.publications))
                unknowable = hopeless_events(first, walked.chain_rows)
                found = explained(self.log, walked, tangles, sizes, self.limit, self.salt, unknowable)
        self.found.append(found)
        self.doubts.append(untold_doubt(found))

    def _doubt_order(self, walked: Walked) -> None:
        names = self.subscribers.select("run", "subscriber", "s")
        self.doubts += row_doubts(names, walked.holes, walked.tied)
        if walked.chain_rows is None or self.publications is None:
            return
        if not walked.are_chains_ordered:
            self.doubts.append(fifo_doubts(walked.chain_rows, self.publications))
        if strange := [name for name, run in self.runs.items() if run.told and run.phantoms]:
            self.doubts.append(unpublished_doubt(self.log, self.events, walked.tied, self._frame(strange), self.salt))
        if any(run.seen for run in self.runs.values()):
            silent = self._frame(name for name, run in self.runs.items() if run.published and not run.seen)
            self.doubts += causal_doubts(walked.chain_rows, self.publications, self.subscribers, silent)

    def _tagged_only(self, walked: Walked) -> set[str]:
        """Runs in which no row can be used to judge the order."""
        if walked.tied is None:
            return {name for name, run in self.runs.items() if not run.usable}
        judged = self.events.filter("not reused").select("e", "run")
        first = walked.rows.filter("not o").groupBy("s", "e").agg(F.min("p").alias("p"))
        clear = first.join(walked.tied, ["s", "p"], "left_anti").join(judged, "e")
        return set(self.runs) - {row["run"] for row in clear.select("run").distinct().collect()}

    # ── integrity and completeness ────────────────────────────────────────────────────────────────────────────────

    def _check_integrity(self, walked: Walked) -> None:
        log, salt = self.log, self.salt
        if walked.repeats is not None:
            duplicates, logged_twice = repeats(log, walked.repeats, salt)
            self.found.append(duplicates)
            self.doubts.append(logged_twice)
        if any(run.reused for run in self.runs.values()):
            told = reused(log, self.events, salt, self.sizes.is_undivided)
            self.found.append(told)
            self.doubts.append(reused_doubt(told))
        strange = [name for name, run in self.runs.items() if run.published and run.phantoms]
        if strange := [name for name in strange if not self._lost(name).get("publications")]:
            self.found.append(unpublished(log, self.events, self._frame(strange), salt))

    def _check_completeness(self, walked: Walked) -> None:
        log, salt = self.log, self.salt
        mismatches = contradicted(log, self.rows, self.events, self.several_places, salt)
        confused = {name for name, run in self.runs.items() if run.reused}
        if mismatches is not None:
            mismatches = kept(mismatches)
            self.found.append(mismatches)
            confused |= {row["run"] for row in mismatches.select("run").distinct().collect()}
        self.confused = confused
        if not log.has_subscriptions:
            return
        placed, got = self._received()
        unclear = kept(uncovered(got, spans(log, salt)))
        held = [name for name, run in self.runs.items() if run.subscriptions]
        clear = self._frame(name for name in held if name not in confused and knows_owed(self._lost(name)))
        if not unclear.isEmpty():
            known = self._frame(name for name in held if not self._lost(name).get("subscriptions"))
            self.found.append(not_held(log, unclear, known, salt))
            self.doubts.append(not_subscribed(log, unclear, clear, salt))
        places = kept(ranked(self.events))
        both = kept(with_ease(different(log, clear, salt), got, placed, walked.repeats))
        are_simple = both.filter("not is_simple").isEmpty()
        stayed = stays(both, placed, are_simple)
        stayed = stayed if are_simple else kept(stayed)
        voids = voids_known(self.publications) if self.publications is not None else None
        judged = kept(with_voids(owed(stayed, places), voids))
        counts = stay_counts(judged)
        torn = judged
        if counts[MAY_BE_LOST]:
            lacking = kept(with_first_missing(judged.filter("rows = numbered"), placed, places))
            torn, gone = lacking.limit(0), lacking
            if walked.holes is not None:
                torn = lacking.join(walked.holes.select("s"), "s", "left_semi")
                gone = lacking.join(walked.holes.select("s"), "s", "left_anti")
            self.found.append(gaps(log, gone, placed, self.limit, salt))
        self.doubts += stay_doubts(judged, torn, places, [kind for kind, count in counts.items() if count])

    def _received(self) -> tuple[DataFrame, DataFrame]:
        """Deliveries with their places, and what each subscriber got of each topic."""
        if self.is_numbered or not self.log.has_publications:
            placed = with_places(self.rows, self.events, has_publications=False)
            return placed, received_as_numbered(self.totals)
        placed = with_places(self.rows, self.events, has_publications=True)
        return placed, kept(received(placed))

    # ── the report ────────────────────────────────────────────────────────────────────────────────────────────────

    def _report(self, tagged_only: set[str]) -> SparkAudit:
        found = _union(self.found, self.spark.createDataFrame([], FOUND))
        none = doubts(self.spark.createDataFrame([], "run string"), "order", 0, reason=F.lit(""))
        doubted = _union(self.doubts, none)
        counts: dict[str, dict[str, int]] = {run: {} for run in self.runs}
        shown: dict[str, list[Anomaly]] = {run: [] for run in self.runs}
        if self.found:
            found = kept(found)
            names = list(ANOMALIES)
            for row in sorted(_first_of_each(found, self.limit).collect(), key=lambda row: int(row["nth"])):
                counts[row["run"]][row["name"]] = row["total"]
                if row["sentence"] is not None:
                    witness = tuple(decode(text) for text in row["witness"])
                    shown[row["run"]].append(Anomaly(row["name"], row["sentence"], witness))
            shown = {run: sorted(told, key=lambda anomaly: names.index(anomaly.name)) for run, told in shown.items()}
        told: dict[str, dict[str, list[tuple[str, int]]]] = {run: {} for run in self.runs}
        if self.doubts:
            doubted = kept(doubted)
            for row in summary(doubted).collect():
                told[row["run"]].setdefault(row["about"], []).append((row["first"], row["count"]))
        for name, run in self.runs.items():
            for about, reason in absent(run, name in tagged_only, name in self.confused):
                told[name].setdefault(about, []).append((reason, 1))
        reports = {
            name: report_of(run, counts[name], shown[name], told[name], self._lost(name))
            for name, run in self.runs.items()
        }
        return SparkAudit(reports, found.filter(~F.col("name").isin(CIRCULAR, UNTOLD)), doubted)

    def _count_names(self) -> dict[str, Counter[str]]:
        """What is counted once per run, from tables with a row for each name; the driver holds one row for each run."""
        frames = [
            _counts(
                self.subscribers,
                deliveries=F.sum("n"),
                subscribers=F.count(F.lit(1)),
                out_of_order=F.sum("tagged"),
                numbered=F.sum("numbered"),
                collided=_count("collided"),
            ),
            _counts(topics(self.totals), collided=_count("collided")),
        ]
        if self.log.has_subscriptions:
            frames.append(_counts(self.log.subscriptions, subscriptions=F.count(F.lit(1))))
        counted: dict[str, Counter[str]] = {} if self.log.has_runs else {"": Counter()}
        for row in reduce(DataFrame.unionByName, frames).collect():
            counted.setdefault(row["run"], Counter()).update(row["counts"])
        return counted

    def _count_events(self, counted: dict[str, Counter[str]]) -> None:
        """Add what is counted of the events of each run."""
        made = F.col("a").isNotNull()
        told = _counts(
            self.events,
            events=_count(delivered()),
            shared=_count("shared"),
            reused=_count("reused"),
            usable=F.sum(F.when(~F.col("reused"), F.col("untagged")).otherwise(0)),
            published=_count(made),
            told=_count(made & ~F.col("reused")),
            seen=_count(F.col("seen").isNotNull()),
            phantoms=F.sum(F.when(~made, F.col("n")).otherwise(0)),
            collided=_count("collided"),
            several_places=_count(has_several_places()),
            lacks_levelled=_count(delivered() & lacks_hint("levelled")),
            repeated=_count("again") if self.files is not None else F.lit(0),
        )
        for row in told.collect():
            counted.setdefault(row["run"], Counter()).update(row["counts"])

    def _lost(self, run: str) -> Mapping[str, int]:
        """The number of messages of each table that are known to be lost."""
        return self.log.lost.get(run, {})

    def _frame(self, runs: Iterable[str]) -> DataFrame:
        return F.broadcast(self.spark.createDataFrame([(run,) for run in runs], "run string").coalesce(1))


class HashCollision(Exception):
    """Two names have one hash: the audit is done again with another salt."""


def _counts(frame: DataFrame, **columns: Column) -> DataFrame:
    """Of each run, what these count, by name: run, counts."""
    counted = frame.groupBy("run").agg(*(column.cast("long").alias(name) for name, column in columns.items()))
    pairs = [part for name in columns for part in (F.lit(name), F.col(name))]
    return counted.select("run", F.create_map(*pairs).alias("counts"))


def _taken(counted: dict[str, Counter[str]], name: str) -> int:
    """The sum of this count over all runs, which have it no longer."""
    return sum(told.pop(name, 0) for told in counted.values())


def _count(condition: Column | str) -> Column:
    column = F.col(condition) if isinstance(condition, str) else condition
    return F.coalesce(F.sum(column.cast("long")), F.lit(0))


def _first_of_each(found: DataFrame, limit: int) -> DataFrame:
    """The first anomalies of each run and name, by `nth`, each with the `total` of its name.

    What has no sentence is only counted, and comes last: a name that has nothing else keeps one such row.
    """
    each = Window.partitionBy("run", "name")
    in_order = each.orderBy(F.col("sentence").isNull(), "phase", "subscriber", "position", "tie", "sentence")
    numbered = found.withColumns({"nth": F.row_number().over(in_order), "total": F.sum("count").over(each)})
    return numbered.filter(F.col("nth") <= limit)


def _union(frames: Iterable[DataFrame], empty: DataFrame) -> DataFrame:
    return reduce(DataFrame.unionByName, frames, empty)
