"""One file says what the overlay is: its brokers, who is below whom, how they order, who may connect.

Every broker is given the same file (`overlay.toml`) and told its own name. The smallest one has the brokers and nothing
else; the one without a parent is the root:

    [brokers]
    B1 = "127.0.0.1:7600"
    B2 = { address = "127.0.0.1:7601", parent = "B1" }

A key is a field below, its description is both the help in an error and the row in docs/overlay.md. Relative paths
start at the file's folder.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from seriatim.model import APPLICATION, BROKER, Address, InputError
from seriatim.overlay.report import OverlayDescription
from seriatim.protocols.overlay import Broker, Overlay, OverlayOptions
from seriatim.protocols.overlay.options import Order
from seriatim.runtime.places import Place, check_places, read_place
from seriatim.runtime.security import SecurityOptions
from seriatim.runtime.tables import (
    Count,
    Milliseconds,
    Seconds,
    check_keys,
    check_table,
    convert_table,
    convert_value,
    fields_of,
    read_toml,
)

OVERLAY_NAME = r"^[A-Za-z0-9][A-Za-z0-9-]{0,31}$"
PAYLOAD_BYTES_MAX = 4 * 1024 * 1024  # half of what fits into a frame
# A connection loses nothing as long as it lasts, and what the last one lost is sent again as soon as there is a new
# one. So sending again by the clock is the last resort.
RETRY_MS = 5_000.0

_BROKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class BrokerPlace(Place, frozen=True, kw_only=True):
    """Where one broker is, and below whom."""

    parent: Annotated[str, Meta(description="the broker above it; the root has none")] = ""


class BrokersOptions(Struct, frozen=True, kw_only=True):
    """How the overlay orders, and how much it keeps for others."""

    order: Annotated[
        Order,
        Meta(
            description='"rooted" (one order where interests meet), "central" (at the root), '
            '"resolution" (by clocks) or "fifo" (by publisher)'
        ),
    ] = "rooted"
    early: Annotated[bool, Meta(description="true, or false to notify only on the way down, never on the way up")] = (
        True
    )
    waiting_max: Annotated[
        Count, Meta(description="how many commands of one client may wait at its broker, 1 or more")
    ] = 10_000
    subscriptions_max: Annotated[Count, Meta(description="how many subscriptions one client may have, 1 or more")] = (
        10_000
    )
    advertisements_max: Annotated[Count, Meta(description="how many advertisements one client may have, 1 or more")] = (
        10_000
    )
    payload_bytes_max: Annotated[
        int, Meta(ge=1, le=PAYLOAD_BYTES_MAX, description=f"the most bytes of one event, up to {PAYLOAD_BYTES_MAX}")
    ] = 1024 * 1024
    remember_s: Annotated[
        Seconds, Meta(description="seconds for which a broker keeps everything for a client that is not connected")
    ] = 60.0
    remember_events: Annotated[
        Count, Meta(description="how many messages are kept for one client; with more it is forgotten")
    ] = 100_000
    suspect_after_ms: Annotated[
        Milliseconds, Meta(description="milliseconds without a connection after which nobody waits for a broker")
    ] = 5_000.0
    clients_max: Annotated[Count, Meta(description="how many clients may be connected to one broker")] = 4_096

    @property
    def protocol(self) -> OverlayOptions:
        """What the machines are given."""
        return OverlayOptions(
            order=self.order,
            early=self.early,
            held_max=self.waiting_max,
            subscriptions_max=self.subscriptions_max,
            advertisements_max=self.advertisements_max,
            retry_ms=RETRY_MS,
        )


class OverlaySecurity(Struct, frozen=True, kw_only=True):
    """Who may be a client, and who a broker."""

    token_file: Annotated[str, Meta(description="the file with the token of clients")] = ""
    broker_token_file: Annotated[str, Meta(description="the file with the token that all brokers share")] = ""
    certificate: Annotated[str, Meta(description="the file with this machine's certificate chain (PEM)")] = ""
    key: Annotated[str, Meta(description="the file with the certificate's key (PEM)")] = ""
    authority: Annotated[str, Meta(description="the file with the certificates that others are checked against")] = ""
    require_client_certificate: Annotated[bool, Meta(description="true, or false to take who has no certificate")] = (
        False
    )


class OverlayConfig(Struct, frozen=True, kw_only=True, dict=True):
    """All brokers of an overlay, checked. `folder` is where relative paths start."""

    cluster: Annotated[str, Meta(pattern=OVERLAY_NAME, description="a name of up to 32 letters, digits and -")] = (
        "seriatim"
    )
    brokers: dict[Address, BrokerPlace]
    journals: Annotated[str, Meta(description="the folder in which each broker keeps its journal")] = "journals"
    options: BrokersOptions = BrokersOptions()
    security: OverlaySecurity = OverlaySecurity()
    folder: Path = Path()

    def __post_init__(self) -> None:
        _check_brokers(self)
        if self.options.order not in Broker.orderings:
            known = ", ".join(sorted(Broker.orderings))
            raise InputError("options.order", f"{self.options.order!r} does not run live", f"use one of {known}")

    @cached_property
    def overlay(self) -> Overlay:
        """The tree of brokers. OverlayError: it is none."""
        return Overlay({name: place.parent or None for name, place in self.brokers.items()})

    @property
    def description(self) -> OverlayDescription:
        """What all brokers must be given alike."""
        options = to_builtins(self.options)
        return OverlayDescription(
            cluster=self.cluster,
            parents={name: place.parent for name, place in sorted(self.brokers.items())},
            options={name: options[name] for name in ("order", "early", "payload_bytes_max")},
        )

    def journal(self, name: Address) -> Path:
        """Where a broker keeps its journal."""
        return self.folder / self.journals / f"broker-{name}"

    def load_security(self) -> SecurityOptions:
        """Tokens and certificates of a broker, read from their files."""
        given = to_builtins(self.security)
        given["node_token_file"] = given.pop("broker_token_file")
        loaded = self._load(given)
        if loaded.asks_clients and not loaded.node_token and len(self.brokers) > 1:
            problem = "is missing: a client could say that it is a broker, so no broker is let in"
            raise InputError("security.broker_token_file", problem, "give brokers a token of their own")
        return loaded

    def client_security(self) -> SecurityOptions:
        """What a client needs that has the same file; the brokers' own key and token are none of its business."""
        tls = bool(self.security.certificate or self.security.authority)
        return self._load({"token_file": self.security.token_file, "authority": self.security.authority, "tls": tls})

    def _load(self, given: dict[str, Any]) -> SecurityOptions:
        try:
            return SecurityOptions.load(**given, folder=self.folder)
        except InputError as error:
            field = error.field.replace("node_token", "broker_token")
            raise InputError(f"security.{field}", error.problem, error.fix) from None

    def check_broker(self, name: Address) -> Address:
        """The name, which must be a broker's."""
        if name not in self.brokers:
            some = ", ".join(sorted(self.brokers)[:10])
            raise InputError(
                "id", f"there is no broker {name!r} in the list", f"add [brokers] {name}, or give one of {some}"
            )
        return name


