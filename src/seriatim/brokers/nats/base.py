"""The common part of both NATS brokers: one connection, its ports, and questions on plain subjects."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import count
from typing import Generic, TypeVar

from nats.aio.msg import Msg

from seriatim.brokers.capabilities import OTHERS_S, Requests
from seriatim.brokers.naming import Names, check_topic, ordered_topic
from seriatim.brokers.nats.credentials import NatsCredentials
from seriatim.brokers.nats.link import NatsLink, no_responders
from seriatim.brokers.seam import Broker, HomeOf, Mode, Port
from seriatim.model import Closed, InputError, RequestRefused, Topic
from seriatim.order import TopicNames

logger = logging.getLogger(__name__)

CONNECT_S_MAX = 1e6
RESERVE_BYTES = 16 * 1024  # of a message, for headers, ids and entries

P = TypeVar("P", bound=Port)


class NatsBroker(Broker, Generic[P]):
    """One connection. `url` may name several servers, separated by commas.

    `cluster` keeps systems on one server apart. `buckets`: how many logs or subjects topics share; 0: each has its own.
    """

    def __init__(
        self,
        url: str,
        *,
        cluster: str = "seriatim",
        buckets: int = 0,
        credentials: NatsCredentials | None = None,
        name: str | None = None,
        connect_timeout_s: float = 5.0,
    ) -> None:
        if not 0 < connect_timeout_s <= CONNECT_S_MAX:
            problem = f"{connect_timeout_s} is not above 0 and up to {CONNECT_S_MAX:g}"
            raise InputError("connect_timeout_s", problem, "give seconds")
        self.names = Names(cluster, buckets)
        shown = name if name is not None else f"seriatim {cluster}"
        self.link = NatsLink(url.split(","), credentials, name=shown, connect_timeout_s=connect_timeout_s)
        self.mode: Mode = "log"
        self.home_of: HomeOf | None = None
        self.topic_names = TopicNames()
        self._ports: set[P] = set()
        self._closed = False
        self._inboxes = count(1)

    @property
    def payload_bytes_max(self) -> int:
        return self.link.max_payload - RESERVE_BYTES

    def ordered_topic(self, name: Topic) -> Topic:
        return ordered_topic(name, self.names.buckets)

    def check_slots(self, topic: Topic) -> None:
        check_topic(topic)
        self.names.slots_stream(topic)

    def know(self, topics: Iterable[Topic]) -> None:
        self.topic_names.know(topics)

    def configure(self, mode: Mode, home_of: HomeOf) -> None:
        self.mode, self.home_of = mode, home_of

    async def open(self) -> None:
        self._check_open()
        await self.link.open()

    def detach(self, port: P) -> None:
        self._ports.discard(port)

    @property
    def problem(self) -> str | None:
        return self.link.problem

    @property
    def requests(self) -> Requests:
        return self

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes | None:
        reply = await self.link.call(subject, data, timeout_s=timeout_s)
        if isinstance(reply, RequestRefused):
            raise reply
        return None if reply is None or no_responders(reply) else reply.data

    async def request_all(
        self, subject: str, data: bytes, timeout_s: float, enough: Callable[[list[bytes]], bool]
    ) -> list[bytes]:
        answers: list[bytes] = []
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        inbox = self.link.inbox(f"all{next(self._inboxes)}")

        def end() -> None:
            if not done.done():
                done.set_result(None)

        def on_answer(message: Msg) -> None:
            if no_responders(message):
                end()
                return
            answers.append(message.data)
            if enough(answers):
                end()
            elif len(answers) == 1:
                loop.call_later(OTHERS_S, end)

        self.link.listen(inbox, on_answer)
        try:
            if self.link.publish(subject, data, reply=inbox):
                await asyncio.wait({done}, timeout=timeout_s)
        finally:
            self.link.unlisten(inbox)
        return answers

    async def answer(self, subject: str, reply: Callable[[bytes], bytes | None]) -> None:
        def on_question(message: Msg) -> None:
            said = reply(message.data)
            if said is not None and len(said) > self.link.max_payload:  # the server would close the connection
                most = self.link.max_payload
                logger.error("answer too long: subject=%s bytes=%s most=%s", subject, len(said), most)
            elif said is not None and message.reply:
                self.link.publish(message.reply, said)

        self.link.listen(subject, on_question)
        await self.link.flush()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for port in list(self._ports):
            await port.close()
        self._let_go()
        await self.link.flush()
        await self.link.close()

    def _let_go(self) -> None:
        """Close what else depends on the connection."""

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this connection to NATS was closed; make a new one")
