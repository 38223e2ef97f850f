"""The data pipeline on Spark: workload, sweep, plan, archive, audit, replay, report.

Each job is a folder or file of pure functions `DataFrame → DataFrame`; `session.py`, `tables.py` and the commands of
the command line are the edge, where sessions are opened and tables are read and written. Needs the extra `spark` and
Java 17 or newer; `requirements.py` says what is missing.
"""
