"""Made-up subscriptions, publications and deliveries, as many rows as wanted, the same for the same seed."""

from seriatim.pipeline.workload.deliveries import (
    delivered_order,
    delivered_publications,
    delivered_subscriptions,
    deliveries,
    injections,
)
from seriatim.pipeline.workload.options import KINDS, Injection, Workload
from seriatim.pipeline.workload.tables import publications, rates, sites, subscriptions

__all__ = [
    "KINDS",
    "Injection",
    "Workload",
    "delivered_order",
    "delivered_publications",
    "delivered_subscriptions",
    "deliveries",
    "injections",
    "publications",
    "rates",
    "sites",
    "subscriptions",
]
