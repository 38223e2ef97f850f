"""VCube-PS as the papers' text describes acknowledgements (001 §3.3), for Table II of paper 002.

Line 97 of the printed algorithm, as protocols/paper001 reads it, has a node put its own subscription into an
acknowledgement. The text beside it says that each subscriber "includes in the message its current view". A view may
still name a member that has left; a joiner that is told so keeps it forever, because the peer that left does not know
the joiner and never tells it.
"""

from seriatim.lab.papers.paper001 import CubeNode
from seriatim.lab.papers.paper001.messages import Ack, Operation
from seriatim.lab.papers.paper001.node import NodeTopic
from seriatim.protocols.machine import Effects
from seriatim.protocols.vcube.cube import Id


class ViewsInAcknowledgements(CubeNode):
    """A node that answers with all subscriptions it knows of. Everything else is as printed."""

    def _send_ack(self, topic: NodeTopic, target: Id, message: Ack, effects: Effects) -> None:
        if self.id in topic.view and message.source not in topic.first_received:
            known = {operation.node: operation for operation in message.members}
            for operation in topic.view.values():
                told = known.get(operation.node)
                if operation.is_subscription and (told is None or told.counter < operation.counter):
                    known[operation.node] = operation
            message = Ack(message.source, message.topic, message.counter, _sorted(known))
        super()._send_ack(topic, target, message, effects)


def _sorted(known: dict[Id, Operation]) -> tuple[Operation, ...]:
    return tuple(known[node] for node in sorted(known))
