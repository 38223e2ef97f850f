"""Straight from the columns of Parquet files: the steps of an audit that go over every delivery, in arrays."""
