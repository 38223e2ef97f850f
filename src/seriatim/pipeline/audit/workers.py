"""Where the parts of an audit run that Spark does not do by itself: Python functions, and steps side by side."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from seriatim.pipeline.audit.keep import kept

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def in_python(frame: DataFrame, work: Work, schema: str, arrow_schema: pa.Schema, is_undivided: bool) -> DataFrame:
    """What a Python function makes of a table, kept. That of a small log is done here: workers would have to start."""
    if not is_undivided:
        return kept(frame.mapInArrow(work, schema))
    made = pa.Table.from_batches(list(work(iter(frame.toArrow().to_batches()))), arrow_schema)
    spark = frame.sparkSession  # of a table without batches it cannot make anything
    return (spark.createDataFrame(made, schema) if len(made) else spark.createDataFrame([], schema)).coalesce(1)


def side_by_side(spark: SparkSession, *steps: Callable[[], None]) -> None:
    """Steps that do not need each other: while Spark plans one, it works at another."""
    with ThreadPoolExecutor(len(steps)) as threads:
        for done in [threads.submit(inheritable_thread_target(spark)(step)) for step in steps]:
            done.result()
