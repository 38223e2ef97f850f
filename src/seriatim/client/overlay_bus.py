"""The bus of a client of an overlay: `connect("overlay://…")`. Events are chosen by content, in one order for all.

The same calls as on any bus. `publish(..., attributes={"price": 101.5})` says what filters see, `subscribe(where="price
> 100")` what is wanted. The topic is an attribute like others, called `topic`.

Brokers must know what will be published before it is: `advertise` says so. Who advertises nothing need not care: the
first publication on a topic advertises that topic.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

from seriatim.client.bus import Bus
from seriatim.client.explain import Explanation
from seriatim.client.metrics import ClientMetrics
from seriatim.client.options import GapPolicy, check_filter, check_path
from seriatim.client.overlay_attachment import Attachment
from seriatim.client.overlay_logs import OverlayDeliveries, OverlayPublications
from seriatim.client.overlay_outbox import OverlayOutbox
from seriatim.client.overlay_subscription import OverlaySubscription
from seriatim.client.overlay_urls import BrokerAt, find_broker, parse_overlay_url
from seriatim.client.settings import Settings
from seriatim.client.subscription import LEAVE_S, Subscription, Wishes, names_of
from seriatim.filters import EVERYTHING, Filter, parse
from seriatim.model import Address, Closed, Event, Gap, InputError, Notification, RequestRefused, TimedOut, Topic
from seriatim.protocols.machine import Payload
from seriatim.protocols.overlay.messages import (
    Advertise,
    Advertised,
    Publish,
    Published,
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

GAPS = GapPolicy.skip(), GapPolicy.raise_()
IMPLIED = "topic:"  # names of the advertisements that publishing implies


class OverlayBus(Bus):
    """Made by `connect` from an overlay:// URL. Enter it to connect to the broker; leave it to end all it has there."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._url = parse_overlay_url(settings.url)
        if self._url.file is not None and not self._url.broker:
            raise InputError("url", "it does not say which broker of the file", "add ?broker= and its name")
        _check_settings(settings)
        self._broker: BrokerAt | None = None
        self._attachment: Attachment | None = None
        self._attachments = 0
        self._ended: set[asyncio.Task[None]] = set()  # attachments that are being stopped
        self._out: OverlayOutbox | None = None
        self._rows: OverlayPublications | None = None
        self._streams: dict[str, OverlaySubscription] = {}  # begun at the broker
        self._offers: dict[str, str] = {}  # advertised: the filter, by name
        self._offer_count = 0
        self._is_advertising = False
        self._unheard: dict[str, Unreachable] = {}  # implied advertisements: who has not heard of them at first
        self._waits: dict[Asked, Wait] = {}

    @property
    def broker(self) -> Address:
        """The broker that this is a client of."""
        if self._broker is None:
            raise Closed("the bus is not open")
        return self._broker.name

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        settings = self._settings
        self._broker = await find_broker(self._url, settings)
        if settings.publication_log is not None:
            self._rows = OverlayPublications(Path(settings.publication_log), self._clock)
        attachment = self._attach()
        await attachment.wait_connected(settings.timeout_s)
        self._out = OverlayOutbox(
            self.name,
            limits=settings.limits,
            timeout_s=settings.timeout_s,
            bytes_max=self._broker.bytes_max,
            publisher=lambda: self._attached.name,
            give=self._give,
            log=self._rows,
        )

    def _attach(self) -> Attachment:
        assert self._broker is not None, "it is found first"
        self._attachments += 1
        name = self.name if self._attachments == 1 else f"{self.name}.{self._attachments}"
        self._attachment = Attachment(name, self._broker, self._clock, self._told, self._forgotten)
        self._attachment.start()
        return self._attachment

    @property
    def _attached(self) -> Attachment:
        if self._attachment is None:
            raise Closed("the bus is not open")
        return self._attachment

    async def _close(self) -> None:
        """Publish what is queued (bounded by the timeout), end all subscriptions and advertisements, disconnect."""
        try:
            if self._out is not None:
                await self._finish(self._out)
        finally:
            if self._out is not None:
                self._out.close()
            if self._attachment is not None:
                await self._attachment.stop()
            await asyncio.gather(*self._ended, return_exceptions=True)
            if self._rows is not None:
                self._rows.close()

    async def _finish(self, out: OverlayOutbox) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                await out.flush()
        except TimeoutError:
            pass  # what is not confirmed is answered by close
        streams = list(self._streams.values())
        timeout_s = min(LEAVE_S, self._settings.timeout_s)
        ends = [self._ask(Unadvertise(name), name, timeout_s) for name in list(self._offers)]
        await asyncio.gather(*(stream.close() for stream in streams), *ends, return_exceptions=True)

    # ── speaking to the broker ────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, stream: OverlaySubscription, timeout_s: float) -> Unreachable:
        """For a subscription."""
        self._streams[stream.key] = stream
        try:
            return await self._ask(Subscribe(stream.key, stream.text), stream.key, timeout_s)
        except BaseException as error:
            del self._streams[stream.key]
            self._take_back(Unsubscribe(stream.key), error)
            raise

    async def end(self, stream: OverlaySubscription, timeout_s: float) -> None:
        """A subscription is over."""
        if self._streams.pop(stream.key, None) is not None:
            await self._ask(Unsubscribe(stream.key), stream.key, timeout_s)

    async def _ask(
        self, command: Subscribe | Unsubscribe | Advertise | Unadvertise, name: str, timeout_s: float
    ) -> Unreachable:
        """RequestRefused: the broker says no, and why. TimedOut: it does not answer, and may still do it."""
        asked = type(command).__name__, name
        future: Wait = asyncio.get_running_loop().create_future()
        self._waits[asked] = future
        try:
            self._attached.command(command)
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            reasons = "; ".join(self._attached.problems()) or "not every broker has answered"
            raise TimedOut(f"{asked[0]} {name}: no answer within {timeout_s:g} s: {reasons}") from None
        finally:
            if self._waits.get(asked) is future:
                del self._waits[asked]

    def _take_back(self, command: Unsubscribe | Unadvertise, error: BaseException) -> None:
        """Nobody waits any more for what was asked for, and the broker may still do it: undo it, without waiting."""
        if not isinstance(error, RequestRefused):
            with suppress(Closed):  # then the broker forgets it by itself
                self._attached.command(command)

    def _give(self, event: Event) -> None:
        """An event, behind the advertisement that it implies."""
        if not self._is_advertising:
            name = IMPLIED + event.topic
            if name not in self._offers:
                self._offers[name] = topic_filter(frozenset((event.topic,)))
                self._attached.command(Advertise(name, self._offers[name]))
        self._attached.command(Publish(event))

    def _forgotten(self, reason: str) -> None:
        """Begin anew: another client to the broker, with the same advertisements and subscriptions."""
        if self._attachment is None or self._state == "closed":
            return
        stopping = asyncio.get_running_loop().create_task(self._attachment.stop())
        self._ended.add(stopping)
        stopping.add_done_callback(self._ended.discard)
        attachment = self._attach()
        for name, where in self._offers.items():
            attachment.command(Advertise(name, where))
        for stream in self._streams.values():
            if ("Subscribe", stream.key) not in self._waits:  # else it has not begun, and has missed nothing
                stream.renewed(f"{attachment.name}/{stream.key}", reason)
            attachment.command(Subscribe(stream.key, stream.text))
        for asked, future in self._waits.items():
            if asked[0] in ("Unsubscribe", "Unadvertise") and not future.done():
                future.set_result(())
        if self._out is not None:
            self._out.forgotten(reason)

    # ── from the broker ───────────────────────────────────────────────────────────────────────────────────────────

    def _told(self, notices: Sequence[Payload]) -> None:
        now = self._clock.now_ms()
        for notice in notices:
            if isinstance(notice, Notification):
                for key, number in notice.entries.items():
                    if (stream := self._streams.get(key)) is not None:
                        stream.notified(notice.event, number, now)
            elif isinstance(notice, Published):
                if self._out is not None:
                    self._out.published(notice.event_id)
            elif isinstance(notice, Gap):
                if (stream := self._streams.get(notice.topic)) is not None:
                    stream.missed(notice.first, notice.last, notice.reason)
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
        if asked == "Subscribe" and (stream := self._streams.get(notice.name)) is not None:
            stream.unreachable(notice.unreachable)  # it has begun anew
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
            if self._out is not None:
                self._out.refused(notice.name, notice.error, notice.reason)
            return
        error = RequestRefused(f"{notice.error}: {notice.command} {notice.name}: {notice.reason}")
        future = self._waits.get((notice.command, notice.name))
        if future is not None and not future.done():
            future.set_exception(error)
        elif notice.command == "Subscribe" and (stream := self._streams.get(notice.name)) is not None:
            stream.fail(error)

    # ── advertising, publishing and subscribing ───────────────────────────────────────────────────────────────────

    async def advertise(self, where: str | Filter) -> "Advertisement":
        """What this bus is going to publish, as a filter; returns when every broker knows.

        From the first call on, publications outside all advertisements are refused. Without any, a publication implies
        one: its topic. TimedOut: it is withdrawn. Leave it (`async with`) or `withdraw` it when everything under it is
        published.
        """
        self._opened()
        text = str(check_filter(where))
        self._offer_count += 1
        name = str(self._offer_count)
        was_advertising, self._is_advertising = self._is_advertising, True
        self._offers[name] = text
        try:
            unreachable = await self._ask(Advertise(name, text), name, self._settings.timeout_s)
        except BaseException as error:
            self._offers.pop(name, None)
            self._is_advertising = was_advertising
            self._take_back(Unadvertise(name), error)
            raise
        return Advertisement(self, name, text, unreachable)

    async def withdraw(self, advertisement: "Advertisement") -> None:
        """Everything under this advertisement is published. Returns when the broker knows."""
        self._opened()
        if self._offers.pop(advertisement.name, None) is not None:
            await self._ask(Unadvertise(advertisement.name), advertisement.name, self._settings.timeout_s)

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
    ) -> OverlaySubscription:
        """A subscription to what matches `where`, on these topics, or on any if none is named; enter it to begin.

        FilterError: the filter cannot be read, or matches nothing. `gaps`: with `raise_()` a gap is raised in its
        place, `show_gaps`: handed out. `log`: a folder for `seriatim audit`. The rest needs sequencers and is refused.
        """
        self._opened()
        for name, given, problem in (
            ("durable", durable is not None, "a client of an overlay remembers nothing over a restart"),
            ("ordered", not ordered, "an overlay orders everything it notifies"),
            ("acknowledge", acknowledge != "next", "only durable subscriptions remember it"),
            ("start", start != "now", "no broker keeps what was published before"),
            ("log", log == "broker:", "a broker of an overlay keeps no logs"),
            ("gaps", gaps not in (None, *GAPS), "gaps are told at once, in their place: GapPolicy.skip() or raise_()"),
        ):
            if given:
                raise InputError(name, f"{problem} (overlay://)", "leave it out")
        if not topics and where is None:
            raise InputError("where", "neither topics nor a filter are given", "give topics, where=..., or both")
        names = names_of(topics) if topics else frozenset()
        wanted = check_filter(where)
        place = check_path("log", log, "a folder") if log is not None else None
        whole = wanted if wanted is not None else EVERYTHING
        text = str(whole & parse(topic_filter(names)) if names else whole)
        wishes = Wishes(
            topics=names,
            durable=None,
            ordered=True,
            gaps=gaps if gaps is not None else self._settings.gaps,
            show_gaps=show_gaps,
            acknowledge="next",
            log=place,
            start="now",
            where=wanted,
            stamp_key=None,
            limits=self._settings.limits,
            timeout_s=self._settings.timeout_s,
        )
        self._subscription_count += 1
        key = str(self._subscription_count)
        name = f"{self._attached.name}/{key}"
        rows = OverlayDeliveries(place, name, self._clock, text) if place is not None else None
        return OverlaySubscription(name, key, text, wishes, self, self._clock, rows, self._forget)

    def _forget(self, stream: Subscription) -> None:
        """It is closed."""

    def _seen(self) -> int | None:
        """The order of an overlay is not judged by causes."""
        return None

    # ── explaining ────────────────────────────────────────────────────────────────────────────────────────────────

    def explain(self) -> Explanation:
        """Everything this client waits for: the broker's answers, and its connection."""
        attached = self._attachment
        return Explanation(
            unpublished=self._out.explain() if self._out is not None else [],
            down=attached.problems() if attached is not None else [],
            notes=[*(attached.waits() if attached is not None else []), *self._not_heard()],
        )

    def _not_heard(self) -> list[str]:
        return [
            f"{name.removeprefix(IMPLIED)}: {', '.join(brokers)} did not answer when it was advertised; subscribers "
            "beyond them miss what is published until they are back"
            for name, brokers in sorted(self._unheard.items())
        ]

    def metrics(self) -> ClientMetrics:
        """What is counted here; what is held back is known to the broker only."""
        unpublished = self._out.events_waiting if self._out is not None else 0
        return ClientMetrics([each.metrics() for each in self._streams.values()], unpublished)

    def _opened(self) -> Any:
        self._check_open()
        if self._out is None:
            raise Closed("the bus is not open yet: wait until it is entered")
        return self._out


