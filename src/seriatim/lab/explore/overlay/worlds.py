"""The small worlds of the overlay that are searched exhaustively, by name."""

from collections.abc import Mapping, Sequence

from seriatim.lab.explore.engine.plan import Plan, by_name
from seriatim.lab.explore.overlay.cast import Command, OverlayWorld, publish
from seriatim.model import Address
from seriatim.protocols.overlay import Broker, Order, Overlay, OverlayOptions
from seriatim.protocols.overlay.messages import Advertise, Subscribe, Unadvertise, Unsubscribe

PAIR: dict[Address, Address | None] = {"b1": None, "b2": "b1"}
FORK: dict[Address, Address | None] = {"b1": None, "b2": "b1", "b3": "b1"}


def _world(
    name: str,
    about: str,
    parents: Mapping[Address, Address | None],
    clients: Mapping[Address, Address],
    setup: Sequence[tuple[Address, Command]],
    scripts: Mapping[Address, Sequence[Command]],
    order: Order = "rooted",
) -> OverlayWorld:
    return OverlayWorld(
        name=name,
        about=about,
        overlay=Overlay(parents),
        clients=clients,
        options=OverlayOptions(order=order),
        setup=setup,
        scripts=scripts,
    )


def _everything(*clients: Address) -> list[tuple[Address, Command]]:
    """Every client subscribes to everything."""
    return [(client, Subscribe("s", "true")) for client in clients]


def _offers(*clients: Address) -> list[tuple[Address, Command]]:
    """Every client may publish anything."""
    return [(client, Advertise("a", "true")) for client in clients]


TWO_EACH = {client: [publish(client, f"{client}{i}") for i in (1, 2)] for client in ("p", "q")}
ONE_EACH = {client: [publish(client, f"{client}1")] for client in ("p", "q")}

WORLDS: dict[str, Plan[type[Broker]]] = by_name(
    [
        _world(
            "pair",
            "2 brokers, a publisher and a subscriber at each; 2 events each",
            PAIR,
            {"p": "b1", "q": "b2", "s": "b1", "t": "b2"},
            [*_offers("p", "q"), *_everything("s", "t")],
            TWO_EACH,
        ),
        _world(
            "fork",
            "3 brokers, publishers at 2 of them, subscribers at all; 1 event each",
            FORK,
            {"p": "b2", "q": "b3", "r": "b1", "s": "b2", "t": "b3"},
            [*_offers("p", "q"), *_everything("r", "s", "t")],
            ONE_EACH,
        ),
        _world(
            "early",
            "2 brokers and a publisher; another one advertises and publishes meanwhile; 2 events and 1",
            FORK,
            {"p": "b2", "q": "b2", "s": "b2", "t": "b3"},
            [*_offers("p"), *_everything("s", "t")],
            {"p": TWO_EACH["p"], "q": [Advertise("a", "true"), *ONE_EACH["q"]]},
        ),
        _world(
            "join",
            "2 brokers; somebody who was notified early subscribes to more; 1 event each",
            PAIR,
            {"p": "b2", "q": "b1", "s": "b2", "t": "b1", "u": "b2"},
            [
                ("p", Advertise("a", "x = 1")),
                ("q", Advertise("a", "x = 2")),
                ("s", Subscribe("s", "x = 1")),
                *_everything("t", "u"),
            ],
            {"p": [publish("p", "p1", x=1)], "q": [publish("q", "q1", x=2)], "s": [Subscribe("more", "x = 2")]},
        ),
        _world(
            "cover",
            "2 brokers; a subscription ends that covers another; 2 events",
            PAIR,
            {"p": "b1", "s": "b2", "t": "b2"},
            [*_offers("p"), ("s", Subscribe("s", "x > 0")), ("t", Subscribe("s", "x > 1"))],
            {"p": [publish("p", f"p{i}", x=2) for i in (1, 2)], "s": [Unsubscribe("s")]},
        ),
        _world(
            "withdraw",
            "3 brokers; an advertisement is withdrawn behind its last event",
            FORK,
            {"p": "b2", "s": "b2", "t": "b3"},
            [*_offers("p"), *_everything("s", "t")],
            {"p": [publish("p", "p1"), Unadvertise("a")]},
        ),
        _world(
            "clocks",
            "2 brokers, a publisher and a subscriber at each, order by resolution; 1 event and 2",
            PAIR,
            {"a": "b2", "p": "b1", "s": "b1", "t": "b2"},
            [*_offers("a", "p"), *_everything("s", "t")],
            {"a": [publish("a", "a1")], "p": TWO_EACH["p"]},
            "resolution",
        ),
    ]
)
