"""`overlay://` URLs: which broker of an overlay this process is a client of.

overlay://127.0.0.1:7603                       the broker at this address; it is asked for its name
overlay:///etc/ticker/overlay.toml?broker=B3   the broker of this name in this file
overlay://./overlay.toml?broker=B3             ... in this file, from the folder the process runs in
"""

from pathlib import Path
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

from seriatim.brokers.urls import split_url
from seriatim.client.peer_urls import given_security
from seriatim.client.settings import Settings
from seriatim.model import Address, InputError
from seriatim.overlay import load_overlay, observe_broker
from seriatim.runtime.addresses import split_address
from seriatim.runtime.security import SecurityOptions

EXAMPLE = 'for example "overlay://127.0.0.1:7600", or "overlay:///etc/ticker/overlay.toml?broker=B3"'


class OverlayUrl(Struct, frozen=True):
    """An address, or a file and the name of a broker in it; who only asks how the brokers are need not name one."""

    file: Path | None
    address: str
    broker: Address


class BrokerAt(Struct, frozen=True, kw_only=True):
    """The broker to be a client of, and what it says of itself."""

    name: Address
    address: str
    cluster: str
    bytes_max: int
    security: SecurityOptions


def parse_overlay_url(url: str) -> OverlayUrl:
    """What a URL says. InputError: it says too much or too little."""
    parts = split_url(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    for key in query.keys() - {"broker"}:
        raise InputError("url", f"there is no {key!r} in an overlay:// URL", "give ?broker= and nothing else")
    if parts.username is not None or parts.password is not None:
        raise InputError("url", "it holds a password", "give it as token=..., or in a token_file")
    place, path = parts.netloc, unquote(parts.path)
    if place in ("", ".", ".."):
        if path.strip("/") == "":
            raise InputError("url", f"{url!r} names neither a file nor a broker", EXAMPLE)
        return OverlayUrl(Path(place) / path.lstrip("/") if place else Path(path), "", query.get("broker", ""))
    if path.strip("/"):
        fix = f'for a file write "overlay://./{place}{path}", or "overlay:///" and its full path'
        raise InputError("url", f"{place!r} is a broker's address, and has no file {path!r}", fix)
    split_address("url", place)
    return OverlayUrl(None, place, query.get("broker", ""))


async def find_broker(url: OverlayUrl, settings: Settings) -> BrokerAt:
    """From the file, or from the broker itself."""
    given = given_security(settings)
    if url.file is not None:
        config = load_overlay(url.file)
        name = config.check_broker(url.broker)
        security = config.client_security()
        return BrokerAt(
            name=name,
            address=config.brokers[name].address,
            cluster=config.cluster,
            bytes_max=config.options.payload_bytes_max,
            security=security.overridden(given) if given is not None else security,
        )
    security = given if given is not None else SecurityOptions()
    report = await observe_broker(url.address, security, settings.timeout_s)
    if url.broker and url.broker != report.broker:
        problem = f"at {url.address} is broker {report.broker!r}, not {url.broker!r}"
        raise InputError("url", problem, "correct the address, or leave out ?broker=")
    return BrokerAt(
        name=report.broker,
        address=url.address,
        cluster=report.system.cluster,
        bytes_max=int(report.system.options["payload_bytes_max"]),
        security=security,
    )
