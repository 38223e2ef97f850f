"""The reference auditor: delivery logs in, a verdict for every guarantee out, with proof of each violation."""

from seriatim.audit.auditor import Auditor, audit, order_violations
from seriatim.audit.certificate import CERTIFIED, Certificate, certify
from seriatim.audit.logs import read_deliveries, read_history, write_history
from seriatim.audit.mapping import ColumnMapping
from seriatim.audit.order_log import read_order_log
from seriatim.audit.report import ANOMALIES, BREAKS, CERTIFICATE, Anomaly, Answer, Report, Row, Verdict

__all__ = [
    "ANOMALIES",
    "BREAKS",
    "CERTIFICATE",
    "CERTIFIED",
    "Anomaly",
    "Answer",
    "Auditor",
    "Certificate",
    "ColumnMapping",
    "Report",
    "Row",
    "Verdict",
    "audit",
    "certify",
    "order_violations",
    "read_deliveries",
    "read_history",
    "read_order_log",
    "write_history",
]
