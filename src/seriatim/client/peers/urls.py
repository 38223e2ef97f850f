"""`vcube://` URLs: where the list of peers is, and which of them this process is.

vcube:///etc/chat/peers.toml?id=3     the list is in this file
vcube://./peers.toml?id=3             … in this file, from the folder the process runs in
vcube://127.0.0.1:7500?id=3           … at any running peer (a seed), which is asked for it
"""

from pathlib import Path

from msgspec import Struct, structs

from seriatim.client.direct.urls import parse_direct_url
from seriatim.client.settings import Settings
from seriatim.live.peers.config import PeersConfig, load_peers, observe, peers_of
from seriatim.model import InputError
from seriatim.protocols.vcube.cube import IDS_MAX, Id
from seriatim.runtime.net.security import SecurityOptions

EXAMPLE = 'for example "vcube:///etc/chat/peers.toml?id=3", or "vcube://127.0.0.1:7500?id=3" to ask a running peer'


class PeerUrl(Struct, frozen=True):
    """A file or a seed, and an id. `id` None: only ask for the status of the peers."""

    file: Path | None
    seed: str
    id: Id | None


def parse_peer_url(url: str) -> PeerUrl:
    """Parse a URL. InputError: a part is missing, or not allowed."""
    file, seed, id = parse_direct_url(url, option="id", whom="peer", example=EXAMPLE)
    return PeerUrl(file, seed, _id(id) if id is not None else None)


def _id(text: str) -> Id:
    if not (text.isascii() and text.isdigit()) or int(text) >= IDS_MAX:
        raise InputError("url", f"id={text} is not the id of a peer", f"give a whole number from 0 to {IDS_MAX - 1}")
    return int(text)


async def find_peers(url: PeerUrl, settings: Settings) -> PeersConfig:
    """Read the list from its file, or ask the seed for it."""
    given = settings.security
    if url.file is not None:
        config = load_peers(url.file)
        return structs.replace(config, given=given) if given is not None else config
    security = given if given is not None else SecurityOptions()
    report = await observe(url.seed, security, settings.timeout_s)
    return peers_of(report.system, Path(), security)
