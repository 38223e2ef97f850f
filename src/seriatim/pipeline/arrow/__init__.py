"""Parquet and Delta tables in memory, through Arrow: for logs that one process judges sooner than Spark starts."""
