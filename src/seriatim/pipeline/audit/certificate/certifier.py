"""The certificate at scale: tables and an order log in, the reference's own `Certificate` out.

Where the deliveries are files that tasks can read by themselves, one pass over their columns clears what is in order
(`columnar/certifying.py`), and only the subscribers and events that it does not clear are looked at by queries. All
other logs are looked at by queries alone. Both give what `seriatim.audit.certify` gives, word for word.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from seriatim.audit.certificate import (
    Certificate,
    Facts,
    Placed,
    judged,
    order_inversion,
    order_repeat,
    position_mismatch,
    two_events,
    two_places,
)
from seriatim.audit.order_log import Extent
from seriatim.audit.report import Anomaly, Findings
from seriatim.model import Delivery, InputError
from seriatim.pipeline.audit.certificate import order as order_log
from seriatim.pipeline.audit.certificate import rows as queries
from seriatim.pipeline.audit.columns import RUN, LogTables
from seriatim.pipeline.audit.explain import decode
from seriatim.pipeline.audit.keep import count_few, kept, planned_simply
from seriatim.pipeline.audit.options import AuditOptions
from seriatim.pipeline.logs.tables import Tables

COUNTS = ("deliveries", "out_of_order", "unnumbered", "uncovered")
TOLD = {"order-inversion": order_inversion, "order-repeat": order_repeat}


class Looked(NamedTuple):
    """What the pass over all deliveries has told.

    `rows`: placed rows of all subscribers of whom some are late or tell another position. `events`: placed rows of all
    events that may be at two places, or share one. None: there are none.
    """

    facts: dict[str, Facts]
    rows: DataFrame | None
    events: DataFrame | None


def certify_tables(
    tables: Tables, order: DataFrame, limit: int = 10, options: AuditOptions | None = None
) -> dict[str, Certificate]:
    """The certificates of all runs, by run; of tables without a column `run` the only one under ""."""
    if limit < 1:
        raise InputError("limit", f"{limit} is too small", "show at least 1 anomaly of each name")
    options = options or AuditOptions()
    few = count_few([tables.deliveries, order], options.undivided_rows)
    with planned_simply(tables.deliveries.sparkSession, few):
        return _Certifier(LogTables(tables, few is not None), order, limit, options).result()


class _Certifier:
    def __init__(self, log: LogTables, order: DataFrame, limit: int, options: AuditOptions) -> None:
        self.log = log
        self.limit = limit
        self.options = options
        self.spark = log.deliveries.sparkSession
        self.order = order_log.order_rows(order.coalesce(1) if log.is_undivided else order)

    def result(self) -> dict[str, Certificate]:
        self.order = kept(self.order)
        order_log.check_ranges(self.order)
        extents = order_log.extents(self.order)
        faults = order_log.faults(self.order, self.limit)
        findings: dict[str, Findings] = {}
        for run, fault in faults.items():
            findings[run] = Findings(self.limit)
            findings[run].counts.update(fault.counts)
            for anomaly in fault.anomalies:
                findings[run].show(anomaly)
        if self.log.has_runs or not faults:
            looked = self._look(set(faults))
            self._find(looked, findings)
        else:
            looked = Looked({}, None, None)
        runs = {"", *looked.facts, *faults} if not self.log.has_runs else {*looked.facts, *extents}
        return {
            run: judged(
                looked.facts.get(run, Facts()),
                findings.get(run, Findings(self.limit)),
                extents.get(run, Extent()),
                self.log.lost.get(run, {}),
            )
            for run in sorted(runs)
        }

    # ── the pass ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self, broken: set[str]) -> Looked:
        deliveries = queries.slim(self.log.deliveries)
        if broken:
            runs = F.broadcast(self.spark.createDataFrame([(run,) for run in broken], "run string"))
            deliveries = deliveries.join(runs, RUN, "left_anti")
        rows = kept(order_log.placed(deliveries, self.order))
        facts: dict[str, Facts] = {}
        each = kept(queries.by_subscriber(rows))
        is_any = self._add(facts, each)
        self._first_uncovered(facts, rows)
        return Looked(facts, rows if is_any else None, rows)

    def _add(self, facts: dict[str, Facts], each: DataFrame) -> bool:
        """Add what is known of these subscribers. Whether some of their rows are late, or tell another position."""
        first = {
            name: F.min(F.when(F.col(name).isNotNull(), F.struct("subscriber", name))).alias(f"first_{name}")
            for name in ("hole", "tie")
        }
        sums = [F.sum(name).alias(name) for name in (*COUNTS, "late", "mistold")]
        counts = [F.count(name).alias(name) for name in ("hole", "tie")]
        subscribers = F.count(F.lit(1)).alias("subscribers")
        is_any = False
        for row in each.groupBy(RUN).agg(subscribers, *sums, *counts, *first.values()).collect():
            known = facts.setdefault(row[RUN], Facts())
            for name in (*COUNTS, "subscribers"):
                setattr(known, name, getattr(known, name) + row[name])
            for name, marked in (("hole", known.missing), ("tie", known.tied)):
                if row[name]:
                    marked.add(*row[f"first_{name}"])
                    marked.count += row[name] - 1
            is_any = is_any or bool(row["late"] or row["mistold"])
        return is_any

    def _first_uncovered(self, facts: dict[str, Facts], rows: DataFrame) -> None:
        """The first row of each run that the order log does not have."""
        if not any(known.uncovered for known in facts.values()):
            return
        key = F.struct("subscriber", *queries.SORTED)
        found = rows.filter("number is not null and at is null").groupBy(RUN).agg(F.min(key).alias("row"))
        for row in found.collect():
            facts[row[RUN]].first_uncovered = _slim_delivery(row["row"])

    # ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────

    def _find(self, looked: Looked, findings: dict[str, Findings]) -> None:
        found: list[Row] = []
        limit = self.limit
        if looked.rows is not None:
            order = ("subscriber", *queries.SORTED)
            found += queries.first_of(queries.late_rows(looked.rows), limit, [RUN, "name"], *order).collect()
            found += queries.first_of(queries.mistold_rows(looked.rows), limit, [RUN, "name"], *order).collect()
        if looked.events is not None:
            mismatches = kept(queries.mismatched(looked.events))
            if not mismatches.isEmpty():
                by = F.when(F.col("kind") == 0, F.col("one_id"))
                first = queries.first_of(mismatches.withColumn("by", by), limit, [RUN], "kind", "by", "one_place")
                found += queries.rows_of(first, looked.events).collect()
        wanted = [(row[RUN], part) for row in found for part in _parts(row)]
        texts = queries.whole_rows(self.log.deliveries, wanted)

        def placed(run: str, row: Row) -> Placed:
            delivery = decode(texts[queries.key_of(run, row)])
            assert isinstance(delivery, Delivery)
            return Placed(delivery, order_log.placement_of(row["by"]))

        for row in sorted(found, key=lambda row: int(row["nth"])):
            anomaly = _anomaly(row, [placed(row[RUN], part) for part in _parts(row)])
            run = findings.setdefault(row[RUN], Findings(limit))
            run.counts[anomaly.name] = row["total"]
            run.show(anomaly)


def _parts(row: Row) -> Iterable[Row]:
    return [row[name] for name in ("other", "row") if name in row]


def _anomaly(row: Row, placed: list[Placed]) -> Anomaly:
    if "kind" in row:
        other, one = placed
        return two_events(one, other) if row["kind"] else two_places(one, other)
    if row["name"] == "position-mismatch":
        return position_mismatch(placed[0])
    return TOLD[row["name"]](*placed)


def _slim_delivery(row: Row) -> Delivery:
    return Delivery(row["subscriber"], row["position"], row["event_id"], row["topic"], row["number"])
