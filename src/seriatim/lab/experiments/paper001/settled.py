"""Machines as they are when everybody has joined: where experiments begin whose membership does not change.

Joining is what the protocols do themselves; but 4,096 peers that join one by one are 67 million messages before the
first measurement. Tests show that machines that did join end up in the state that is built here.
"""

from collections.abc import Iterable, Mapping, Sequence

from seriatim.lab.papers.srpt import Overlay, SrptNode
from seriatim.model import Topic
from seriatim.protocols.vcube import Cube, Peer, VCubeOptions
from seriatim.protocols.vcube.cube import Id


def settled_peers(ids: Iterable[Id], members: Mapping[Topic, Sequence[Id]], options: VCubeOptions) -> dict[Id, Peer]:
    """Peers of VCube-PS of which these are members."""
    cube = Cube(ids)
    return {id: Peer.founder(cube, id, options, members) for id in cube.ids}


def settled_nodes(overlay: Overlay, members: Mapping[Topic, Sequence[Id]]) -> dict[Id, SrptNode]:
    """Nodes of SRPT-S, attached where somebody on their branch subscribes."""
    nodes = {id: SrptNode(overlay, id) for id in overlay.ids}
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
