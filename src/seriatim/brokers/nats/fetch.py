"""Numbers of a topic that a subscriber fetches because it reads the past: a bounded number at a time, in order.

*Log mode.* A number is a position. The first question opens a reader (readers.py) at its first number; the next one
mostly begins where the last one ended, and the reader continues. Messages that the reader delivers beyond the request
wait here, and the reader pauses. A missing position was passed by retention (`Trimmed`), or its message was deleted
(`Voids`).

*Ticket mode.* Each slot has its own subject: each number is one question to the server, some hundred of them at a time.
An empty slot is not answered, unless retention has passed it: whoever waits for it asks again.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from nats.aio.msg import Msg

from seriatim.brokers.capabilities import KeptNumbers
from seriatim.brokers.nats.api import Api, Stored, patiently
from seriatim.brokers.nats.listen import number_of, slot_subject
from seriatim.brokers.nats.messages import decode_slot, event_of
from seriatim.brokers.nats.readers import Reader
from seriatim.brokers.nats.streams import Streams
from seriatim.brokers.seam import Deliver
from seriatim.model import Number, RemoteError, SeriatimError, Topic
from seriatim.protocols.with_broker import Delivered, Fetch, Trimmed, Voids

if TYPE_CHECKING:
    from seriatim.brokers.nats.jetstream import JetStreamBroker

SLOTS_AT_ONCE = 128


async def kept_slots(api: Api, streams: Streams, topic: Topic) -> KeptNumbers:
    """Ticket mode: which numbers of a topic are kept. Slots are mostly filled in the order of their numbers."""
    stream, subjects = await streams.slots(topic), f"{streams.names.slots_subject(topic)}.>"
    oldest = await api.message(stream, {"seq": 1, "next_by_subj": subjects})
    latest = await api.message(stream, {"last_by_subj": subjects})
    first = number_of(oldest.subject) if oldest is not None else None
    last = number_of(latest.subject) if latest is not None else None
    is_trimmed = oldest is not None and oldest.seq > 1
    return KeptNumbers(first if is_trimmed and first is not None else 1, last or 0)


class Fetching(ABC):
    """The fetches of one subscriber from one topic."""

    def __init__(
        self, topic: Topic, broker: "JetStreamBroker", deliver: Deliver, on_error: Callable[[SeriatimError], None]
    ) -> None:
        self.topic = topic
        self._broker = broker
        self._deliver = deliver
        self._on_error = on_error
        self._paused = False
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    def fetch(self, message: Fetch) -> None:
        """Deliver these numbers, when it is not paused."""

    def pause(self, is_paused: bool) -> None:
        self._paused = is_paused

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()


class LogFetching(Fetching):
    """A topic's log. `_next` is the next number to deliver, `_upto` the last that was asked for."""

    def __init__(
        self, topic: Topic, broker: "JetStreamBroker", deliver: Deliver, on_error: Callable[[SeriatimError], None]
    ) -> None:
        super().__init__(topic, broker, deliver, on_error)
        self._next: Number = 0
        self._upto: Number = -1
        self._stuck_at: Number = 0  # asked for again although nothing was delivered since
        self._first_kept: Number = 1
        self._subject = broker.names.log_subject(topic)
        self._waiting: deque[tuple[Number, Msg]] = deque()
        self._reader: Reader | None = None

    def fetch(self, message: Fetch) -> None:
        if message.first < self._first_kept:
            self._deliver(Trimmed(self.topic, self._first_kept))
            message = Fetch(message.topic, self._first_kept, message.last)
        if message.first > message.last:
            return
        if self._next <= message.first <= self._upto + 1:
            self._upto = max(self._upto, message.last)
            if self._task is None:
                if message.first == self._stuck_at == self._next and not self._waiting and not self._paused:
                    self._look_at_log()
                self._stuck_at = self._next
                self._hand_over()
        else:
            self._close_reader()
            self._next, self._upto, self._stuck_at = message.first, message.last, 0
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.get_running_loop().create_task(self._begin())

    def pause(self, is_paused: bool) -> None:
        super().pause(is_paused)
        self._hand_over()

    def close(self) -> None:
        super().close()
        self._close_reader()

    def _close_reader(self) -> None:
        self._waiting.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    async def _begin(self) -> None:
        try:
            await patiently(self._open_reader)
        except SeriatimError as error:
            self._on_error(error)
        self._task = None
        self._hand_over()

    async def _open_reader(self) -> None:
        stream = await self._broker.streams.log(self.topic)
        answer = await self._broker.api.info(stream)
        self._tell_trimmed(answer.state.first)
        reader = Reader(self._broker.readers, stream, None, self._next, self._take, self._on_error, answer.created)
        self._reader = reader
        reader.begin()

    def _tell_trimmed(self, first: Number) -> None:
        if self._next < first:
            self._first_kept = self._next = first
            self._deliver(Trimmed(self.topic, first))

    def _take(self, position: Number, message: Msg) -> None:
        self._waiting.append((position, message))
        if self._task is None:
            self._hand_over()

    def _hand_over(self) -> None:
        """Deliver the requested messages, and let the reader continue if none are left here."""
        waiting = self._waiting
        while waiting and not self._paused and self._task is None and self._next <= self._upto:
            position, message = waiting[0]
            if position > self._next:
                self._look_at_log()
                return
            waiting.popleft()
            if position == self._next:
                self._next += 1
                event = event_of(message, self.topic, self._subject, position)
                self._deliver(Delivered(self.topic, position, None, event))
        if self._reader is not None:
            self._reader.pause(self._paused or bool(waiting) or self._next > self._upto)

    def _look_at_log(self) -> None:
        """The next number does not come: retention has passed it, or it was deleted."""
        self._task = asyncio.get_running_loop().create_task(self._look_at_hole())

    async def _look_at_hole(self) -> None:
        async def look() -> None:
            stream = await self._broker.streams.log(self.topic)
            state = (await self._broker.api.info(stream)).state
            self._tell_trimmed(state.first)
            if self._waiting:
                missing_to = self._waiting[0][0] - 1
            else:
                stored = await self._broker.api.message(stream, {"seq": self._next})
                missing_to = self._next if stored is None and self._next <= state.last_seq else 0
            if self._next <= missing_to:
                self._deliver(Voids(self.topic, self._next, missing_to))
                self._next = missing_to + 1

        try:
            await patiently(look)
        except SeriatimError as error:
            self._on_error(error)
        self._task = None
        self._hand_over()


