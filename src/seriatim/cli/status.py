"""`seriatim status`: each node of a running cluster in one line."""

import click
import msgspec

from seriatim.cli.answers import EXIT_SILENT
from seriatim.cli.brokers import is_overlay, show_brokers
from seriatim.cli.common import json_option, peer_options, run_until_interrupted, show_json, url_option
from seriatim.cli.peers import check_no_files, is_peers, show_peers
from seriatim.cli.tables import table
from seriatim.server.status import NodeStatus

COLOURS = {"active": "green", "standby": "cyan", "starting": "yellow", "failed": "red", "silent": "red"}
HEADINGS = ("node", "role", "epoch", "address", "stamps/s", "topics", "subscribers", "open", "oldest", "journal")
ATOMS = ("node", "role", "epoch", "address", "plays", "events", "topics", "atoms", "subscribers", "strays", "journal")

HELP = """Show the nodes of a running cluster.

Each node answers over the broker. `stamps/s` is the mean since the node started; `open` counts the ranges of numbers
that are not settled yet, and `oldest` is the age of the oldest. For sequencing atoms, `plays` lists the roles of a
node, `events` counts what entered there, and `strays` counts messages for atoms that are not there: it should be 0.

\b
Examples:
  seriatim status
  seriatim status --url nats://broker:4222 --json
  seriatim status --url vcube://./peers.toml
  seriatim status --url overlay://./overlay.toml
  seriatim status --url vcube://127.0.0.1:7500 --token-file token

\b
Exit code: 0 every node is active, 1 a node does not answer or has failed, 2 wrong options, 130 interrupted.
"""


@click.command(help=HELP)
@url_option
@peer_options
@json_option
@click.pass_context
def command(
    context: click.Context, /, url: str, cluster: str, timeout_s: float, as_json: bool, **files: str | None
) -> None:
    """Show the nodes of a running cluster."""
    from seriatim.cli.cluster import Place, find_cluster

    if is_peers(url):
        context.exit(show_peers(url, files, timeout_s, as_json))
    if is_overlay(url):
        context.exit(show_brokers(url, files, timeout_s, as_json))
    check_no_files(files)

    async def ask() -> tuple[str, list[tuple[Place, NodeStatus | None]]]:
        async with find_cluster(url, cluster, timeout_s) as found:
            answers = await found.status()
            description = found.description
            order = "causal and total order" if description.causal else "total order"
            how = "atoms" if description.order == "atoms" else f"{description.mode} mode"
            return f"cluster {description.cluster}: {how}, {order}", answers

    title, answers = run_until_interrupted(ask)
    served: set[str] = {status.node for _, status in answers if status is not None and status.role == "active"}
    everybody = {place.node for place, _ in answers}
    if as_json:
        for place, status in answers:
            silent = {"node": place.node, "role": "silent", "address": place.address}
            show_json(msgspec.to_builtins(status) if status is not None else silent)
    else:
        click.echo(title)
        is_atoms = any(status is not None and status.roles for _, status in answers)
        headings, row = (ATOMS, _atoms_row) if is_atoms else (HEADINGS, _row)
        for line in table(headings, [row(place.node, place.address, status) for place, status in answers], COLOURS):
            click.echo(line)
        for place, status in answers:
            if status is None:
                click.echo(f"{place.node} at {place.address} does not answer: is it running?")
            elif status.reason:
                click.echo(f"{place.node} at {place.address}: {status.reason}")
    context.exit(0 if served == everybody else EXIT_SILENT)


def _atoms_row(node: str, address: str, status: NodeStatus | None) -> tuple[str, ...]:
    if status is None or status.role != "active":
        role, journal = (status.role, status.journal) if status is not None else ("silent", "")
        return (node, role, "", address, *[""] * (len(ATOMS) - 5), journal)
    return (
        node,
        status.role,
        str(status.epoch),
        status.address,
        ", ".join(status.roles),
        f"{status.issued:,}",
        f"{status.topics:,}",
        f"{status.atoms:,}",
        f"{status.subscribers:,}" if "coordinator" in status.roles else "",
        f"{status.strays:,}",
        f"{status.journal}, {_bytes(status.journal_bytes)} since the snapshot",
    )


def _row(node: str, address: str, status: NodeStatus | None) -> tuple[str, ...]:
    if status is None:
        return (node, "silent", "", address, *[""] * (len(HEADINGS) - 4))
    if status.role != "active":
        return (node, status.role, "", status.address, *[""] * (len(HEADINGS) - 5), status.journal)
    return (
        node,
        status.role,
        str(status.epoch),
        status.address,
        f"{status.stamps_per_s:,.1f}",
        f"{status.topics:,}",
        f"{status.subscribers:,}",
        f"{status.open_ranges:,}",
        f"{status.oldest_open_s:.1f} s" if status.open_ranges else "",
        f"{status.journal}, {_bytes(status.journal_bytes)} since the snapshot",
    )


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} MB"
