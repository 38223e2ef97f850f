"""`overlay://` URLs: which broker of an overlay this process is a client of.

overlay://127.0.0.1:7603                       the broker at this address; it is asked for its name
overlay:///etc/ticker/overlay.toml?broker=B3   the broker of this name in this file
overlay://./overlay.toml?broker=B3             ... in this file, from the folder the process runs in
"""

from pathlib import Path

from msgspec import Struct

from seriatim.client.direct.urls import parse_direct_url
from seriatim.client.settings import Settings
from seriatim.live.overlay import load_overlay, observe_broker
from seriatim.model import Address, InputError
from seriatim.runtime.net.security import SecurityOptions

EXAMPLE = 'for example "overlay://127.0.0.1:7600", or "overlay:///etc/ticker/overlay.toml?broker=B3"'


class OverlayUrl(Struct, frozen=True):
    """An address, or a file and the name of a broker in it. Asking for the status needs no name."""

    file: Path | None
    address: str
    broker: Address


class BrokerAt(Struct, frozen=True, kw_only=True):
    """The broker to connect to, and its report about itself."""

    name: Address
    address: str
    cluster: str
    bytes_max: int
    security: SecurityOptions


def parse_overlay_url(url: str) -> OverlayUrl:
    """Parse a URL. InputError: a part is missing, or not allowed."""
    file, address, broker = parse_direct_url(url, option="broker", whom="broker", example=EXAMPLE)
    return OverlayUrl(file, address, broker or "")


async def find_broker(url: OverlayUrl, settings: Settings) -> BrokerAt:
    """Find the broker in the file, or ask it at its address."""
    given = settings.security
    if url.file is not None:
        config = load_overlay(url.file)
        name = config.check_member(url.broker)
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
