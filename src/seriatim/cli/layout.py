"""`seriatim layout`: the file of a cluster, as the cluster is now."""

from pathlib import Path

import click
import msgspec
from msgspec import structs

from seriatim.brokers.urls import open_broker
from seriatim.cli.cluster import find_cluster
from seriatim.cli.common import json_option, notice, run_until_interrupted, show_json, url_option, write_whole
from seriatim.live.agreement import registered
from seriatim.live.server import broker_options
from seriatim.model import InputError
from seriatim.server.config import ClusterConfig, load_config, parse_config
from seriatim.server.config_text import brief_text
from seriatim.server.description import ClusterDescription
from seriatim.server.layout import Layout, in_force, of_config


@click.command
@click.option(
    "--config", "path", type=click.Path(path_type=Path, dir_okay=False), help="The cluster's file, as it was written."
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the file there, instead of printing it."
)
@url_option
@json_option
def command(path: Path | None, out: Path | None, url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """Print the file of a cluster, as the cluster is now.

    Nodes, parents and addresses are those that are registered on the broker: commands may have changed them since the
    file was written. With --config everything else is as in that file, and its broker is asked; without it, as the
    cluster describes itself: times, limits and files of tokens are not told there. Comments are not kept; what --out
    replaces is kept as FILE.before.

    \b
    Examples:
      seriatim layout --config cluster.toml
      seriatim layout --config cluster.toml --out cluster.toml
      seriatim layout --url nats://broker:4222 --out cluster.toml
      seriatim layout --config cluster.toml --json

    \b
    Exit code: 0 fine, 1 nothing is registered or nobody answers, 2 wrong file or options, 130 interrupted.
    """
    file = load_config(path) if path is not None else None
    if file is not None and out is not None and out.resolve().parent != file.folder:
        fix = f"write it into {file.folder}, and copy it together with the files that it names"
        raise InputError("--out", "paths in the file begin at its folder, and this is another one", fix)

    async def read() -> tuple[ClusterConfig, Layout]:
        if file is not None:
            broker = open_broker(file.broker, **broker_options(file))
            await broker.open()
            try:
                layout = await registered(broker, file.cluster)
            finally:
                await broker.close()
            check_is_of(file, layout)
            return in_force(file, layout), layout
        async with find_cluster(url, cluster, timeout_s) as found:
            config = of_description(url, found.description)
            layout = await registered(found.broker, cluster)
            return with_ports(in_force(config, layout), found.description), layout

    config, layout = run_until_interrupted(read)
    if as_json:
        show_json(msgspec.to_builtins(layout))
        return
    text = brief_text(config)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        if out.exists():
            write_whole(out.with_name(f"{out.name}.before"), out.read_text(encoding="utf-8"))
        write_whole(out, text)
    except OSError as error:
        raise InputError("--out", f"{out} cannot be written: {error.strerror}", "give another file") from None
    changed = f"{layout.changes:,} changes" if layout.changes != 1 else "1 change"
    notice(f"{out}: as cluster {config.cluster} is now, after {changed} by commands")


def check_is_of(file: ClusterConfig, layout: Layout) -> None:
    """InputError: the file is of another cluster."""
    if layout.since(of_config(file).parents) is None:
        nodes = ", ".join(layout.parents)
        problem = f"cluster {file.cluster!r} has never had the nodes of this file; it has {nodes}"
        raise InputError("--config", problem, "give the file of that cluster, or leave it out and give --url")


def with_ports(config: ClusterConfig, told: ClusterDescription) -> ClusterConfig:
    """With the ports that nodes have, where port 0 is registered: their process has taken any free one."""
    nodes = dict(config.nodes)
    for name, node in nodes.items():
        if any(address.endswith(":0") for address in node.addresses) and told.addresses.get(name):
            nodes[name] = structs.replace(node, address=tuple(told.addresses[name]))
    return structs.replace(config, nodes=nodes)


def of_description(url: str, told: ClusterDescription) -> ClusterConfig:
    """The configuration that a cluster's description stands for."""
    nodes = {
        node: {"parent": parent, "address": told.addresses.get(node, [])} for node, parent in told.tree.parents.items()
    }
    raw = {"cluster": told.cluster, "broker": url, "order": told.order, "nodes": nodes}
    if told.order == "atoms":
        for node in nodes.values():
            del node["parent"]
        return parse_config({**raw, "causal": told.causal})
    several = {name: {"journal": "broker"} for name, node in nodes.items() if len(node["address"] or []) > 1}
    for name, journal in several.items():
        nodes[name] |= journal  # others could not have standbys
    streams = {name: value for name, value in told.broker_options.items() if name != "cluster"}
    tree = told.tree  # homes as they are now: a node where some began may have left
    homes = {"homes": {topic: tree.home(topic) for topic in tree.homes}, "default_home": told.default_home or "none"}
    return parse_config(
        {**raw, **homes, "mode": told.mode, "causal": told.causal, "streams": streams | {"buckets": told.buckets}}
    )
