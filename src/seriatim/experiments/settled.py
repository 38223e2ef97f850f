"""Machines as they are when everybody has joined: where experiments begin whose membership does not change.

Joining is what the protocols do themselves; but 4,096 peers that join one by one are 67 million messages before the
first measurement. Tests show that machines that did join end up in the state that is built here.
"""

from collections.abc import Iterable, Mapping, Sequence

from seriatim.model import Topic
from seriatim.protocols.srpt import Node, Overlay
from seriatim.protocols.vcube import Cube, Peer, PeerState, VCubeOptions
from seriatim.protocols.vcube.cube import Id
from seriatim.protocols.vcube.messages import Entry
from seriatim.protocols.vcube.state import Group

READY = 2  # the version of an entry after both rounds of a join


def settled_peers(ids: Iterable[Id], members: Mapping[Topic, Iterable[Id]], options: VCubeOptions) -> dict[Id, Peer]:
    """Peers of which these are members. They share one view, which nobody may change: so nobody joins or leaves."""
    cube = Cube(ids)
    groups: dict[Id, dict[Topic, Group]] = {id: {} for id in cube.ids}
    for topic, joined in members.items():
        view = {id: Entry(id, READY, "ready") for id in sorted(joined)}
        for id, entry in view.items():
            groups[id][topic] = Group(part="in", entry=entry, view=view)
    return {id: Peer(cube, id, options, PeerState(life=id, groups=groups[id])) for id in cube.ids}


def settled_nodes(overlay: Overlay, members: Mapping[Topic, Sequence[Id]]) -> dict[Id, Node]:
    """Nodes of SRPT-S, attached where somebody on their branch subscribes."""
    nodes = {id: Node(overlay, id) for id in overlay.ids}
    for topic, joined in members.items():
        for id in sorted(joined):
            nodes[id].branch(topic).subscribed = True
            child, parent = id, overlay.parent(topic, id)
            while parent is not None:
                nodes[child].branch(topic).attached = True
                branch = nodes[parent].branch(topic)
                if overlay.address(child) in branch.children:
                    break
                branch.children[overlay.address(child)] = 1
                child, parent = parent, overlay.parent(topic, parent)
        for node in nodes.values():
            node.sort_children(node.branch(topic))
    return nodes
