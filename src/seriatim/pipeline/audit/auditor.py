"""The auditor at scale: tables in, the reference auditor's report out, and tables of everything behind it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from msgspec.structs import replace
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from seriatim.audit import ANOMALIES, Report
from seriatim.audit.lost import knows_owed
from seriatim.audit.report import Findings
from seriatim.model import InputError
from seriatim.pipeline.audit import causes, completeness, events, integrity, order
from seriatim.pipeline.audit.columnar.files import file_log
from seriatim.pipeline.audit.columnar.grouping import events_of_files
from seriatim.pipeline.audit.columns import LogTables, slim_deliveries
from seriatim.pipeline.audit.events import delivered
from seriatim.pipeline.audit.explain import CIRCULAR, FOUND, UNTOLD, decode
from seriatim.pipeline.audit.keep import count_few, kept, planned_simply, side_by_side
from seriatim.pipeline.audit.levels import delays_of, with_levels
from seriatim.pipeline.audit.options import AuditOptions
from seriatim.pipeline.audit.order import HINTS, Facts, Walked, lacks_hint
from seriatim.pipeline.audit.reporting import LogCounts, absent, doubts, report_of, summary
from seriatim.pipeline.logs.tables import Tables

SALTS = 3  # tries
SAMPLE_ROWS, SAMPLE_SUBSCRIBERS = 200_000, 5  # at least, to choose between hints
SHARE_BAD = 0.1  # of rows that the best hint covers: then positions are tried too


@dataclass(frozen=True)
class SparkAudit:
    """The result: `reports` by run, or `report` of the only one; `anomalies` and `doubts`, all of them, as tables."""

    reports: dict[str, Report]
    anomalies: DataFrame
    doubts: DataFrame

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
    """One audit: the tables that several checks need, and the findings so far."""

    def __init__(self, log: LogTables, limit: int, options: AuditOptions) -> None:
        self.log = log
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
        # Runs in which no row can be used to judge the order.
        return self._report({name for name, run in self.runs.items() if not run.usable})

    def _count(self) -> None:
        log = self.log
        self.publications = kept(events.published(log, self.salt)) if log.has_publications else None
        self.files = None if log.is_undivided else file_log(log.files, log.has_runs, self.options)
        self.totals = kept(events.totals(log, self.salt))
        self.subscribers = events.subscribers(self.totals)
        counted = self._count_names()
        delays = delays_of(self.rows, sum(told["deliveries"] for told in counted.values()))
        if self.files is not None:
            each = events_of_files(self.spark, self.files, *delays)
        else:
            each = events.events_of_rows(with_levels(self.rows, *delays), log.has_runs)
        self.events = kept(events.events(each, self.publications))
        self._count_events(counted)
        self.is_levelled = not _taken(counted, "lacks_levelled")
        self.several_places = _taken(counted, "several_places")
        repeated = _taken(counted, "repeated")
        if _taken(counted, "collided"):
            raise HashCollision
        self.runs = {name: LogCounts(**told) for name, told in counted.items()}
        whole = LogCounts(*(sum(column) for column in zip(LogCounts(), *self.runs.values(), strict=True)))
        self.is_numbered = whole.numbered == whole.deliveries
        self.facts = Facts(
            rows=whole.deliveries,
            events=whole.events + whole.published,
            delivered=whole.events,
            published=whole.published,
            subscribers=whole.subscribers,
            repeated=repeated,
            has_publications=log.has_publications,
            has_seen=whole.seen > 0,
            is_undivided=log.is_undivided,
            files=self.files,
        )

    # ── order ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _walk(self) -> Walked:
        """Walk by the times of notifications. If they are a poor hint, which is rare, try other hints."""
        if self.is_levelled:
            walked = self._walk_by("levelled")
            if self.log.is_undivided or walked.covered_rows <= SHARE_BAD * self.facts.rows:
                return walked
        hint = self._best_hint()
        return walked if hint == "levelled" else self._walk_by(hint)

    def _walk_by(self, hint: str) -> Walked:
        self.events = order.with_hint(self.events, hint, self.log.has_publications)
        return order.walk(self.rows, self.events, self.facts, self.options)

    def _best_hint(self) -> str:
        """The hint that the rows of a sample of subscribers follow best. Not for small logs: it takes too long."""
        self.events = kept(events.with_times(self.events, self.rows))
        lacking = self.events.agg(*(F.count_if(delivered() & lacks_hint(hint)).alias(hint) for hint in HINTS)).first()
        assert lacking is not None
        hints = [hint for hint in HINTS if not lacking[hint]]
        if hints and self.log.is_undivided:
            return hints[0]
        shares = order.covered_shares(self.rows, self.events, hints, self._sample()) if hints else {}
        if min(shares.values(), default=1) > SHARE_BAD:
            self.events = kept(order.with_positions(self.events, self.rows, self.subscribers, self.log.has_runs))
            hints = [*hints, "place"]
            shares = order.covered_shares(self.rows, self.events, hints, self._sample()) if len(hints) > 1 else {}
        return min(hints, key=lambda hint: shares.get(hint, 0))

    def _sample(self) -> int:
        """Every Nth subscriber, so that the sample has enough rows and enough subscribers."""
        return max(1, min(self.facts.rows // SAMPLE_ROWS, self.facts.subscribers // SAMPLE_SUBSCRIBERS))

    def _check_order(self, walked: Walked) -> None:
        facts, options = self.facts, self.options
        dirty = order.blocks_of(walked, self.events, facts, options)
        if dirty is None:
            return
        blocks, rows = dirty
        blocks, rows = self._without_large("block", blocks, rows, "task_rows_max")
        tangles = order.tangles_of(rows, walked, blocks, facts, options)
        tangles, _ = self._without_large("tangle", tangles, rows.drop("block").join(tangles, "e"), "tangle_rows_max")
        found = order.explained(self.log, walked, tangles, facts, self.limit, self.salt)
        if facts.has_seen and walked.chain_rows is not None and self.publications is not None:
            first = causes.hopeless(found, walked.chain_rows, walked.rows, self.salt)
            if first is not None:
                self.doubts.append(causes.circular_doubt(first, walked.chain_rows, self.publications))
                unknowable = causes.hopeless_events(first, walked.chain_rows)
                found = order.explained(self.log, walked, tangles, facts, self.limit, self.salt, unknowable)
        self.found.append(found)
        self.doubts.append(order.untold_doubt(found))

    def _without_large(self, group: str, found: DataFrame, rows: DataFrame, option: str) -> tuple[DataFrame, DataFrame]:
        """Blocks or tangles, and their rows, without those that have more rows than the option allows."""
        rows_max = getattr(self.options, option)
        large = order.too_large(rows, group, rows_max) if self.facts.rows > rows_max else None
        if large is None:
            return found, rows
        self.doubts.append(order.size_doubt(self.events, found, group, large, option))
        return kept(found.join(large, group, "left_anti")), kept(rows.join(large, group, "left_anti"))

    def _doubt_order(self, walked: Walked) -> None:
        names = self.subscribers.select("run", "subscriber", "s")
        self.doubts += integrity.row_doubts(names, walked.holes, walked.tied)
        if walked.chain_rows is None or self.publications is None:
            return
        if not walked.are_chains_ordered:
            self.doubts.append(causes.fifo_doubts(walked.chain_rows, self.publications))
        if strange := [name for name, run in self.runs.items() if run.told and run.phantoms]:
            self.doubts.append(causes.unpublished_doubt(self.log, self.events, self._frame(strange), self.salt))
        if self.facts.has_seen:
            silent = self._frame(name for name, run in self.runs.items() if run.published and not run.seen)
            self.doubts += causes.causal_doubts(walked.chain_rows, self.publications, self.subscribers, silent)

    # ── integrity and completeness ────────────────────────────────────────────────────────────────────────────────

    def _check_integrity(self, walked: Walked) -> None:
        log, salt = self.log, self.salt
        if walked.repeats is not None:
            duplicates, logged_twice = integrity.repeats(log, walked.repeats, salt)
            self.found.append(duplicates)
            self.doubts.append(logged_twice)
        if any(run.reused for run in self.runs.values()):
            told = integrity.reused(log, self.events, salt, self.facts.is_undivided)
            self.found.append(told)
            self.doubts.append(integrity.reused_doubt(told))
        strange = [name for name, run in self.runs.items() if run.published and run.phantoms]
        if strange := [name for name in strange if not self._lost(name).get("publications")]:
            self.found.append(integrity.unpublished(log, self.events, self._frame(strange), salt))

    def _check_completeness(self, walked: Walked) -> None:
        log, salt = self.log, self.salt
        mismatches = integrity.contradicted(log, self.rows, self.events, self.several_places, salt)
        confused = {name for name, run in self.runs.items() if run.reused}
        if mismatches is not None:
            mismatches = kept(mismatches)
            self.found.append(mismatches)
            confused |= {row["run"] for row in mismatches.select("run").distinct().collect()}
        self.confused = confused
        if not log.has_subscriptions:
            return
        need_publications = log.has_publications and not self.is_numbered
        placed, got = completeness.received(self.rows, self.events, self.totals, need_publications)
        unclear = kept(integrity.uncovered(got, integrity.spans(log, salt)))
        held = [name for name, run in self.runs.items() if run.subscriptions]
        clear = self._frame(name for name in held if name not in confused and knows_owed(self._lost(name)))
        if not unclear.isEmpty():
            known = self._frame(name for name in held if not self._lost(name).get("subscriptions"))
            self.found.append(integrity.not_held(log, unclear, known, salt))
            self.doubts.append(completeness.not_subscribed(log, unclear, clear, salt))
        places = kept(completeness.ranked(self.events))
        both = kept(completeness.with_ease(completeness.different(log, clear, salt), got, placed, walked.repeats))
        are_simple = both.filter("not is_simple").isEmpty()
        stayed = completeness.stays(both, placed, are_simple)
        stayed = stayed if are_simple else kept(stayed)
        judged = kept(completeness.with_voids(completeness.owed(stayed, places), self.publications))
        counts = completeness.stay_counts(judged)
        torn = judged
        if counts[completeness.MAY_BE_LOST]:
            lacking = kept(completeness.with_first_missing(judged.filter("rows = numbered"), placed, places))
            torn, gone = lacking.limit(0), lacking
            if walked.holes is not None:
                torn = lacking.join(walked.holes.select("s"), "s", "left_semi")
                gone = lacking.join(walked.holes.select("s"), "s", "left_anti")
            self.found.append(completeness.gaps(log, gone, placed, self.limit, salt))
        self.doubts += completeness.stay_doubts(judged, torn, places, [kind for kind, count in counts.items() if count])

    # ── the report ────────────────────────────────────────────────────────────────────────────────────────────────

    def _report(self, tagged_only: set[str]) -> SparkAudit:
        found = _union(self.found, self.spark.createDataFrame([], from_arrow_schema(FOUND)))
        none = doubts(self.spark.createDataFrame([], "run string"), "order", 0, reason=F.lit(""))
        doubted = _union(self.doubts, none)
        findings = {run: Findings(self.limit) for run in self.runs}
        if self.found:
            found = kept(found)
            for row in sorted(_first_of_each(found, self.limit).collect(), key=lambda row: int(row["nth"])):
                if row["name"] in ANOMALIES:
                    findings[row["run"]].counts[row["name"]] = row["total"]
                if row["sentence"] is not None:
                    witness = tuple(decode(text) for text in row["witness"])
                    findings[row["run"]].add(row["name"], row["sentence"], witness)
        told: dict[str, list[tuple[str, str, int]]] = {
            name: list(absent(run, name in tagged_only, name in self.confused)) for name, run in self.runs.items()
        }
        if self.doubts:
            doubted = kept(doubted)
            for row in summary(doubted).collect():
                told[row["run"]].insert(0, (row["about"], row["first"], row["count"]))
        reports = {
            name: report_of(run, findings[name], told[name], self._lost(name)) for name, run in self.runs.items()
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
                collided=F.count_if("collided"),
            ),
            _counts(events.topics(self.totals), collided=F.count_if("collided")),
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
            events=F.count_if(delivered()),
            shared=F.count_if("shared"),
            reused=F.count_if("reused"),
            usable=F.sum(F.when(~F.col("reused"), F.col("untagged")).otherwise(0)),
            published=F.count_if(made),
            told=F.count_if(made & ~F.col("reused")),
            seen=F.count_if(F.col("seen").isNotNull()),
            phantoms=F.sum(F.when(~made, F.col("n")).otherwise(0)),
            collided=F.count_if("collided"),
            several_places=F.count_if(integrity.has_several_places()),
            lacks_levelled=F.count_if(delivered() & lacks_hint("levelled")),
            repeated=F.count_if("again") if self.files is not None else F.lit(0),
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
