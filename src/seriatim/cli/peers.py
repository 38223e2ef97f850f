"""`seriatim status` and `seriatim explain` on vcube:// URLs: ask every peer at its address in the list."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from seriatim.cli.answers import Asked, Files, exit_code, explain_answers, show_rows
from seriatim.cli.common import run_until_interrupted
from seriatim.live.peers import PeerReport, load_peers, observe
from seriatim.model import ConnectionFailed, InputError, RemoteError
from seriatim.runtime.net.security import SecurityOptions

COLOURS = {"alive": "green", "dead": "red", "silent": "red"}
HEADINGS = ("peer", "state", "life", "address", "connected", "topics", "waits")

Answer: TypeAlias = Asked[int, PeerReport]


def is_peers(url: str) -> bool:
    """Whether this is the URL of peers."""
    return url.startswith("vcube:")


def check_no_files(files: Files) -> None:
    """Refuse files that have no effect: a cluster of sequencers is asked over its broker."""
    for name, value in files.items():
        if value is not None:
            option = "--" + name.replace("_", "-")
            raise InputError(option, "is only for peers and overlays", "leave it out")


def show_peers(url: str, files: Files, timeout_s: float, as_json: bool) -> int:
    """Show each peer in one line. The exit code is 0 if all have answered."""
    answers = _ask_all(url, files, timeout_s)
    presumed_dead = _presumed_dead([report for _, _, report in answers if isinstance(report, PeerReport)])
    rows = []
    for id, address, report in answers:
        if not isinstance(report, PeerReport):
            rows.append((str(id), "dead" if id in presumed_dead else "silent", "", address, "", "", report))
            continue
        others = len(answers) - 1
        waits = str(len(report.waits) + report.left_out)
        connected = f"{len(report.connected)} of {others}"
        rows.append((str(id), "alive", report.life, address, connected, ", ".join(report.topics), waits))
    show_rows(HEADINGS, rows, COLOURS, as_json)
    return exit_code(answers)


def explain_peers(url: str, files: Files, timeout_s: float, as_json: bool) -> int:
    """Show what each peer waits for. The exit code is 0 if all have answered."""
    return explain_answers("peer", _ask_all(url, files, timeout_s), as_json)


def _ask_all(url: str, files: Files, timeout_s: float) -> list[Answer]:
    """Files given as options take precedence over those in peers.toml, as in `connect`."""
    from seriatim.client.peers.urls import parse_peer_url  # only if it is needed

    place = parse_peer_url(url)
    options: dict[str, Any] = {name: value or "" for name, value in files.items()}
    given = SecurityOptions.load(**options)

    async def ask() -> list[Answer]:
        if place.file is not None:
            config = load_peers(Path(place.file))
            security = given if any(files.values()) else config.load_security()
            addresses = {id: each.address for id, each in config.peers.items()}
        else:
            security = given
            report = await observe(place.seed, security, timeout_s)
            addresses = {int(id): address for id, address in report.system.peers.items()}
        return list(
            await asyncio.gather(*(_ask(id, address, security, timeout_s) for id, address in sorted(addresses.items())))
        )

    return run_until_interrupted(ask)


async def _ask(id: int, address: str, security: SecurityOptions, timeout_s: float) -> Answer:
    try:
        report = await observe(address, security, timeout_s)
    except (ConnectionFailed, RemoteError) as error:
        return id, address, str(error)
    if report.id != id:
        return id, address, f"peer {report.id} answers at the address of peer {id}"
    return id, address, report


def _presumed_dead(reports: Sequence[PeerReport]) -> set[int]:
    """The peers that any of those that answered presumes dead."""
    return {int(id) for report in reports for id, status in report.statuses.items() if status % 2}