class SlotFetching(Fetching):
    """A topic's slots."""

    def __init__(
        self, topic: Topic, broker: "JetStreamBroker", deliver: Deliver, on_error: Callable[[SeriatimError], None]
    ) -> None:
        super().__init__(topic, broker, deliver, on_error)
        self._asked: Fetch | None = None

    def fetch(self, message: Fetch) -> None:
        earlier = self._asked
        if earlier is not None:
            message = Fetch(self.topic, min(earlier.first, message.first), max(earlier.last, message.last))
        self._asked = message
        self._go_on()

    def pause(self, is_paused: bool) -> None:
        super().pause(is_paused)
        self._go_on()

    def _go_on(self) -> None:
        if self._asked is not None and self._task is None and not self._paused:
            asked, self._asked = self._asked, None
            self._task = asyncio.get_running_loop().create_task(self._read(asked))

    async def _read(self, asked: Fetch) -> None:
        try:
            for first in range(asked.first, asked.last + 1, SLOTS_AT_ONCE):
                numbers = range(first, min(first + SLOTS_AT_ONCE, asked.last + 1))
                await patiently(partial(self._read_some, numbers))
        except SeriatimError as error:
            self._on_error(error)
        self._task = None
        self._go_on()

    async def _read_some(self, numbers: range) -> None:
        names, api = self._broker.names, self._broker.api
        stream = await self._broker.streams.slots(self.topic)
        questions = [{"last_by_subj": slot_subject(names, self.topic, number)} for number in numbers]
        found = await asyncio.gather(*[api.message(stream, question) for question in questions])
        if None in found:
            oldest = await api.message(stream, {"seq": 1, "next_by_subj": f"{names.slots_subject(self.topic)}.>"})
            first = number_of(oldest.subject) if oldest is not None else None
            if first is not None and oldest is not None and oldest.seq > 1 and numbers[0] < first:
                self._deliver(Trimmed(self.topic, first))
        for number, stored in zip(numbers, found, strict=True):
            if stored is not None:
                self._deliver(self._slot(number, stored))

    def _slot(self, number: Number, stored: Stored) -> Delivered:
        try:
            return decode_slot(stored.data, self.topic, number, self._broker.topic_names)
        except RemoteError:  # whoever wrote it has used up the slot
            return Delivered(self.topic, number, {}, None)
