"""The certificate at scale: tables and an order log in, the reference's own `Certificate` out.

If the deliveries are files that tasks can read by themselves, one pass over their columns clears everything that is in
order (`columnar/certifying.py`), and queries look only at the subscribers and events that it does not clear. All other
logs are looked at by queries alone. Both give what `seriatim.audit.certify` gives, word for word.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
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
from seriatim.pipeline.audit.columnar.certifying import Passed, pass_files
from seriatim.pipeline.audit.columnar.closer import Wanted, rows_closer
from seriatim.pipeline.audit.columnar.files import file_log
from seriatim.pipeline.audit.columnar.order_index import OrderIndex, order_index
from seriatim.pipeline.audit.columnar.suspects import Judged, judge_suspects
from seriatim.pipeline.audit.columnar.walking import ENDLESS
from seriatim.pipeline.audit.columns import RUN, LogTables, with_hashes
from seriatim.pipeline.audit.explain import decode
from seriatim.pipeline.audit.keep import count_few, handed_out, kept, planned_simply
from seriatim.pipeline.audit.options import AuditOptions
from seriatim.pipeline.logs.tables import Tables

COUNTS = ("deliveries", "out_of_order", "unnumbered", "uncovered")
TOLD = {"order-inversion": order_inversion, "order-repeat": order_repeat}


class Looked(NamedTuple):
    """The result of the pass over all deliveries.

    `late`: walked rows of all subscribers of whom some are late. `mistold`: placed rows, of which some tell another
    position. `events`: placed rows of all events that may be at two places, or share one. None: there are none.
    """

    facts: dict[str, Facts]
    late: DataFrame | None
    mistold: DataFrame | None
    events: DataFrame | None


def certify_tables(
    tables: Tables,
    order: DataFrame,
    limit: int = 10,
    options: AuditOptions | None = None,
    where: str = "order log",
) -> dict[str, Certificate]:
    """The certificates of all runs, by run; of tables without a column `run` the only one under "".

    `order` has the columns of `schemas.PLACEMENTS`, and `run` if the tables have it. `where`: what errors call it.
    """
    if limit < 1:
        raise InputError("limit", f"{limit} is too small", "show at least 1 anomaly of each name")
    options = options or AuditOptions()
    few = count_few([tables.deliveries, order], options.undivided_rows)
    with planned_simply(tables.deliveries.sparkSession, few):
        return _Certifier(LogTables(tables, few is not None), order, limit, options, where).result()


class _Certifier:
    def __init__(self, log: LogTables, order: DataFrame, limit: int, options: AuditOptions, where: str) -> None:
        self.log = log
        self.where = where
        self.limit = limit
        self.options = options
        self.spark = log.deliveries.sparkSession
        self.deliveries = log.deliveries
        self.order = order_log.order_rows(order.coalesce(1) if log.is_undivided else order)

    def result(self) -> dict[str, Certificate]:
        has_runs = self.log.has_runs
        self.files = None if self.log.is_undivided else file_log(self.log.files, has_runs, self.options)
        findings: dict[str, Findings] = {}
        known = self._index()
        if known is None:
            extents = self._check_order(findings)
            known = self._index()
        else:
            extents = known[1]
        broken = set(findings)
        looked = Looked({}, None, None, None)
        if has_runs or not broken:
            looked = (self._look_at_files(known[0]) if known is not None else None) or self._look()
            self._find(looked, findings)
        runs = ({*looked.facts, *extents} | broken) if has_runs else {""}
        return {
            run: judged(
                looked.facts.get(run, Facts()) if run not in broken else Facts(),
                findings.get(run, Findings(self.limit)),
                extents.get(run, Extent()),
                self.log.lost.get(run, {}),
            )
            for run in sorted(runs)
        }

    # ── the order log ─────────────────────────────────────────────────────────────────────────────────────────────

    def _index(self) -> tuple[OrderIndex, dict[str, Extent]] | None:
        """The order log in arrays; None if it is broken or too long, or if there are no files to compare with it."""
        if self.files is None or self.order.count() > self.options.order_rows_max:
            return None
        return order_index(self.order.toArrow(), self.files)

    def _check_order(self, findings: dict[str, Findings]) -> dict[str, Extent]:
        """Find what is wrong with order logs, and leave the runs that have a broken one out of all that follows."""
        self.order = kept(self.order)
        order_log.check_ranges(self.order, self.where)
        extents = order_log.extents(self.order)
        for run, fault in order_log.faults(self.order, self.limit).items():
            findings[run] = Findings(self.limit)
            findings[run].counts.update(fault.counts)
            for anomaly in fault.anomalies:
                findings[run].show(anomaly)
        if findings:
            broken = F.broadcast(self.spark.createDataFrame([(run,) for run in findings], "run string"))
            self.order = self.order.join(broken, RUN, "left_anti")
            self.deliveries = self.deliveries.join(broken, RUN, "left_anti")
        return extents

    # ── the pass ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> Looked:
        """Look at all deliveries with Spark queries."""
        rows = kept(order_log.placed(queries.slim(self.deliveries), self.order))
        facts: dict[str, Facts] = {}
        each = kept(queries.by_subscriber(queries.walked(rows)))
        is_late, is_mistold = self._add(facts, each)
        self._first_uncovered(facts, rows)
        late = None
        if is_late:
            theirs = rows.join(each.filter("late > 0").select(*queries.OWN), list(queries.OWN), "left_semi")
            late = kept(queries.walked(theirs, with_rows=True))
        return Looked(facts, late, rows if is_mistold else None, rows)

    def _look_at_files(self, index: OrderIndex) -> Looked | None:
        """Look at all deliveries as arrays read from the files, and with queries at what the arrays do not settle.
        None: the files do not suit."""
        assert self.files is not None
        passed = pass_files(self.spark, self.files, index, self.options.stretches_max)
        if passed is None:
            return None
        theirs = passed.counts.take(np.isin(passed.counts.s, passed.suspects))
        if int(theirs.deliveries.sum()) > self.options.suspect_rows_max:
            return None
        suspects = Judged(passed.suspects, passed.suspects, {}, {}, False, False)
        walked, events = None, None
        if len(passed.suspects):
            suspects = judge_suspects(self.spark, self.files, index, passed.suspects)
        if suspects.is_late or suspects.is_mistold:
            matter = rows_closer(self.spark, self.files, index, Wanted.at(suspects.s, suspects.position))
            walked = kept(queries.walked(matter, with_rows=True))
        if len(passed.doubtful):
            events = rows_closer(self.spark, self.files, index, Wanted(passed.doubtful))
        facts = self._facts_of(passed, suspects)
        has = passed.counts.first_uncovered < ENDLESS
        if has.any():  # the first one of a run is the first one of some subscriber
            first = Wanted.at(passed.counts.s[has], passed.counts.first_uncovered[has])
            self._first_uncovered(facts, rows_closer(self.spark, self.files, index, first))
        late, mistold = walked if suspects.is_late else None, walked if suspects.is_mistold else None
        return Looked(facts, late, mistold, events)

    def _facts_of(self, passed: Passed, suspects: Judged) -> dict[str, Facts]:
        """What is known of all subscribers."""
        counts = passed.counts
        position = np.where(passed.whole.first > 0, 0, passed.whole.hole)
        has = position < ENDLESS
        holes = dict(zip(passed.whole.s[has].tolist(), position[has].tolist(), strict=True)) | suspects.holes
        if not self.log.has_runs:
            facts = {"": Facts(subscribers=len(counts.s))}
            for name in COUNTS:
                setattr(facts[""], name, int(getattr(counts, name).sum()))
            names = self._names(holes.keys() | suspects.ties.keys()) if holes or suspects.ties else {}
        else:
            facts, names = {}, self._names(None)
            for row in zip(*(column.tolist() for column in counts), strict=True):
                if row[0] not in names:
                    continue  # of a run that is left out
                known = facts.setdefault(names[row[0]][0], Facts())
                known.subscribers += 1
                for name, count in zip(COUNTS, row[1:5], strict=True):
                    setattr(known, name, getattr(known, name) + count)
        for marked, found in (("missing", holes), ("tied", suspects.ties)):
            for s in found.keys() & names.keys():
                run, subscriber = names[s]
                getattr(facts[run], marked).add(subscriber, found[s])
        return facts

    def _names(self, wanted: Iterable[int] | None) -> dict[int, tuple[str, str]]:
        """Run and name of these subscribers, or of all, by what stands for them."""
        rows = with_hashes(self.deliveries, self.options.salt, s="subscriber").select("s", *queries.OWN)
        if wanted is not None:
            hashes = pa.table({"s": pa.array(list(wanted), pa.int64())})
            known = handed_out(self.spark.createDataFrame(hashes, "s long"), len(hashes))
            rows = rows.join(known, "s", "left_semi")
        return {row["s"]: (row[RUN], row["subscriber"]) for row in rows.distinct().collect()}

    def _add(self, facts: dict[str, Facts], each: DataFrame) -> tuple[bool, bool]:
        """Add what is known of these subscribers. Whether some of their rows are late; or tell another position."""
        first = {
            name: F.min(F.when(F.col(name).isNotNull(), F.struct("subscriber", name))).alias(f"first_{name}")
            for name in ("hole", "tie")
        }
        sums = [F.sum(name).alias(name) for name in (*COUNTS, "late", "mistold")]
        counts = [F.count(name).alias(name) for name in ("hole", "tie")]
        subscribers = F.count(F.lit(1)).alias("subscribers")
        late = mistold = 0
        for row in each.groupBy(RUN).agg(subscribers, *sums, *counts, *first.values()).collect():
            known = facts.setdefault(row[RUN], Facts())
            for name in (*COUNTS, "subscribers"):
                setattr(known, name, getattr(known, name) + row[name])
            for name, marked in (("hole", known.missing), ("tie", known.tied)):
                if row[name]:
                    marked.add(*row[f"first_{name}"])
                    marked.count += row[name] - 1
            late, mistold = late + row["late"], mistold + row["mistold"]
        return late > 0, mistold > 0

    def _first_uncovered(self, facts: dict[str, Facts], rows: DataFrame) -> None:
        """The first row of each run that the order log does not have."""
        if not any(known.uncovered for known in facts.values()):
            return
        key = F.struct("subscriber", *queries.SORTED)
        found = rows.filter("number is not null and at is null").groupBy(RUN).agg(F.min(key).alias("row"))
        for row in found.collect():
            if row[RUN] in facts:
                facts[row[RUN]].first_uncovered = _slim_delivery(row["row"])

    # ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────

    def _find(self, looked: Looked, findings: dict[str, Findings]) -> None:
        found: list[Row] = []
        limit = self.limit
        order = ("subscriber", *queries.SORTED)
        if looked.late is not None:
            found += queries.first_of(queries.late_rows(looked.late), limit, [RUN, "name"], *order).collect()
        if looked.mistold is not None:
            found += queries.first_of(queries.mistold_rows(looked.mistold), limit, [RUN, "name"], *order).collect()
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
