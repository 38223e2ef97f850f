"""What a peer says about itself and its system: to other peers and to observers.

All peers must be given the same list and the same options, or they build different trees. The digest of both is in
every hello; a peer that was given something else is refused, and told what differs.
"""

from msgspec import field

from seriatim.model import Topic
from seriatim.runtime.net import system
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.system import SystemDescription, SystemReport, ask


class PeersDescription(SystemDescription, frozen=True, kw_only=True):
    """What all peers must be given alike. Ids are strings here, as in the file and in JSON."""

    peers: dict[str, str]


class PeerReport(SystemReport, frozen=True, kw_only=True):
    """One peer, as it is now. `statuses`: twice the births of a peer, and one more if that life is over."""

    id: int
    life: str
    system: PeersDescription
    statuses: dict[str, int] = field(default_factory=dict)
    connected: list[int] = field(default_factory=list)
    topics: list[Topic] = field(default_factory=list)


def decode_report(data: bytes) -> PeerReport:
    """Read a report. RemoteError: it cannot be read, or has another version."""
    return system.decode_report(data, PeerReport, "peer")


async def observe(address: str, security: SecurityOptions, timeout_s: float) -> PeerReport:
    """What the peer at this address says. ConnectionFailed: nobody answers there, or not to us."""
    return await ask(address, security, timeout_s, "peer", decode_report)


def difference(ours: PeersDescription, theirs: PeersDescription) -> str:
    """The first thing that differs, by the path of its key; empty: nothing does."""
    return system.first_difference(ours, theirs, "peers", lambda each: each.peers)
