"""`seriatim status` and `seriatim explain` on vcube:// URLs: every peer is asked itself, at its address in the list."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from seriatim.cli.common import run_until_interrupted, show_json
from seriatim.cli.tables import table
from seriatim.model import ConnectionFailed, InputError, RemoteError
from seriatim.peers import PeerReport, load_peers, observe
from seriatim.runtime.security import SecurityOptions

EXIT_SILENT = 1
COLOURS = {"alive": "green", "dead": "red", "silent": "red"}
HEADINGS = ("peer", "state", "life", "address", "connected", "topics", "waits")

Files = Mapping[str, str | None]  # what `peer_options` were given
Asked = tuple[int, str, PeerReport | str]  # id, address, its report or why there is none


def is_peers(url: str) -> bool:
    """Whether this is about peers, not about a cluster of sequencers."""
    return url.startswith("vcube:")


def check_no_files(files: Files) -> None:
    """A cluster of sequencers is asked over its broker, where they would have no effect."""
    for name, value in files.items():
        if value is not None:
            option = "--" + name.replace("_", "-")
            raise InputError(option, "is for peers, and a cluster is asked over its broker", "leave it out")


def show_peers(url: str, files: Files, timeout_s: float, as_json: bool) -> int:
    """Each peer in one line. The exit code: 0 all have answered."""
    answers = _ask_all(url, files, timeout_s)
    held_for_dead = _held_for_dead([report for _, _, report in answers if isinstance(report, PeerReport)])
    rows = []
    for id, address, report in answers:
        if not isinstance(report, PeerReport):
            rows.append((str(id), "dead" if id in held_for_dead else "silent", "", address, "", "", report))
            continue
        others = len(answers) - 1
        waits = str(len(report.waits) + report.left_out)
        connected = f"{len(report.connected)} of {others}"
        rows.append((str(id), "alive", report.life, address, connected, ", ".join(report.topics), waits))
    if as_json:
        for row in rows:
            show_json(dict(zip(HEADINGS, row, strict=True)))
    else:
        for line in table(HEADINGS, rows, COLOURS):
            click.echo(line)
    return _exit_code(answers)


def explain_peers(url: str, files: Files, timeout_s: float, as_json: bool) -> int:
    """What each peer waits for. The exit code: 0 all have answered."""
    answers = _ask_all(url, files, timeout_s)
    for id, _, report in answers:
        if isinstance(report, PeerReport):
            lines = list(report.waits)
            if report.left_out:
                lines.append(f"and {report.left_out:,} more")
        else:
            lines = [report]
        if as_json:
            for line in lines:
                show_json({"peer": id, "waits": line})
        else:
            for line in lines or ["nothing waits"]:
                click.echo(f"peer {id}: {line}")
    return _exit_code(answers)


def _ask_all(url: str, files: Files, timeout_s: float) -> list[Asked]:
    """Files that are given count more than those that peers.toml names, as in `connect`."""
    from seriatim.client.peer_urls import parse_peer_url  # lazily: most clusters are none of peers

    place = parse_peer_url(url)
    options: dict[str, Any] = {name: value or "" for name, value in files.items()}
    given = SecurityOptions.load(**options)

    async def ask() -> list[Asked]:
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


async def _ask(id: int, address: str, security: SecurityOptions, timeout_s: float) -> Asked:
    try:
        report = await observe(address, security, timeout_s)
    except (ConnectionFailed, RemoteError) as error:
        return id, address, str(error)
    if report.id != id:
        return id, address, f"peer {report.id} answers at the address of peer {id}"
    return id, address, report


def _held_for_dead(reports: Sequence[PeerReport]) -> set[int]:
    """By anybody who answers."""
    return {int(id) for report in reports for id, status in report.statuses.items() if status % 2}


def _exit_code(answers: Sequence[Asked]) -> int:
    return EXIT_SILENT if any(isinstance(report, str) for _, _, report in answers) else 0
