"""`seriatim peer`: run one peer of VCube-PS: hold topics, relay, print events."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from seriatim.cli.common import (
    Client,
    log_option,
    names_in,
    peer_options,
    run_service,
    service_options,
    show_json,
    write_ready,
)
from seriatim.cli.output import Output
from seriatim.cli.sub import Shown, print_events
from seriatim.model import InputError

if TYPE_CHECKING:
    from seriatim.client.peers.session import PeerSession


@click.command
@click.option("--id", "id", type=click.IntRange(min=0), required=True, help="Which peer this process is.")
@click.option("--peers", "path", type=click.Path(path_type=Path), help="The list of peers (peers.toml).")
@click.option("--seed", metavar="HOST:PORT", help="Address of any running peer, to fetch the list from.")
@click.option(
    "--journals",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the journal.  [default: as in peers.toml; with --seed ~/.local/state/seriatim/peers]",
)
@click.option("--topics", metavar="TOPIC,...", help="Hold these topics, and print their events.")
@log_option("Write the delivery log here, for audit.")
@peer_options
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    help="Seconds that finding the seed, joining and leaving may take.",
)
@service_options("warning", "address and the life", check="Only check the file.")
def command(
    id: int,
    path: Path | None,
    seed: str | None,
    journals: Path | None,
    topics: str | None,
    folder: str | None,
    timeout_s: float,
    ready_file: Path | None,
    check: bool,
    log_level: str,
    as_json: bool,
    **files: Any,
) -> None:
    """Run one peer, without a broker.

    Peers that hold a topic get each other's events in causal order: a reaction never comes before what it reacts to.
    Each peer is given the same peers.toml and its own id, or the address of any running peer, which has the list. The
    peer prints the events of --topics as they come; without topics it only relays. See docs/peers.md.

    \b
    Examples:
      seriatim peer --id 3 --peers peers.toml --topics chat,news
      seriatim peer --id 3 --seed 127.0.0.1:7500 --journals state --topics chat
      seriatim peer --id 3 --peers peers.toml --check

    \b
    Exit code: 0 stopped by a signal, after it has left its topics; 1 it cannot continue (another process has its id,
               port or journal); 2 wrong options or a wrong file.
    """
    from seriatim.live.peers import load_peers
    from seriatim.runtime.logs import configure_logging

    names = names_in(topics or "")
    if (path is None) == (seed is None):
        raise InputError("--peers", "give either a list or a seed", "use --peers or --seed")
    if path is not None:
        config = load_peers(path)
        config.check_member(id)
        config.load_security()
    if check:
        click.echo(f"peer {id}: {path} is fine" if path is not None else f"peer {id}: asks {seed}")
        return
    configure_logging(as_json, log_level)
    url = f"vcube://{path.resolve() if path is not None else seed}?id={id}"
    client = Client(url=url, timeout_s=timeout_s, **files)

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(client.connect(journals=journals, publication_log=folder))
            events = await stack.enter_async_context(bus.subscribe(*names, log=folder)) if names else None
            live = cast("PeerSession", bus.session).live
            row = {"id": live.id, "life": live.name, "address": live.address}
            write_ready(ready_file, row)
            if as_json:
                show_json({"ready": True, **row, "topics": names})
            else:
                held = ", ".join(names) or "no topic"
                click.echo(f"peer {id} listens on {live.address}, life {live.name}, holds {held}", err=True)
            if events is None:
                raise await asyncio.shield(live.failed)  # a signal cancels the wait, not the peer
            await print_events(Output(events), None, None, Shown(False, False, as_json))

    run_service(serve)
