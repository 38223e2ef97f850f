"""A report as tables: a row for each guarantee, and a row for each anomaly that is shown."""

import json
from collections.abc import Iterable

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from seriatim.audit import BREAKS, Anomaly, Report, Row
from seriatim.model import InputError
from seriatim.pipeline.logs.tables import write_table
from seriatim.pipeline.spark.unreadable import first_line, told

VERDICTS = "guarantee string not null, answer string not null, reason string not null"
# `breaks`: the weakest guarantee; `witness`: JSON, the rows that prove it, each with the name of its table.
FINDINGS = (
    "name string not null, breaks string not null, count bigint not null, "
    "sentence string not null, witness string not null"
)


def write_report(spark: SparkSession, report: Report, uri: str) -> None:
    """Both tables below this URI. InputError: they cannot be written; the report has been shown by then."""
    try:
        write_table(verdict_table(spark, report), f"{uri.rstrip('/')}/verdicts")
        write_table(anomaly_table(spark, report), f"{uri.rstrip('/')}/anomalies")
    except (PySparkException, Py4JJavaError) as error:
        problem = f"{uri} cannot be written ({first_line(told(error))}); the verdict above is complete"
        raise InputError("--table", problem, "give a folder or URI that Spark can write") from None


def verdict_table(spark: SparkSession, report: Report) -> DataFrame:
    """A row for each guarantee."""
    rows = [(each.guarantee, each.answer, each.reason) for each in report.verdicts.values()]
    return spark.createDataFrame(rows, VERDICTS)


def anomaly_table(spark: SparkSession, report: Report) -> DataFrame:
    """A row for each anomaly that is shown; `count` is how many of its name there are."""
    return finding_table(spark, ((anomaly, report.counts[anomaly.name]) for anomaly in report.anomalies))


def finding_table(spark: SparkSession, found: Iterable[tuple[Anomaly, int]]) -> DataFrame:
    """A row for each anomaly, and for how many it stands."""
    rows = [
        (anomaly.name, BREAKS[anomaly.name], count, anomaly.sentence, witness_json(anomaly.witness))
        for anomaly, count in found
    ]
    return spark.createDataFrame(rows, FINDINGS)


def witness_json(rows: Iterable[Row]) -> str:
    """Rows with the name of their table first."""
    shown = [{"row": type(row).__name__.lower(), **msgspec.to_builtins(row)} for row in rows]
    return json.dumps(shown, ensure_ascii=False)
