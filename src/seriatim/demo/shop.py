"""The shop of the live demo: who publishes what, who subscribes to what, and where in the world they are.

Three sites. The hub has the root of the sequencing tree; eu and us have a sequencer each, and the topics that are
published there are homed there. Every subscriber keeps the shop's books, so their totals must be the same.
"""

import asyncio
import signal
from collections.abc import Mapping

HUB, EU, US = "hub", "eu", "us"
SITES = (HUB, EU, US)
DISTANCE_MS: Mapping[frozenset[str], float] = {  # one way
    frozenset({HUB, EU}): 20.0,
    frozenset({HUB, US}): 20.0,
    frozenset({EU, US}): 40.0,
}

PARENTS: Mapping[str, str | None] = {"root": None, "eu": "root", "us": "root"}
NODE_SITES: Mapping[str, str] = {"root": HUB, "eu": EU, "us": US}
HOMES: Mapping[str, str] = {"orders": "eu", "payments": "us", "prices": "us"}

PUBLISHER_SITES: Mapping[str, str] = {"checkout": EU, "cashier": US, "pricing": US}
SUBSCRIBER_SITES: Mapping[str, str] = {"billing": EU, "shipping": US, "support": HUB}
HOLDINGS: Mapping[str, tuple[str, ...]] = {
    "billing": ("orders", "prices"),
    "shipping": ("orders", "payments", "prices"),
    "support": ("orders", "payments", "prices"),
}

CLOSED = b"closed"  # the last event of every topic
ORDER_INTERVAL_S = 0.025
PRICE_INTERVAL_S = 0.05
PRICE_CENTS = (800, 1_200)  # the lowest and the highest
LIST_PRICES = 10_000  # published at once when the shop closes


def told_to_stop() -> asyncio.Event:
    """Set by SIGTERM, so that a publisher can close its topic."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop
