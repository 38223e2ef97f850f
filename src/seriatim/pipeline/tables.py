"""The edge: tables in and out, at any URI that Spark can read and write."""

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from seriatim.model import History
from seriatim.pipeline.schemas import HISTORY


class Tables(NamedTuple):
    """A history as DataFrames in the columns of `schemas.py`. What is not known is None; deliveries always are."""

    deliveries: DataFrame
    publications: DataFrame | None = None
    subscriptions: DataFrame | None = None
    messages: DataFrame | None = None


def tables_of(spark: SparkSession, history: History) -> Tables:
    """A history that is in memory, as tables. An empty table of the history is one that is not known."""

    def frame(name: str) -> DataFrame | None:
        rows = getattr(history, name)
        schema = HISTORY[name]
        if not rows and name != "deliveries":
            return None
        return spark.createDataFrame([tuple(getattr(row, field) for field in schema.names) for row in rows], schema)

    deliveries = frame("deliveries")
    assert deliveries is not None
    return Tables(deliveries, frame("publications"), frame("subscriptions"), frame("messages"))
