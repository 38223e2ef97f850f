"""The certificate on Spark: deliveries against the order log of their run."""

from seriatim.pipeline.audit.certificate.certifier import certify_tables

__all__ = ["certify_tables"]
