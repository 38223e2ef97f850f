"""What a broker says about itself and its overlay: to its neighbours, to clients, and to who wants to know how it is.

All brokers must be given the same tree and the same options: so the digest of both is in every hello between them; who
was given something else is refused, and told what.
"""

from msgspec import field

from seriatim.model import Address
from seriatim.runtime import system
from seriatim.runtime.observing import ask
from seriatim.runtime.security import SecurityOptions
from seriatim.runtime.system import SystemDescription, SystemReport


class OverlayDescription(SystemDescription, frozen=True, kw_only=True):
    """What all brokers of an overlay are given alike. The root's parent is empty."""

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
    """Read one. RemoteError: it is none, or one of another version."""
    return system.decode_report(data, BrokerReport, "broker")


async def observe_broker(address: str, security: SecurityOptions, timeout_s: float) -> BrokerReport:
    """What the broker at this address says. ConnectionFailed: nobody answers there, or not to us."""
    return await ask(address, security, timeout_s, "broker", decode_report)


def difference(ours: OverlayDescription, theirs: OverlayDescription) -> str:
    """The first thing that differs, by the path of its key; empty: nothing does."""
    return system.first_difference(ours, theirs, "the parent of brokers", lambda each: each.parents)
