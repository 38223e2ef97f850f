"""`seriatim up`: starts a NATS server and a sequencer, for a first try, for tests and for one machine."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from seriatim.brokers.capabilities import BrokerServer, required
from seriatim.brokers.urls import kind_of
from seriatim.cli.common import (
    DEFAULT_CLUSTER,
    DEFAULT_URL,
    OrderChoice,
    run_service,
    service_options,
    show_json,
    write_ready,
)
from seriatim.model import ConnectionFailed, InputError
from seriatim.server.config import ClusterConfig, parse_config, read_plan

if TYPE_CHECKING:
    from seriatim.live.server import SequencerServer

DEFAULT_PORT = 4222
FREE = "127.0.0.1:0"
WATCH_S = 0.5


@click.command
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=DEFAULT_PORT, help="Port of the NATS server; 0: any free one."
)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Keep data here.")
@click.option("--tree", type=click.Path(path_type=Path), help="File with the nodes' parents and the topics' homes.")
@click.option(
    "--mode",
    type=click.Choice(["log", "ticket"]),
    default="log",
    help="Whether the broker's log or the sequencers number events.",
)
@click.option("--order", type=OrderChoice(["global", "pairwise"]), default="global", help="What the cluster promises.")
@click.option("--causal", is_flag=True, hidden=True, help="Not needed any more: the default order is global.")
@click.option("--cluster", default=DEFAULT_CLUSTER, help="Name of the cluster.")
@service_options("warning", "URLs")
def command(
    port: int,
    folder: Path | None,
    tree: Path | None,
    ready_file: Path | None,
    log_level: str,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Start a NATS server and a sequencer, ready to use.

    Everything listens on this machine only and ends with Ctrl-C. Data is kept in a temporary folder that is removed at
    the end, or in --folder, from which the next start continues.

    \b
    Examples:
      seriatim up
      seriatim up --folder data --port 4223
      seriatim up --tree plan.toml                       several nodes, in this process
      seriatim up --port 0 --ready-file up.json          for scripts: any free port

    \b
    Exit code: 0 told to stop, 1 it could not start or has ended by itself, 2 wrong options.
    """
    from seriatim.runtime.logs import configure_logging

    configure_logging(as_json, log_level)
    started: list[BrokerServer] = []

    def kill() -> None:
        for nats in started:
            nats.kill()

    async def up() -> None:
        async with _running(port, folder, tree, wishes, started) as (nats, server):
            ready: dict[str, Any] = {"url": nats.url, "admin": server.admin_url, "nodes": server.addresses}
            ready |= {"folder": str(folder) if folder is not None else None, "pid": os.getpid()}
            write_ready(ready_file, ready)
            if as_json:
                show_json(ready)
            else:
                click.echo("\n".join(_how_to(ready, wishes["cluster"])))
            await _until_ended(nats, server)

    run_service(up, at_once=kill)


@asynccontextmanager
async def _running(
    port: int, folder: Path | None, tree: Path | None, wishes: dict[str, Any], started: list[BrokerServer]
) -> "AsyncIterator[tuple[BrokerServer, SequencerServer]]":
    """Start both servers, and stop them in reverse order, also after an error."""
    from seriatim.live.server import SequencerServer

    plan = read_plan(tree) if tree is not None else {"nodes": {"root": {}}}
    with _folder(folder) as place:
        _config(DEFAULT_URL, plan, place, wishes)  # a mistake in the tree is found before anything runs
        own = kind_of(DEFAULT_URL).server(place / "nats", port)
        nats = required(own, "up", "has no server of its own", "start it yourself, and use `seriatim serve`")
        started.append(nats)
        try:
            await asyncio.to_thread(nats.launch)  # in a thread of the loop's own, which lives as long as the loop
        except ConnectionFailed as error:
            if "address already in use" not in str(error):
                raise
            fix = "stop what uses it, or give another --port (0: any free one)"
            raise ConnectionFailed(f"port {port} is taken; {fix}") from None
        try:
            async with SequencerServer(_config(nats.url, plan, place, wishes)) as server:
                yield nats, server
        finally:
            await nats.stop()


def _config(url: str, plan: dict[str, Any], folder: Path, wishes: dict[str, Any]) -> ClusterConfig:
    nodes = {
        name: {**shape, "address": FREE, "journal": f"file:journal-{name}"} for name, shape in plan["nodes"].items()
    }
    return parse_config({**wishes, **plan, "broker": url, "nodes": nodes, "admin": {"address": FREE}}, folder)


@contextmanager
def _folder(folder: Path | None) -> Iterator[Path]:
    """The folder of all data. Only one `up` at a time may use it."""
    if folder is None:
        with TemporaryDirectory(prefix="seriatim-up-") as name:
            yield Path(name)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise InputError("--folder", f"{str(folder)!r} cannot be used: {error.strerror}", "give another one") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
            problem = f"another `seriatim up` (process {holder}) uses {str(folder)!r}"
            raise InputError("--folder", problem, "stop that one, or give another folder") from None
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        yield folder.resolve()
    finally:
        os.close(lock)


async def _until_ended(nats: BrokerServer, server: "SequencerServer") -> None:
    """Wait until the sequencer or the NATS server ends. Cancel it to stop earlier."""
    running = asyncio.ensure_future(server.run())
    try:
        while nats.running:
            done, _ = await asyncio.wait([running], timeout=WATCH_S)
            if done:
                return running.result()
    finally:
        running.cancel()
    raise ConnectionFailed(f"the NATS server ended by itself; its log is {nats.log_file}")


def _how_to(ready: dict[str, Any], cluster: str) -> list[str]:
    where = "" if ready["url"] == DEFAULT_URL else f" --url {ready['url']}"
    where += "" if cluster == DEFAULT_CLUSTER else f" --cluster {cluster}"
    nodes = ", ".join(f"{name} at {address}" for name, address in ready["nodes"].items())
    return [
        f"NATS server  {ready['url']}",
        f"sequencer    {nodes}",
        f"admin port   {ready['admin']}/status",
        f"data         {ready['folder'] or 'in a temporary folder, removed at the end (--folder keeps it)'}",
        "",
        "Ready; Ctrl-C ends it. In two other terminals:",
        f"  seriatim sub orders prices{where}",
        f'  seriatim pub orders "order 1"{where}',
    ]