TABLES: dict[str, type[Struct]] = {"options": BrokersOptions, "security": OverlaySecurity}


def load_overlay(path: Path) -> OverlayConfig:
    """The overlay described by a file."""
    return parse_overlay(read_toml(path, "overlay.toml"), path.resolve().parent)


def parse_overlay(raw: Mapping[str, Any], folder: Path = Path()) -> OverlayConfig:
    """The same from what TOML reads as. `raw` is not changed."""
    given = dict(raw)
    hints = fields_of(OverlayConfig)
    check_keys(given, set(hints) - {"folder"}, "")
    brokers = check_table(given.pop("brokers", None) or {}, "brokers", '[brokers] and B1 = "host:port"')
    tables = {key: convert_table(TABLES[key], given.pop(key), key) for key in TABLES if key in given}
    return OverlayConfig(
        **{key: convert_value(hints[key], value, key) for key, value in given.items()},
        **tables,  # type: ignore[arg-type]
        brokers={key: read_place(BrokerPlace, "brokers", key, place) for key, place in brokers.items()},
        folder=folder,
    )


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_brokers(config: OverlayConfig) -> None:
    for name in config.brokers:
        if not _BROKER.fullmatch(name) or name in (APPLICATION, BROKER):
            raise InputError(f"brokers.{name}", "the key is not a name", "use up to 64 letters, digits, _ and -")
    check_places("broker", config.brokers, 'B1 = "127.0.0.1:7600"')
    config.overlay  # noqa: B018  its own checks
