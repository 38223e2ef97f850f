"""The metrics of a client: as values, as the text that Prometheus reads, and over HTTP.

Only a subscriber knows what it holds back and for how long; sequencers do not. To watch that, ask the subscriber's
process: `bus.metrics()`, `serve_metrics`, or `seriatim sub --metrics`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from seriatim.runtime.net.addresses import split_address
from seriatim.server.admin import AdminServer
from seriatim.server.health import Ledger, Problem, Trouble
from seriatim.server.metrics import Metrics, add_process

if TYPE_CHECKING:
    from seriatim.client.bus import Bus


class SubscriptionMetrics(Struct, frozen=True, kw_only=True):
    """One subscription. Counters start when the subscription is opened in this process.

    None: it is not known. On vcube and overlay these are the held events and their age, with atoms only the age.
    """

    subscriber: str
    notified: int  # events that came in their turn, taken or not
    unread: int  # those of them that the application has not taken
    held: int | None = None  # events that are here and wait for others; a batch counts once
    oldest_held_seconds: float | None = None  # how long the oldest of them has waited; 0: none waits
    out_of_order: int = 0  # events that were handed out although something before them was missing
    gaps: int  # how often something was passed over that will never come
    rejected: int = 0  # messages that had no right to be there, or could not be read
    left_out: int = 0  # events that did not match the filter
    history_left: int = 0  # positions of the past that are not told yet


class ClientMetrics(Struct, frozen=True):
    """One bus: its open subscriptions, and how many events wait to be confirmed by the broker."""

    subscriptions: list[SubscriptionMetrics]
    unpublished: int

    @property
    def text(self) -> str:
        """The metrics in the format that Prometheus reads."""
        metrics = Metrics()
        unpublished = "Events published and not confirmed by the broker."
        metrics.sample("seriatim_client_unpublished_events", unpublished, lambda: self.unpublished)
        for field, (name, what) in FAMILIES.items():
            values = {each.subscriber: getattr(each, field) for each in self.subscriptions}
            known = {subscriber: float(value) for subscriber, value in values.items() if value is not None}
            metrics.sample(f"seriatim_client_{name}", what, partial(dict, known), labels=["subscriber"])
        return metrics.text()


FAMILIES = {
    "notified": ("notified_total", "Events that came in order."),
    "unread": ("unread_events", "Events that the application has not taken."),
    "held": ("held_events", "Events that were received and wait for others; a batch counts once."),
    "oldest_held_seconds": ("oldest_held_seconds", "How long the oldest of these has waited."),
    "out_of_order": ("out_of_order_total", "Events handed out although an earlier one was missing."),
    "gaps": ("gaps_total", "Gaps that were skipped."),
    "rejected": ("rejected_total", "Messages that were not valid."),
    "left_out": ("left_out_total", "Events that did not match the filter."),
    "history_left": ("history_left_positions", "Positions of the past that are still to be notified."),
}


@asynccontextmanager
async def serve_metrics(bus: "Bus", address: str) -> AsyncIterator[AdminServer]:
    """Answer over HTTP at "host:port" while the block runs: /metrics, /status, /explain, /health, /ready and /live.

    It is healthy while every connection that it needs is there.

    InputError: it is not an address. ConnectionFailed: it cannot be used.
    """
    process = Metrics()
    add_process(process)

    def text() -> str:
        return process.text() + bus.metrics().text

    def status() -> dict[str, Any]:
        return {"name": bus.name, **msgspec.to_builtins(bus.metrics())}

    ledger = Ledger(bus.name)

    def problems() -> list[Problem]:
        return ledger.update(Trouble("link", line, line) for line in bus.explain().down)

    split_address("address", address)
    server = AdminServer(address, text, status, lambda: list(bus.explain().sentences), problems)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
