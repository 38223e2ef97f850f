"""What a broker says about itself and its overlay: to its neighbours, to clients, and to who wants to know how it is.

All brokers must be given the same tree and the same options: so the digest of both is in every hello between them; who
was given something else is refused, and told what.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from seriatim.model import Address, RemoteError
from seriatim.runtime.observing import ask
from seriatim.runtime.security import SecurityOptions

VERSION = 1
DIGEST_CHARACTERS = 16


class OverlayDescription(Struct, frozen=True, kw_only=True):
    """What all brokers of an overlay are given alike. The root's parent is empty."""

    cluster: str
    parents: dict[Address, Address]
    options: dict[str, bool | int | float | str]

    @property
    def digest(self) -> str:
        """The same for equal descriptions, whatever order they were written in."""
        data = msgspec.json.encode(self, order="sorted")
        return hashlib.sha256(data).hexdigest()[:DIGEST_CHARACTERS]


class BrokerReport(Struct, frozen=True, kw_only=True):
    """One broker, as it is now. The counts are of its routing table."""

    version: int = VERSION
    broker: Address
    system: OverlayDescription
    epoch: int = 0
    connected: list[Address] = field(default_factory=list)
    suspected: list[Address] = field(default_factory=list)
    clients: int = 0
    subscriptions: int = 0
    advertisements: int = 0
    waits: list[str] = field(default_factory=list)
    left_out: int = 0
    """Further waits that are not listed."""


def encode_report(report: BrokerReport) -> bytes:
    """Ready to be sent."""
    return msgspec.json.encode(report)


def decode_report(data: bytes) -> BrokerReport:
    """Read one. RemoteError: it is none, or one of another version."""
    try:
        report = msgspec.json.decode(data, type=BrokerReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"a broker's report cannot be read: {error}") from None
    if report.version != VERSION:
        raise RemoteError(
            f"a broker reports in version {report.version}, and this one reads {VERSION}; "
            "install the same release of seriatim everywhere"
        )
    return report


async def observe_broker(address: str, security: SecurityOptions, timeout_s: float) -> BrokerReport:
    """What the broker at this address says. ConnectionFailed: nobody answers there, or not to us."""
    return await ask(address, security, timeout_s, "broker", decode_report)


def difference(ours: OverlayDescription, theirs: OverlayDescription) -> str:
    """The first thing that differs, by the path of its key; empty: nothing does."""
    if ours.cluster != theirs.cluster:
        return f"cluster is {theirs.cluster!r} there and {ours.cluster!r} here"
    return _first_difference("brokers", ours.parents, theirs.parents) or _first_difference(
        "options", ours.options, theirs.options
    )


def _first_difference(path: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    for key in sorted({*ours, *theirs}):
        there, here = theirs.get(key), ours.get(key)
        if there != here:
            what = "the parent of " if path == "brokers" else ""
            return f"{what}{path}.{key} is {_shown(there)} there and {_shown(here)} here"
    return ""


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)
