"""Made-up subscriptions, publications and deliveries, as many rows as wanted, the same for the same seed."""

from seriatim.pipeline.workload.deliveries import (
    delivered_publications,
    delivered_subscriptions,
    deliveries,
    injections,
)
from seriatim.pipeline.workload.options import KINDS, POPULARITIES, Injection, Workload
from seriatim.pipeline.workload.publications import publications, rates
from seriatim.pipeline.workload.subscriptions import sites, subscriptions

__all__ = [
    "KINDS",
    "POPULARITIES",
    "Injection",
    "Workload",
    "delivered_publications",
    "delivered_subscriptions",
    "deliveries",
    "injections",
    "publications",
    "rates",
    "sites",
    "subscriptions",
]
