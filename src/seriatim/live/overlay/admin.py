"""The admin port of `seriatim broker`: what /health, /metrics, /status and /explain say."""

from collections.abc import Callable
from typing import Any

import msgspec

from seriatim.live.overlay.config import decode_report
from seriatim.live.overlay.live import LiveBroker, total
from seriatim.protocols.overlay.state import BrokerState
from seriatim.runtime.net.security import SecurityOptions
from seriatim.server.admin import AdminServer
from seriatim.server.metrics import Metrics, add_process


def open_admin(broker: LiveBroker, bind: str, security: SecurityOptions) -> AdminServer:
    """The admin port of a broker, not listening yet."""

    def status() -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(decode_report(broker.report()))
        return built

    return AdminServer(
        bind,
        _metrics(broker).text,
        status,
        explain=lambda: list(broker.explain()),
        problems=broker.problems,
        token=security.token,
        context=security.server_context(),
    )


def _metrics(broker: LiveBroker) -> Metrics:
    metrics = Metrics()
    add_process(metrics)

    def state() -> BrokerState:
        return broker.machine.inner.state

    numbers: dict[str, tuple[str, Callable[[], float]]] = {
        "epoch": ("Grows by one with every process of this broker.", lambda: broker.epoch),
        "clients": ("Clients that are connected.", lambda: broker.clients),
        "neighbours": ("Neighbours that are connected.", lambda: len(broker.connected)),
        "suspected": ("Neighbours that are suspected.", lambda: len(state().suspected)),
        "subscriptions": ("Subscriptions in the routing table.", lambda: total(state().routes.wanted)),
        "advertisements": ("Advertisements in the routing table.", lambda: total(state().routes.offered)),
        "climbing": ("Publications that have not come back.", lambda: len(state().climbing)),
        "steps_total": ("Inputs handled.", lambda: broker.driver.steps),
        "appends_total": ("Appends to the journal.", lambda: broker.driver.appends),
    }
    for name, (what, read) in numbers.items():
        metrics.sample(f"seriatim_broker_{name}", what, read)
    metrics.sample(
        "seriatim_broker_unacknowledged",
        "Messages that a neighbour has not acknowledged.",
        lambda: {each: broker.machine.unacknowledged(each) for each in broker.place.neighbours},
        labels=["neighbour"],
    )
    refused = "Connections that were refused or closed, by reason."
    metrics.sample("seriatim_broker_refused_total", refused, lambda: broker.refusals, labels=["reason"])
    return metrics
