"""One file says who the peers are: their ids and addresses, how they publish and watch each other, who may join.

Every peer is given the same file (`peers.toml`) and its own id. The smallest one has the peers and nothing else:

    [peers]
    0 = "127.0.0.1:7500"
    1 = "127.0.0.1:7501"

A key is a field below, its description is both the help in an error and the row in docs/peers.md. Relative paths start
at the file's folder.

All peers must be given the same list and the same options, or they build different trees. The digest of both is in
every hello; a peer with other values is refused, and told the difference.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from seriatim.model import Topic
from seriatim.protocols.vcube import Cube, VCubeOptions
from seriatim.protocols.vcube.cube import IDS_MAX
from seriatim.runtime.net import system
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.system import SystemDescription, SystemReport, ask
from seriatim.runtime.tables import Count, Milliseconds, about, parse, read_toml
from seriatim.server.schemas import PayloadBytes, ProcessAddress, SecurityFiles, SystemFile

PeerId = Annotated[int, about(f"whole numbers from 0 to {IDS_MAX - 1}", ge=0, le=IDS_MAX - 1)]


class PeersOptions(Struct, frozen=True, kw_only=True):
    """How peers publish and watch each other."""

    window: Annotated[Count, about("how many publications of one peer may be under way on a topic, 1 or more")] = 256
    heartbeat_ms: Annotated[Milliseconds, about("milliseconds between two heartbeats of a peer")] = 500.0
    suspect_after_ms: Annotated[Milliseconds, about("milliseconds of silence after which a peer is declared dead")] = (
        5_000.0
    )
    payload_bytes_max: PayloadBytes = 1024 * 1024

    def __post_init__(self) -> None:
        self.protocol  # noqa: B018  its own checks

    @property
    def protocol(self) -> VCubeOptions:
        """What the machines are given."""
        return VCubeOptions(window=self.window, heartbeat_ms=self.heartbeat_ms, suspect_after_ms=self.suspect_after_ms)


class PeersSecurity(SecurityFiles, frozen=True, kw_only=True):
    """How peers are admitted."""

    token_file: Annotated[str, about("the file with the token that all peers share")] = ""


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


class PeersConfig(SystemFile, frozen=True, kw_only=True):
    """All peers of a system, checked. `given`: tokens and certificates that come from elsewhere than the file."""

    kind = "peer"
    example = '0 = "127.0.0.1:7500"'

    peers: dict[PeerId, ProcessAddress] = field(default_factory=dict)
    options: PeersOptions = PeersOptions()
    security: PeersSecurity = PeersSecurity()
    given: SecurityOptions | None = None

    def __post_init__(self) -> None:
        self.check_places()

    @property
    def cube(self) -> Cube:
        return Cube(self.peers)

    @property
    def description(self) -> PeersDescription:
        """What all peers must be given alike."""
        return PeersDescription(
            cluster=self.cluster,
            peers={str(id): place.address for id, place in sorted(self.peers.items())},
            options=to_builtins(self.options),
        )

    def load_security(self) -> SecurityOptions:
        """Tokens and certificates, read from their files; what the application gave takes their place."""
        loaded = self.security.load(self.folder)
        return loaded if self.given is None else loaded.overridden(self.given)


def load_peers(path: Path) -> PeersConfig:
    return parse_peers(read_toml(path, "peers.toml"), path.resolve().parent)


def parse_peers(raw: Mapping[str, Any], folder: Path = Path()) -> PeersConfig:
    """Check a list of peers that was read from TOML. `raw` is not changed."""
    return parse(PeersConfig, raw, folder=folder, given=None)


def peers_of(description: PeersDescription, folder: Path, given: SecurityOptions) -> PeersConfig:
    """The system as another peer describes it, with a folder and certificates of our own."""
    raw = {"cluster": description.cluster, "peers": description.peers, "options": description.options, "journals": "."}
    return replace(parse_peers(raw, folder), given=given)


def decode_report(data: bytes) -> PeerReport:
    """Read a report. RemoteError: it cannot be read, or has another version."""
    return system.decode_report(data, PeerReport, "peer")


async def observe(address: str, security: SecurityOptions, timeout_s: float) -> PeerReport:
    """What the peer at this address says. ConnectionFailed: no peer answers there, or it refuses."""
    return await ask(address, security, timeout_s, "peer", decode_report)


def difference(ours: PeersDescription, theirs: PeersDescription) -> str:
    """The first thing that differs, by the path of its key; empty: nothing does."""
    return system.first_difference(ours, theirs, "peers", lambda each: each.peers)
