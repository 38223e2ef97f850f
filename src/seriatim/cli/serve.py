"""`seriatim serve`: run sequencer nodes of a cluster, as its file describes them."""

from pathlib import Path

import click
import msgspec

from seriatim.brokers.urls import open_broker
from seriatim.cli.common import (
    check_outlives,
    notice,
    run_service,
    run_until_interrupted,
    service_options,
    show_json,
    write_ready,
)
from seriatim.model import InputError, RequestRefused
from seriatim.server.config import ClusterConfig, lacks_node_token, load_config
from seriatim.server.config_text import config_text
from seriatim.server.layout import Layout, in_force, of_config


@click.command
@click.option("--config", "path", type=click.Path(path_type=Path), required=True, help="The cluster's file.")
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="Run this node; may be repeated.")
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    help="A plan whose parents and homes take precedence, for new topics; `apply` moves existing ones.",
)
@click.option(
    "--standby",
    "place",
    is_flag=False,
    flag_value="1",
    type=click.IntRange(min=1),
    metavar="[NUMBER]",
    help="Wait, and take over when the active process falls silent; listens on the node's second address (2: third).",
)
@click.option(
    "--heal",
    is_flag=True,
    help="Let a node that has lost its journal continue without it. What was under way through it becomes a gap.",
)
@click.option(
    "--admin", metavar="HOST:PORT", help="Listen here for /health, /ready, /live, /metrics, /status and /explain."
)
@service_options("info", "addresses", check="Only check the file, and show it with all defaults.")
def command(
    path: Path,
    nodes: tuple[str, ...],
    plan: Path | None,
    place: int | None,
    heal: bool,
    admin: str | None,
    ready_file: Path | None,
    check: bool,
    log_level: str,
    as_json: bool,
) -> None:
    """Run sequencer nodes of a cluster.

    The file names the broker, the nodes and their addresses; every process of the cluster is given the same file.
    Without --node this process runs all nodes. SIGTERM or Ctrl-C stops it in an orderly way, a second one immediately.

    \b
    Examples:
      seriatim serve --config cluster.toml
      seriatim serve --config cluster.toml --check
      seriatim serve --config cluster.toml --node eu
      seriatim serve --config cluster.toml --node root --standby

    \b
    Exit code: 0 stopped by a signal, 1 no node is left (the last line says why), 2 wrong options or a wrong file.
    """
    from seriatim.live.atoms.plan import read_atoms_plan
    from seriatim.live.plan_check import compare_with_broker
    from seriatim.live.server import SequencerServer, check_server
    from seriatim.runtime.logs import configure_logging

    atoms = read_atoms_plan(plan) if plan is not None else None
    config = load_config(path, plan if atoms is None else None)
    if atoms is not None and config.order != "atoms":
        problem = "is a plan of atoms, and the cluster orders by a tree"
        raise InputError("--plan", problem, 'set order = "atoms", or plan a tree')
    if admin is not None:
        config = msgspec.structs.replace(config, admin=msgspec.structs.replace(config.admin, address=admin))
    check_outlives(config.broker, "broker")
    try:
        check_server(config, nodes or None, place or 0)
    except InputError as lack:
        if check or not _may_be_registered(lack):
            raise
        config = _as_registered(config, lack)
        check_server(config, nodes or None, place or 0)
    if check:
        if lacks_node_token(config):
            click.echo("Warning: security.node_token_file is missing, so all nodes must run in one process", err=True)
        if as_json:
            show_json(msgspec.to_builtins(config, enc_hook=str))
        else:
            click.echo(config_text(config), nl=False)
        return
    configure_logging(as_json, log_level)

    async def serve() -> None:
        if plan is not None and atoms is None:
            await compare_with_broker(config, plan)
        async with SequencerServer(config, nodes or None, place=place or 0, plan=atoms, heals=heal) as server:
            write_ready(ready_file, {"nodes": server.addresses, "admin": server.admin_url})
            await server.run()

    run_service(serve)


def _may_be_registered(error: InputError) -> bool:
    """Whether the file lacks the node or the standby: a command may have added it since the file was written."""
    return error.field == "--node" or "there is no standby" in error.problem


def _as_registered(config: ClusterConfig, lack: InputError) -> ClusterConfig:
    """The file with what commands have changed since. Raises what it lacks, if the cluster lacks it too."""
    from seriatim.live.agreement import registered
    from seriatim.live.server import broker_options

    async def read() -> Layout | None:
        broker = open_broker(config.broker, **broker_options(config))
        await broker.open()
        try:
            return await registered(broker, config.cluster)
        except RequestRefused:
            return None
        finally:
            await broker.close()

    layout = run_until_interrupted(read)
    if layout is None or layout.since(of_config(config).parents) is None:
        raise lack
    fix = "`seriatim layout --config FILE --out FILE` writes the file as it is now"
    notice(f"the file is older than the layout of cluster {config.cluster}: {lack.problem}; {fix}")
    return in_force(config, layout)
