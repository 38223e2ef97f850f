"""`vcube://` URLs: where the list of peers is, and which of them this process is.

vcube:///etc/chat/peers.toml?id=3     the list is in this file
vcube://./peers.toml?id=3             … in this file, from the folder the process runs in
vcube://127.0.0.1:7500?id=3           … at any running peer (a seed), which is asked for it
"""

from pathlib import Path
from urllib.parse import parse_qsl, unquote

from msgspec import Struct, structs

from seriatim.brokers.urls import split_url
from seriatim.client.settings import Settings
from seriatim.model import InputError
from seriatim.peers.config import PeersConfig, load_peers, peers_of
from seriatim.peers.observing import observe
from seriatim.protocols.vcube.cube import IDS_MAX, Id
from seriatim.runtime.addresses import split_address
from seriatim.runtime.security import SecurityOptions

EXAMPLE = 'for example "vcube:///etc/chat/peers.toml?id=3", or "vcube://127.0.0.1:7500?id=3" to ask a running peer'


class PeerUrl(Struct, frozen=True):
    """A file or a seed, and an id; `id` None: who only asks how the peers are need not be one."""

    file: Path | None
    seed: str
    id: Id | None


def parse_peer_url(url: str) -> PeerUrl:
    """What a URL says. InputError: it says too much or too little."""
    parts = split_url(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    for key in query.keys() - {"id"}:
        raise InputError("url", f"there is no {key!r} in a vcube:// URL", "give ?id= and nothing else")
    id = _id(query["id"]) if "id" in query else None
    if parts.username is not None or parts.password is not None:
        raise InputError("url", "it holds a password", "give it as token=..., or in a token_file")
    place, path = parts.netloc, unquote(parts.path)
    if place in ("", ".", ".."):
        if path.strip("/") == "":
            raise InputError("url", f"{url!r} names neither a file nor a peer", EXAMPLE)
        return PeerUrl(Path(place) / path.lstrip("/") if place else Path(path), "", id)
    if path.strip("/"):
        fix = f'for a file write "vcube://./{place}{path}", or "vcube:///" and its full path'
        raise InputError("url", f"{place!r} is a peer's address, and has no file {path!r}", fix)
    split_address("url", place)
    return PeerUrl(None, place, id)


def _id(text: str) -> Id:
    if not (text.isascii() and text.isdigit()) or int(text) >= IDS_MAX:
        raise InputError("url", f"id={text} is not the id of a peer", f"give a whole number from 0 to {IDS_MAX - 1}")
    return int(text)


def given_security(settings: Settings) -> SecurityOptions | None:
    """Token and TLS as the application gave them; None: it gave none."""
    if settings.token is None and not settings.tls:
        return None
    tls = settings.tls
    security = tls if isinstance(tls, SecurityOptions) else SecurityOptions(tls=bool(tls))
    return structs.replace(security, token=settings.token) if settings.token is not None else security


async def find_peers(url: PeerUrl, settings: Settings) -> PeersConfig:
    """The list, from its file or from the seed."""
    given = given_security(settings)
    if url.file is not None:
        config = load_peers(url.file)
        return structs.replace(config, given=given) if given is not None else config
    security = given if given is not None else SecurityOptions()
    report = await observe(url.seed, security, settings.timeout_s)
    return peers_of(report.system, Path(), security)
