"""A session of a process that is a peer itself: `connect("vcube://…")`. No broker, no sequencers.

Events are ordered causally within a topic, among the peers that hold it, but not across topics.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from seriatim.client.direct.source import LEAVE_S, DirectSource
from seriatim.client.events import Event
from seriatim.client.explain import Explanation
from seriatim.client.logs import PublicationLog, open_publication_log
from seriatim.client.options import check_held
from seriatim.client.peers.logs import PeerDeliveries
from seriatim.client.peers.outbox import PeerOutbox
from seriatim.client.peers.urls import find_peers, parse_peer_url
from seriatim.client.session import Session, Wishes
from seriatim.client.settings import Settings
from seriatim.live.peers import LivePeer
from seriatim.model import (
    APPLICATION,
    Address,
    Closed,
    Gap,
    InputError,
    Notification,
    SeriatimError,
    TimedOut,
    Topic,
)
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube.cube import Id, life_of, name_of
from seriatim.protocols.vcube.messages import (
    Born,
    EventReceived,
    Subscribe,
    Subscribed,
    Unsettled,
    Unsubscribe,
    Unsubscribed,
)


class PeerSource(DirectSource):
    """One subscription. The peer holds a topic as long as some subscription of its bus does.

    One that takes events too slowly ends, because a peer that stopped reading would be presumed dead.
    """

    substrate = "peers"

    def __init__(self, name: Address, wishes: Wishes, session: "PeerSession", log: PeerDeliveries | None) -> None:
        super().__init__(name, wishes, name, log.handed if log is not None else None)
        self._session = session
        self._deliveries = log
        self._held: set[Topic] = set()  # requested, and not released

    @property
    def is_logged(self) -> bool:
        return self._deliveries is not None

    def seen(self, topic: Topic) -> int:
        """How many events of a topic the application was given in the present life, by the log."""
        return self._deliveries.seen(topic, self._session.life) if self._deliveries is not None else 0

    # ── opening, changing, closing ────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        async with self._changes:
            await self._hold(self._names)

    async def close(self) -> None:
        try:
            with suppress(SeriatimError):  # best effort: the others find out by themselves
                await self._release(set(self._held), min(LEAVE_S, self.wishes.timeout_s))
        finally:
            self._session.forget(self)
            if self._deliveries is not None:
                self._deliveries.flush()

    async def add(self, names: frozenset[Topic]) -> None:
        self._check_usable()
        async with self._changes:
            self._names |= names
            await self._hold(names - self._held)

    async def remove(self, names: frozenset[Topic]) -> None:
        self._check_usable()
        async with self._changes:
            check_held(names, self._names)
            self._names -= names
            self.inbox.drop(names)
            await self._release(set(names), self.wishes.timeout_s)

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def _hold(self, topics: set[Topic] | frozenset[Topic]) -> None:
        """Join all at once, because joining takes rounds over all peers."""
        for topic in sorted(topics):
            self._held.add(topic)
            self._log_begins(topic, self._session.life)
        waits = {topic: self._session.hold(topic, self.wishes.timeout_s) for topic in sorted(topics)}
        outcomes = dict(zip(waits, await asyncio.gather(*waits.values(), return_exceptions=True), strict=True))
        failed = {topic: outcome for topic, outcome in outcomes.items() if isinstance(outcome, BaseException)}
        if failed:  # they are not held; the peer ends what it has begun
            self._names -= failed.keys()
            with suppress(SeriatimError):
                await self._release(set(failed), min(LEAVE_S, self.wishes.timeout_s))
            raise next(iter(failed.values()))

    async def _release(self, topics: set[Topic], timeout_s: float) -> None:
        for topic in topics:
            self._held.discard(topic)
            if self._deliveries is not None:
                self.inbox.put_news(partial(self._deliveries.end, topic))
        waits = [self._session.release(topic, timeout_s) for topic in sorted(topics)]
        for outcome in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    # ── from the peer ─────────────────────────────────────────────────────────────────────────────────────────────

    def notified(self, notification: Notification, received_at: float) -> None:
        """The next event of a topic, if it is one of ours."""
        event = notification.event
        if event.topic in self._held:
            stamp, number = notification.entries, notification.number
            handed = Event(event.topic, event.payload, event.headers, event.id, event.publisher, stamp, number)
            self.keep(handed, received_at)

    def born(self, topic: Topic, life: str) -> None:
        """The peer was presumed dead, and joins the topic again in a new life."""
        if topic in self._held:
            reason = f"this peer was presumed dead and joins again as {life}; what was published meanwhile is missed"
            self.miss(Gap(topic, 0, 0, reason))
            self._log_begins(topic, life)

    def _log_begins(self, topic: Topic, life: str) -> None:
        if self._deliveries is not None:
            self.inbox.put_news(partial(self._deliveries.begin, topic, life))


class PeerSession(Session):
    """Opening it makes this process a peer, closing it ends that life. `life`: the present one, as logs call it."""

    substrate = "peers"
    outbox: PeerOutbox | None = None

    def __init__(self, settings: Settings) -> None:
        url = parse_peer_url(settings.url)
        if url.id is None:
            raise InputError("url", "it does not say which peer this process is", "add ?id= and its id")
        if url.file is None and settings.journals is None:
            problem = "a peer must remember how often it was born, and a seed does not say where"
            raise InputError("journals", problem, 'connect(url, journals="folder")')
        super().__init__(settings, f"peer{url.id}")
        self.id: Id = url.id
        self.life = ""
        self._url = url
        self._live: LivePeer | None = None
        self._publications: PublicationLog | None = None
        self._logs: dict[Path, PeerDeliveries] = {}
        self._sources: list[PeerSource] = []
        self._holders: dict[Topic, int] = {}
        self._waits: dict[tuple[str, Topic], deque[asyncio.Future[None]]] = {}  # for answers to commands

    @property
    def live(self) -> LivePeer:
        if self._live is None:
            raise Closed("the bus is not open")
        return self._live

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        settings = self.settings
        config = await find_peers(self._url, settings)
        config.check_member(self.id)
        journal = settings.journal(f"peer-{self.id}")
        self._live = live = LivePeer(config, self.id, self._told, journal=journal, clock=self._clock)
        live.failed.add_done_callback(self._ended)
        self._publications = open_publication_log(settings.publication_log, self._clock)
        await live.start()
        self.life = live.name
        self.outbox = PeerOutbox(self, live, self._publications)

    async def close(self) -> None:
        """Leave the topics that were joined only to publish, and depart."""
        try:
            if self.outbox is not None and self._live is not None and not self._live.failed.done():
                timeout_s = min(LEAVE_S, self.settings.timeout_s)
                leaves = (self._leave(topic, timeout_s) for topic in self._live.topics)
                await asyncio.gather(*leaves, return_exceptions=True)
        finally:
            if self.outbox is not None:
                self.outbox.close()
            if self._live is not None:
                await self._live.stop()
            for log in self._logs.values():
                log.close()
            if self._publications is not None:
                await self._publications.close(self.settings.timeout_s)

    def _ended(self, failed: "asyncio.Future[SeriatimError]") -> None:
        """The peer cannot continue: fail all waiting calls."""
        error = failed.result()
        if self.outbox is not None:
            self.outbox.close(error)
        for source in self._sources:
            source.fail(error)
        for waits in self._waits.values():
            for future in waits:
                if not future.done():
                    future.set_exception(error)

    # ── holding topics ────────────────────────────────────────────────────────────────────────────────────────────

    async def hold(self, topic: Topic, timeout_s: float) -> None:
        """Hold a topic for a subscription. Returns when everything published from here on is notified."""
        self._holders[topic] = self._holders.get(topic, 0) + 1
        await self._ask("join", Subscribe(topic), timeout_s)

    async def release(self, topic: Topic, timeout_s: float) -> None:
        """A subscription no longer needs the topic. Leave it if no other one does."""
        self._holders[topic] = self._holders.get(topic, 1) - 1
        if self._holders[topic] <= 0:
            del self._holders[topic]
            await self._leave(topic, timeout_s)

    async def _leave(self, topic: Topic, timeout_s: float) -> None:
        await self._ask("leave", Unsubscribe(topic), timeout_s)

    async def _ask(self, what: str, command: Subscribe | Unsubscribe, timeout_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits.setdefault((what, command.topic), deque()).append(future)
        try:
            self.live.command(APPLICATION, command)
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            reasons = "; ".join(self.live.explain()[:3]) or "the reason is not known"
            raise TimedOut(f"could not {what} {command.topic} within {timeout_s:g} s: {reasons}") from None
        finally:
            if not future.done():
                future.cancel()  # its answer still comes, and must not count for the next call

    # ── from the peer ─────────────────────────────────────────────────────────────────────────────────────────────

    def _told(self, notices: Sequence[Payload]) -> None:
        now = self._clock.now_ms()
        for notice in notices:
            if isinstance(notice, Notification):
                if self.outbox is not None:
                    self.outbox.taken(notice.event, notice.number, self.life)
                for source in self._sources:
                    source.notified(notice, now)
            elif isinstance(notice, EventReceived):
                if self.outbox is not None:
                    self.outbox.published(notice.event_id)
            elif isinstance(notice, Unsettled):
                if self.outbox is not None:
                    self.outbox.unsettled(notice.event_id)
            elif isinstance(notice, Subscribed):
                self._answer("join", notice.topic)
            elif isinstance(notice, Unsubscribed):
                self._answer("leave", notice.topic)
            elif isinstance(notice, Born):
                self.life = name_of(life_of(self.id, notice.births))
                for topic in notice.rejoining:
                    for source in self._sources:
                        source.born(topic, self.life)

    def _answer(self, what: str, topic: Topic) -> None:
        """Answers come in the order of the commands."""
        if queue := self._waits.get((what, topic)):
            future = queue.popleft()
            if not future.done():
                future.set_result(None)

    # ── subscribing ───────────────────────────────────────────────────────────────────────────────────────────────

    def source(self, wishes: Wishes) -> PeerSource:
        """Make the source of a new subscription. Order is kept within each topic."""
        log = None
        if wishes.log is not None:
            self._check_not_logged(wishes.topics)
            place = Path(wishes.log)
            if place not in self._logs:
                self._logs[place] = PeerDeliveries(place, self._clock)
            log = self._logs[place]
        self._count += 1
        source = PeerSource(f"{self.name}/{self._count}", wishes, self, log)
        self._sources.append(source)
        return source

    def forget(self, source: PeerSource) -> None:
        self._sources = [each for each in self._sources if each is not source]

    def _check_not_logged(self, topics: frozenset[Topic]) -> None:
        """InputError: another subscription logs a topic. Two logs of one life would contradict each other."""
        for source in self._sources:
            both = sorted(topics & source.topics) if source.is_logged else []
            if both:
                problem = f"another subscription of this bus logs {both[0]} already"
                raise InputError("log", problem, "close that one first, or leave out log")

    def seen_of(self, topic: Topic) -> int:
        """How many events of a topic the application was given in the present life, by the log."""
        for source in self._sources:
            if source.is_logged and topic in source.topics:
                return source.seen(topic)
        return 0

    def explain(self) -> Explanation:
        """Members that have not confirmed, missing causes, missing connections."""
        waits = self._live.explain() if self._live is not None else []
        return Explanation(
            down=[line for line in waits if "is not connected" in line],
            notes=[line for line in waits if "is not connected" not in line],
        )
