"""`seriatim node`: nodes of a running cluster come and go, while events flow."""

from collections.abc import Callable, Mapping

import click

from seriatim.cli.changing import Changer, check_changes, check_node, check_tree
from seriatim.cli.cluster import Cluster, NodeAddress, find_cluster
from seriatim.cli.common import (
    json_option,
    many,
    notice,
    run_until_interrupted,
    show_json,
    show_progress,
    table,
    url_option,
)
from seriatim.cli.standby import show_change
from seriatim.model import InputError, Node, TimedOut, Topic
from seriatim.order import SequencingTree
from seriatim.server.description import ClusterDescription
from seriatim.server.layout import Change
from seriatim.server.schemas import check_node_name
from seriatim.server.status import NodeStatus, WaitingNode

SHOWN_MAX = 10


@click.group(invoke_without_command=True)
@url_option
@json_option
@click.pass_context
def command(context: click.Context, /, url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """List the nodes of a running cluster; add and remove nodes.

    The tree of sequencers changes while events flow, and nobody waits: a node comes as a leaf, or as a new root above
    the one before, and has no topics until they are moved to it (`seriatim move`, `seriatim apply`). A leaf without
    topics goes. All processes and clients follow by themselves. The root makes one change at a time, and each step is
    journaled and registered on the broker, so that it is resumed after a crash.

    \b
    Examples:
      seriatim node
      seriatim node add asia --parent root
      seriatim node add top --above root
      seriatim node remove asia
      seriatim node address eu 10.1.0.9:7411

    \b
    Exit code: 0 done, 1 it was refused or nobody answers, 2 wrong node or options, 3 it took too long,
               130 interrupted.
    """
    if context.invoked_subcommand is None:
        _list(url, cluster, timeout_s, as_json)


@command.command("list")
@url_option
@json_option
def list_(url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """List the nodes of a running cluster, each below its parent.

    \b
    Example:
      seriatim node list
    """
    _list(url, cluster, timeout_s, as_json)


def _list(url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    async def ask() -> tuple[ClusterDescription, list[tuple[NodeAddress, NodeStatus | None]]]:
        async with find_cluster(url, cluster, timeout_s) as found:
            return found.description, await found.status()

    description, answers = run_until_interrupted(ask)
    tree = description.tree
    shown = {node: tree.paths[node] for node in description.addresses if node in tree.parents}
    rows: list[tuple[str, ...]] = []
    for node in sorted(shown, key=lambda each: shown[each][::-1]):
        places = [(place, status) for place, status in answers if place.node == node]
        active = next((status for _, status in places if status is not None and status.role == "active"), None)
        addresses = [place.address for place, _ in places]
        if as_json:
            row = {"node": node, "parent": tree.parents[node], "addresses": addresses}
            show_json(
                {**row, "topics": active.topics if active else None, "active": active.address if active else None}
            )
            continue
        depth = len(shown[node]) - 1
        topics = f"{active.topics:,}" if active is not None else ""
        rows.append(
            (
                "  " * depth + node,
                tree.parents[node] or "",
                topics,
                active.address if active else "",
                *_standbys(places),
            )
        )
    if not as_json:
        click.echo(table(("node", "parent", "topics", "active at", "standbys"), rows))


def _standbys(places: list[tuple[NodeAddress, NodeStatus | None]]) -> tuple[str]:
    return (", ".join(place.address for place, status in places if status is None or status.role != "active"),)


# ── adding ────────────────────────────────────────────────────────────────────────────────────────────────────────


@command.command("add")
@click.argument("name")
@click.option("--parent", metavar="NODE", help="Add it as a leaf below this node.")
@click.option("--above", metavar="ROOT", help="Make it the new root, above this node, which is the root now.")
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The address where other nodes and clients find it, if its process does not say so.",
)
@url_option
@json_option
def add(
    name: str,
    parent: str | None,
    above: str | None,
    address: str | None,
    url: str,
    cluster: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Add a node to a running cluster.

    First start its process, with a file that has the node: `seriatim serve --config cluster.toml --node NAME`. It waits
    until it is added, and says its parent and its address. This command waits for the process, for --timeout at most.
    Where one process runs all nodes, it runs the new one too. No topic lives there yet: `seriatim move` brings some.

    \b
    Examples:
      seriatim node add asia --parent root
      seriatim node add top --above root --timeout 60
    """
    check_changes(url)
    check_node_name("NAME", name)
    if parent is not None and above is not None:
        raise InputError("--above", "a node comes below --parent or above the root, not both", "give one of the two")

    async def work() -> Change:
        async with find_cluster(url, cluster, timeout_s) as found:
            check_tree(found.description)
            return await add_node(found, name, parent, above, address, timeout_s)

    change = run_until_interrupted(work)
    show_progress("")
    show_change(change, as_json)


async def add_node(
    found: Cluster,
    name: Node,
    parent: Node | None,
    above: Node | None,
    address: str | None,
    timeout_s: float,
    tell: Callable[[str], None] = notice,
) -> Change:
    """Add it when its process is there; `tell` how it is started. TimedOut: it does not come."""
    changer, description = Changer(found), found.description
    for option, given in (("--parent", parent), ("--above", above)):
        if given is not None:
            check_node(description, given, option)
    facts = await changer.facts(timeout_s)
    process = await changer.waiting(name)
    if process is None and not facts.runs_new and name not in changer.tree.parents:
        text = how_to_start(name, parent, above, address)
        said = f"no process waits to run {name}. {text}"
        process = await changer.await_process(name, timeout_s, lambda: tell(said))
        if process is None:
            raise TimedOut(f"no process came to run {name} within {timeout_s:g} s; nothing has changed")
    if process is not None:
        parent, above = _as_process(changer, name, process, parent, above, address)
    elif parent is None and above is None:
        raise InputError("--parent", "nobody says below which node it comes", "give --parent NODE, or --above ROOT")
    at = process.addresses if process is not None else [address] if address is not None else []
    journal = process.journal if process is not None else ""
    wish, below = ("root", above) if above is not None else ("add", parent)
    more = {"parent": below, "addresses": at, "journal": journal}
    return await changer.change(
        "root" if wish == "root" else "add", name, timeout_s, lambda step: show_progress(f"{name}: {step}"), **more
    )


def _as_process(
    changer: Changer, name: Node, process: WaitingNode, parent: Node | None, above: Node | None, address: str | None
) -> tuple[Node | None, Node | None]:
    """Where the process says that it comes. InputError: the command says something else."""
    root = changer.tree.root
    if address is not None and address not in process.addresses:
        problem = f"the process that waits to run {name} has {', '.join(process.addresses)}"
        raise InputError("--address", problem, "leave it out, or correct the file of that process and start it again")
    if (parent or (None if above is None else "")) not in (None, process.parent or ""):
        said = f"below {process.parent}" if process.parent is not None else f"above {root}"
        problem = f"the file of the process that waits to run {name} has it {said}"
        raise InputError("--parent", problem, "say the same, or correct that file and start the process again")
    return (process.parent, None) if process.parent is not None else (None, above or root)


def how_to_start(name: Node, parent: Node | None, above: Node | None, address: str | None = None) -> str:
    """How the process of a new node is started, for people."""
    at = address or "HOST:PORT"
    lines = f'nodes.{name} = {{ parent = "{parent or "PARENT"}", address = "{at}" }}'
    if above is not None:
        lines = f'nodes.{name} = {{ address = "{at}" }}` and `nodes.{above}.parent = "{name}"'
    return f"Add `{lines}` to the file, and start it: `seriatim serve --config cluster.toml --node {name}`"


# ── removing, and other addresses ─────────────────────────────────────────────────────────────────────────────────


@command.command("remove")
@click.argument("name")
@url_option
@json_option
def remove(name: str, url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """Remove a leaf on which no topic lives. Its process ends by itself.

    The stream with the stamps that it gave stays, for whoever reads the past. Its name is not used again.

    \b
    Example:
      seriatim node remove asia
    """
    check_changes(url)

    async def work() -> Change:
        async with find_cluster(url, cluster, timeout_s) as found:
            check_tree(found.description)
            check_node(found.description, name)
            check_empty(found.description.tree, name)
            return await Changer(found).change("remove", name, timeout_s, lambda step: show_progress(f"{name}: {step}"))

    change = run_until_interrupted(work)
    show_progress("")
    show_change(change, as_json)


def topics_of(tree: SequencingTree, node: Node) -> Mapping[Topic, Node]:
    """The topics that are known to live there, each with the node that would take it."""
    to = tree.parents[node] or tree.root
    return {topic: to for topic in sorted(tree.homes) if tree.home(topic) == node}


def check_empty(tree: SequencingTree, node: Node) -> None:
    """InputError: topics live there."""
    if tree.default_home == node:
        problem = f"{node} is the default home: topics that nobody lists live there"
        raise InputError("NAME", problem, "a cluster keeps its default home; remove another node")
    topics = topics_of(tree, node)
    if topics:
        commands = "; ".join(f"seriatim move {topic} --to {to}" for topic, to in list(topics.items())[:SHOWN_MAX])
        more = f" (and {len(topics) - SHOWN_MAX:,} more)" if len(topics) > SHOWN_MAX else ""
        problem = f"{many(len(topics), 'topic')} {'lives' if len(topics) == 1 else 'live'} on {node}"
        raise InputError("NAME", problem, f"move them first: {commands}{more}")


@command.command("address")
@click.argument("name")
@click.argument("address", metavar="HOST:PORT")
@url_option
@json_option
def address(name: str, address: str, url: str, cluster: str, timeout_s: float, as_json: bool) -> None:
    """Give a node another first address. The process at the old one ends by itself.

    Then start the node at the new address, with its journal.

    \b
    Example:
      seriatim node address eu 10.1.0.9:7411
    """
    check_changes(url)

    async def work() -> Change:
        async with find_cluster(url, cluster, timeout_s) as found:
            check_tree(found.description)
            check_node(found.description, name)
            return await Changer(found).change("address", name, timeout_s, addresses=[address])

    show_change(run_until_interrupted(work), as_json)
