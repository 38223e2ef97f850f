"""`seriatim standby`: standbys of a node come and go, while events flow."""

import click

from seriatim.cli.changing import Changer, check_changes, check_node, check_tree
from seriatim.cli.cluster import find_cluster
from seriatim.cli.common import json_option, notice, run_until_interrupted, show_json, url_option
from seriatim.model import Node
from seriatim.runtime.net.addresses import split_address
from seriatim.server.changing import Wish
from seriatim.server.layout import Change


@click.group
def command() -> None:
    """Add and remove standbys of a running cluster.

    A standby is a second process that can run a node, on another machine: it takes over when the active one falls
    silent. That needs a journal that both can reach, so the node must have begun with journal = "broker". All processes
    and clients learn of the address by themselves.

    \b
    Examples:
      seriatim standby add root 10.0.0.2:7411
      seriatim standby remove root 10.0.0.2:7411

    \b
    Exit code: 0 done, 1 it was refused or nobody answers, 2 wrong node, address or options, 3 it took too long,
               130 interrupted.
    """


@command.command("add")
@click.argument("node")
@click.argument("address", metavar="HOST:PORT")
@url_option
@json_option
def add(node: str, address: str, url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """Give a node one more address, where a standby listens.

    Then start the standby there, with the cluster's file: `seriatim serve --config cluster.toml --node NODE --standby`.

    \b
    Example:
      seriatim standby add root 10.0.0.2:7411
    """
    change = _change("standby", node, address, url, cluster, timeout_s, as_json)
    if not as_json:
        number = change.addresses.index(address)
        which = " ".join(["--standby", *([str(number)] if number > 1 else [])])
        notice(f"start it there: `seriatim serve --config cluster.toml --node {node} {which}`")


@command.command("remove")
@click.argument("node")
@click.argument("address", metavar="HOST:PORT")
@url_option
@json_option
def remove(node: str, address: str, url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """Take an address from a node. The process that has it ends by itself.

    It is refused if that is the active process: stop it, so that another one takes over, and ask again.

    \b
    Example:
      seriatim standby remove root 10.0.0.2:7411
    """
    _change("no standby", node, address, url, cluster, timeout_s, as_json)


def _change(wish: Wish, node: Node, address: str, url: str, cluster: str, timeout_s: float, as_json: bool) -> Change:
    check_changes(url)
    split_address("HOST:PORT", address)

    async def work() -> Change:
        async with find_cluster(url, cluster, timeout_s) as found:
            check_tree(found.description)
            check_node(found.description, node)
            return await Changer(found).change(wish, node, timeout_s, addresses=[address])

    change = run_until_interrupted(work)
    show_change(change, as_json)
    return change


def show_change(change: Change, as_json: bool) -> None:
    """Print the change that was made."""
    if as_json:
        row = {"change": change.number, "kind": change.kind, "node": change.node, "parent": change.parent or None}
        show_json({**row, "addresses": change.addresses, "at": change.at})
    else:
        click.echo(change.text)
