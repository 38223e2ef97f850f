"""The audit as a Spark Declarative Pipeline: raw → validated → audited, for a data team that runs its tables that way.

`seriatim pipeline FOLDER --input URI` writes a project whose definitions call these functions; `spark-pipelines run` in
that folder brings the tables up to date. Query functions there must not look at a schema, collect, or use `mapInArrow`;
so columns and types are fixed before, and the auditor is a table function.

The table function is the plain auditor in one task for each run, and needs some 500 bytes for each row. It suits logs
of up to some millions of rows a run; above that use `seriatim audit`, which spreads one log over many tasks.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StringType, StructField, StructType

from seriatim.audit import ANOMALIES, ColumnMapping, audit
from seriatim.audit.rules import FIELDS
from seriatim.model import Delivery, History, InputError
from seriatim.pipeline.audit.verdicts import witness_json
from seriatim.pipeline.logs import fitting
from seriatim.pipeline.logs.reading import CORRUPT
from seriatim.pipeline.schemas import DELIVERIES

FORMATS = ("jsonl", "parquet")
AUDITED = "run string, kind string, name string, answer string, count bigint, told string, witness string"
ALL_ROWS = ""  # the run of rows that do not say which they are of


class Plan:
    """One pipeline: where the raw rows are, and what their columns mean. Made once, when definitions are loaded."""

    def __init__(self, spark: SparkSession, uri: str, format: str, mapping: ColumnMapping | None = None) -> None:
        self._spark, self._uri, self._format = spark, uri, format
        self._mapping = mapping or ColumnMapping()
        if format not in FORMATS:
            raise InputError("format", f"{format!r} is not read by the pipeline", f"use {' or '.join(FORMATS)}")
        self._mapping.check_for_tables()
        if format == "parquet":
            self._schema = spark.read.parquet(uri).schema
            known = self._schema.names
        else:
            known = self._named()
            self._schema = StructType([StructField(name, StringType()) for name in (*known, CORRUPT)])
        self._sources = self._mapping.sources(known, uri)
        self._kinds: dict[str, DataType] = {field.name: field.dataType for field in self._schema}

    def _named(self) -> list[str]:
        """JSON does not say which columns there are: all that may be asked for."""
        mapping = self._mapping
        names = [column for name in DELIVERIES.names for column in mapping.columns_of(name)]
        names += [mapping.run_column, *([mapping.order_by] if mapping.order_by else [])]
        return list(dict.fromkeys(names))

    def raw(self) -> DataFrame:
        """Rows as they lie in the files, each file read once."""
        kind = "json" if self._format == "jsonl" else self._format
        reader = self._spark.readStream.schema(self._schema).option("recursiveFileLookup", True)
        return reader.option("columnNameOfCorruptRecord", CORRUPT).format(kind).load(self._uri)

    def _fitted(self, raw: DataFrame) -> DataFrame:
        # Only `select`, here and below: other steps may look a table up at once, and lose what it depends on.
        fitted = fitting.fit(raw, FIELDS["deliveries"], self._sources, self._mapping, self._kinds)
        has_runs = self._mapping.run_column in self._kinds
        run = f.coalesce(f.col("_run"), f.lit(ALL_ROWS)) if has_runs else f.lit(ALL_ROWS)
        return fitted.select("*", run.alias("run"))

    def validated(self, raw: DataFrame) -> DataFrame:
        """Rows that fit, in the columns of a delivery and `run`."""
        fitted = self._fitted(raw).where("_problem IS NULL")
        if self._mapping.order_by is not None:
            fitted = fitting.place_by_order(fitted, self._mapping, ("run", "subscriber"))
        return fitted.select("run", *(name for name in DELIVERIES.names if name != "stamp"))

    def refused(self, raw: DataFrame) -> DataFrame:
        """Rows that do not fit, and why: with one of them no order is called valid."""
        return self._fitted(raw).where("_problem IS NOT NULL").select("run", f.col("_problem").alias("problem"))


def audited(deliveries: DataFrame) -> DataFrame:
    """For each run: a row of kind `verdict` for each guarantee, and one of kind `anomaly` for each that is shown."""
    rows = deliveries.select("run", "subscriber", "position", "event_id", "topic", "number", "out_of_order", "index")
    function: Any = f.arrow_udtf(AuditRun, returnType=AUDITED)
    judged: DataFrame = function(rows.asTable().partitionBy("run"))
    return judged


def verdicts(judged: DataFrame, refused: DataFrame) -> DataFrame:
    """A row for each run and guarantee. Where rows were refused, what would be valid is unknown. A row that does not
    say which run it is of may be of any. One that was refused, such as a line that was cut off, so doubts every run;
    one that fits doubts every run but where no row names one."""
    is_unnamed = f.col("run") == ALL_ROWS
    bad = refused.groupBy("run").agg(f.count(f.lit(1)).alias("of_run"))
    of_any = refused.agg(f.count_if(is_unnamed).alias("of_any"))
    found = judged.where("kind = 'verdict'")
    runs = found.agg(f.bool_or(is_unnamed).alias("some_unnamed"), f.bool_or(~is_unnamed).alias("some_named"))
    count = f.coalesce(f.col("of_run"), f.lit(0)) + f.when(is_unnamed, 0).otherwise(f.col("of_any"))
    doubt = f.when(count > 0, f.concat(count.cast("string"), f.lit(" rows were refused"))).when(
        f.col("some_unnamed") & f.col("some_named"), "there are rows that do not say which run they are of"
    )
    is_doubtful = (f.col("answer") == "valid") & doubt.isNotNull()
    return (
        found.join(bad, "run", "left")
        .crossJoin(of_any)
        .crossJoin(runs)
        .select(
            "run",
            f.col("name").alias("guarantee"),
            f.when(is_doubtful, "unknown").otherwise(f.col("answer")).alias("answer"),
            f.when(is_doubtful, doubt).otherwise(f.col("told")).alias("reason"),
        )
    )


def anomalies(judged: DataFrame) -> DataFrame:
    """A row for each run and anomaly that is shown; `count` is how many of its name there are."""
    breaks = f.create_map(*(f.lit(text) for pair in ANOMALIES.items() for text in pair))
    found = judged.where("kind = 'anomaly'")
    breaks_which, sentence = breaks[f.col("name")].alias("breaks"), f.col("told").alias("sentence")
    return found.select("run", "name", breaks_which, "count", sentence, "witness")


class AuditRun:
    """The plain auditor as a table function: it reads the rows of one run and reports at their end."""

    def __init__(self) -> None:
        self._run = ALL_ROWS
        self._deliveries: list[Delivery] = []

    def eval(self, rows: pa.RecordBatch) -> Iterator[pa.Table]:
        for row in rows.to_pylist():
            self._run = row.pop("run")
            self._deliveries.append(Delivery(**row))
        return iter(())

    def terminate(self) -> Iterator[pa.Table]:
        report = audit(History(self._deliveries))
        rows: list[dict[str, Any]] = [
            {"kind": "verdict", "name": each.guarantee, "answer": each.answer, "told": each.reason}
            for each in report.verdicts.values()
        ]
        rows += [
            {
                "kind": "anomaly",
                "name": each.name,
                "count": report.counts[each.name],
                "told": each.sentence,
                "witness": witness_json(each.witness),
            }
            for each in report.anomalies
        ]
        columns = (column.split() for column in AUDITED.split(", "))
        schema = pa.schema([(name, pa.int64() if kind == "bigint" else pa.string()) for name, kind in columns])
        yield pa.Table.from_pylist([{"run": self._run, **row} for row in rows], schema=schema)
