"""A session of a client of an overlay: `connect("overlay://…")`. Events are chosen by content, in one order for all.

`publish(..., attributes={"price": 101.5})` sets what filters test, `subscribe(where="price > 100")` selects events. The
topic is an attribute like any other, called `topic`. In logs each subscription is a subscriber: `ticker~1a2b/1`. Events
have a number in the subscription and none in their topic, so rows have none. Which topics a filter matches is known
only from what comes, so a topic counts as held from its first event on.

Brokers must know in advance what will be published: `advertise` tells them. An application that advertises nothing
need not do anything: the first publication on a topic advertises that topic.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from seriatim.client.direct.source import LEAVE_S, DirectSource
from seriatim.client.events import Event
from seriatim.client.explain import Explanation
from seriatim.client.logs import DeliveryLog, PublicationLog, open_publication_log, open_tables
from seriatim.client.overlay.attachment import Attachment
from seriatim.client.overlay.outbox import OverlayOutbox
from seriatim.client.overlay.urls import BrokerAt, find_broker, parse_overlay_url
from seriatim.client.session import Advertisement, Session, Wishes
from seriatim.client.settings import Settings
from seriatim.filters import EVERYTHING, Filter, parse
from seriatim.model import (
    Address,
    Closed,
    Gap,
    InputError,
    Notification,
    Number,
    RequestRefused,
    SeriatimError,
    TimedOut,
    Topic,
)
from seriatim.model import Event as PublishedEvent
from seriatim.protocols.machine import Payload
from seriatim.protocols.overlay.messages import (
    Advertise,
    Advertised,
    EventTaken,
    Publish,
    Refused,
    Subscribe,
    Subscribed,
    Unadvertise,
    Unadvertised,
    Unsubscribe,
    Unsubscribed,
)

Asked: TypeAlias = tuple[str, str]  # the name of a command, and what it names
Unreachable: TypeAlias = tuple[Address, ...]
Wait: TypeAlias = "asyncio.Future[Unreachable]"

IMPLIED = "topic:"  # names of the advertisements that publishing implies


class OverlaySource(DirectSource):
    """The events of one subscription, numbered by the broker for it alone. A hole in these numbers is a gap.

    `key`: the broker's name for it; `text`: the whole filter, topics included. `topics`: the topics it is limited to;
    empty: any topic. A subscription that takes events too slowly ends, because its broker would keep
    everything for it.
    """

    substrate = "overlay"
    can_change = False

    def __init__(
        self, name: Address, key: str, text: str, wishes: Wishes, session: "OverlaySession", log: DeliveryLog | None
    ) -> None:
        super().__init__(name, wishes, name, log.handed if log is not None else None)
        self.key = key
        self.text = text
        self._session = session
        self._deliveries = log
        self._begun = False

    async def open(self) -> None:
        self._begun = True
        self.unreachable(await self._session.begin(self, self.wishes.timeout_s))

    async def close(self) -> None:
        try:
            if self._begun:
                with suppress(SeriatimError):  # best effort: the broker forgets it by itself
                    await self._session.end(self, min(LEAVE_S, self.wishes.timeout_s))
        finally:
            if self._deliveries is not None:
                await self._deliveries.close(self.wishes.timeout_s)

    # ── from the broker ───────────────────────────────────────────────────────────────────────────────────────────

    def notified(self, event: PublishedEvent, number: Number, received_at: float) -> None:
        stamp = {self.key: number}
        handed = Event(event.topic, event.payload, event.headers, event.id, event.publisher, stamp, number)
        self.keep(handed, received_at)

    def missed(self, first: Number, last: Number, reason: str) -> None:
        """These numbers never come; 0: it is not known how many."""
        self.miss(Gap(self.text, first, last, reason))

    def unreachable(self, brokers: Unreachable) -> None:
        """These brokers did not answer: events published beyond them may come late, or not at all."""
        if brokers:
            names = ", ".join(brokers)
            self.missed(0, 0, f"{names} did not answer: what is published there is missed until they are back")

    def renewed(self, name: Address, reason: str) -> None:
        """The broker had forgotten it, so it starts again: from number 1, under this name in logs."""
        self.missed(0, 0, f"{reason}; what was published meanwhile is missed")
        self.log_name = name
        if self._deliveries is not None:
            self.inbox.put_news(partial(self._deliveries.renew, name))


class OverlaySession(Session):
    """Opening it connects to the broker; closing it ends its subscriptions and advertisements."""

    substrate = "overlay"
    outbox: OverlayOutbox | None = None

    def __init__(self, settings: Settings) -> None:
        self._url = parse_overlay_url(settings.url)
        if self._url.file is not None and not self._url.broker:
            raise InputError("url", "it does not say which broker of the file", "add ?broker= and its name")
        super().__init__(settings, settings.name or "client")
        self._broker: BrokerAt | None = None
        self._attachment: Attachment | None = None
        self._attachments = 0
        self._is_closed = False
        self._ended: set[asyncio.Task[None]] = set()  # attachments that are being stopped
        self._publications: PublicationLog | None = None
        self._sources: dict[str, OverlaySource] = {}  # begun at the broker
        self._offers: dict[str, str] = {}  # advertised: the filter, by name
        self._offer_count = 0
        self._is_advertising = False
        self._unheard: dict[str, Unreachable] = {}  # implied advertisements: brokers that did not hear of them at first
        self._waits: dict[Asked, Wait] = {}

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        settings = self.settings
        self._broker = await find_broker(self._url, settings)
        self._publications = open_publication_log(settings.publication_log, self._clock)
        await self._attach().wait_connected(settings.timeout_s)
        self.outbox = OverlayOutbox(self, self._broker.bytes_max, self._publications)

    def _attach(self) -> Attachment:
        assert self._broker is not None, "it is found first"
        self._attachments += 1
        name = self.name if self._attachments == 1 else f"{self.name}.{self._attachments}"
        self._attachment = Attachment(name, self._broker, self._clock, self._told, self._forgotten)
        self._attachment.start()
        return self._attachment

    @property
    def attached(self) -> Attachment:
        if self._attachment is None:
            raise Closed("the bus is not open")
        return self._attachment

    async def close(self) -> None:
        try:
            if self.outbox is not None:
                timeout_s = min(LEAVE_S, self.settings.timeout_s)
                ends = [self._ask(Unadvertise(name), name, timeout_s) for name in list(self._offers)]
                await asyncio.gather(*ends, return_exceptions=True)
        finally:
            self._is_closed = True
            if self.outbox is not None:
                self.outbox.close()
            if self._attachment is not None:
                await self._attachment.stop()
            await asyncio.gather(*self._ended, return_exceptions=True)
            if self._publications is not None:
                await self._publications.close(self.settings.timeout_s)

    # ── speaking to the broker ────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, source: OverlaySource, timeout_s: float) -> Unreachable:
        self._sources[source.key] = source
        try:
            return await self._ask(Subscribe(source.key, source.text), source.key, timeout_s)
        except BaseException as error:
            del self._sources[source.key]
            self._take_back(Unsubscribe(source.key), error)
            raise

    async def end(self, source: OverlaySource, timeout_s: float) -> None:
        if self._sources.pop(source.key, None) is not None:
            await self._ask(Unsubscribe(source.key), source.key, timeout_s)

    async def _ask(
        self, command: Subscribe | Unsubscribe | Advertise | Unadvertise, name: str, timeout_s: float
    ) -> Unreachable:
        """RequestRefused: the broker refused, with the reason. TimedOut: no answer; the broker may still do it."""
        asked = type(command).__name__, name
        future: Wait = asyncio.get_running_loop().create_future()
        self._waits[asked] = future
        try:
            self.attached.command(command)
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            reasons = "; ".join(self.attached.problems()) or "not every broker has answered"
            raise TimedOut(f"{asked[0]} {name}: no answer within {timeout_s:g} s: {reasons}") from None
        finally:
            if self._waits.get(asked) is future:
                del self._waits[asked]

    def _take_back(self, command: Unsubscribe | Unadvertise, error: BaseException) -> None:
        """Undo a command whose caller gave up, because the broker may still carry it out. Does not wait."""
        if not isinstance(error, RequestRefused):
            with suppress(Closed):  # then the broker forgets it by itself
                self.attached.command(command)

    def give(self, event: PublishedEvent) -> None:
        """Publish an event, after the advertisement that it implies."""
        if not self._is_advertising:
            name = IMPLIED + event.topic
            if name not in self._offers:
                self._offers[name] = topic_filter(frozenset((event.topic,)))
                self.attached.command(Advertise(name, self._offers[name]))
        self.attached.command(Publish(event))

    def _forgotten(self, reason: str) -> None:
        """Attach again as a new client, with the same advertisements and subscriptions."""
        if self._attachment is None or self._is_closed:
            return
        stopping = asyncio.get_running_loop().create_task(self._attachment.stop())
        self._ended.add(stopping)
        stopping.add_done_callback(self._ended.discard)
        attachment = self._attach()
        for name, where in self._offers.items():
            attachment.command(Advertise(name, where))
        for source in self._sources.values():
            if ("Subscribe", source.key) not in self._waits:  # otherwise it has not begun, and has missed nothing
                source.renewed(f"{attachment.name}/{source.key}", reason)
            attachment.command(Subscribe(source.key, source.text))
        for asked, future in self._waits.items():
            if asked[0] in ("Unsubscribe", "Unadvertise") and not future.done():
                future.set_result(())
        if self.outbox is not None:
            self.outbox.forgotten(reason)

    # ── from the broker ───────────────────────────────────────────────────────────────────────────────────────────

    def _told(self, notices: Sequence[Payload]) -> None:
        now = self._clock.now_ms()
        for notice in notices:
            if isinstance(notice, Notification):
                for key, number in notice.entries.items():
                    if (source := self._sources.get(key)) is not None:
                        source.notified(notice.event, number, now)
            elif isinstance(notice, EventTaken):
                if self.outbox is not None:
                    self.outbox.published(notice.event_id)
            elif isinstance(notice, Gap):
                if (source := self._sources.get(notice.topic)) is not None:
                    source.missed(notice.first, notice.last, notice.reason)
            elif isinstance(notice, Refused):
                self._refused(notice)
            elif isinstance(notice, Subscribed | Advertised):
                self._answered(notice)
            elif isinstance(notice, Unsubscribed | Unadvertised):
                self._answer(("Unsubscribe" if isinstance(notice, Unsubscribed) else "Unadvertise", notice.name), ())

    def _answered(self, notice: Subscribed | Advertised) -> None:
        asked = "Subscribe" if isinstance(notice, Subscribed) else "Advertise"
        is_waited_for = self._answer((asked, notice.name), notice.unreachable)
        if is_waited_for:
            return
        if asked == "Subscribe" and (source := self._sources.get(notice.name)) is not None:
            source.unreachable(notice.unreachable)  # it has started again
        elif asked == "Advertise" and notice.unreachable:
            self._unheard[notice.name] = notice.unreachable

    def _answer(self, asked: Asked, unreachable: Unreachable) -> bool:
        future = self._waits.get(asked)
        if future is None or future.done():
            return False
        future.set_result(unreachable)
        return True

    def _refused(self, notice: Refused) -> None:
        if notice.command == "Publish":
            if self.outbox is not None:
                self.outbox.refused(notice.name, notice.error, notice.reason)
            return
        error = RequestRefused(f"{notice.error}: {notice.command} {notice.name}: {notice.reason}")
        future = self._waits.get((notice.command, notice.name))
        if future is not None and not future.done():
            future.set_exception(error)
        elif notice.command == "Subscribe" and (source := self._sources.get(notice.name)) is not None:
            source.fail(error)

    # ── advertising and subscribing ───────────────────────────────────────────────────────────────────────────────

    async def advertise(self, where: Filter) -> Advertisement:
        """See `Bus.advertise`."""
        self._offer_count += 1
        name, text = str(self._offer_count), str(where)
        was_advertising, self._is_advertising = self._is_advertising, True
        self._offers[name] = text
        try:
            unreachable = await self._ask(Advertise(name, text), name, self.settings.timeout_s)
        except BaseException as error:
            self._offers.pop(name, None)
            self._is_advertising = was_advertising
            self._take_back(Unadvertise(name), error)
            raise
        return Advertisement(text, unreachable, partial(self._withdraw, name))

    async def _withdraw(self, name: str) -> None:
        """Withdraw an advertisement. Returns when the broker knows."""
        if self._is_closed:
            raise Closed("the bus is closed")
        if self._offers.pop(name, None) is not None:
            await self._ask(Unadvertise(name), name, self.settings.timeout_s)

    def source(self, wishes: Wishes) -> OverlaySource:
        """Make the source of a subscription to events that match its filter, on its topics or on any."""
        whole = wishes.where if wishes.where is not None else EVERYTHING
        text = str(whole & parse(topic_filter(wishes.topics)) if wishes.topics else whole)
        self._count += 1
        key = str(self._count)
        name = f"{self.attached.name}/{key}"
        log = None
        if wishes.log is not None:
            log = DeliveryLog(*open_tables(Path(wishes.log)), name, self._clock, text, is_numbered=False)
        return OverlaySource(name, key, text, wishes, self, log)

    # ── explaining ────────────────────────────────────────────────────────────────────────────────────────────────

    def explain(self) -> Explanation:
        attached = self._attachment
        return Explanation(
            down=attached.problems() if attached is not None else [],
            notes=[*(attached.waits() if attached is not None else []), *self._not_heard()],
        )

    def _not_heard(self) -> list[str]:
        return [
            f"{name.removeprefix(IMPLIED)}: {', '.join(brokers)} did not answer when it was advertised; subscribers "
            "beyond them miss what is published until they are back"
            for name, brokers in sorted(self._unheard.items())
        ]


def topic_filter(topics: frozenset[Topic]) -> str:
    """A filter for these topics, as text."""
    written = [json.dumps(topic) for topic in sorted(topics)]
    return f"topic = {written[0]}" if len(written) == 1 else f"topic in ({', '.join(written)})"
