"""The auditor at any size: the same verdicts as `seriatim.audit`, on Spark."""

from seriatim.pipeline.audit.auditor import SparkAudit, audit_tables
from seriatim.pipeline.audit.certificate import certify_tables
from seriatim.pipeline.audit.degree import ordering_degree
from seriatim.pipeline.audit.options import AuditOptions

__all__ = ["AuditOptions", "SparkAudit", "audit_tables", "certify_tables", "ordering_degree"]
