"""Plain NATS behind the seam: it is fast and keeps nothing.

An event that is published while nobody listens, while a client reconnects, or faster than a client reads, is lost. So
there is no log, ticket mode is the only one, stamps are full and waits are bounded. A slot is a subject: a repeated
write is delivered again and known by its number; if a void and an event compete for a number, each subscriber takes
what reaches it first.
"""

import asyncio
import logging
from typing import Any

from nats.aio.msg import Msg

from seriatim.brokers.nats.base import NatsBroker
from seriatim.brokers.nats.messages import decode_slot, encode_slot, written
from seriatim.brokers.seam import BufferingPort, Deliver, OnError
from seriatim.model import Address, RemoteError, RequestRefused, Topic
from seriatim.protocols.machine import Payload
from seriatim.protocols.with_broker import Listen, Listening, Unlisten, Write

logger = logging.getLogger(__name__)

WAITING_MAX = 65_536  # deliveries kept while paused; what comes then is lost, as it would be in the server


class CoreBroker(NatsBroker["CorePort"]):
    """One connection. Options: see `NatsBroker`."""

    keeps_log = False
    lossy = True

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._listeners: dict[str, list[CorePort]] = {}  # by subject

    def attach(self, address: Address, deliver: Deliver, on_error: OnError | None = None) -> "CorePort":
        self._check_open()
        port = CorePort(self, address, deliver, on_error)
        self._ports.add(port)
        return port

    def add_listener(self, topic: Topic, port: "CorePort") -> None:
        """One subscription serves all ports."""
        subject = self.names.slots_subject(topic)
        listeners = self._listeners.get(subject)
        if listeners is None:
            self._listeners[subject] = [port]
            self.link.listen(subject, lambda message: self._on_message(topic, message))
        elif port not in listeners:
            listeners.append(port)

    def remove_listener(self, topic: Topic, port: "CorePort") -> None:
        """Stop telling this port about the topic. Ends the subscription at the server with the last listener."""
        subject = self.names.slots_subject(topic)
        listeners = self._listeners.get(subject, [])
        if port in listeners:
            listeners.remove(port)
            if not listeners:
                del self._listeners[subject]
                self.link.unlisten(subject)

    def _on_message(self, topic: Topic, message: Msg) -> None:
        try:
            delivered = decode_slot(message.data, topic, names=self.topic_names)
        except RemoteError as error:
            logger.warning("message ignored, it cannot be read: topic=%s reason=%s", topic, error)
            return
        for port in list(self._listeners.get(message.subject, ())):
            port.receive(delivered)


class CorePort(BufferingPort):
    """The server as one machine sees it."""

    def __init__(self, broker: CoreBroker, address: Address, deliver: Deliver, on_error: OnError | None) -> None:
        super().__init__(address, deliver, on_error)
        self.lost = 0  # deliveries that came while too many waited
        self._broker = broker
        self._link = broker.link
        self._topics: set[Topic] = set()
        self._answers: list[Payload] = []  # given when the server has seen what was sent before
        self._flushing: asyncio.Task[None] | None = None

    def send(self, message: Payload) -> None:
        if self._closed:
            return
        match message:
            case Write():
                self._write(message)
            case Listen():
                self._topics.add(message.topic)
                self._broker.add_listener(message.topic, self)
                self._answer_after_flush(Listening(message.topic, message.version))
            case Unlisten():
                self._topics.discard(message.topic)
                self._broker.remove_listener(message.topic, self)
            case _:
                problem = f"plain NATS keeps no log, so it cannot carry out {type(message).__name__}"
                self._refuse_soon(
                    message, RequestRefused(f"{problem}; order in ticket mode, or use nats:// (JetStream)")
                )

    async def close(self) -> None:
        if self._closed:
            return
        await super().close()
        self._broker.detach(self)
        for topic in self._topics:
            self._broker.remove_listener(topic, self)
        if self._flushing is not None:
            self._flushing.cancel()

    def receive(self, message: Payload) -> None:
        """Take one message from the server, unless too many wait."""
        if len(self._waiting) < WAITING_MAX:
            super().receive(message)
            return
        if not self.lost % 10_000:
            logger.warning("deliveries lost, the subscriber is too slow: at=%s lost=%s", self.address, self.lost + 1)
        self.lost += 1

    def _write(self, message: Write) -> None:
        body = encode_slot(message)
        payload = len(message.event.payload) if message.event is not None else 0
        if payload > self._broker.payload_bytes_max or len(body) > self._link.max_payload:
            what = f"event {message.event.id}" if message.event is not None else f"a void of {message.topic}"
            problem = f"{what} has {len(body)} bytes; the server takes {self._broker.payload_bytes_max}"
            self._refuse_soon(message, RequestRefused(problem))
            return
        if self._link.publish(self._broker.names.slots_subject(message.topic), body):
            self._answer_after_flush(written(message))

    def _answer_after_flush(self, answer: Payload) -> None:
        self._answers.append(answer)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        """Confirm all gathered messages with one round trip. If the connection is lost meanwhile, none is confirmed."""
        while self._answers:
            answers, self._answers = self._answers, []
            if await self._link.flush():
                for answer in answers:
                    self._deliver(answer)
