"""The sequencing tree: one order across topics. README.md in this folder is the protocol's description."""

from seriatim.protocols.tree.node import SequencerNode, SequencerNodeState
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.publisher import Publisher
from seriatim.protocols.tree.sequencer import Sequencer
from seriatim.protocols.tree.state import SequencerState, Waiting
from seriatim.protocols.tree.subscriber import Subscriber

__all__ = [
    "Publisher",
    "Sequencer",
    "SequencerNode",
    "SequencerNodeState",
    "SequencerState",
    "Subscriber",
    "TreeOptions",
    "Waiting",
]
