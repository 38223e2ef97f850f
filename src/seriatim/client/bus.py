"""The application's connection: publish, subscribe, explain. Behind it is a `Session` (session.py)."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, overload

from seriatim.client.events import Published
from seriatim.client.explain import Explanation
from seriatim.client.history import Start, check_start
from seriatim.client.metrics import ClientMetrics
from seriatim.client.options import (
    GapPolicy,
    check_filter,
    check_gaps,
    check_log,
    check_name,
    check_pairs,
    names_of,
    with_attributes,
)
from seriatim.client.outbox import Outbox
from seriatim.client.refusals import CONNECT, SUBSCRIBE, check, refusal
from seriatim.client.session import Advertisement, Session, UsedOnce, Wishes
from seriatim.client.subscription import Subscription
from seriatim.filters import Attributes, Filter
from seriatim.model import Address, Closed, InputError, SeriatimError, Topic


class Bus(UsedOnce):
    """Made by `connect`. Enter it to connect; leave it to publish queued events and to disconnect.

    `name` tells this connection from every other one; it begins with the name that was asked for.
    """

    _kind, _made_by, _entered_as = "bus", "connect", "bus"

    def __init__(self, session: Session) -> None:
        super().__init__()
        settings = session.settings
        check(CONNECT, session.substrate, {name: getattr(settings, name) for name in CONNECT})
        self._session = session
        self._subscriptions: list[Subscription] = []

    @property
    def name(self) -> Address:
        """Unlike that of every other bus."""
        return self._session.name

    @property
    def session(self) -> Session:
        """The session behind the bus, for programs that look closer than an application should have to."""
        return self._session

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        await self._session.open()

    async def _close(self) -> None:
        """Publish queued events (bounded by the timeout), close subscriptions, disconnect."""
        try:
            if self._session.outbox is not None:
                await self._session.outbox.finish()
            await asyncio.gather(*(subscription.close() for subscription in self._subscriptions))
        finally:
            await self._session.close()

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self,
        topic: Topic,
        data: bytes,
        *,
        attributes: Attributes | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> Published:
        """Publish one event; returns when it has its place in the order: whatever anybody publishes afterwards comes
        after it, for everybody who sees both. (`confirm="stored"`: when the broker has it. vcube://: when every member
        has it.)

        Waits while too much is queued. Raises RequestRefused if the broker refuses the event, TimedOut if it is not
        confirmed in time; the text says what is known about it. `attributes`: the values that filters see
        (docs/filters.md); they travel as headers. `id`: your own name for the event, never used again.
        """
        return await self._opened().publish(topic, data, with_attributes(headers, attributes), id)

    def publish_nowait(
        self,
        topic: Topic,
        data: bytes,
        *,
        attributes: Attributes | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> "asyncio.Future[Published]":
        """Queue one event; the future is done when `publish` would return. QueueFull: too much is queued."""
        return self._opened().publish_nowait(topic, data, with_attributes(headers, attributes), id)

    @overload
    async def publish_many(self, topic: Topic, data: Iterable[bytes]) -> list[Published]: ...

    @overload
    async def publish_many(self, topic: Iterable[tuple[Topic, bytes]], data: None = None) -> list[Published]: ...

    async def publish_many(
        self, topic: Topic | Iterable[tuple[Topic, bytes]], data: Iterable[bytes] | None = None
    ) -> list[Published]:
        """Publish many events, of one topic or as pairs of topic and data; returns when all are confirmed.

        All of them are checked before the first one is sent. If some fail, the first error is raised when the fate of
        all of them is known, with a note that says how many.
        """
        if isinstance(topic, str):
            if data is None:
                raise InputError("data", "nothing to publish", "give a list of bytes")
            pairs: Iterable[tuple[Topic, bytes]] = ((topic, each) for each in data)
        else:
            pairs = check_pairs(topic)
        results = await self._opened().publish_many(pairs)
        errors = [(place, each) for place, each in enumerate(results) if isinstance(each, SeriatimError)]
        if errors:
            place, error = errors[0]
            error.add_note(f"{len(errors)} of {len(results)} events failed, the first one at place {place}")
            raise error
        return [each for each in results if isinstance(each, Published)]

    async def ready(self) -> None:
        """Wait until there is room to publish; bounded by the timeout. For programs that use `publish_nowait`."""
        await self._opened().ready()

    async def flush(self) -> None:
        """Wait until the fate of everything published so far is known. Each event has its own timeout."""
        await self._opened().flush()

    async def advertise(self, where: str | Filter) -> Advertisement:
        """overlay://: announce what this bus is going to publish, as a filter; returns when every broker knows.

        From the first call on, publications outside all advertisements are refused. Without any, a publication implies
        one: its topic. TimedOut: it is withdrawn. Leave it (`async with`) or `withdraw` it when everything under it is
        published.
        """
        self._opened()
        advertise = self._session.advertise
        if advertise is None:
            raise refusal("advertise", self._session.substrate)
        wanted = check_filter(where)
        if wanted is None:
            raise InputError("where", "no filter is given", "write one, such as 'price > 100'")
        return await advertise(wanted)

    # ── subscribing ───────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        *topics: Topic,
        durable: str | None = None,
        ordered: bool = True,
        gaps: GapPolicy | None = None,
        show_gaps: bool = False,
        acknowledge: Literal["next", "manual"] = "next",
        log: str | Path | None = None,
        start: Start = "now",
        where: str | Filter | None = None,
        accept: bool = False,
    ) -> Subscription:
        """A subscription to these topics; enter it to join them. (On overlay:// `where` alone is enough.)

        `durable`: a name under which it continues after a restart. `ordered=False`: events as they arrive. `gaps`: what
        to do about events that will never come, `show_gaps`: hand out Gap objects in their place. `acknowledge`: when
        an event of a durable subscription counts as processed: when the next one is asked for, or when `acknowledge()`
        is called. `log`: a folder (or deliveries file) for `seriatim audit`, or "broker:" for `seriatim archive`.
        `start`: begin with the past, in the order of all events: "first", a position, a time, or a number of some
        topics; then live, without a gap. A durable subscription that exists continues where it was. `accept`: if its
        journal is lost, or older than what it has acknowledged, it starts over under its name (otherwise: `Behind`).
        `where`: a filter over the attributes of events, such as 'price > 100' (docs/filters.md); matching events keep
        their order. refusals.py lists which of these options atoms, peers and overlays do not have.
        """
        self._opened()
        options = {"topics": topics, "durable": durable, "ordered": ordered, "gaps": gaps, "acknowledge": acknowledge}
        check(SUBSCRIBE, self._session.substrate, options | {"log": log, "start": start, "where": where})
        if not topics and where is None:
            raise InputError("where", "neither topics nor a filter are given", "give topics, where=..., or both")
        if acknowledge not in ("next", "manual"):
            raise InputError("acknowledge", f"unknown value {acknowledge!r}", 'use "next" or "manual"')
        names = names_of(topics) if topics else frozenset()
        begin = check_start(start, names)
        if not ordered and begin not in ("now", "first"):
            raise InputError("start", "events that are not ordered have no position", 'use "now" or "first"')
        if durable is not None and not ordered:
            raise InputError("durable", "unordered subscriptions are not durable", "leave out ordered=False")
        if accept not in (True, False):
            raise InputError("accept", f"expected a bool, got {accept!r}", "use True or False")
        if accept and durable is None:
            problem = "only a durable subscription can start over"
            raise InputError("accept", problem, 'leave it out, or give durable="name"')
        if gaps is not None:
            check_gaps(gaps)
        settings = self._session.settings
        wishes = Wishes(
            topics=names,
            durable=check_name("durable", durable) if durable is not None else None,
            accept=accept,
            ordered=ordered,
            gaps=gaps if gaps is not None else settings.gaps,
            show_gaps=show_gaps,
            acknowledge=acknowledge,
            log=check_log("log", log),
            start=begin,
            where=check_filter(where),
            limits=settings.limits,
            timeout_s=settings.timeout_s,
        )
        subscription = Subscription(self._session.source(wishes), self._subscriptions.remove)
        self._subscriptions.append(subscription)
        return subscription

    # ── explaining ────────────────────────────────────────────────────────────────────────────────────────────────

    def explain(self) -> Explanation:
        """What this client waits for: held events, unpublished events, connections that are down."""
        outbox, own = self._session.outbox, self._session.explain()
        parts = [subscription.explain() for subscription in self._subscriptions]
        return Explanation(
            held=[held for part in parts for held in part.held],
            unpublished=outbox.explain() if outbox is not None else [],
            down=own.down + [line for part in parts for line in part.down],
            notes=own.notes + [line for part in parts for line in part.notes],
        )

    def metrics(self) -> ClientMetrics:
        """The metrics of this client: held events and the age of the oldest, gaps, and so on; `.text` is for
        Prometheus."""
        outbox = self._session.outbox
        unpublished = outbox.unanswered if outbox is not None else 0
        return ClientMetrics([each.metrics() for each in self._subscriptions], unpublished)

    def _opened(self) -> Outbox:
        self._check_open()
        outbox = self._session.outbox
        if outbox is None:
            raise Closed("the bus is not open yet: wait until it is entered")
        return outbox
