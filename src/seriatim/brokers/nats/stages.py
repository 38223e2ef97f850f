"""Stages: unfinished stamps, which a node publishes on plain subjects and which nobody keeps.

A node publishes on its own subject for each topic; a subscriber listens to the one node that is enough for it. A
message that gets lost costs time and nothing else, because the finished stamp follows in the stream. Therefore a node
does not wait for the server, and a subscriber that is not permitted to listen does without.

*Forgeries.* Only sequencers may publish on these subjects. A user that may create consumers may let one deliver to any
subject, but such a message has the subject of the stream it comes from.

The ports of one connection share a subscription.
"""

import logging
from collections.abc import Hashable

from msgspec import Struct, field
from nats.aio.msg import Msg

from seriatim.brokers.naming import Names
from seriatim.brokers.nats.link import NatsLink
from seriatim.brokers.nats.messages import decode_stage, encode_stage
from seriatim.brokers.seam import Deliver
from seriatim.model import Node, RemoteError, RequestRefused, Topic
from seriatim.order import TopicNames
from seriatim.protocols.with_broker import Staged

logger = logging.getLogger(__name__)


class Attended(Struct, eq=False):
    """One subject, and its listeners."""

    topic: Topic
    node: Node
    wanted_by: dict[Hashable, Deliver] = field(default_factory=dict)


class Stages:
    """The stages that are published and heard on one connection."""

    def __init__(self, link: NatsLink, names: Names, topic_names: TopicNames) -> None:
        self._link = link
        self._names = names
        self._topic_names = topic_names
        self._attended: dict[str, Attended] = {}
        self._subjects: dict[tuple[Hashable, Topic], str] = {}  # where each of them listens

    def tell(self, message: Staged) -> None:
        body = encode_stage(message)
        if len(body) <= self._link.max_payload:
            self._link.publish(self._names.stages_subject(message.node, message.topic), body)

    def attend(self, who: Hashable, topic: Topic, node: Node, deliver: Deliver) -> None:
        """Hand over what this node tells of the topic, instead of what another one does. No node: none of it."""
        subject = self._names.stages_subject(node, topic) if node else ""
        if self._subjects.get((who, topic), "") == subject:
            return
        self._leave(who, topic)
        if not subject:
            return
        self._subjects[who, topic] = subject
        attended = self._attended.get(subject)
        if attended is None:
            attended = self._attended[subject] = Attended(topic, node)
            self._link.listen(subject, lambda message: self._on_stage(subject, message), self._refused)
        attended.wanted_by[who] = deliver

    def leave(self, who: Hashable) -> None:
        """Drop every topic that this one wants."""
        for topic in [topic for each, topic in self._subjects if each == who]:
            self._leave(who, topic)

    def _leave(self, who: Hashable, topic: Topic) -> None:
        subject = self._subjects.pop((who, topic), None)
        if subject is not None and (attended := self._attended.get(subject)) is not None:
            attended.wanted_by.pop(who, None)
            if not attended.wanted_by:
                del self._attended[subject]
                self._link.unlisten(subject)

    def _on_stage(self, subject: str, message: Msg) -> None:
        attended = self._attended.get(subject)
        if attended is None or message.subject != subject:
            return  # too late, or delivered by somebody's consumer
        try:
            staged = decode_stage(message.data, attended.topic, attended.node, self._topic_names)
        except RemoteError as error:
            logger.warning("message ignored, it holds no stamp: subject=%s reason=%s", subject, error)
            return
        for deliver in list(attended.wanted_by.values()):
            deliver(staged)

    def _refused(self, error: RequestRefused) -> None:
        logger.warning("stages cannot be received, so notifications may be later: reason=%s", error)
