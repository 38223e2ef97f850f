"""The data source `seriatim`: what a cluster's broker holds, as DataFrames, batch and streaming.

    spark.read.format("seriatim").option("url", "nats://127.0.0.1:4222").option("topics", "orders.*").load()

options.py defines the options, rows.py turns messages into Arrow, planning.py cuts streams into ranges, and Spark calls
reading.py.
"""

from seriatim.pipeline.source.reading import SeriatimSource, register

__all__ = ["SeriatimSource", "register"]
