"""The numbers a report shows of a run, counted in memory (`memory.py`) or on Spark (`spark.py`)."""
