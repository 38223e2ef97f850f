"""`seriatim broker`: run one broker of an overlay that filters by content."""

import asyncio
from pathlib import Path

import click

from seriatim.cli.common import run_service, service_options, show_json, write_ready


@click.command
@click.option("--config", "path", type=click.Path(path_type=Path), required=True, help="The overlay's file.")
@click.option("--id", "id", required=True, metavar="NAME", help="Which broker this process is.")
@click.option(
    "--admin", metavar="HOST:PORT", help="Listen here for /health, /ready, /live, /metrics, /status and /explain."
)
@service_options("warning", "address", check="Only check the file.")
def command(
    path: Path, id: str, admin: str | None, ready_file: Path | None, check: bool, log_level: str, as_json: bool
) -> None:
    """Run one broker of an overlay that filters by content.

    Brokers form a tree. Clients publish and subscribe at any of them; subscribers whose filters match the same events
    are notified of them in the same order. Each broker is given the same overlay.toml and its own id. It keeps a
    journal, and continues from it when it is started again. See docs/overlay.md.

    \b
    Examples:
      seriatim broker --config overlay.toml --id B3
      seriatim broker --config overlay.toml --id B3 --admin 127.0.0.1:9603
      seriatim broker --config overlay.toml --id B3 --check

    \b
    Exit code: 0 stopped by a signal; 1 it cannot continue (another process has its port or its journal);
               2 wrong options or a wrong file.
    """
    from seriatim.live.overlay import LiveBroker, load_overlay
    from seriatim.live.overlay.admin import open_admin
    from seriatim.runtime.logs import configure_logging

    config = load_overlay(path)
    config.check_member(id)
    security = config.load_security()
    if check:
        click.echo(f"broker {id}: {path} is fine")
        return
    configure_logging(as_json, log_level)

    async def serve() -> None:
        broker = LiveBroker(config, id)
        server = open_admin(broker, admin, security) if admin is not None else None
        try:
            await broker.start()
            if server is not None:
                await server.start()
            row = {"broker": broker.name, "address": broker.address, "epoch": broker.epoch}
            row["admin"] = server.url if server is not None else None
            write_ready(ready_file, row)
            if as_json:
                show_json({"ready": True, **row})
            else:
                below = f"below {broker.place.parent}" if broker.place.parent is not None else "the root"
                where = f"listens on {broker.address}, epoch {broker.epoch}"
                click.echo(f"broker {broker.name} ({below}) {where}", err=True)
            raise await asyncio.shield(broker.failed)  # a signal cancels the wait, not the broker
        finally:
            if server is not None:
                await server.stop()
            await broker.stop()

    run_service(serve)
