"""Runs of any size: read, judged and counted on Spark. What comes back is bounded, whatever the log."""

from collections.abc import Iterable

from pyspark.sql import SparkSession

from seriatim.audit import ColumnMapping
from seriatim.order import GUARANTEES
from seriatim.pipeline.audit import audit_tables
from seriatim.pipeline.logs.tables import read_tables
from seriatim.pipeline.report.figures.spark import spark_figures
from seriatim.pipeline.report.pages import Judgement, RunSection
from seriatim.pipeline.report.sources.run import name_of, note_of, restricted

NOTE = "read and judged on Spark"


def read_run_on_spark(
    spark: SparkSession,
    source: str,
    guarantees: Iterable[str] = GUARANTEES,
    limit: int = 10,
    mapping: ColumnMapping | None = None,
) -> RunSection:
    """The same section as `sources.read_run` makes."""
    tables = read_tables(spark, source, mapping)
    judgement = Judgement.of(audit_tables(tables, limit).report)
    return RunSection(
        name=name_of(source),
        judgement=restricted(judgement, guarantees),
        figures=spark_figures(tables),
        note=note_of(mapping, NOTE),
    )
