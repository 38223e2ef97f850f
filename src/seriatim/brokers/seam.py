"""The seam to a broker: what the machines say to `BROKER` and hear from it, carried to a real server and back.

A `Broker` is one connection. Each machine attaches to it and gets a *port*: it sends the messages of
protocols/with_broker.py and is given the answers through `deliver`. An adapter decides nothing about order.

    machine sends        the broker does                                   machine is given
    Append(event)        put it at the end of the topic's log, once        Appended
    Watch(topics)        report the logs' lengths, now and when they grow  Grown, Trimmed
    Begin(epoch)         refuse earlier epochs of this node                Begun, with what is kept of it
    Unwatch(topic, to)   stop: the topic has another home; tell readers    Unwatched
    Stamped(…)           keep it on the topic's stamp channel, once        Kept
    Staged(…)            hand it to whoever attends, and keep nothing      nothing
    Attend(topic, node)  hand over what this node tells of the topic       Staged
    Follow(topic)        report how far it is stamped, now and later       StampedTo
    Unfollow(topic)      stop
    Cede(since)          refuse at the order log what earlier roots send Ceded
    Ordered(…)           append it to the order log, once                  OrderKept
    ReadOrder(after)     read the order log                                OrderRead, when something follows
    Discard(topic, last) remove a topic, and go on behind last         Discarded, or Grown if the log is longer
    Write(…)             fill the slot if it is empty                      Written (what it holds)
    Listen(topic, after) deliver from there on, in order, with stamps      Listening, Delivered, Stamped, Trimmed
    Unlisten(topic)      stop
    Fetch(topic, a, b)   deliver these numbers once; wait while paused     Delivered, Voids, Trimmed

Requests that fail because the server is away are not answered: machines repeat them. A request that the server
refuses for good (no permission, message too large) is given to `on_error`.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from seriatim.brokers.bulk import BulkReader
from seriatim.brokers.capabilities import (
    IN_FLIGHT,
    BrokerServer,
    Copies,
    FencedJournal,
    FencedJournals,
    KeptNumbers,
    LogFacts,
    OrderLog,
    Records,
    Register,
    ReplayPlace,
    ReplayPublisher,
    Requests,
    RowChannel,
)
from seriatim.brokers.lives import Lives
from seriatim.brokers.naming import check_topic
from seriatim.model import Address, Node, Number, SeriatimError, Topic
from seriatim.protocols.machine import Payload

Deliver: TypeAlias = Callable[[Payload], None]
OnError: TypeAlias = Callable[[Payload, SeriatimError], None]  # (the message that cannot be carried out, why)
Mode: TypeAlias = Literal["log", "ticket"]
HomeOf: TypeAlias = Callable[[Topic], Node]

logger = logging.getLogger(__name__)


class Port:
    """The broker as one machine sees it. Nothing is delivered from inside `send`, and nothing after `close`."""

    def __init__(self, address: Address, deliver: Deliver, on_error: OnError | None) -> None:
        self.address = address
        self._deliver_to = deliver
        self._error_to = on_error
        self._closed = False

    def send(self, message: Payload) -> None:
        """Hand over one message. Never blocks, never raises; messages keep their order."""
        raise NotImplementedError

    def pause(self, topic: Topic | None = None) -> None:
        """Back-pressure: deliver nothing more (a little that is on its way may still come) until `resume`.

        With `topic`: no more events of that topic; its stamps still come, because events that are here wait for them. A
        broker that would only keep the events elsewhere in the same memory may ignore it.
        """
        raise NotImplementedError

    def resume(self, topic: Topic | None = None) -> None:
        """Go on delivering; with `topic`, the events of that one. Both kinds of pause hold side by side."""
        raise NotImplementedError

    async def close(self) -> None:
        """Detach: nothing is delivered after this."""
        self._closed = True

    def _deliver(self, message: Payload) -> None:
        if not self._closed:
            self._deliver_to(message)

    def _refuse(self, message: Payload, error: SeriatimError) -> None:
        """Tell the machine that a message cannot be carried out. If it does not listen, log it."""
        if self._closed:
            return
        if self._error_to is not None:
            self._error_to(message, error)
        else:
            logger.error("request refused by the broker: at=%s reason=%s", self.address, error)

    def _refuse_soon(self, message: Payload, error: SeriatimError) -> None:
        asyncio.get_running_loop().call_soon(self._refuse, message, error)


class BufferingPort(Port):
    """A port of a broker that pushes: it keeps the deliveries that come while it is paused."""

    def __init__(self, address: Address, deliver: Deliver, on_error: OnError | None) -> None:
        super().__init__(address, deliver, on_error)
        self._paused = False
        self._waiting: deque[Payload] = deque()

    def pause(self, topic: Topic | None = None) -> None:
        self._paused |= topic is None  # the events of one topic would only wait here

    def resume(self, topic: Topic | None = None) -> None:
        if self._paused and topic is None:
            self._paused = False
            asyncio.get_running_loop().call_soon(self._let_go)

    def receive(self, message: Payload) -> None:
        """Take one delivery from the broker."""
        if self._paused or self._waiting:
            self._waiting.append(message)
        else:
            self._deliver(message)

    def _let_go(self) -> None:
        while self._waiting and not self._paused:
            self._deliver(self._waiting.popleft())


class Broker:
    """One connection to a broker. The defaults are those of a broker that can do nothing special."""

    keeps_log: bool = True  # log mode is possible: a numbered log per topic, replayed from any position
    lossy: bool = False  # events may get lost or reordered: then stamps are full and waits are bounded

    @property
    def payload_bytes_max(self) -> int:
        """The largest message it takes."""
        raise NotImplementedError

    def ordered_topic(self, name: Topic) -> Topic:
        """The topic under which events published as `name` are ordered: itself, or the bucket it shares with others.

        InputError: no topic may be called so. Ask before a name is used: an adapter may have to prepare for it.
        """
        raise NotImplementedError

    def check_slots(self, topic: Topic) -> None:
        """InputError: this topic cannot have slots here. Call it before promising to write a slot later."""
        check_topic(topic)

    async def capture(self, names: Iterable[Topic]) -> None:
        """Returns when the broker keeps and orders all events published under these names from now on.

        A topic of its own is captured when it is listened to; a name that joins a bucket may take a moment longer.
        """

    async def stamped_epoch(self, node: Node) -> int | None:
        """The epoch of the last stamp that this node has written; 0: the broker cannot tell.

        None: it has never stamped, or nothing here outlives a process.
        """
        return None

    def know(self, topics: Iterable[Topic]) -> None:
        """A machine here holds these ordered topics, or is about to: stamps must call them by their names.

        On the way stamps may name topics by ids. Called before the machine is told to hold them.
        """

    def configure(self, mode: Mode, home_of: HomeOf) -> None:
        """How the cluster orders, and which node is home to a topic (its stamps are on that node's channel).

        Told before any port sends: sequencers know it from their configuration, clients from the cluster's
        description, which they ask for over this very connection.
        """

    async def open(self) -> None:
        """Connect. ConnectionFailed says what was tried."""
        raise NotImplementedError

    def attach(self, address: Address, deliver: Deliver, on_error: OnError | None = None) -> Port:
        """A port for the machine at this address."""
        raise NotImplementedError

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        raise NotImplementedError

    @property
    def problem(self) -> str | None:
        """Why nothing can be asked now, in words. None: it can."""
        return None

    # ── capabilities: what not every broker can do ────────────────────────────────────────────────────────────────

    knows_repeats: bool = False  # an event that is appended again is known by its id and kept once
    tells_lives: bool = False  # `Begin` is answered, and what earlier epochs of the node stamp and order is refused
    has_stages: bool = False  # `Staged` is passed on to listeners. If not, only finished stamps are published
    removes_topics: bool = False  # `Discard` is carried out
    is_dense: bool = True  # each position of a log is an event, unless somebody deletes it. If not, `Voids` are usual

    @property
    def requests(self) -> Requests | None:
        """Questions and answers between the broker's clients."""
        return None

    @property
    def records(self) -> Records | None:
        """Small records by name."""
        return None

    def register(self, name: str) -> Register | None:
        """A record of the cluster, replaced by compare-and-set."""
        return None

    def journals(self, cluster: str, replicas: int) -> FencedJournals | None:
        """Journals on the broker itself."""
        return None

    def durable_journal(self, durable: str, *, cluster: str, replicas: int) -> FencedJournal | None:
        """The journal of the durable subscription of this name, if the broker has journals.

        The subscription can then continue on another machine, and a second process with its name fences the first.
        """
        journals = self.journals(f"{cluster}-durable", replicas)  # another name than the nodes' journals have
        return journals.journal(_journal_name(durable), connects=True) if journals is not None else None

    async def remove_durable_journal(self, durable: str, *, cluster: str) -> bool:
        """Delete the journal of a durable subscription that is kept on the broker. False: there was none."""
        journals = self.journals(f"{cluster}-durable", 1)
        if journals is None:
            return False
        await journals.open()
        try:
            return await journals.remove(_journal_name(durable))
        finally:
            await journals.close()

    @property
    def lives(self) -> Lives | None:
        """Where lives are registered, so that nobody acts on old state and no two processes run the same thing."""
        return None

    def order_log(self) -> OrderLog | None:
        """The order of all events, to be read."""
        return None

    async def kept_numbers(self, topic: Topic) -> KeptNumbers | None:
        """Which numbers of this ordered topic can be fetched. None: the broker has no past, or cannot tell."""
        return None

    @property
    def copies(self) -> Copies | None:
        """Copies of all that is kept of the cluster."""
        return None

    async def stamped_to(self, node: Node) -> dict[Topic, Number]:
        """How far the stamps of each topic are kept that this node has written. Changes nothing."""
        return {}

    async def topic_logs(self) -> dict[Topic, LogFacts] | None:
        """The logs of topics (or buckets) that there are. Makes none. None: this broker keeps no logs."""
        return None

    def row_channel(self, table: str, client: str) -> RowChannel | None:
        """A place for rows of a client's log."""
        return None

    def replay(
        self,
        digest: str,
        prefix: Topic | None,
        *,
        in_flight: int = IN_FLIGHT,
        on_stored: Callable[[ReplayPlace, int], None] | None = None,
    ) -> ReplayPublisher | None:
        """A publisher for the replay that `digest` names, to topics below `prefix`; None: onto the topics themselves.

        `on_stored` is told the last place that is stored, and the count.
        """
        return None


def _journal_name(durable: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found.group()):02x}", durable)


