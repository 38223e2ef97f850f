"""`seriatim broker`: run one broker of an overlay that filters by content."""

import asyncio
import os
from pathlib import Path

import click

from seriatim.cli.common import json_option, log_option, run_service, show_json, write_whole

HELP = """Run one broker of an overlay that filters by content.

Brokers form a tree. Clients publish and subscribe at any of them; subscribers whose filters match the same events are
notified of them in the same order. Each broker is given the same overlay.toml and its own id. It keeps a journal, and
goes on from it when it is started again. See docs/overlay.md.

\b
Examples:
  seriatim broker --config overlay.toml --id B3
  seriatim broker --config overlay.toml --id B3 --admin 127.0.0.1:9603
  seriatim broker --config overlay.toml --id B3 --check

\b
Exit code: 0 stopped by a signal; 1 it cannot go on (another process has its port or its journal);
           2 wrong options or a wrong file.
"""


@click.command(help=HELP)
@click.option("--config", "path", type=click.Path(path_type=Path), required=True, help="The overlay's file.")
@click.option("--id", "id", required=True, metavar="NAME", help="Which broker this process is.")
@click.option("--admin", metavar="HOST:PORT", help="Listen here for /metrics, /status, /explain and /health.")
@click.option(
    "--ready-file", type=click.Path(path_type=Path, dir_okay=False), help="Write the address here when ready."
)
@click.option("--check", is_flag=True, help="Only check the file.")
@log_option("warning")
@json_option
def command(
    path: Path, id: str, admin: str | None, ready_file: Path | None, check: bool, log_level: str, as_json: bool
) -> None:
    """Run one broker of an overlay that filters by content."""
    from seriatim.live.overlay import LiveBroker, load_overlay
    from seriatim.runtime.logs import configure_logging

    config = load_overlay(path)
    config.check_member(id)
    security = config.load_security()
    if check:
        click.echo(f"broker {id}: {path} is fine")
        return
    configure_logging(as_json, log_level)

    async def serve() -> None:
        from seriatim.live.overlay.admin import open_admin

        broker = LiveBroker(config, id)
        server = open_admin(broker, admin, security) if admin is not None else None
        try:
            await broker.start()
            if server is not None:
                await server.start()
            _say_ready(broker, server.url if server is not None else None, ready_file, as_json)
            raise await asyncio.shield(broker.failed)  # a signal cancels the wait, not the broker
        finally:
            if server is not None:
                await server.stop()
            await broker.stop()

    run_service(serve)


def _say_ready(broker: object, admin: str | None, ready_file: Path | None, as_json: bool) -> None:
    from seriatim.live.overlay import LiveBroker

    assert isinstance(broker, LiveBroker)
    row = {"broker": broker.name, "address": broker.address, "epoch": broker.epoch, "admin": admin}
    if ready_file is not None:  # first: the file is there when the broker says that it is ready
        write_whole(ready_file, {**row, "pid": os.getpid()})
    if as_json:
        show_json({"ready": True, **row})
    else:
        below = f"below {broker.place.parent}" if broker.place.parent is not None else "the root"
        click.echo(f"broker {broker.name} ({below}) listens on {broker.address}, epoch {broker.epoch}", err=True)
