"""The admin port of `seriatim broker`: what /metrics, /status, /explain and /health say."""

from typing import Any

import msgspec

from seriatim.live.overlay import LiveBroker
from seriatim.live.overlay.report import decode_report
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
        _metrics(broker),
        status,
        explain=lambda: list(broker.explain()),
        problems=lambda: [str(broker.failed.result())] if broker.failed.done() else [],
        token=security.token,
        context=security.server_context(),
    )


def _metrics(broker: LiveBroker) -> Metrics:
    metrics = Metrics()
    add_process(metrics)
    sample = metrics.sample

    def state() -> BrokerState:
        return broker.machine.inner.state

    sample("seriatim_broker_epoch", "Grows by one with every process of this broker.", lambda: broker.epoch)
    sample("seriatim_broker_clients", "Clients that are connected.", lambda: broker.clients)
    sample("seriatim_broker_neighbours", "Neighbours that are connected.", lambda: len(broker.connected))
    sample(
        "seriatim_broker_suspected",
        "Neighbours that are suspected.",
        lambda: len(state().suspected),
    )
    sample(
        "seriatim_broker_subscriptions",
        "Subscriptions in the routing table.",
        lambda: sum(len(each) for each in state().routes.wanted.values()),
    )
    sample(
        "seriatim_broker_advertisements",
        "Advertisements in the routing table.",
        lambda: sum(len(each) for each in state().routes.offered.values()),
    )
    sample("seriatim_broker_climbing", "Publications that have not come back.", lambda: len(state().climbing))
    sample("seriatim_broker_steps_total", "Inputs handled.", lambda: broker.driver.steps, kind="counter")
    sample("seriatim_broker_appends_total", "Appends to the journal.", lambda: broker.driver.appends, kind="counter")
    sample(
        "seriatim_broker_unacknowledged",
        "Messages that a neighbour has not acknowledged.",
        lambda: {each: float(broker.machine.unacknowledged(each)) for each in broker.place.neighbours},
        labels=["neighbour"],
    )
    sample(
        "seriatim_broker_refused_total",
        "Connections that were refused or closed, by reason.",
        lambda: {kind: float(count) for kind, count in broker.refusals.items()},
        kind="counter",
        labels=["reason"],
    )
    return metrics
