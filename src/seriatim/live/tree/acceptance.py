"""The operator accepts that the log of a topic was deleted: checked here, decided and journaled by the machine."""

import logging

import msgspec

from seriatim.live.tree.host import NodeHost
from seriatim.model import UNREADABLE
from seriatim.protocols.tree.messages import AcceptLog
from seriatim.server.acceptance import Accept, Acceptance

logger = logging.getLogger(__name__)


def answer_acceptance(host: NodeHost, data: bytes) -> bytes:
    """Begin to accept, or say how far it is."""
    try:
        question = msgspec.json.decode(data, type=Accept)
    except UNREADABLE as error:
        return msgspec.json.encode(Acceptance(topic="", refused=f"the question cannot be read: {error}"))
    return msgspec.json.encode(_accept(host, question))


def _accept(host: NodeHost, question: Accept) -> Acceptance:
    topic, sequencer = question.topic, host.machine.inner
    if (first := sequencer.state.renewing.get(topic)) is not None:
        return Acceptance(topic=topic, first=first)
    renewed, events = host.renewed.get(topic), host.refusals.other_logs.get(topic)
    if events is None and renewed is not None:
        return Acceptance(topic=topic, first=renewed.first, is_done=True, dropped=renewed.dropped)
    if (problem := sequencer.why_not_accepted(topic)) is not None:
        return Acceptance(topic=topic, refused=problem)
    if events is None:
        return Acceptance(topic=topic, refused="its log is the one that it always was: there is nothing to accept")
    if events and not question.drop:
        problem = f"its new log holds {events:,} events that were never numbered, and cannot be"
        return Acceptance(topic=topic, refused=f"{problem}; --drop-events drops them")
    logger.warning("another log is being accepted: node=%s topic=%s events_dropped=%s", host.node, topic, events)
    host.renewed.pop(topic, None)
    host.driver.deliver(host.node, AcceptLog(topic))
    return Acceptance(topic=topic, first=sequencer.state.renewing[topic])