class Advertisement:
    """What somebody said it would publish. `unreachable`: brokers that did not answer, and hear of it when they are
    back."""

    def __init__(self, bus: OverlayBus, name: str, where: str, unreachable: Unreachable) -> None:
        self.name = name
        self.where = where
        self.unreachable = unreachable
        self._bus = bus

    async def withdraw(self) -> None:
        """Everything under it is published."""
        await self._bus.withdraw(self)

    async def __aenter__(self) -> "Advertisement":
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.withdraw()


def topic_filter(topics: frozenset[Topic]) -> str:
    """As filters are written."""
    written = [json.dumps(topic) for topic in sorted(topics)]
    return f"topic = {written[0]}" if len(written) == 1 else f"topic in ({', '.join(written)})"


def _check_settings(settings: Settings) -> None:
    for name, given, fix in (
        ("mode", settings.mode is not None, "leave it out: the overlay's file says how it orders"),
        ("causal", settings.causal is not None, "leave it out: the overlay's file says how it orders"),
        ("stamp_key", settings.stamp_key is not None, "leave it out: there are no stamps"),
        ("sequencers", settings.sequencers is not None, "leave it out: there are none"),
        ("journals", settings.journals is not None, "leave it out: a client remembers nothing over a restart"),
        ("publication_log", settings.publication_log == "broker:", "give a folder: brokers keep no logs"),
        ("gaps", settings.gaps.after_s is not None, "leave after_s out: a gap is told in its place, at once"),
    ):
        if given:
            raise InputError(name, "means nothing in an overlay (overlay://)", fix)
