"""Publishers follow the stamps of their topics: a plain subscription to the stamp subject of each topic.

A home publishes a stamp when its journal has everything that led to it, and JetStream keeps it a moment later. So a
stamp that is seen here is final, even if the stream never gets this copy of it: a home that restarts writes the same
stamp again. Subscriptions without JetStream cost the server little, and may lose messages: a publisher that waits asks
again, and then the last stamp of the topic is read from the stream. A topic that moves is stamped on another channel
from then on, so the subscription is one to all of them, and the furthest stamp counts.

*Which log.* Numbers of a log that was deleted and created again start over, and old stamps say nothing about them. So
stamps count only if they name the log that is there now (`Seriatim-Log`). While that is being looked up, stamps that
come are held.

*Forgeries.* Only homes may publish on stamp subjects. But whoever may make consumers may have one deliver to any
subject. Such a message has the subject of the stream it comes from.

The ports of one connection share the subscription of a topic.
"""

import logging
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from msgspec import Struct, field
from nats.aio.msg import Msg

from seriatim.brokers.nats.api import StreamAnswer, StreamNotFound
from seriatim.brokers.nats.channels import furthest, last_of
from seriatim.brokers.nats.identity import Sighting, difference, is_another
from seriatim.brokers.nats.stamps import LOG, stamped_log
from seriatim.brokers.seam import Deliver
from seriatim.model import ConnectionFailed, Number, RemoteError, RequestRefused, SeriatimError, Topic
from seriatim.protocols.with_broker import StampedTo

if TYPE_CHECKING:
    from seriatim.brokers.nats.jetstream import JetStreamBroker

logger = logging.getLogger(__name__)


class Follower(Struct, frozen=True):
    """A port: a callback for answers, and one for the reason why there will be none."""

    deliver: Deliver
    refuse: Callable[[SeriatimError], None]


class Followed(Struct, eq=False):
    """One topic."""

    topic: Topic
    followers: dict[Hashable, Follower] = field(default_factory=dict)
    subject: str = ""
    last: Number = 0  # the stamps up to here are out
    era: int = 0  # of the last one
    logs: set[str] = field(default_factory=set)  # what stamps of the present log say when it was created
    asking: bool = False
    is_stale: bool = False  # asked for again while a question was under way
    is_known: bool = False  # how far it is stamped was told; who asks again misses something
    held: list[tuple[Number, str, int]] = field(default_factory=list)  # last number, log, era of what came meanwhile


class StampFollowing:
    """The topics whose stamps somebody on this connection follows."""

    def __init__(self, broker: "JetStreamBroker") -> None:
        self._broker = broker
        self._streams = broker.streams
        self._api = broker.api
        self._link = broker.link
        self._followed: dict[Topic, Followed] = {}

    def follow(self, topic: Topic, who: Hashable, follower: Follower) -> None:
        """Tell this port how far the stamps are, now and when they advance."""
        each = self._followed.get(topic)
        if each is None:
            each = self._followed[topic] = Followed(topic)
        each.followers[who] = follower
        if each.asking:
            each.is_stale = True
        else:
            self._ask(each)

    def leave(self, topic: Topic, who: Hashable) -> None:
        each = self._followed.get(topic)
        if each is not None and each.followers.pop(who, None) is not None and not each.followers:
            self._forget(each)

    def _forget(self, each: Followed) -> None:
        if self._followed.get(each.topic) is each:
            del self._followed[each.topic]
            if each.subject:
                self._link.unlisten(each.subject)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, each: Followed) -> None:
        each.asking, each.is_stale = True, False
        self._streams.in_background(self._look_up(each))

    async def _look_up(self, each: Followed) -> None:
        """Find out which log there is, and how far it is stamped."""
        try:
            subject = self._broker.names.stamps_subject("", each.topic)
            if not each.subject and each.followers:
                each.subject = subject
                self._link.listen(
                    subject, lambda message: self._on_stamps(each, message), lambda error: self._refuse(each, error)
                )
            log = await self._streams.log(each.topic)
            last = await self._last(each)
            self._take(each, await self._api.info(log), *last)  # in this order: the log has whatever is stamped
        except StreamNotFound:
            self._streams.forget(each.topic)  # the publisher asks again
        except ConnectionFailed:
            pass  # the same
        except SeriatimError as error:
            self._refuse(each, error)
        finally:
            each.asking = False
            each.held.clear()
        if each.is_stale and each.followers:
            self._ask(each)

    async def _last(self, each: Followed) -> tuple[Number, int, Sighting]:
        """The last number that there is a stamp of, its era, and the log it is a number of."""
        stored = await furthest(self._broker, each.topic, thorough=each.is_known)
        each.is_known = True
        if stored is None:
            return 0, 0, Sighting()
        return *last_of(stored.data, stored.subject), stamped_log(stored)

    def _take(self, each: Followed, answer: StreamAnswer, last: Number, era: int, log: Sighting) -> None:
        problem = difference(answer, last, log)
        if problem is not None:
            raise RequestRefused(f"the log of {each.topic} (stream {answer.config.name}) {problem}")
        if answer.created not in each.logs:
            each.logs, each.last = {answer.created}, 0
        each.logs.add(log.created)
        each.era = max(each.era, era)
        for number, created, its_era in each.held:
            if created in each.logs or not is_another(answer, Sighting(created)):
                each.logs.add(created)
                last, each.era = max(last, number), max(each.era, its_era)
        each.last = max(each.last, last)
        self._tell(each)

    # ── hearing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_stamps(self, each: Followed, message: Msg) -> None:
        subject = message.subject
        if not subject_matches(subject, each.subject):
            return  # delivered by somebody's consumer
        try:
            number, era = last_of(message.data, subject)
        except RemoteError as error:
            logger.warning("message ignored, it holds no stamps: subject=%s reason=%s", subject, error)
            return
        created = (message.headers or {}).get(LOG, "")
        if each.asking:
            each.held.append((number, created, era))
        elif created not in each.logs:
            self._ask(each)
            each.held.append((number, created, era))
        elif number > each.last:
            each.last, each.era = number, max(each.era, era)
            self._tell(each)

    def _tell(self, each: Followed) -> None:
        for follower in list(each.followers.values()):
            follower.deliver(StampedTo(each.topic, each.last, each.era))

    def _refuse(self, each: Followed, error: SeriatimError) -> None:
        """Tell all followers of a topic why they get nothing, and forget them. A later follower tries again."""
        followers = list(each.followers.values())
        each.followers.clear()
        self._forget(each)
        for follower in followers:
            follower.refuse(error)


def subject_matches(subject: str, pattern: str) -> bool:
    """Whether a subject fits a pattern with `*` for whole words."""
    words, wanted = subject.split("."), pattern.split(".")
    return len(words) == len(wanted) and all(each in ("*", word) for word, each in zip(words, wanted, strict=True))
