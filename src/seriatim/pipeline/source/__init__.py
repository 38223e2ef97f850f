"""The data source `seriatim`: what a cluster's broker holds, as DataFrames, batch and streaming.

    spark.read.format("seriatim").option("url", "nats://127.0.0.1:4222").option("topics", "orders.*").load()

options.py says what can be asked for, rows.py turns messages into Arrow, planning.py cuts streams into ranges, and
reading.py is what Spark calls.
"""

from seriatim.pipeline.source.reading import SeriatimSource, register

__all__ = ["SeriatimSource", "register"]
