"""`seriatim peer`: run one peer of VCube-PS: hold topics, relay, print events."""

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from seriatim.cli.common import (
    json_option,
    log_option,
    peer_journals,
    peer_options,
    run_service,
    show_json,
    write_whole,
)
from seriatim.cli.sub import print_events
from seriatim.model import InputError

HELP = """Run one peer, without a broker.

Peers that hold a topic get each other's events in causal order: a reaction never comes before what it reacts to. Each
peer is given the same peers.toml and its own id, or the address of any running peer, which has the list. The peer
prints the events of --topics as they come; without topics it only relays. See docs/peers.md.

\b
Examples:
  seriatim peer --id 3 --peers peers.toml --topics chat,news
  seriatim peer --id 3 --seed 127.0.0.1:7500 --journals state --topics chat
  seriatim peer --id 3 --peers peers.toml --check

\b
Exit code: 0 stopped by a signal, after it has left its topics; 1 it cannot go on (another process has its id, port or
           journal); 2 wrong options or a wrong file.
"""


@click.command(help=HELP)
@click.option("--id", "id", type=click.IntRange(min=0), required=True, help="Which peer this process is.")
@click.option("--peers", "path", type=click.Path(path_type=Path), help="The list of peers (peers.toml).")
@click.option("--seed", metavar="HOST:PORT", help="Any running peer; it is asked for the list.")
@click.option(
    "--journals",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the journal.  [default: as in peers.toml; with --seed ~/.local/state/seriatim/peers]",
)
@click.option("--topics", default="", metavar="TOPIC,...", help="Hold these topics, and print their events.")
@click.option(
    "--log",
    "folder",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Write the delivery log here, for audit.",
)
@peer_options
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds that finding the seed, joining and leaving may take.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the address and the life here when ready.",
)
@click.option("--check", is_flag=True, help="Only check the file.")
@log_option("warning")
@json_option
def command(
    id: int,
    path: Path | None,
    seed: str | None,
    journals: Path | None,
    topics: str,
    folder: str | None,
    timeout_s: float,
    ready_file: Path | None,
    check: bool,
    log_level: str,
    as_json: bool,
    **files: Any,
) -> None:
    """Run one peer, without a broker."""
    from seriatim import connect
    from seriatim.runtime.logs import configure_logging
    from seriatim.runtime.net.security import SecurityOptions

    names = [name for name in topics.split(",") if name]
    if (path is None) == (seed is None):
        raise InputError("--peers", "give either a list or a seed", "use --peers or --seed")
    if path is not None:
        _check_file(path, id)
    if check:
        click.echo(f"peer {id}: {path} is fine" if path is not None else f"peer {id}: asks {seed}")
        return
    configure_logging(as_json, log_level)
    given: dict[str, Any] = {name: value or "" for name, value in files.items()}
    security = SecurityOptions.load(**given)
    url = f"vcube://{path.resolve()}?id={id}" if path is not None else f"vcube://{seed}?id={id}"

    async def serve() -> None:
        bus = connect(
            url,
            journals=journals if journals is not None else peer_journals(url),
            timeout_s=timeout_s,
            token=security.token or None,
            tls=security if security.encrypted else None,
            publication_log=folder,
        )
        async with bus:
            if not names:
                _say_ready(bus, names, ready_file, as_json)
                await _until_failed(bus)
                return
            async with bus.subscribe(*names, log=folder) as events:
                _say_ready(bus, names, ready_file, as_json)
                await print_events(events, None, None, False, as_json)

    run_service(serve)


def _check_file(path: Path, id: int) -> None:
    from seriatim.live.peers import load_peers

    config = load_peers(path)
    config.check_member(id)
    config.load_security()


def _say_ready(bus: Any, topics: list[str], ready_file: Path | None, as_json: bool) -> None:
    live = bus.session.live
    if ready_file is not None:  # first: the file is there when the peer says that it is ready
        write_whole(ready_file, {"id": live.id, "life": live.name, "address": live.address, "pid": os.getpid()})
    if as_json:
        row = {"ready": True, "id": live.id, "life": live.name, "address": live.address, "topics": topics}
        show_json(row)
    else:
        held = f", holds {', '.join(topics)}" if topics else ", holds no topic"
        click.echo(f"peer {live.id} listens on {live.address}, life {live.name}{held}", err=True)


async def _until_failed(bus: Any) -> None:
    """Shielded: a signal cancels the wait, not the future, or the peer would look failed."""
    raise await asyncio.shield(bus.session.live.failed)
