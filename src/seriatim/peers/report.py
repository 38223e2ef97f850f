"""What a peer says about itself and its system: to who wants to be a peer, and to who wants to know how it is.

All peers must be given the same list and the same options: a peer that counts other peers builds other trees. So the
digest of both is in every hello; who was given something else is refused, and told what.
"""

from msgspec import field

from seriatim.model import Topic
from seriatim.runtime import system
from seriatim.runtime.system import SystemDescription, SystemReport


class PeersDescription(SystemDescription, frozen=True, kw_only=True):
    """What all peers of a system are given alike. Ids are strings here, as in the file and in JSON."""

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
    """Read one. RemoteError: it is none, or one of another version."""
    return system.decode_report(data, PeerReport, "peer")


def difference(ours: PeersDescription, theirs: PeersDescription) -> str:
    """The first thing that differs, by the path of its key; empty: nothing does."""
    return system.first_difference(ours, theirs, "peers", lambda each: each.peers)
