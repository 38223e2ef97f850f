"""The data pipeline on Spark. It needs the extra `spark` and Java 17 or newer; `requirements.py` says what is missing.

| where          | what                                                                               |
|----------------|------------------------------------------------------------------------------------|
| workload/      | parameters → subscriptions, publications and deliveries, by the million            |
| sweep.py       | experiments as rows of a table, run on the executors                               |
| plan/          | subscriptions and rates → homes, tree, and what each coupling costs                |
| source/        | a running cluster as a data source of Spark: `format("seriatim")`                  |
| archive/       | that, kept for good: a streaming job, exactly once                                 |
| logs/          | delivery logs, ours or another system's → tables, and the rows that do not fit     |
| audit/         | tables → verdicts, and anomalies with their witnesses                              |
| follow/        | the audit of a log while it is written                                             |
| replay/        | an archive → the order of its events, and what a subscriber saw or would have seen |
| report/        | measurements, audits and plans → a page with figures                               |
| declarative.py | the audit as a Spark Declarative Pipeline                                          |
| live.py        | source, archive and replay put together, for notebooks                             |

Jobs are pure functions `DataFrame → DataFrame`. The edge, where sessions are opened and tables are read and written, is
`spark/`, `logs/tables.py` and the commands. Columns and types of all tables are in `schemas.py`.
"""
