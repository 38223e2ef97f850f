"""Subscriptions on a sequencing tree: ordered, unordered, and durable."""

from collections.abc import Callable

from seriatim.client.brokered.cluster import Connection, Network
from seriatim.client.brokered.machines import SubscriberView
from seriatim.client.brokered.source import BrokerSource
from seriatim.client.explain import Explanation
from seriatim.client.inbox import Item
from seriatim.client.session import Wishes
from seriatim.client.tree.durable import DurableSubscriber, Mark, Past, read_past
from seriatim.client.tree.unordered import UnorderedSubscriber
from seriatim.client.tree.views import DurableView, TreeView, UnorderedView
from seriatim.filters import Filter, parse
from seriatim.model import Address, Gap, InputError, Topic
from seriatim.protocols.tree import Subscriber, TreeOptions
from seriatim.runtime import Journal


class TreeSource(BrokerSource):
    """One subscription that ends with its process. `stamp_key`: drop events whose stamps are not signed with it."""

    substrate = "tree"

    def __init__(
        self, connection: Connection, name: Address, wishes: Wishes, log_name: str, stamp_key: bytes | None
    ) -> None:
        super().__init__(connection, name, wishes, log_name)
        self._stamp_key = stamp_key

    def _options(self) -> TreeOptions:
        cluster, wishes = self._connection.cluster, self.wishes
        is_durable = wishes.durable is not None
        options = cluster.description.options
        return wishes.gaps.applied_to(
            options, lossy=cluster.broker.lossy, durable=is_durable, stamp_key=self._stamp_key
        )

    def _view(self) -> SubscriberView:
        description = self._connection.cluster.description
        if not self.wishes.ordered:
            after = 0 if self.wishes.start == "first" else None
            return UnorderedView(UnorderedSubscriber(description.retry_ms, after))
        return TreeView(Subscriber(description.tree, self.name, self._options()))


class DurableSource(TreeSource):
    """One subscription that goes on after a restart, and what it writes down (tree/durable.py)."""

    is_durable = True

    def __init__(
        self,
        connection: Connection,
        name: Address,
        wishes: Wishes,
        log_name: str,
        stamp_key: bytes | None,
        open_journal: Callable[[], Journal],
    ) -> None:
        super().__init__(connection, name, wishes, log_name, stamp_key)
        self._open_journal = open_journal
        self._journal: Journal | None = None
        self._network: Network | None = None
        self._ready: list[Item] = []  # taken from the inbox, not yet written down as taken
        self._given = self._acknowledged = self.inbox.handed  # places: handed out, and acknowledged
        self._marked = (self._acknowledged, self._given)  # what the journal says

    async def open(self) -> None:
        name, description = self.wishes.durable or "", self._connection.cluster.description
        self._journal = self._open_journal()
        past = read_past(name, await self._journal.open())
        self._network = self._connection.cluster.network(self.name)
        await self._network.open()
        self.where = remembered(name, self.wishes.where, past)
        where = None if self.where is None else str(self.where)
        view = DurableView(DurableSubscriber(description.tree, self.name, self._options(), past, where), past)
        self._open_log()
        if self._log is not None and not past.is_empty:
            begun = view.begun
            topics = {name: topic for name, topic in self._topics_by_name().items() if topic in begun}
            await self._log.resume({name: begun[topic] for name, topic in topics.items()})
        self._given = self._acknowledged = (past.count, 0)
        self._marked = (self._acknowledged, self._given)
        await self._run(view, past.count, self._journal, self._network)

    async def _depart(self) -> None:
        """It keeps its topics."""

    async def _stop(self) -> None:
        try:
            await super()._stop()
        finally:
            if self._journal is not None:
                await self._journal.close()
            if self._network is not None:
                await self._network.close()

    def explain(self) -> Explanation:
        told = super().explain()
        return Explanation(told.held, down=self._network.down() if self._network is not None else [], notes=told.notes)

    async def take(self, count: int) -> list[Item]:
        """Acknowledge what was given, take what is there, write both down, and only then hand it out."""
        if self.wishes.acknowledge == "next":
            self._acknowledged = self._given
        if not self._ready:
            self._ready = self.inbox.take(count)
        await self._write_mark()
        items, self._ready = self._ready, []
        self._given = self.inbox.handed
        return items

    async def acknowledge(self) -> None:
        self._acknowledged = self._given
        await self._write_mark()

    async def _write_mark(self) -> None:
        mark = (self._acknowledged, self.inbox.handed)
        if mark != self._marked:
            if self._log is not None:  # what is acknowledged does not come again, so it must be in the log
                await self._log.written(self.wishes.timeout_s)
            await self.feed.ask(Mark(*mark))
            self._marked = mark

    def _drop(self, names: frozenset[Topic]) -> None:
        super()._drop(names)
        self._ready = [item for item in self._ready if isinstance(item, Gap) or item.topic not in names]


def remembered(durable: str, asked: Filter | None, past: Past) -> Filter | None:
    """The filter that a durable subscription goes on with: the one it has. Asking for another one is an error, because
    the first one decided what was acknowledged and what was left out."""
    if past.is_empty:
        return asked
    known = parse(past.where) if past.where is not None else None
    if asked is None or asked == known:
        return known
    had = f"it goes on with {past.where!r}" if past.where is not None else "it was made without a filter"
    fix = "leave it out, give the same, or subscribe under another name"
    raise InputError("where", f"the durable subscription {durable!r} cannot have {str(asked)!r}: {had}", fix)
