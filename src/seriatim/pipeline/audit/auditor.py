"""The auditor at scale: tables in, the reference auditor's report out, and tables of everything behind it."""

from collections.abc import Iterable
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from seriatim.audit import ANOMALIES, Anomaly, Report
from seriatim.audit.auditor import EMPTY
from seriatim.audit.report import verdict_of
from seriatim.model import InputError
from seriatim.order import GUARANTEES, implied_by
from seriatim.pipeline.audit.columns import LogTables, slim_deliveries, with_hashes
from seriatim.pipeline.audit.doubts import doubts, summary
from seriatim.pipeline.audit.events import events, published
from seriatim.pipeline.audit.explain import CIRCULAR, FOUND, decode
from seriatim.pipeline.audit.integrity import repeats, row_doubts
from seriatim.pipeline.audit.options import AuditOptions
from seriatim.pipeline.audit.order import (
    KEPT,
    blocks_of,
    explained,
    find_hints,
    tangles_of,
    walk,
    with_hint,
    with_positions,
)
from seriatim.pipeline.tables import Tables

# The doubts about each guarantee that is checked; the others follow from these.
DOUBTED = {
    "fifo": ("order", "fifo"),
    "per-topic": ("order",),
    "causal": ("causal",),
    "integrity": ("integrity",),
    "completeness": ("completeness",),
}


class Run(NamedTuple):
    """What was counted of one log."""

    deliveries: int = 0
    subscribers: int = 0
    out_of_order: int = 0
    events: int = 0
    shared: int = 0
    has_subscriptions: bool = False


class SparkAudit:
    """The result: `reports` by run, `report` if there is one log; `anomalies` and `doubts` as tables of all that was found."""

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
    return _Audit(LogTables(tables), limit, options or AuditOptions()).result()


class _Audit:
    def __init__(self, log: LogTables, limit: int, options: AuditOptions) -> None:
        self.log = log
        self.limit = limit
        self.options = options
        self.found: list[DataFrame] = []
        self.doubts: list[DataFrame] = []

    def result(self) -> SparkAudit:
        log, salt = self.log, self.options.salt
        rows = slim_deliveries(log.deliveries, salt, log.has_runs)
        publications = published(log, salt) if log.has_publications else None
        all_events = events(rows, publications, log.has_runs).persist(KEPT)
        subscribers = (
            with_hashes(log.deliveries, salt, s="subscriber")
            .groupBy("run", "subscriber", "s")
            .agg(
                F.count(F.lit(1)).alias("n"),
                F.max("position").alias("last"),
                F.sum(F.col("out_of_order").cast("long")).alias("tagged"),
            )
            .persist(KEPT)
        )
        hints = find_hints(all_events)
        if not hints:
            all_events = with_positions(all_events, rows, subscribers, log.has_runs).persist(KEPT)
        keyed_events = with_hint(all_events, hints[0] if hints else "place", log.has_publications)
        walked = walk(rows, keyed_events, log.has_publications)
        blocks = blocks_of(walked, keyed_events, self.options)
        if blocks is not None:
            tangles = tangles_of(walked, blocks, self.options)
            self.found.append(explained(log, walked, tangles, self.limit, salt))
        names = subscribers.select("run", "subscriber", "s")
        self.doubts += row_doubts(names, walked.holes, walked.tied)
        if walked.repeats is not None:
            duplicates, logged_twice = repeats(log, walked.repeats, salt)
            self.found.append(duplicates)
            self.doubts.append(logged_twice)
        return self._report(all_events, subscribers)

    def _report(self, all_events: DataFrame, subscribers: DataFrame) -> SparkAudit:
        spark = all_events.sparkSession
        found = _union(self.found, spark.createDataFrame([], FOUND)).persist(KEPT)
        none = doubts(spark.createDataFrame([], "run string"), "order", 0, reason=F.lit(""))
        doubted = _union(self.doubts, none)
        runs = self._runs(all_events, subscribers)
        counts: dict[str, dict[str, int]] = {run: {} for run in runs}
        for row in found.groupBy("run", "name").agg(F.sum("count").alias("count")).collect():
            counts[row["run"]][row["name"]] = row["count"]
        shown: dict[str, list[Anomaly]] = {run: [] for run in runs}
        names = list(ANOMALIES)
        place = Window.partitionBy("run", "name").orderBy("phase", "subscriber", "position", "tie", "sentence")
        first = found.filter(F.col("sentence").isNotNull()).withColumn("nth", F.row_number().over(place))
        kept = first.filter(F.col("nth") <= self.limit).collect()
        for row in sorted(kept, key=lambda row: (names.index(row["name"]), row["nth"])):
            witness = tuple(decode(text) for text in row["witness"])
            shown[row["run"]].append(Anomaly(row["name"], row["sentence"], witness))
        told: dict[str, dict[str, tuple[str, int]]] = {run: {} for run in runs}
        for row in summary(doubted).collect():
            told[row["run"]][row["about"]] = (row["first"], row["count"])
        reports = {run: _report(runs[run], counts[run], shown[run], told[run]) for run in runs}
        return SparkAudit(reports, found.filter(F.col("name") != CIRCULAR), doubted)

    def _runs(self, all_events: DataFrame, subscribers: DataFrame) -> dict[str, Run]:
        runs: dict[str, Run] = {} if self.log.has_runs else {"": Run()}
        for table in (self.log.publications, self.log.subscriptions):
            if self.log.has_runs:
                runs |= {row["run"]: Run() for row in table.select("run").distinct().collect()}
        for row in self.log.subscriptions.select("run").distinct().collect():
            runs[row["run"]] = Run(has_subscriptions=True)
        counted = subscribers.groupBy("run").agg(F.sum("n"), F.count(F.lit(1)), F.sum("tagged")).collect()
        for run, deliveries, count, tagged in counted:
            known = runs.get(run, Run())
            runs[run] = known._replace(deliveries=deliveries, subscribers=count, out_of_order=tagged)
        of_run = all_events.filter("n > 0").groupBy("run")
        for run, count, shared in of_run.agg(F.count(F.lit(1)), F.sum(F.col("shared").cast("long"))).collect():
            runs[run] = runs[run]._replace(events=count, shared=shared)
        return runs


def _union(frames: Iterable[DataFrame], empty: DataFrame) -> DataFrame:
    return reduce(DataFrame.unionByName, frames, empty)


def _report(run: Run, counts: dict[str, int], shown: list[Anomaly], told: dict[str, tuple[str, int]]) -> Report:
    if not run.deliveries and not run.has_subscriptions:
        told, counts, shown = {}, {}, []
    valid_reason = f"no violation in {run.deliveries:,} deliveries to {run.subscribers:,} subscribers"
    verdicts = {}
    for guarantee in GUARANTEES:
        below = implied_by(guarantee)
        about = dict.fromkeys(about for name, doubted in DOUBTED.items() if name in below for about in doubted)
        reasons = [told[name] for name in about if name in told]
        if not run.deliveries:
            reasons.insert(0, (EMPTY, 1))
        first = reasons[0][0] if reasons else None
        verdicts[guarantee] = verdict_of(guarantee, counts, first, sum(count for _, count in reasons), valid_reason)
    return Report(
        verdicts=verdicts,
        anomalies=tuple(shown),
        counts={name: count for name, count in sorted(counts.items()) if count and name in ANOMALIES},
        order=None,
        deliveries=run.deliveries,
        subscribers=run.subscribers,
        events=run.events,
        shared=run.shared,
        out_of_order=run.out_of_order,
    )
