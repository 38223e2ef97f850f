"""What operators wish the layout to be, checked and turned into one change. Nothing has changed when it is refused."""

from typing import TYPE_CHECKING

import msgspec

from seriatim.brokers.capabilities import required
from seriatim.model import UNREADABLE, Node, RequestRefused
from seriatim.runtime.net.addresses import split_address
from seriatim.server.changing import StartChange
from seriatim.server.config import ON_BROKER, ClusterConfig, lacks_node_token
from seriatim.server.layout import Change, ChangeKind, Layout, in_force
from seriatim.server.schemas import check_node_name
from seriatim.server.status import NodeStatus, node_subject

if TYPE_CHECKING:
    from seriatim.live.server import SequencerServer

ANSWER_S = 2.0
FREE = "127.0.0.1:0"


async def as_change(wish: StartChange, process: "SequencerServer", layout: Layout) -> Change:
    """The change that this is. SeriatimError: why it cannot be, and what to do."""
    match wish.wish:
        case "add" | "root":
            change = _addition(wish, process, layout)
        case "remove":
            change = _removal(wish, layout)
        case "address":
            change = _first_address(wish, process, layout)
        case _:
            change = await _standbys(wish, process, layout)
    config = in_force(process.config, layout.begun(change))  # its own checks: names, addresses, journals
    if change.kind != "remove" and not process.runs_all and lacks_node_token(config):
        raise _refused(
            "the cluster asks clients for a token, and nodes of other processes could not show that they are nodes",
            "set security.node_token_file, and start the processes again",
        )
    return change


def _addition(wish: StartChange, process: "SequencerServer", layout: Layout) -> Change:
    node, parents = wish.node, layout.parents
    check_node_name("NAME", node)
    if node in parents:
        raise _refused(f"there is a node {node} already", "`seriatim node` lists them")
    if any(each.node == node for each in layout.history):
        raise _refused(f"there was a node {node}, and names are not used again", "give the new one another name")
    _check_known(wish.parent, parents)
    if wish.wish == "root" and parents[wish.parent] is not None:
        root = next(each for each, parent in parents.items() if parent is None)
        raise _refused(f"{wish.parent} is not the root, and a node comes in above the root only", f"use --above {root}")
    addresses, journal = wish.addresses, wish.journal
    if not addresses:
        if not process.runs_all or not all(each.addresses[0].endswith(":0") for each in process.config.nodes.values()):
            raise _refused(f"nobody says where {node} listens", "give --address HOST:PORT")
        addresses = [FREE]
    if not journal and process.runs_all:
        usual = process.config.nodes[wish.parent].journal
        journal = usual if usual in (*ON_BROKER, "memory") else ""
    _check_addresses(node, addresses, process.config, is_here=process.runs_all)
    kind: ChangeKind = "add" if wish.wish == "add" else "root"
    journal = journal if journal in (*ON_BROKER, "memory") else ""  # a folder is a matter of its own process's file
    return Change(id=wish.id, kind=kind, node=node, parent=wish.parent, addresses=addresses, journal=journal)


def _removal(wish: StartChange, layout: Layout) -> Change:
    node, parents = wish.node, layout.parents
    _check_known(node, parents)
    below = sorted(each for each, parent in parents.items() if parent == node)
    if (parent := parents[node]) is None:
        raise _refused(f"{node} is the root, and a root is not removed", "remove leaves, the lowest ones first")
    if below:
        raise _refused(f"nodes live below {node}: {', '.join(below)}", "remove these first")
    return Change(id=wish.id, kind="remove", node=node, parent=parent)


def _first_address(wish: StartChange, process: "SequencerServer", layout: Layout) -> Change:
    """Also of a node that is away: nobody may be able to start it at the address before."""
    node, (address, *_) = wish.node, wish.addresses or [""]
    _check_known(node, layout.parents)
    _check_addresses(node, [address], process.config)
    former = list(process.config.nodes[node].addresses)
    return Change(id=wish.id, kind="addresses", node=node, addresses=[address, *former[1:]], former=former)


async def _standbys(wish: StartChange, process: "SequencerServer", layout: Layout) -> Change:
    node, (address, *_) = wish.node, wish.addresses or [""]
    _check_known(node, layout.parents)
    split_address("HOST:PORT", address)
    former = list(process.config.nodes[node].addresses)
    status = await _status(process, node)
    journal = status.journal
    if wish.wish == "standby":
        if journal not in ON_BROKER:
            problem = f"the journal of {node} is {journal!r}, which no other machine can read"
            fix = 'only a node that began with journal = "broker" can have standbys'
            raise _refused(f"{problem}, so a standby could not take over", fix)
        if any(each.endswith(":0") for each in former):
            raise _refused(f"{node} is at a free port, which others cannot know", "give it an address with a port")
        _check_addresses(node, [address], process.config)
        after = [*former, address]
    else:
        if address not in former:
            raise _refused(f"{node} is not at {address}", f"its addresses are {', '.join(former)}")
        if len(former) == 1:
            raise _refused(f"{address} is the only address of {node}", f"`seriatim node remove {node}` removes a node")
        if status.address == address:
            problem = f"{address} is the active process of {node}"
            raise _refused(problem, "stop it, so that another process takes over, and ask again")
        after = [each for each in former if each != address]
    kept = journal if journal in ON_BROKER else ""
    return Change(id=wish.id, kind="addresses", node=node, addresses=after, former=former, journal=kept)


async def _status(process: "SequencerServer", node: Node) -> NodeStatus:
    """What the process that runs this node says of it."""
    if (here := process.served.get(node)) is not None and here.role == "active":
        return here.status()
    requests = required(process.broker.requests, "broker", "has no request and reply", "use nats://")
    data = await requests.request(node_subject(process.config.cluster, "status", node), b"", ANSWER_S)
    if data is None:
        raise _refused(f"no process that runs {node} answers", "start it first")
    try:
        return msgspec.json.decode(data, type=NodeStatus)
    except UNREADABLE as error:
        raise _refused(f"the status of {node} cannot be read: {error}", "install the same release everywhere") from None


def _check_known(node: Node, parents: dict[Node, Node | None]) -> None:
    if node not in parents:
        raise _refused(f"there is no node {node!r}", f"use one of {', '.join(sorted(parents))}")


def _check_addresses(node: Node, addresses: list[str], config: ClusterConfig, *, is_here: bool = False) -> None:
    for address in addresses:
        _, port = split_address("HOST:PORT", address)
        if port == 0 and not is_here:
            raise _refused(f"others cannot know the port of {address}", "give one")
        for other, each in config.nodes.items():
            if port and address in each.addresses:
                raise _refused(f"{address} is an address of {other} already", f"give {node} another one")


def _refused(problem: str, fix: str) -> RequestRefused:
    return RequestRefused(f"{problem}; {fix}")
