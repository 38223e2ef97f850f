"""What a peer says about itself and its system: to who wants to be a peer, and to who wants to know how it is.

All peers must be given the same list and the same options: a peer that counts other peers builds other trees. So the
digest of both is in every hello; who was given something else is refused, and told what.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from seriatim.model import RemoteError, Topic

VERSION = 1
DIGEST_CHARACTERS = 16


class PeersDescription(Struct, frozen=True, kw_only=True):
    """What all peers of a system are given alike. Ids are strings here, as in the file and in JSON."""

    cluster: str
    peers: dict[str, str]
    options: dict[str, int | float | str]

    @property
    def digest(self) -> str:
        """The same for equal descriptions, whatever order they were written in."""
        data = msgspec.json.encode(self, order="sorted")
        return hashlib.sha256(data).hexdigest()[:DIGEST_CHARACTERS]


class PeerReport(Struct, frozen=True, kw_only=True):
    """One peer, as it is now. `statuses`: twice the births of a peer, and one more if that life is over."""

    version: int = VERSION
    id: int
    life: str
    system: PeersDescription
    statuses: dict[str, int] = field(default_factory=dict)
    connected: list[int] = field(default_factory=list)
    topics: list[Topic] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    left_out: int = 0
    """Further waits that are not listed."""


def encode_report(report: PeerReport) -> bytes:
    """Ready to be sent."""
    return msgspec.json.encode(report)


def decode_report(data: bytes) -> PeerReport:
    """Read one. RemoteError: it is none, or one of another version."""
    try:
        report = msgspec.json.decode(data, type=PeerReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"a peer's report cannot be read: {error}") from None
    if report.version != VERSION:
        raise RemoteError(
            f"a peer reports in version {report.version}, and this one reads {VERSION}; "
            "install the same release of seriatim everywhere"
        )
    return report


def difference(ours: PeersDescription, theirs: PeersDescription) -> str:
    """The first thing that differs, by the path of its key; empty: nothing does."""
    if ours.cluster != theirs.cluster:
        return f"cluster is {theirs.cluster!r} there and {ours.cluster!r} here"
    return _first_difference("peers", ours.peers, theirs.peers) or _first_difference(
        "options", ours.options, theirs.options
    )


def _first_difference(path: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    for key in sorted({*ours, *theirs}, key=lambda key: (len(key), key)):
        there, here = theirs.get(key), ours.get(key)
        if there != here:
            return f"{path}.{key} is {_shown(there)} there and {_shown(here)} here"
    return ""


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)
