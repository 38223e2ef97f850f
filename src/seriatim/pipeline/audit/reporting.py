"""Why nothing can be promised, and what follows from all that was counted, found and doubted of one log.

A verdict needs the first doubt, in the reference auditor's order, and how many there are: so doubts are tables, and no
list of them ever reaches the driver.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from seriatim.audit import Report
from seriatim.audit.auditor import CHECKED, EMPTY, ONLY_TAGGED
from seriatim.audit.evidence import ORDER
from seriatim.audit.lost import lost_doubts
from seriatim.audit.report import Findings

# What a doubt is about, and which guarantees that are; the others follow from these.
ABOUT = {"order": ORDER} | {name: (name,) for name in ("fifo", "causal", "integrity", "completeness")}
SORTED = {f"text{i}": "string" for i in range(2)} | {f"count{i}": "long" for i in range(5)}


def doubts(frame: DataFrame, about: str, phase: int, *order: str, reason: Column) -> DataFrame:
    """Doubts in common columns. `order` names the columns that sort those of one phase: texts first, then counts."""
    assert about in ABOUT
    kinds = dict(frame.dtypes)
    places = {name: F.lit(None).cast(kind) for name, kind in SORTED.items()}
    texts = iter([name for name, kind in SORTED.items() if kind == "string"])
    counts = iter([name for name, kind in SORTED.items() if kind == "long"])
    for name in order:
        is_text = kinds[name] == "string"
        places[next(texts if is_text else counts)] = F.col(name).cast("string" if is_text else "long")
    return frame.select(
        "run",
        F.lit(about).alias("about"),
        F.lit(phase).alias("phase"),
        *(column.alias(name) for name, column in places.items()),
        reason.alias("reason"),
    )


def summary(rows: DataFrame) -> DataFrame:
    """Of each run and subject: the first reason, and how many different ones there are: run, about, first, count."""
    order = F.struct("phase", *SORTED, "reason")
    return rows.groupBy("run", "about").agg(
        F.min(order)["reason"].alias("first"), F.count_distinct("reason").alias("count")
    )


class LogCounts(NamedTuple):
    """The counts of one log."""

    deliveries: int = 0
    subscribers: int = 0
    out_of_order: int = 0
    numbered: int = 0
    events: int = 0
    shared: int = 0
    reused: int = 0
    usable: int = 0  # rows that are not tagged, of ids that stand for one event
    published: int = 0
    told: int = 0  # publications of ids that stand for one event
    seen: int = 0  # publications that say what their publisher had seen
    phantoms: int = 0  # rows of what nobody published, if publications are known
    subscriptions: int = 0


def absent(run: LogCounts, is_tagged: bool, is_confused: bool) -> Iterator[tuple[str, str, int]]:
    """Doubts because of what a run does not have at all."""
    if run.deliveries and is_tagged:
        yield "order", ONLY_TAGGED, 1
    if not run.told:
        yield "fifo", "no publications in the log: who published what, and when, is not known", 1
    elif not run.seen:
        yield "causal", "no publication says what its publisher had seen", 1
    if not run.published:
        yield "integrity", "no publications in the log: whether every event was published is not known", 1
    if not run.subscriptions:
        yield "integrity", "no subscriptions in the log: whether every topic was held is not known", 1
        yield "completeness", "no subscriptions in the log: which events were owed is not known", 1
    elif is_confused:
        yield "completeness", "ids or numbers contradict each other, so gaps cannot be recognised", 1


def report_of(
    run: LogCounts, findings: Findings, doubted: Iterable[tuple[str, str, int]], lost: Mapping[str, int]
) -> Report:
    """The reference auditor's report. `doubted`: what about, the reason, and how many doubts it stands for."""
    if not run.deliveries and not run.subscriptions:
        findings, doubted, lost = Findings(1), (), {}
    if not run.deliveries:
        findings.doubt(EMPTY, *CHECKED)
    for reason, guarantees in lost_doubts(lost):
        findings.doubt(reason, *guarantees)
    for about, reason, count in sorted(doubted, key=lambda doubt: list(ABOUT).index(doubt[0])):
        findings.doubt(reason, *ABOUT[about], count=count)
    return findings.report(run.deliveries, run.subscribers, run.events, run.shared, run.out_of_order)
