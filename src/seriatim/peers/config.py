"""One file says who the peers are: their ids and addresses, how they publish and watch each other, who may be one.

Every peer is given the same file (`peers.toml`) and told its own id. The smallest one has the peers and nothing else:

    [peers]
    0 = "127.0.0.1:7500"
    1 = "127.0.0.1:7501"

A key is a field below, its description is both the help in an error and the row in docs/peers.md. Relative paths start
at the file's folder.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from seriatim.model import InputError
from seriatim.peers.report import PeersDescription
from seriatim.protocols.vcube import Cube, VCubeOptions
from seriatim.protocols.vcube.cube import IDS_MAX, Id
from seriatim.runtime.places import Place, check_places, read_place
from seriatim.runtime.security import SecurityOptions
from seriatim.runtime.tables import (
    Count,
    Milliseconds,
    check_keys,
    check_table,
    convert_table,
    convert_value,
    fields_of,
    read_toml,
)

CLUSTER_NAME = r"^[A-Za-z0-9][A-Za-z0-9-]{0,31}$"
PAYLOAD_BYTES_MAX = 4 * 1024 * 1024  # half of what fits into a frame


class PeersOptions(Struct, frozen=True, kw_only=True):
    """How peers publish and watch each other."""

    window: Annotated[
        Count, Meta(description="how many publications of one peer may be under way on a topic, 1 or more")
    ] = 256
    heartbeat_ms: Annotated[Milliseconds, Meta(description="milliseconds after which a peer says that it lives")] = (
        500.0
    )
    suspect_after_ms: Annotated[
        Milliseconds, Meta(description="milliseconds of silence after which a peer is declared dead; some heartbeats")
    ] = 5_000.0
    payload_bytes_max: Annotated[
        int, Meta(ge=1, le=PAYLOAD_BYTES_MAX, description=f"the most bytes of one event, up to {PAYLOAD_BYTES_MAX}")
    ] = 1024 * 1024

    @property
    def protocol(self) -> VCubeOptions:
        """What the machines are given."""
        return VCubeOptions(window=self.window, heartbeat_ms=self.heartbeat_ms, suspect_after_ms=self.suspect_after_ms)


class PeersSecurity(Struct, frozen=True, kw_only=True):
    """Who may be a peer."""

    token_file: Annotated[str, Meta(description="the file with the token that all peers share")] = ""
    certificate: Annotated[str, Meta(description="the file with this machine's certificate chain (PEM)")] = ""
    key: Annotated[str, Meta(description="the file with the certificate's key (PEM)")] = ""
    authority: Annotated[str, Meta(description="the file with the certificates that peers are checked against")] = ""
    require_client_certificate: Annotated[
        bool, Meta(description="true, or false to take peers without a certificate")
    ] = False


class PeersConfig(Struct, frozen=True, kw_only=True):
    """All peers of a system, checked. `folder` is where relative paths start; `given`: tokens and certificates that
    were given to the process rather than in the file."""

    cluster: Annotated[str, Meta(pattern=CLUSTER_NAME, description="a name of up to 32 letters, digits and -")] = (
        "seriatim"
    )
    peers: dict[Id, Place]
    journals: Annotated[str, Meta(description="the folder in which each peer remembers its births")] = "journals"
    options: PeersOptions = PeersOptions()
    security: PeersSecurity = PeersSecurity()
    folder: Path = Path()
    given: SecurityOptions | None = None

    def __post_init__(self) -> None:
        check_places("peer", self.peers, '0 = "127.0.0.1:7500"')
        try:
            self.options.protocol  # noqa: B018  its own checks
        except InputError as error:
            raise InputError(f"options.{error.field}", error.problem, error.fix) from None

    @property
    def cube(self) -> Cube:
        """The ids as the machines are given them."""
        return Cube(self.peers)

    @property
    def description(self) -> PeersDescription:
        """What all peers must be given alike."""
        return PeersDescription(
            cluster=self.cluster,
            peers={str(id): place.address for id, place in sorted(self.peers.items())},
            options=to_builtins(self.options),
        )

    def journal(self, id: Id) -> Path:
        """Where a peer remembers its births."""
        return self.folder / self.journals / f"peer-{id}"

    def load_security(self) -> SecurityOptions:
        """Tokens and certificates, read from their files; what the application gave takes their place."""
        try:
            loaded = SecurityOptions.load(**to_builtins(self.security), folder=self.folder)
        except InputError as error:
            raise InputError(f"security.{error.field}", error.problem, error.fix) from None
        return loaded if self.given is None else loaded.overridden(self.given)

    def check_id(self, id: Id) -> Id:
        """The id, which must be a peer's."""
        if id not in self.peers:
            some = ", ".join(str(each) for each in sorted(self.peers)[:10])
            raise InputError("id", f"there is no peer {id} in the list", f"add [peers] {id}, or give one of {some}")
        return id


TABLES: dict[str, type[Struct]] = {"options": PeersOptions, "security": PeersSecurity}


def load_peers(path: Path) -> PeersConfig:
    """The peers described by a file."""
    return parse_peers(read_toml(path, "peers.toml"), path.resolve().parent)


def parse_peers(raw: Mapping[str, Any], folder: Path = Path()) -> PeersConfig:
    """The same from what TOML reads as. `raw` is not changed."""
    given = dict(raw)
    hints = fields_of(PeersConfig)
    check_keys(given, set(hints) - {"folder", "given"}, "")
    peers = check_table(given.pop("peers", None) or {}, "peers", '[peers] and 0 = "host:port"')
    tables = {key: convert_table(TABLES[key], given.pop(key), key) for key in TABLES if key in given}
    return PeersConfig(
        **{key: convert_value(hints[key], value, key) for key, value in given.items()},
        **tables,  # type: ignore[arg-type]
        peers={_id(key): read_place(Place, "peers", key, place) for key, place in peers.items()},
        folder=folder,
    )


def peers_of(description: PeersDescription, folder: Path, given: SecurityOptions) -> PeersConfig:
    """What another peer says of the system, with a folder and certificates of our own."""
    raw = {"cluster": description.cluster, "peers": description.peers, "options": description.options, "journals": "."}
    return replace(parse_peers(raw, folder), given=given)


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _id(key: str) -> Id:
    if not (key.isascii() and key.isdigit()) or int(key) >= IDS_MAX or key != str(int(key)):
        raise InputError(
            f"peers.{key}", "the key is not the id of a peer", f"use whole numbers from 0 to {IDS_MAX - 1}"
        )
    return int(key)