class Kind:
    """A kind of broker: the meaning of its URLs, and what is known about it before there is a connection.

    Registered by the schemes of its URLs (urls.py). The defaults are those of a broker that can do nothing special.
    """

    keeps_log: ClassVar[bool] = True  # log mode is possible
    lossy: ClassVar[bool] = False  # events may get lost or reordered
    has_journals: ClassVar[bool] = False  # `Broker.journals` is not None
    has_order_log: ClassVar[bool] = False  # `Broker.order_log` is not None, unless the URL says that events get lost
    in_process: ClassVar[bool] = False  # the broker lives in this process, and the sequencer with it
    file_options: ClassVar[tuple[str, ...]] = ()  # options that are paths
    layout_options: ClassVar[tuple[str, ...]] = ()  # settings of [streams] that all members of a cluster must share
    reading_options: ClassVar[tuple[str, ...]] = ()  # what a bulk reader may be given beside the URL

    def check(self, url: str) -> None:
        """InputError: the URL cannot be read. Makes nothing, and needs no client library."""

    def open(self, url: str, options: Mapping[str, Any]) -> Broker:
        """A broker, not connected yet. InputError says what is wrong with the URL or an option."""
        raise NotImplementedError

    def cluster_options(self, cluster: str, buckets: int | None, layout: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a cluster's settings mean. `buckets`: how many logs topics share, 0: none, None: unsaid."""
        return {}

    def bulk(self, url: str, options: Mapping[str, Any]) -> BulkReader | None:
        """A bulk reader of the broker at this URL."""
        return None

    def server(self, folder: Path, port: int = 0, *, config: str = "") -> BrokerServer | None:
        """A server of our own, to be launched. It ends with this process. InputError: it is not installed."""
        return None

    def how_to_empty(self) -> str:
        """A sentence for operators: how to delete the events of one topic where topics share a log."""
        return "delete its events with the tools of the broker"

    def how_to_delete(self, stream: str) -> str:
        """A sentence for operators: how to delete a log that Seriatim has not made."""
        return f"delete {stream} first, with the tools of the broker"
