"""Ask peers (vcube://) and the brokers of an overlay (overlay://) how they are, each at its own address."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from seriatim.cli.common import Files, load_security, run_until_interrupted
from seriatim.client.overlay.urls import parse_overlay_url
from seriatim.client.peers.urls import parse_peer_url
from seriatim.live.overlay.config import BrokerReport, load_overlay, observe_broker
from seriatim.live.peers import PeerReport, load_peers, observe
from seriatim.model import ConnectionFailed, RemoteError
from seriatim.runtime.net.security import SecurityOptions

Name: TypeAlias = int | str  # the id of a peer, the name of a broker
Addresses: TypeAlias = dict[Name, str]


class ProcessAnswer(NamedTuple):
    """The report of one process; or in `report` a sentence that says why there is none."""

    name: Name
    address: str
    report: Any


def ask_processes(url: str, files: Files, timeout_s: float) -> "tuple[Kind, list[ProcessAnswer]]":
    """Ask all processes that the URL leads to. Files given as options take precedence, as in `connect`."""
    kind = KINDS[url.partition(":")[0]]
    given = load_security(files) if any(files.values()) else None

    async def ask() -> list[ProcessAnswer]:
        addresses, security = await kind.find(url, given, timeout_s)
        return list(await asyncio.gather(*(_ask(kind, *each, security, timeout_s) for each in addresses.items())))

    return kind, run_until_interrupted(ask)


async def _ask(kind: "Kind", name: Name, address: str, security: SecurityOptions, timeout_s: float) -> ProcessAnswer:
    try:
        report = await kind.observe(address, security, timeout_s)
    except (ConnectionFailed, RemoteError) as error:
        return ProcessAnswer(name, address, str(error))
    own: Name = getattr(report, kind.name_field)
    if name not in ("", own):
        return ProcessAnswer(name, address, f"{kind.word} {own} answers at the address of {kind.word} {name}")
    return ProcessAnswer(own, address, report)


async def _find_peers(url: str, given: SecurityOptions | None, timeout_s: float) -> tuple[Addresses, SecurityOptions]:
    place = parse_peer_url(url)
    if place.file is not None:
        config = load_peers(place.file)
        security = given if given is not None else config.load_security()
        return {id: config.peers[id].address for id in sorted(config.peers)}, security
    security = given if given is not None else SecurityOptions()
    peers = (await observe(place.seed, security, timeout_s)).system.peers
    return {int(id): peers[id] for id in sorted(peers, key=int)}, security


async def _find_brokers(url: str, given: SecurityOptions | None, timeout_s: float) -> tuple[Addresses, SecurityOptions]:
    place = parse_overlay_url(url)
    if place.file is None:
        return {place.broker: place.address}, given if given is not None else SecurityOptions()
    config = load_overlay(place.file)
    names = [config.check_member(place.broker)] if place.broker else list(config.brokers)
    security = given if given is not None else config.client_security()
    return {name: config.brokers[name].address for name in names}, security


def _peer_rows(answers: Sequence[ProcessAnswer]) -> list[tuple[str, ...]]:
    reports = [answer.report for answer in answers if isinstance(answer.report, PeerReport)]
    presumed_dead = {int(id) for report in reports for id, status in report.statuses.items() if status % 2}
    rows: list[tuple[str, ...]] = []
    for id, address, report in answers:
        if isinstance(report, PeerReport):
            connected = f"{len(report.connected)} of {len(answers) - 1}"
            waits = str(len(report.waits) + report.left_out)
            rows.append((str(id), "alive", report.life, address, connected, ", ".join(report.topics), waits))
        else:
            rows.append((str(id), "dead" if id in presumed_dead else "silent", "", address, "", "", report))
    return rows


def _broker_row(name: Any, address: str, report: BrokerReport | str) -> tuple[str, ...]:
    if isinstance(report, str):
        return (name, "silent", "", address, "", "", "", "", report)
    parents = report.system.parents
    neighbours = (parents[name] != "") + sum(parent == name for parent in parents.values())
    counts = (report.clients, report.subscriptions, report.advertisements, len(report.waits) + report.left_out)
    connected = f"{len(report.connected)} of {neighbours}"
    return (name, "alive", str(report.epoch), address, connected, *(f"{count:,}" for count in counts))


class Kind(NamedTuple):
    """How to find and ask one kind of processes, and what `seriatim status` shows of them."""

    word: str
    name_field: str  # of a report
    find: Callable[[str, SecurityOptions | None, float], Awaitable[tuple[Addresses, SecurityOptions]]]
    observe: Callable[[str, SecurityOptions, float], Awaitable[Any]]
    headings: tuple[str, ...]
    rows: Callable[[Sequence[ProcessAnswer]], list[tuple[str, ...]]]


KINDS = {
    "vcube": Kind(
        word="peer",
        name_field="id",
        find=_find_peers,
        observe=observe,
        headings=("peer", "state", "life", "address", "connected", "topics", "waits"),
        rows=_peer_rows,
    ),
    "overlay": Kind(
        word="broker",
        name_field="broker",
        find=_find_brokers,
        observe=observe_broker,
        headings=(
            *("broker", "state", "epoch", "address", "connected"),
            *("clients", "subscriptions", "advertisements", "waits"),
        ),
        rows=lambda answers: [_broker_row(*answer) for answer in answers],
    ),
}
