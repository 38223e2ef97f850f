"""The application's connection: publish, subscribe, explain."""

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, overload

from seriatim.client.cluster import Cluster, Network
from seriatim.client.events import Published
from seriatim.client.explain import Explanation
from seriatim.client.lifetime import UsedOnce
from seriatim.client.logs import PublicationFile, log_place, open_publication_log
from seriatim.client.metrics import ClientMetrics
from seriatim.client.options import GapPolicy, check_filter, check_name, check_pairs, with_attributes
from seriatim.client.outbox import Outbox
from seriatim.client.settings import Settings
from seriatim.client.subscription import Subscription, Wishes, names_of
from seriatim.filters import Attributes, Filter
from seriatim.model import Address, Closed, InputError, SeriatimError, Topic
from seriatim.runtime import Clock, Journal


class Bus(UsedOnce):
    """Made by `connect`. Enter it to connect; leave it to publish what is queued and to disconnect.

    `name` tells this connection from every other one; it begins with the name that was asked for.
    """

    _kind, _made_by, _entered_as = "bus", "connect", "bus"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.name: Address = f"{settings.name or 'client'}~{secrets.token_hex(5)}"
        self._settings = settings
        self._clock = Clock()
        self._cluster: Cluster | None = None
        self._network: Network | None = None
        self._outbox: Outbox | None = None
        self._publications: PublicationFile | None = None
        self._subscriptions: list[Subscription] = []
        self._subscription_count = 0

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        settings = self._settings
        self._cluster = cluster = await settings.open_cluster(settings)
        self._network = cluster.network(self.name)
        await self._network.open()
        if settings.publication_log is not None:
            place = settings.publication_log
            self._publications = open_publication_log(place, cluster.broker, self.name, self._clock)
        self._outbox = self._make_outbox(cluster, self._network)
        self._outbox.start()

    def _make_outbox(self, cluster: Cluster, network: Network) -> Outbox:
        settings = self._settings
        return Outbox(
            self.name,
            cluster.description.tree,
            cluster.description.options,
            broker=cluster.broker,
            switchboard=network.switchboard,
            clock=self._clock,
            limits=settings.limits,
            timeout_s=settings.timeout_s,
            log=self._publications,
        )

    async def _close(self) -> None:
        """Close subscriptions, publish what is queued (bounded by the timeout), disconnect."""
        try:
            await asyncio.gather(*(subscription.close() for subscription in self._subscriptions))
            if self._outbox is not None:
                await self._outbox.close()
        finally:
            if self._publications is not None:
                await self._publications.close(self._settings.timeout_s)
            if self._network is not None:
                await self._network.close()
            if self._cluster is not None:
                await self._cluster.close()

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
        """Publish one event; returns when the broker has it.

        Waits while too much is queued. Raises RequestRefused if the broker does not take it, TimedOut if it does not
        say. `attributes`: what filters see of it (docs/filters.md); they travel as headers. `id`: a name of your own
        for the event, never used again.
        """
        return await self._opened().publish(topic, data, with_attributes(headers, attributes), id, self._seen())

    def publish_nowait(
        self,
        topic: Topic,
        data: bytes,
        *,
        attributes: Attributes | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> "asyncio.Future[Published]":
        """Queue one event; the future is done when the broker has it. QueueFull: too much is queued."""
        return self._opened().publish_nowait(topic, data, with_attributes(headers, attributes), id, self._seen())

    @overload
    async def publish_many(self, topic: Topic, data: Iterable[bytes]) -> list[Published]: ...

    @overload
    async def publish_many(self, topic: Iterable[tuple[Topic, bytes]], data: None = None) -> list[Published]: ...

    async def publish_many(
        self, topic: Topic | Iterable[tuple[Topic, bytes]], data: Iterable[bytes] | None = None
    ) -> list[Published]:
        """Publish many events, of one topic or as pairs of topic and data; returns when the broker has them all.

        All of them are looked at before the first one is sent. If some fail, the first error is raised when the fate
        of all of them is known, with a note that says how many.
        """
        if isinstance(topic, str):
            if data is None:
                raise InputError("data", "nothing to publish", "give a list of bytes")
            pairs: Iterable[tuple[Topic, bytes]] = ((topic, each) for each in data)
        else:
            pairs = check_pairs(topic)
        results = await self._opened().publish_many(pairs, self._seen())
        errors = [(place, each) for place, each in enumerate(results) if isinstance(each, SeriatimError)]
        if errors:
            place, error = errors[0]
            error.add_note(f"{len(errors)} of {len(results)} events failed, the first one at place {place}")
            raise error
        return [each for each in results if isinstance(each, Published)]

    async def ready(self) -> None:
        """Wait until there is room to publish; bounded by the timeout. For those who use `publish_nowait`."""
        await self._opened().ready()

    async def flush(self) -> None:
        """Wait until the fate of everything published so far is known. Each event has its own timeout."""
        await self._opened().flush()

    def _seen(self) -> int | None:
        """For the log of a causal system: how many events this publisher had been given. LogError: they cannot be
        written, so nothing can be published that says it came after them."""
        if self._publications is None or self._cluster is None or not self._cluster.description.causal:
            return None
        logged = [each for each in self._subscriptions if each.log_name == self.name]
        return logged[0].events_logged() if logged else 0

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
        start: Literal["now", "first"] = "now",
        where: str | Filter | None = None,
    ) -> Subscription:
        """A subscription to these topics; enter it to join them.

        `durable`: a name under which it goes on after a restart. `ordered=False`: events as they arrive. `gaps`: what
        to do about events that will never come, `show_gaps`: hand out Gap objects in their place. `acknowledge`: when
        an event of a durable subscription counts as dealt with: when the next one is asked for, or when told. `log`: a
        folder (or deliveries file) for `seriatim audit`, or "broker:" for `seriatim archive`. `start="first"`: an
        unordered subscription begins with what the broker still has. `where`: a filter over the attributes of events,
        such as 'price > 100' (docs/filters.md); what does not match is left out, the order of the rest is the same.
        """
        self._opened()
        assert self._cluster is not None, "an open bus has one"
        if acknowledge not in ("next", "manual"):
            raise InputError("acknowledge", f"{acknowledge!r} is no way to do it", 'use "next" or "manual"')
        if start not in ("now", "first"):
            raise InputError("start", f"{start!r} is no place to start", 'use "now" or "first"')
        if start == "first" and ordered:
            raise InputError(
                "start", "what was before a subscription has no order in it", 'use "now", or ordered=False'
            )
        if durable is not None and not ordered:
            raise InputError("durable", "unordered subscriptions are not durable", "leave out ordered=False")
        if gaps is not None and not isinstance(gaps, GapPolicy):
            raise InputError("gaps", f"{gaps!r} is no gap policy", "use GapPolicy.wait(), skip() or raise_()")
        wishes = Wishes(
            topics=names_of(topics),
            durable=check_name("durable", durable) if durable is not None else None,
            ordered=ordered,
            gaps=gaps if gaps is not None else self._settings.gaps,
            show_gaps=show_gaps,
            acknowledge=acknowledge,
            log=log_place("log", log),
            start=start,
            stamp_key=self._settings.stamp_key,
            limits=self._settings.limits,
            timeout_s=self._settings.timeout_s,
            where=check_filter(where),
        )
        for name in sorted(wishes.topics):
            self._cluster.description.tree.home(self._cluster.broker.ordered_topic(name))  # raises if unknown
        self._subscription_count += 1
        address = f"durable/{durable}" if durable is not None else f"{self.name}/{self._subscription_count}"
        is_reader = self._cluster.description.causal and not any(s.log_name == self.name for s in self._subscriptions)
        subscription = self._subscription(
            address,
            wishes,
            cluster=self._get_cluster,
            network=self._get_network,
            open_journal=self._open_journal,
            clock=self._clock,
            log_name=self.name if is_reader else address,
            on_close=self._subscriptions.remove,
        )
        self._subscriptions.append(subscription)
        return subscription

    def _subscription(self, address: Address, wishes: Wishes, **parts: Any) -> Subscription:
        return Subscription(address, wishes, **parts)

    def _get_cluster(self) -> Cluster:
        if self._cluster is None:
            raise Closed("the bus is not connected")
        return self._cluster

    def _get_network(self, name: Address | None) -> Network:
        """The bus's own network, or a new one for machines under another name."""
        assert self._network is not None, "an open bus has one"
        return self._network if name is None else self._get_cluster().network(name)

    def _open_journal(self, durable: str) -> Journal:
        if self._settings.journals is not None:
            return self._settings.journals(durable)
        journal = self._get_cluster().journal(durable)
        if journal is None:
            raise InputError(
                "durable",
                "there is no place for what a durable subscription must remember",
                'connect(journals="folder")',
            )
        return journal

    # ── explaining ────────────────────────────────────────────────────────────────────────────────────────────────

    def explain(self) -> Explanation:
        """Everything this client waits for: held events, unpublished events, connections that are down."""
        parts = [subscription.explain() for subscription in self._subscriptions]
        down = self._network.down() if self._network is not None else []
        return Explanation(
            held=[held for part in parts for held in part.held],
            unpublished=self._outbox.explain() if self._outbox is not None else [],
            down=down + [line for part in parts for line in part.down],
            notes=[line for part in parts for line in part.notes],
        )

    def metrics(self) -> ClientMetrics:
        """What is counted here: held events and the age of the oldest, gaps, and so on; `.text` is for Prometheus."""
        unpublished = self._outbox.events_waiting if self._outbox is not None else 0
        return ClientMetrics([each.metrics() for each in self._subscriptions], unpublished)

    def _opened(self) -> Outbox:
        self._check_open()
        if self._outbox is None:
            raise Closed("the bus is not open yet: wait until it is entered")
        return self._outbox
