"""What a client counts: as values, as the text that Prometheus reads, and over HTTP.

Only a subscriber knows what it holds back and for how long; sequencers do not. To watch that, ask the subscriber's
process: `bus.metrics()`, `serve_metrics`, or `seriatim sub --metrics`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from seriatim.client.explain import Explanation
from seriatim.runtime.net.addresses import split_address
from seriatim.server.admin import AdminServer
from seriatim.server.metrics import Kind, Metrics, add_process


class SubscriptionMetrics(Struct, frozen=True, kw_only=True):
    """One subscription. What grows counts from the moment it was opened in this process."""

    subscriber: str
    notified: int
    """Events that came in their turn, taken or not."""

    unread: int
    """Those of them that the application has not taken."""

    held: int | None = None
    """Events that are here and wait for others; a batch counts once. None: it is not known here (vcube, overlay)."""

    oldest_held_seconds: float | None = None
    """How long the oldest of them has waited; 0: none waits. None: it is not known (with atoms, too)."""

    out_of_order: int = 0
    """Events that were handed out although something before them was missing."""

    gaps: int
    """How often something was passed over that will never come."""

    rejected: int = 0
    """Messages that had no right to be there, or could not be read."""

    left_out: int = 0
    """Events that did not match the filter."""


class ClientMetrics(Struct, frozen=True):
    """One bus: its open subscriptions, and how many events wait to be confirmed by the broker."""

    subscriptions: list[SubscriptionMetrics]
    unpublished: int

    @property
    def text(self) -> str:
        """In the format that Prometheus reads."""
        metrics = Metrics()
        metrics.sample(
            "seriatim_client_unpublished_events",
            "Events published and not confirmed by the broker.",
            lambda: self.unpublished,
        )
        for field, (name, what, kind) in FAMILIES.items():
            values = {each.subscriber: getattr(each, field) for each in self.subscriptions}
            known = {subscriber: float(value) for subscriber, value in values.items() if value is not None}
            metrics.sample(f"seriatim_client_{name}", what, _constant(known), kind=kind, labels=["subscriber"])
        return metrics.text()


FAMILIES: dict[str, tuple[str, str, Kind]] = {
    "notified": ("notified_total", "Events that came in their turn.", "counter"),
    "unread": ("unread_events", "Events that the application has not taken.", "gauge"),
    "held": ("held_events", "Events that are here and wait for others; a batch counts once.", "gauge"),
    "oldest_held_seconds": ("oldest_held_seconds", "How long the oldest of these has waited.", "gauge"),
    "out_of_order": ("out_of_order_total", "Events handed out although one before was missing.", "counter"),
    "gaps": ("gaps_total", "How often something was passed over that will never come.", "counter"),
    "rejected": ("rejected_total", "What had no right to be there, or could not be read.", "counter"),
    "left_out": ("left_out_total", "Events that did not match the filter.", "counter"),
}


class Measured(Protocol):
    """A bus."""

    @property
    def name(self) -> str: ...

    def metrics(self) -> ClientMetrics: ...

    def explain(self) -> Explanation: ...


class _Reading:
    """What /metrics says: the process, and the bus as it is at that moment."""

    def __init__(self, bus: Measured) -> None:
        self._bus = bus
        self._process = Metrics()
        add_process(self._process)

    def text(self) -> str:
        return self._process.text() + self._bus.metrics().text


@asynccontextmanager
async def serve_metrics(bus: Measured, address: str) -> AsyncIterator[AdminServer]:
    """Answer over HTTP at "host:port" while the block runs: /metrics, /status, /explain and /health.

    InputError: this is no address. ConnectionFailed: it cannot be used.
    """

    def status() -> dict[str, Any]:
        return {"name": bus.name, **msgspec.to_builtins(bus.metrics())}

    split_address("address", address)
    server = AdminServer(address, _Reading(bus), status, lambda: list(bus.explain().sentences), list)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _constant(values: dict[str, float]) -> Callable[[], dict[str, float]]:
    return lambda: values
