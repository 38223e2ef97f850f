"""Subscriptions on a sequencing tree: ordered, unordered, and durable."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import structs

from seriatim.client.brokered.cluster import Connection, Network
from seriatim.client.brokered.machines import SubscriberView
from seriatim.client.brokered.source import BrokerSource
from seriatim.client.explain import Explanation
from seriatim.client.history import Start
from seriatim.client.inbox import Item, Place
from seriatim.client.session import Wishes
from seriatim.client.tree.durable import (
    DurableSubscriber,
    Lived,
    Mark,
    Past,
    empty_snapshot,
    encode_record,
    read_past,
)
from seriatim.client.tree.life import DurableLife, JournalPlace
from seriatim.client.tree.past import Beginning, check_has_past
from seriatim.client.tree.unordered import UnorderedSubscriber
from seriatim.filters import Filter, parse
from seriatim.model import Address, Fenced, Gap, InputError, Node, Number, Position, TimedOut, Topic
from seriatim.order import Lane
from seriatim.protocols.tree import Subscriber, TreeOptions, Waiting
from seriatim.protocols.with_broker import Start as PastStart
from seriatim.runtime import Journal

ANSWER_S = 5.0  # for the broker's answers, after the order log was waited for


class TreeView(SubscriberView):
    """A subscriber. `machine`: the durable machine around it, which knows how far the application is."""

    def __init__(self, subscriber: Subscriber, machine: DurableSubscriber | None = None) -> None:
        super().__init__(machine if machine is not None else subscriber)
        self.subscriber = subscriber

    @property
    def topics(self) -> frozenset[Topic]:
        return self.subscriber.topics

    @property
    def wanted(self) -> frozenset[Topic]:
        topics = self.subscriber.topics
        for change in self.subscriber.state.waiting:
            topics = (topics - change.remove) | change.add
        return topics

    @property
    def lanes(self) -> Mapping[Topic, Lane]:
        return self.subscriber.state.lanes

    @property
    def begun(self) -> dict[Topic, tuple[Number, Number]]:
        """For every topic that has begun: the number it began after, and the last number done."""
        holdings, reading = self.subscriber.state.holdings, self.subscriber.state.reading
        if reading is not None:
            return {
                topic: (first - 1, max(first - 1, reading.read_to.get(topic, 0)))
                for topic, first in reading.wanted.items()
            }
        return {topic: (holdings[topic].start, lane.done) for topic, lane in self.lanes.items() if lane.open}

    @property
    def early(self) -> Mapping[Topic, Number]:
        return self.subscriber.state.early

    @property
    def waiting(self) -> int:
        return self.subscriber.waiting

    def blocked_topics(self) -> frozenset[Topic]:
        return self.subscriber.blocked_topics()

    def waits(self) -> list[Waiting]:
        return self.subscriber.explain()

    @property
    def past(self) -> tuple[Position, Position] | None:
        return self.subscriber.past()

    def explain(self) -> list[str]:
        return self.subscriber.explain_past()

    def oldest_since(self) -> float | None:
        return self.subscriber.oldest_since()

    @property
    def is_changing(self) -> bool:
        return self.subscriber.state.changing is not None

    def unanswered(self) -> list[str]:
        changing = self.subscriber.state.changing
        if changing is None:
            return ["the broker has not confirmed that it delivers them"]
        home = self.subscriber.tree.home
        waits = [f"the broker has not confirmed {topic}" for topic in sorted(changing.listen)]
        joins = sorted(changing.join - changing.listen)
        waits += [f"node {home(topic)} has not answered for {topic}{self._climbs(home(topic))}" for topic in joins]
        return waits + [f"node {node} has not confirmed" for node in sorted(changing.update)]

    def _climbs(self, home: Node) -> str:
        """Which other nodes a join needs: up to the root with a past, else as far as its topics meet others."""
        above = self.subscriber.tree.paths.get(home, (home,))[1:]
        if not above:
            return ""
        if self.subscriber.state.reading is not None:
            return f" (to begin with the past it asks node {' and then node '.join(above)})"
        return f" (it may have to ask node {' and then node '.join(above)})"


class TreeSource(BrokerSource):
    """One subscription that ends with its process. `stamp_key`: drop events whose stamps are not signed with it."""

    substrate = "tree"

    def __init__(
        self, connection: Connection, name: Address, wishes: Wishes, log_name: str, stamp_key: bytes | None
    ) -> None:
        super().__init__(connection, name, wishes, log_name)
        self._stamp_key = stamp_key
        self._awaited = ""  # what the order log must have before the past can begin

    def _options(self) -> TreeOptions:
        cluster, wishes = self.connection.cluster, self.wishes
        is_durable = wishes.durable is not None
        options = structs.replace(cluster.description.options, stages=cluster.broker.has_stages)
        return wishes.gaps.applied_to(
            options, lossy=cluster.broker.lossy, durable=is_durable, stamp_key=self._stamp_key
        )

    async def _begin(self, start: Start) -> PastStart | None:
        if start == "now" or not self.wishes.ordered:
            return None
        cluster, timeout_s = self.connection.cluster, self.wishes.timeout_s
        log = check_has_past(cluster.description.options, cluster.broker.order_log())
        beginning = Beginning(
            cluster.broker,
            log,
            self._ordered(self._names),
            skips=self.wishes.gaps.kind == "skip",
            timeout_s=timeout_s,
            on_wait=self._waits_for,
        )
        try:
            async with asyncio.timeout(timeout_s + ANSWER_S):
                return await beginning.find(start)
        except TimeoutError:
            raise TimedOut(f"waited {timeout_s} s for the order log of the broker") from None

    def _waits_for(self, what: str) -> None:
        self._awaited = what

    def explain(self) -> Explanation:
        told = super().explain()
        if not self._awaited:
            return told
        note = f"{self.name}: the past cannot begin yet; it waits for {self._awaited}"
        return structs.replace(told, notes=[*told.notes, note])

    def _view(self) -> SubscriberView:
        description = self.connection.cluster.description
        if not self.wishes.ordered:
            after = 0 if self.wishes.start == "first" else None
            return UnorderedSubscriber(description.retry_ms, after)
        return TreeView(Subscriber(description.tree, self.name, self._options()))


class DurableSource(TreeSource):
    """One subscription that resumes after a restart, and what it records (tree/durable.py)."""

    is_durable = True

    def __init__(
        self,
        connection: Connection,
        name: Address,
        wishes: Wishes,
        log_name: str,
        stamp_key: bytes | None,
        open_journal: Callable[[], Journal],
        folder: Path | None = None,
    ) -> None:
        super().__init__(connection, name, wishes, log_name, stamp_key)
        self._open_journal = open_journal
        self._folder = folder
        self._journal: Journal | None = None
        self._life: DurableLife | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._network: Network | None = None
        self._ready: list[Item] = []  # taken from the inbox, not yet recorded as taken
        self._given = self._acknowledged = self.inbox.handed  # places: handed out, and acknowledged
        self._marked = (self._acknowledged, self._given)  # what the journal says

    async def open(self) -> None:
        name, description = self.wishes.durable or "", self.connection.cluster.description
        self._journal = self._open_journal()
        past = read_past(name, await self._journal.open())
        past, lived = await self._begin_life(name, past)
        self._network = self.connection.cluster.network(self.name)
        await self._network.open()
        self.where = remembered(name, self.wishes.where, past)
        where = None if self.where is None else str(self.where)
        machine = DurableSubscriber(description.tree, self.name, self._options(), past, where, lived)
        view = TreeView(machine.subscriber, machine)
        view.encode = machine.encode
        if past.acknowledged or past.taken:
            view.recall = past.recall
        self._open_log()
        if self._log is not None and not past.is_empty:
            begun = view.begun
            topics = {name: topic for name, topic in self._topics_by_name().items() if topic in begun}
            await self._log.resume({name: begun[topic] for name, topic in topics.items()})
        self._given = self._acknowledged = (past.count, 0)
        self._marked = (self._acknowledged, self._given)
        await self._run(view, past.count, self._journal, self._network)
        if self._life is not None:
            self._life.start(machine, self._on_lost)

    async def _begin_life(self, name: str, past: Past) -> tuple[Past, Lived | None]:
        """Register this life before it acts. Returns what of the past it may use. (Not every broker keeps lives.)"""
        lives, journal = self.connection.cluster.broker.lives, self._journal
        if lives is None or journal is None:
            return past, None
        place = JournalPlace.of(self._folder) if self._folder is not None else JournalPlace()
        is_anew = False

        async def keep(lived: Lived, anew: bool) -> None:
            nonlocal is_anew
            is_anew = anew
            await (journal.snapshot(empty_snapshot(lived)) if anew else journal.append([encode_record(lived)]))

        self._life = DurableLife(lives.claim("durable", name), name, place, self.wishes.timeout_s)
        await self._life.begin(past, self.wishes.accept, keep)
        return Past() if is_anew else past, self._life.lived

    def _on_lost(self, error: Fenced) -> None:
        """End without leaving: another process has taken over. It has the same address, so its nodes are left to it."""
        self.feed.end(error)
        if self._network is not None:
            self._leaving = asyncio.get_running_loop().create_task(self._network.close())

    async def leave(self) -> None:
        await super().leave()
        if self._life is not None:
            self._life.ends_for_good()

    async def _depart(self) -> None:
        """Do nothing: a durable subscription keeps its topics."""

    async def _stop(self) -> None:
        try:
            await super()._stop()
        finally:
            if self._life is not None:
                await self._life.end()
            if self._journal is not None:
                await self._journal.close()
            if self._network is not None:
                await self._network.close()

    def explain(self) -> Explanation:
        told = super().explain()
        return Explanation(told.held, down=self._network.down() if self._network is not None else [], notes=told.notes)

    async def take(self, count: int) -> list[Item]:
        """Acknowledge the events that were handed out, take those that are ready, record both, and only then return
        them."""
        if self._life is not None:
            await self._life.confirm()
        if self.wishes.acknowledge == "next":
            self._acknowledged = self._given
        if not self._ready:
            self._ready = self.inbox.take(count)
        await self._write_mark()
        items, self._ready = self._ready, []
        self._given = self.inbox.handed
        return items

    @property
    def handed_out(self) -> Place:
        return self._given

    async def acknowledge(self, place: Place | None = None) -> None:
        if place is not None and place > self._given:
            raise InputError("place", f"{place} was not handed out yet", "give a `handed_out` of this subscription")
        if self._life is not None:
            await self._life.confirm(self.wishes.timeout_s)
        self._acknowledged = max(self._acknowledged, self._given if place is None else place)
        await self._write_mark()

    async def _write_mark(self) -> None:
        mark = (self._acknowledged, self.inbox.handed)
        if mark != self._marked:
            if self._log is not None:  # acknowledged events do not come again, so log them first
                await self._log.written(self.wishes.timeout_s)
            await self.feed.ask(Mark(*mark))
            self._marked = mark
            if self._life is not None:
                self._life.reached(mark[0][0])

    def _drop(self, names: frozenset[Topic]) -> None:
        super()._drop(names)
        self._ready = [item for item in self._ready if isinstance(item, Gap) or item.topic not in names]


def remembered(durable: str, asked: Filter | None, past: Past) -> Filter | None:
    """The filter of a resumed durable subscription: the one it was made with. InputError: another one was requested,
    but the first one has decided what was acknowledged and what was left out."""
    if past.is_empty:
        return asked
    known = parse(past.where) if past.where is not None else None
    if asked is None or asked == known:
        return known
    had = f"it continues with {past.where!r}" if past.where is not None else "it was made without a filter"
    fix = "leave it out, give the same, or subscribe under another name"
    raise InputError("where", f"the durable subscription {durable!r} cannot have {str(asked)!r}: {had}", fix)
