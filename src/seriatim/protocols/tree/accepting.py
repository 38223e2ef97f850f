"""Which names of topics a node accepts from clients: those that every broker accepts.

Any other name is refused before it reaches the journal: it would be asked for on the broker for ever. What is in a
journal was accepted when it came, so replaying does not ask again.
"""

from collections.abc import Container

from seriatim.model import InputError, Topic
from seriatim.model.topics import check_topic
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import Refused, Subscribe, Ticket, Update


def refusal(message: Payload, known: Container[Topic]) -> Refused | None:
    """The answer to a message that names a topic that cannot be; None: every name is fine. `known`: accepted before."""
    if type(message) is Ticket:
        if message.topic in known:  # nearly always
            return None
        named, request = frozenset({message.topic}), message.request
    elif type(message) is Subscribe:
        named, request = message.topics | message.left | {message.topic}, message.version
    elif type(message) is Update:
        named, request = message.topics, message.version
    else:
        return None
    for topic in named:
        try:
            check_topic(topic)
        except InputError as error:
            return Refused(request, topic, str(error))
    return None
