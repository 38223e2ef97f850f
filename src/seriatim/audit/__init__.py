"""The reference auditor: delivery logs in, a verdict for every guarantee out, with proof of each violation."""

from seriatim.audit.auditor import Auditor, audit, order_violations
from seriatim.audit.logs import read_deliveries, read_history, write_history
from seriatim.audit.mapping import ColumnMapping
from seriatim.audit.report import ANOMALIES, Anomaly, Answer, Report, Row, Verdict

__all__ = [
    "ANOMALIES",
    "Anomaly",
    "Answer",
    "Auditor",
    "ColumnMapping",
    "Report",
    "Row",
    "Verdict",
    "audit",
    "order_violations",
    "read_deliveries",
    "read_history",
    "write_history",
]
