"""NATS with JetStream behind the seam: numbered logs, stamp channels and write-once slots as streams.

    broker = JetStreamBroker("nats://127.0.0.1:4222")               a stream per topic
    broker = JetStreamBroker("nats://127.0.0.1:4222", streams=64)   64 streams, topics share them

A number is a position in a stream (log mode). Publishers may be any NATS clients. Requests that are under way when the
server goes away are forgotten, and machines repeat them. The server recognises an event by its id for `duplicates_s`. A
publisher that repeats it later, because the server was away for longer, may append it twice.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Literal

from seriatim.brokers.capabilities import IN_FLIGHT, KeptNumbers, LogFacts, ReplayPlace
from seriatim.brokers.nats.api import Api, StreamNotFound
from seriatim.brokers.nats.base import NatsBroker
from seriatim.brokers.nats.channels import decode_mark, furthest, is_end, is_mark, last_number
from seriatim.brokers.nats.copies import NatsCopies
from seriatim.brokers.nats.facts import logs_among
from seriatim.brokers.nats.fetch import kept_slots
from seriatim.brokers.nats.follow import StampFollowing
from seriatim.brokers.nats.journal.journal import NatsJournals
from seriatim.brokers.nats.lives import NatsLives
from seriatim.brokers.nats.messages import decode_stamps
from seriatim.brokers.nats.order import NatsOrderLog
from seriatim.brokers.nats.port import JetStreamPort
from seriatim.brokers.nats.readers import Readers
from seriatim.brokers.nats.register import NatsRegister
from seriatim.brokers.nats.replay import NatsReplay
from seriatim.brokers.nats.rows import NatsRowChannel
from seriatim.brokers.nats.stages import Stages
from seriatim.brokers.nats.stamps import stamped_log, stamped_to
from seriatim.brokers.nats.streams import StreamOptions, Streams
from seriatim.brokers.nats.watch import PACE_MS
from seriatim.brokers.seam import Deliver, OnError
from seriatim.model import Address, InputError, Node, Number, RemoteError, RequestRefused, Topic
from seriatim.protocols.with_broker import Begun

PACE_MS_MAX = 60_000.0
READ_S = 10.0  # within this time the server answers a bulk reader


class JetStreamBroker(NatsBroker[JetStreamPort]):
    """One connection. `streams`: "topic", or the number of buckets that topics share. `connection`: see `NatsBroker`.

    `pace_ms`: the shortest time between two questions of a home about the length of a log.
    """

    knows_repeats = True
    has_stages = True
    tells_lives = True
    removes_topics = True

    def __init__(
        self,
        url: str,
        *,
        streams: Literal["topic"] | int = "topic",
        options: StreamOptions | None = None,
        domain: str | None = None,
        pace_ms: float = PACE_MS,
        **connection: Any,
    ) -> None:
        if streams != "topic" and (not isinstance(streams, int) or streams < 1):
            raise InputError(
                "streams", f'expected "topic" or a number, got {streams!r}', 'use "topic", or a number of buckets'
            )
        if not 0 <= pace_ms <= PACE_MS_MAX:
            problem = f"{pace_ms} is not from 0 to {PACE_MS_MAX:g}"
            raise InputError("pace_ms", problem, "give milliseconds, 0 for as often as possible")
        super().__init__(url, buckets=0 if streams == "topic" else streams, **connection)
        self.api = Api(self.link, domain)
        self.streams = Streams(self.api, self.names, options if options is not None else StreamOptions())
        self.streams.ended = self._ended
        self.readers = Readers(self.api, self.names.cluster)
        self.following = StampFollowing(self)
        self.stages = Stages(self.link, self.names, self.topic_names)
        self.pace_ms = pace_ms
        self._lives = NatsLives(self.streams)

    def journals(self, cluster: str, replicas: int) -> NatsJournals:
        return NatsJournals(self.link.servers, self.link.credentials, cluster=cluster, replicas=replicas)

    @property
    def lives(self) -> NatsLives:
        return self._lives

    @property
    def copies(self) -> NatsCopies:
        return NatsCopies(self.api, self.names)

    async def with_details(self, node: Node, begun: Begun, *, orders: bool) -> Begun:
        """What a node needs that has lost its journal. Reads all stamps."""
        from seriatim.brokers.nats.bulk.reader import NatsReader  # seldom needed, so not loaded with the rest
        from seriatim.brokers.nats.kept import with_details

        link = self.link
        reader = NatsReader(list(link.servers), link.credentials, self.names.cluster, self.api.domain, READ_S)
        topics = [topic for topic in self.topic_names.values()]
        return await asyncio.to_thread(with_details, reader, node, begun, topics, orders=orders)

    async def topic_logs(self) -> dict[Topic, LogFacts]:
        return logs_among(await self.api.all_streams(), self.names)

    def register(self, name: str) -> NatsRegister:
        return NatsRegister(self.streams, name)

    async def kept_numbers(self, topic: Topic) -> KeptNumbers:
        if self.mode == "ticket":
            return await kept_slots(self.api, self.streams, topic)
        state = (await self.api.info(await self.streams.log(topic))).state
        return KeptNumbers(state.first, state.last_seq)

    def order_log(self) -> NatsOrderLog:
        return NatsOrderLog(self.streams)

    def row_channel(self, table: str, client: str) -> NatsRowChannel:
        return NatsRowChannel(self.streams, table, client, self.payload_bytes_max)

    def replay(
        self,
        digest: str,
        prefix: Topic | None,
        *,
        in_flight: int = IN_FLIGHT,
        on_stored: Callable[[ReplayPlace, int], None] | None = None,
    ) -> NatsReplay:
        return NatsReplay(self.api, digest, prefix, in_flight=in_flight, on_stored=on_stored)

    def ordered_topic(self, name: Topic) -> Topic:
        topic = super().ordered_topic(name)
        if topic != name and self.streams.want(topic, name) and self.link.is_up:
            self.streams.in_background(self.streams.prepare(topic))
        return topic

    async def capture(self, names: Iterable[Topic]) -> None:
        if self.names.buckets and self.mode == "log":
            for name in names:
                topic = super().ordered_topic(name)
                while self.streams.want(topic, name):
                    if (problem := (await self.streams.capture(topic)).get(name)) is not None:
                        raise problem

    async def home(self, topic: Topic) -> Node:
        """The home of a topic. Without `configure` it is known only if there is one node."""
        if self.home_of is not None:
            return self.home_of(topic)
        streams = await self.api.streams_with(f"{self.names.prefix}.stamps.>")
        if len(streams) == 1:
            return streams[0].removeprefix(self.names.stamps_stream(""))
        raise RequestRefused(f"which of {len(streams)} nodes is home to {topic} is not known; call configure first")

    async def _ended(self, topic: Topic) -> tuple[Number, str]:
        """The last number of a removed topic, after which a new log begins, and when its log was created. (0, ""): it
        was not removed."""
        if self.mode != "log" or self.home_of is None:
            return 0, ""
        last = await furthest(self, topic, thorough=True)  # it may have moved since
        if last is None or not is_end(last):
            return 0, ""
        return last_number(last.data, topic), stamped_log(last).created

    async def stamped_epoch(self, node: Node) -> int | None:
        stream = self.names.stamps_stream(node)
        try:
            position = (await self.api.info(stream)).state.last_seq
        except StreamNotFound:
            return None
        if not position:
            return None
        last = await self.api.message(stream, {"seq": position})
        if last is not None and last.subject == self.names.begun_subject(node):
            return int(last.data) if last.data.isdigit() else 0
        try:
            if last is None:
                return 0
            return decode_mark(last.data, "").epoch if is_mark(last.data) else decode_stamps(last.data, "")[-1].epoch
        except RemoteError:
            return 0

    async def stamped_to(self, node: Node) -> dict[Topic, Number]:
        try:
            return await stamped_to(self.streams, node)
        except StreamNotFound:
            return {}

    def attach(self, address: Address, deliver: Deliver, on_error: OnError | None = None) -> JetStreamPort:
        self._check_open()
        port = JetStreamPort(self, address, deliver, on_error)
        self._ports.add(port)
        return port

    def _let_go(self) -> None:
        self.readers.close()
        self.streams.close()
