"""The operator accepts that the log of a topic was deleted: checked here, decided and journaled by the machine."""

import logging
import time

import msgspec

from seriatim.live.tree.host import NodeHost
from seriatim.model import UNREADABLE, Topic
from seriatim.protocols.tree.messages import AcceptLog
from seriatim.server.acceptance import Accept, Acceptance

logger = logging.getLogger(__name__)

FRESH_S = 0.5  # how old the count of the events in the other log may be


def answer_acceptance(host: NodeHost, data: bytes) -> bytes:
    """Begin to accept, or say how far it is."""
    try:
        question = msgspec.json.decode(data, type=Accept)
    except UNREADABLE as error:
        return msgspec.json.encode(Acceptance(topic="", refused=f"the question cannot be read: {error}"))
    return msgspec.json.encode(_accept(host, question))


def _accept(host: NodeHost, question: Accept) -> Acceptance:
    topic, sequencer = question.topic, host.machine.inner
    renewed, other = host.renewed.get(topic), host.refusals.other_logs.get(topic)
    if (first := sequencer.state.renewing.get(topic)) is not None:
        if topic in sequencer.state.undroppable:
            if question.drop:
                host.driver.deliver(host.node, AcceptLog(topic))
            elif other is not None and other.events:
                return _refused(topic, other.events)
        return Acceptance(topic=topic, first=first)
    if other is None and renewed is not None:
        return Acceptance(topic=topic, first=renewed.first, is_done=True, dropped=renewed.dropped)
    if (problem := sequencer.why_not_accepted(topic)) is not None:
        return Acceptance(topic=topic, refused=problem)
    if other is None:
        return Acceptance(topic=topic, refused="its log is the one that it always was: there is nothing to accept")
    if time.monotonic() - other.at_s > FRESH_S:  # whoever asks again is told what is there now
        host.look_at_log(topic)
        return Acceptance(topic=topic)
    if other.events and not question.drop:
        return _refused(topic, other.events)
    logger.warning("another log is being accepted: node=%s topic=%s events=%s", host.node, topic, other.events)
    host.renewed.pop(topic, None)
    host.driver.deliver(host.node, AcceptLog(topic, question.drop))
    return Acceptance(topic=topic, first=sequencer.state.renewing[topic])


def _refused(topic: Topic, events: int) -> Acceptance:
    problem = f"its new log holds {events:,} events that were never numbered, and cannot be"
    return Acceptance(topic=topic, refused=f"{problem}; --drop-events drops them")
