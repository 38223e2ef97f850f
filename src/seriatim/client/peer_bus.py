"""The bus of a process that is a peer itself: `connect("vcube://…")`. No broker, no sequencers.

The same calls as on any bus. What is published is ordered causally within its topic, among the peers that hold it.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from seriatim.client.bus import Bus
from seriatim.client.explain import Explanation
from seriatim.client.metrics import ClientMetrics
from seriatim.client.options import GapPolicy, check_path
from seriatim.client.peer_logs import PeerDeliveries, PeerPublications
from seriatim.client.peer_outbox import PeerOutbox
from seriatim.client.peer_subscription import PeerSubscription
from seriatim.client.peer_urls import find_peers, parse_peer_url
from seriatim.client.settings import Settings
from seriatim.client.subscription import LEAVE_S, Subscription, Wishes, names_of
from seriatim.filters import Filter
from seriatim.model import APPLICATION, Closed, InputError, Notification, SeriatimError, TimedOut, Topic
from seriatim.peers import LivePeer
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube.cube import Id, life_of, name_of
from seriatim.protocols.vcube.messages import (
    Born,
    Published,
    Subscribe,
    Subscribed,
    Unsettled,
    Unsubscribe,
    Unsubscribed,
)


class PeerBus(Bus):
    """Made by `connect` from a vcube:// URL. Entering it makes this process a peer, leaving it ends that life.

    `join`: publishing on a topic that is not held subscribes to it first.
    """

    def __init__(self, settings: Settings, join: bool = False) -> None:
        super().__init__(settings)
        url = parse_peer_url(settings.url)
        if url.id is None:
            raise InputError("url", "it does not say which peer this process is", "add ?id= and its id")
        _check_settings(settings, has_file=url.file is not None)
        self._url = url
        self.id: Id = url.id
        self.name = f"peer{self.id}~{self.name.rpartition('~')[2]}"
        self._join = join
        self._live: LivePeer | None = None
        self._life = ""
        self._out: PeerOutbox | None = None
        self._rows: PeerPublications | None = None
        self._logs: dict[Path, PeerDeliveries] = {}
        self._streams: list[PeerSubscription] = []
        self._holders: dict[Topic, int] = {}
        self._joins: dict[Topic, deque[asyncio.Future[None]]] = {}
        self._leaves: dict[Topic, deque[asyncio.Future[None]]] = {}

    @property
    def live(self) -> LivePeer:
        """The peer, while the bus is open."""
        if self._live is None:
            raise Closed("the bus is not open")
        return self._live

    def life(self) -> str:
        """The present life, as logs call it."""
        return self._life

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        settings = self._settings
        config = await find_peers(self._url, settings)
        config.check_id(self.id)
        journal = settings.journals(f"peer-{self.id}") if settings.journals is not None else None
        live = LivePeer(config, self.id, self._told, journal=journal, clock=self._clock)
        self._live = live
        live.failed.add_done_callback(self._ended)
        if settings.publication_log is not None:
            self._rows = PeerPublications(Path(settings.publication_log), self._clock)
        await live.start()
        self._life = live.name
        self._out = PeerOutbox(
            self.name,
            live,
            join=self._join,
            limits=settings.limits,
            timeout_s=settings.timeout_s,
            life=self.life,
            log=self._rows,
            seen=self._seen_of,
        )

    async def _close(self) -> None:
        """Publish what is queued (bounded by the timeout), leave all topics, depart."""
        try:
            if self._out is not None and self._live is not None and not self._live.failed.done():
                await self._finish(self._out, self._live)
        finally:
            for stream in list(self._streams):
                await stream.close()
            if self._out is not None:
                self._out.close()
            if self._live is not None:
                await self._live.stop()
            for log in self._logs.values():
                log.close()
            if self._rows is not None:
                self._rows.close()

    async def _finish(self, out: PeerOutbox, live: LivePeer) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await out.flush()
        except TimeoutError:
            pass  # what is not confirmed is answered by close
        for stream in list(self._streams):
            await stream.close()
        self._holders.clear()
        topics = live.topics  # held because something was published there
        timeout_s = min(LEAVE_S, self._settings.timeout_s)
        await asyncio.gather(*(self._leave(topic, timeout_s) for topic in topics), return_exceptions=True)

    def _ended(self, failed: "asyncio.Future[SeriatimError]") -> None:
        """The peer cannot go on: whoever waits for something is told."""
        error = failed.result()
        if self._out is not None:
            self._out.close(error)
        for stream in self._streams:
            stream.fail(error)
        for waits in (*self._joins.values(), *self._leaves.values()):
            for future in waits:
                if not future.done():
                    future.set_exception(error)

    # ── holding topics ────────────────────────────────────────────────────────────────────────────────────────────

    async def hold(self, topic: Topic, timeout_s: float) -> None:
        """For a subscription. Returns when everything published from here on is notified."""
        self._holders[topic] = self._holders.get(topic, 0) + 1
        await self._ask(Subscribe(topic), self._joins, timeout_s, "join")

    async def release(self, topic: Topic, timeout_s: float) -> None:
        """A subscription does not need it any more; the last one leaves it."""
        self._holders[topic] = self._holders.get(topic, 1) - 1
        if self._holders[topic] <= 0:
            del self._holders[topic]
            await self._leave(topic, timeout_s)

    async def _leave(self, topic: Topic, timeout_s: float) -> None:
        await self._ask(Unsubscribe(topic), self._leaves, timeout_s, "leave")

    async def _ask(
        self,
        command: Subscribe | Unsubscribe,
        waits: dict[Topic, "deque[asyncio.Future[None]]"],
        timeout_s: float,
        what: str,
    ) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waits.setdefault(command.topic, deque()).append(future)
        try:
            self.live.command(APPLICATION, command)
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            reasons = "; ".join(self.live.explain()[:3]) or "nobody says why"
            raise TimedOut(f"could not {what} {command.topic} within {timeout_s:g} s: {reasons}") from None
        finally:
            if not future.done():
                future.cancel()  # its answer still comes, and must not answer the next one

    # ── from the peer ─────────────────────────────────────────────────────────────────────────────────────────────

    def _told(self, notices: Sequence[Payload]) -> None:
        now = self._clock.now_ms()
        for notice in notices:
            if isinstance(notice, Notification):
                if self._out is not None:
                    self._out.taken(notice.event, notice.number, self._life)
                for stream in self._streams:
                    stream.notified(notice, now)
            elif isinstance(notice, Published):
                if self._out is not None:
                    self._out.published(notice.event_id)
            elif isinstance(notice, Unsettled):
                if self._out is not None:
                    self._out.unsettled(notice.event_id)
            elif isinstance(notice, Subscribed):
                _answer(self._joins, notice.topic)
            elif isinstance(notice, Unsubscribed):
                _answer(self._leaves, notice.topic)
            elif isinstance(notice, Born):
                self._life = name_of(life_of(self.id, notice.births))
                for topic in notice.rejoining:
                    for stream in self._streams:
                        stream.born(topic, self._life)

    # ── publishing and subscribing ────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        *topics: Topic,
        durable: str | None = None,
        ordered: bool = True,
        gaps: GapPolicy | None = None,
        show_gaps: bool = False,
        acknowledge: Literal["next", "manual"] = "next",
        log: str | Path | None = None,
        start: Literal["now", "first"] = "now",
        where: str | Filter | None = None,
    ) -> PeerSubscription:
        """A subscription to these topics; enter it to join them. Order is kept within each of them.

        `show_gaps`: hand out a Gap where this peer was held for dead and has missed something. `log`: a folder for
        `seriatim audit`. The rest needs a broker and is refused.
        """
        self._opened()
        for name, given, problem in (
            ("durable", durable is not None, "no peer keeps what was published before"),
            ("ordered", not ordered, "peers order everything they notify"),
            ("gaps", gaps not in (None, GapPolicy.wait()), "between peers nothing gets lost that could be waited for"),
            ("acknowledge", acknowledge != "next", "only durable subscriptions remember it"),
            ("start", start != "now", "no peer keeps what was published before"),
            ("where", where is not None, "peers do not filter"),
            ("log", log == "broker:", "there is no broker to keep it"),
        ):
            if given:
                raise InputError(name, f"{problem} (vcube://)", "leave it out, or use a broker")
        place = check_path("log", log, "a folder") if log is not None else None
        wishes = Wishes(
            topics=names_of(topics),
            durable=None,
            ordered=True,
            gaps=GapPolicy.wait(),
            show_gaps=show_gaps,
            acknowledge="next",
            log=place,
            start="now",
            stamp_key=None,
            limits=self._settings.limits,
            timeout_s=self._settings.timeout_s,
        )
        if place is not None:
            self._check_not_logged(wishes.topics)
        self._subscription_count += 1
        stream = PeerSubscription(
            f"{self.name}/{self._subscription_count}",
            wishes,
            self,
            self._clock,
            self._log_at(place) if place is not None else None,
            self._forget,
        )
        self._streams.append(stream)
        return stream

    def _check_not_logged(self, topics: frozenset[Topic]) -> None:
        """One log of a topic is enough for a life, and two would contradict each other."""
        for stream in self._streams:
            both = sorted(topics & stream.topics) if stream.is_logged else []
            if both:
                problem = f"another subscription of this bus logs {both[0]} already"
                raise InputError("log", problem, "close that one first, or leave out log")

    def _log_at(self, place: Path) -> PeerDeliveries:
        if place not in self._logs:
            self._logs[place] = PeerDeliveries(place, self._clock)
        return self._logs[place]

    def _forget(self, stream: Subscription) -> None:
        self._streams = [each for each in self._streams if each is not stream]

    def _seen(self) -> int | None:
        """Peers count by topic: the outbox asks for it."""
        return None

    def _seen_of(self, topic: Topic) -> int:
        for stream in self._streams:
            if stream.is_logged and topic in stream.topics:
                return stream.seen(topic)
        return 0

    # ── explaining ────────────────────────────────────────────────────────────────────────────────────────────────

    def explain(self) -> Explanation:
        """Everything this peer waits for: members that have not confirmed, causes that have not come, connections."""
        waits = self.live.explain() if self._live is not None else []
        return Explanation(
            unpublished=self._out.explain() if self._out is not None else [],
            down=[line for line in waits if "is not connected" in line],
            notes=[line for line in waits if "is not connected" not in line],
        )

    def metrics(self) -> ClientMetrics:
        """What is counted here; what is held back is known to the peer only."""
        unpublished = self._out.events_waiting if self._out is not None else 0
        return ClientMetrics([each.metrics() for each in self._streams], unpublished)

    def _opened(self) -> Any:
        self._check_open()
        if self._out is None:
            raise Closed("the bus is not open yet: wait until it is entered")
        return self._out


def _answer(waits: Mapping[Topic, "deque[asyncio.Future[None]]"], topic: Topic) -> None:
    """Answers come in the order of the commands."""
    queue = waits.get(topic)
    if queue:
        future = queue.popleft()
        if not future.done():
            future.set_result(None)


def _check_settings(settings: Settings, has_file: bool) -> None:
    for name, given, fix in (
        ("mode", settings.mode is not None, "leave it out: there are no numbers to give"),
        ("causal", settings.causal is False, "leave it out: peers keep causal order"),
        ("stamp_key", settings.stamp_key is not None, "leave it out: there are no stamps"),
        ("sequencers", settings.sequencers is not None, "leave it out: there are none"),
        ("gaps", settings.gaps != GapPolicy.wait(), "leave it out: there are no numbers that never come"),
        ("name", settings.name is not None, "leave it out: a peer is called by its id"),
        ("publication_log", settings.publication_log == "broker:", "give a folder: there is no broker"),
    ):
        if given:
            raise InputError(name, "means nothing between peers (vcube://)", fix)
    if not has_file and settings.journals is None:
        problem = "a peer must remember how often it was born, and a seed does not say where"
        raise InputError("journals", problem, 'connect(url, journals="folder")')
