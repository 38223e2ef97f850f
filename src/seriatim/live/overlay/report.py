"""What a broker says about itself and its overlay: to its neighbours, to clients and to observers.

All brokers must be given the same tree and the same options. The digest of both is in every hello between them; a
broker that was given something else is refused, and told what differs.
"""

from msgspec import field

from seriatim.model import Address
from seriatim.runtime.net import system
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.system import SystemDescription, SystemReport, ask


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


def decode_report(data: bytes) -> BrokerReport:
    """Read a report. RemoteError: it cannot be read, or has another version."""
    return system.decode_report(data, BrokerReport, "broker")


async def observe_broker(address: str, security: SecurityOptions, timeout_s: float) -> BrokerReport:
    """What the broker at this address says. ConnectionFailed: nobody answers there, or not to us."""
    return await ask(address, security, timeout_s, "broker", decode_report)


def difference(ours: OverlayDescription, theirs: OverlayDescription) -> str:
    """The first thing that differs, by the path of its key; empty: nothing does."""
    return system.first_difference(ours, theirs, "the parent of brokers", lambda each: each.parents)
