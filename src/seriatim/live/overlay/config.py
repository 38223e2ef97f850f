"""One file says what the overlay is: its brokers, their tree, how they order, who may connect.

Every broker is given the same file (`overlay.toml`) and its own name. The smallest one has the brokers and nothing
else; the one without a parent is the root:

    [brokers]
    B1 = "127.0.0.1:7600"
    B2 = { address = "127.0.0.1:7601", parent = "B1" }

A key is a field below, its description is both the help in an error and the row in docs/overlay.md. Relative paths
start at the file's folder.

All brokers must be given the same tree and the same options. The digest of both is in every hello between them; a
broker with other values is refused, and told the difference.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct, field, to_builtins

from seriatim.model import Address, InputError
from seriatim.protocols.overlay import Broker, Overlay, OverlayOptions
from seriatim.protocols.overlay.options import Order
from seriatim.runtime.net import system
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.system import SystemDescription, SystemReport, ask
from seriatim.runtime.tables import Count, Milliseconds, Seconds, about, parse, read_toml
from seriatim.server.schemas import (
    NodeName,
    PayloadBytes,
    ProcessAddress,
    SecurityFiles,
    SystemFile,
    check_name,
    load_security,
)

# A connection loses nothing while it lasts, and what the last one lost is repeated on the new one. So repeating by the
# clock is the last resort.
RETRY_MS = 5_000.0


class BrokerAddress(ProcessAddress, frozen=True, kw_only=True):
    """The address of one broker, and its parent."""

    parent: Annotated[str, about("the broker above it; the root has none")] = ""


class BrokersOptions(Struct, frozen=True, kw_only=True):
    """How the overlay orders, and how much it keeps for others."""

    order: Annotated[
        Order,
        about(
            '"rooted" (one order where interests meet), "central" (at the root), '
            '"resolution" (by clocks) or "fifo" (by publisher)'
        ),
    ] = "rooted"
    early: Annotated[bool, about("true, or false to notify only on the way down, never on the way up")] = True
    waiting_max: Annotated[Count, about("how many commands of one client may wait at its broker, 1 or more")] = 10_000
    subscriptions_max: Annotated[Count, about("how many subscriptions one client may have, 1 or more")] = 10_000
    advertisements_max: Annotated[Count, about("how many advertisements one client may have, 1 or more")] = 10_000
    payload_bytes_max: PayloadBytes = 1024 * 1024
    remember_s: Annotated[
        Seconds, about("seconds for which a broker keeps everything for a client that is not connected")
    ] = 60.0
    remember_events: Annotated[Count, about("how many messages are kept for one client; with more it is forgotten")] = (
        100_000
    )
    suspect_after_ms: Annotated[
        Milliseconds, about("milliseconds without a connection after which nobody waits for a broker")
    ] = 5_000.0
    clients_max: Annotated[Count, about("how many clients may be connected to one broker")] = 4_096

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


class OverlaySecurity(SecurityFiles, frozen=True, kw_only=True):
    """How clients and brokers are admitted."""

    broker_token_file: Annotated[str, about("the file with the token that all brokers share")] = ""


class OverlayDescription(SystemDescription, frozen=True, kw_only=True):
    """What all brokers must be given alike. The root's parent is empty."""

    parents: dict[Address, Address]


class BrokerReport(SystemReport, frozen=True, kw_only=True):
    """One broker, as it is now. The counts are of its routing table."""

    broker: Address
    system: OverlayDescription
    epoch: int = 0
    connected: list[Address] = field(default_factory=list)
    suspected: list[Address] = field(default_factory=list)
    clients: int = 0
    subscriptions: int = 0
    advertisements: int = 0


class OverlayConfig(SystemFile, frozen=True, kw_only=True, dict=True):
    """All brokers of an overlay, checked."""

    kind = "broker"
    example = 'B1 = "127.0.0.1:7600"'

    brokers: dict[NodeName, BrokerAddress] = field(default_factory=dict)
    options: BrokersOptions = BrokersOptions()
    security: OverlaySecurity = OverlaySecurity()

    def __post_init__(self) -> None:
        for name in self.brokers:
            check_name(f"brokers.{name}", name)
        self.check_places()
        self.overlay  # noqa: B018  its own checks
        if self.options.order not in Broker.orderings:
            known = ", ".join(sorted(Broker.orderings))
            raise InputError("options.order", f"{self.options.order!r} does not run live", f"use one of {known}")

    @cached_property
    def overlay(self) -> Overlay:
        """The tree of brokers. OverlayError: they do not form one."""
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

    def load_security(self) -> SecurityOptions:
        """Tokens and certificates of a broker, read from their files."""
        loaded = self.security.load(self.folder, nodes="broker_token_file")
        if loaded.asks_clients and not loaded.node_token and len(self.brokers) > 1:
            problem = "is missing: a client could say that it is a broker, so no broker is let in"
            raise InputError("security.broker_token_file", problem, "give brokers a token of their own")
        return loaded

    def client_security(self) -> SecurityOptions:
        """The security options of a client with the same file, without the brokers' own key and token."""
        given = self.security
        tls = bool(given.certificate or given.authority)
        files = {"token_file": given.token_file, "authority": given.authority, "tls": tls}
        return load_security(files, self.folder, "security")


def load_overlay(path: Path) -> OverlayConfig:
    return parse_overlay(read_toml(path, "overlay.toml"), path.resolve().parent)


def parse_overlay(raw: Mapping[str, Any], folder: Path = Path()) -> OverlayConfig:
    """Check an overlay that was read from TOML. `raw` is not changed."""
    return parse(OverlayConfig, raw, folder=folder)


def decode_report(data: bytes) -> BrokerReport:
    """Read a report. RemoteError: it cannot be read, or has another version."""
    return system.decode_report(data, BrokerReport, "broker")


async def observe_broker(address: str, security: SecurityOptions, timeout_s: float) -> BrokerReport:
    """What the broker at this address says. ConnectionFailed: no broker answers there, or it refuses."""
    return await ask(address, security, timeout_s, "broker", decode_report)


def difference(ours: OverlayDescription, theirs: OverlayDescription) -> str:
    """The first thing that differs, by the path of its key; empty: nothing does."""
    return system.first_difference(ours, theirs, "the parent of brokers", lambda each: each.parents)
