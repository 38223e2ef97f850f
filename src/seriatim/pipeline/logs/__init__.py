"""Logs in, tables out: the logs of Seriatim or of another system, at any URI that Spark can read.

Others call tables.py; reading.py reads files as they are, and fitting.py decides what each cell means and which rows do
not fit.
"""

from seriatim.pipeline.logs.tables import (
    Tables,
    history_of,
    read_order,
    read_tables,
    tables_of,
    together,
    write_parquet,
    write_table,
)

__all__ = ["Tables", "history_of", "read_order", "read_tables", "tables_of", "together", "write_parquet", "write_table"]
