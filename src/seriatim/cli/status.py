"""`seriatim status`: each node of a running cluster in one line."""

import sys
from collections.abc import Callable

import click
import msgspec

from seriatim.cli.cluster import NodeAddress, find_cluster
from seriatim.cli.common import (
    Files,
    check_no_files,
    is_direct,
    json_option,
    many,
    peer_options,
    run_until_interrupted,
    show_json,
    table,
    url_option,
)
from seriatim.server.description import ClusterDescription
from seriatim.server.status import NodeStatus

EXIT_SILENT = 1
COLOURS = dict.fromkeys(("active", "alive", "ok"), "green") | dict.fromkeys(("failed", "silent", "dead"), "red")
COLOURS |= {"standby": "cyan", "starting": "yellow"}

Columns = dict[str, Callable[[NodeStatus], str]]
TREE: Columns = {
    "stamps/s": lambda status: f"{status.stamps_per_s:,.1f}",
    "topics": lambda status: f"{status.topics:,}",
    "subscribers": lambda status: f"{status.subscribers:,}",
    "open": lambda status: f"{status.open_ranges:,}",
    "oldest": lambda status: f"{status.oldest_open_s:.1f} s" if status.open_ranges else "",
}
ATOMS: Columns = {
    "plays": lambda status: ", ".join(status.roles),
    "events": lambda status: f"{status.issued:,}",
    "topics": lambda status: f"{status.topics:,}",
    "atoms": lambda status: f"{status.atoms:,}",
    "subscribers": lambda status: f"{status.subscribers:,}" if "coordinator" in status.roles else "",
    "strays": lambda status: f"{status.strays:,}",
}


@click.command
@url_option
@peer_options
@json_option
def command(url: str, cluster: str, timeout_s: float, as_json: bool, **files: str | None) -> None:
    """Show the nodes of a running cluster.

    Each node answers over the broker. `health` is `ok` while everything that a process is for works now; a line below
    says what does not, and for how long. `stamps/s` is the mean since the node started; `open` counts the ranges of
    numbers that are not settled yet, and `oldest` is the age of the oldest. For sequencing atoms, `plays` lists the
    roles of a node, `events` counts what entered there, and `strays` counts messages for atoms that are not there: it
    should be 0.

    \b
    Examples:
      seriatim status
      seriatim status --url nats://broker:4222 --json
      seriatim status --url vcube://./peers.toml
      seriatim status --url overlay://./overlay.toml
      seriatim status --url vcube://127.0.0.1:7500 --token-file token

    \b
    Exit code: 0 everything is healthy, 1 something is not, or does not answer, 2 wrong options, 130 interrupted.
    """
    if is_direct(url):
        is_fine = _show_processes(url, files, timeout_s, as_json)
    else:
        check_no_files(files)
        is_fine = _show_nodes(url, cluster, timeout_s, as_json)
    sys.exit(0 if is_fine else EXIT_SILENT)


def _show_processes(url: str, files: Files, timeout_s: float, as_json: bool) -> bool:
    """Show each peer or broker. Whether all have answered, and are healthy."""
    from seriatim.cli.direct import ask_processes

    kind, answers = ask_processes(url, files, timeout_s)
    rows = kind.rows(answers)
    if as_json:
        for row in rows:
            show_json(dict(zip(kind.headings, row, strict=True)))
    else:
        click.echo(table(kind.headings, rows, COLOURS))
        for answer in answers:
            for problem in getattr(answer.report, "problems", []):
                click.echo(problem)
    return all(not isinstance(answer.report, str) and not answer.report.problems for answer in answers)


def _show_nodes(url: str, cluster: str, timeout_s: float, as_json: bool) -> bool:
    """Show each place of each node. Whether all answer and are healthy, and every node has an active process."""

    async def ask() -> tuple[str, list[tuple[NodeAddress, NodeStatus | None]]]:
        async with find_cluster(url, cluster, timeout_s) as found:
            answers = await found.status()
            description = found.description
            return f"cluster {description.cluster}: {_order(description)}", answers

    title, answers = run_until_interrupted(ask)
    if as_json:
        for place, status in answers:
            silent = {"node": place.node, "role": "silent", "address": place.address}
            show_json(msgspec.to_builtins(status) if status is not None else silent)
    else:
        click.echo(title)
        columns = ATOMS if any(status is not None and status.roles for _, status in answers) else TREE
        headings = ("node", "role", "health", "epoch", "address", *columns, "journal")
        click.echo(table(headings, [_row(place, status, columns) for place, status in answers], COLOURS))
        for place, status in answers:
            if status is None:
                click.echo(f"{place.node} at {place.address} does not answer: is it running?")
            else:
                for problem in status.problems:
                    click.echo(problem.sentence)
            if status is not None and status.order_position:
                lag = status.order_position - status.order_kept
                click.echo(f"order log: {status.order_position:,} positions, {lag:,} of them not on the broker yet")
                if status.order_lost:
                    lost = f"it was deleted, or an older copy restored, when it had {status.order_lost:,} positions"
                    click.echo(f"order log: {lost}; history has gaps there, and `seriatim order` lists them")
    served = {status.node for _, status in answers if status is not None and status.role == "active"}
    is_well = all(status is not None and not status.problems for _, status in answers)
    return is_well and served == {place.node for place, _ in answers}


def _order(description: ClusterDescription) -> str:
    """What the cluster promises, in words."""
    if description.order == "atoms":
        return "atoms, pairwise and causal order" if description.causal else "atoms, pairwise order"
    own = ", publishers keep their own order" if description.causal else ""
    return f"{description.mode} mode, {description.order} order{own}"


def _row(place: NodeAddress, status: NodeStatus | None, columns: Columns) -> tuple[str, ...]:
    if status is None:
        return (place.node, "silent", "", "", place.address, *[""] * len(columns), "")
    health = many(len(status.problems), "problem") if status.problems else "ok"
    if status.role != "active":
        return (place.node, status.role, health, "", status.address, *[""] * len(columns), status.journal)
    journal = f"{status.journal}, {_bytes(status.journal_bytes)} since the snapshot"
    cells = (cell(status) for cell in columns.values())
    return (place.node, status.role, health, str(status.epoch), status.address, *cells, journal)


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} MB"
