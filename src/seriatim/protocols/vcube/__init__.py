"""VCube-PS: causal publish/subscribe without brokers. README.md in this folder is the protocol's description."""

from seriatim.protocols.vcube.cube import Cube, address_of
from seriatim.protocols.vcube.options import VCubeOptions
from seriatim.protocols.vcube.peer import Peer

__all__ = ["Cube", "Peer", "VCubeOptions", "address_of"]
