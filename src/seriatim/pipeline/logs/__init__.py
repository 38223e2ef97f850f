"""Logs in, tables out: the logs of Seriatim or of another system, at any URI that Spark can read.

tables.py is what others call; reading.py reads files as they are, and fitting.py says what each cell means and which
rows do not fit. writing.py writes a history that is in memory.
"""

from seriatim.pipeline.logs.tables import Tables, history_of, read_tables, tables_of, together, write_table
from seriatim.pipeline.logs.writing import write_parquet

__all__ = ["Tables", "history_of", "read_tables", "tables_of", "together", "write_parquet", "write_table"]
