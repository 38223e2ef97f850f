"""One topic as a subscriber listens to it: its events in order, and its stamps or what its slots hold.

*Log mode.* Two readers: the topic's log, and the topic's subject on the stamp channel of its home. A number is a
position, so the log is read from `after + 1`. Stamps of a topic are in the order of their numbers, so a binary search
of 12 to 24 questions finds where they begin. If the topic has moved, its stamps continue on another channel
(channels.py); one channel is read at a time. A missing stamp may still come, or may be gone: a stream of somebody else
may keep its events for longer than the stamps. So the subscriber asks the home first. If the home says that the stamp
was kept, and no channel has it, it is gone, and the subscriber gets `Trimmed`. A missing position of the log was passed
by retention (`Trimmed`), or its message was deleted (`Voids`).

*Ticket mode.* One reader on the topic's slots. Slots are in the stream in the order in which they were filled, and a
number may be filled long after higher ones (its publisher died, its home was away). So the subject of a slot holds the
*block* of numbers it belongs to, and the server finds the first message of a block at once. Reading begins at the first
message of any block from that of `after + 1` on: no number above `after` is before it.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nats.aio.msg import Msg

from seriatim.brokers.naming import Names
from seriatim.brokers.nats.api import StreamAnswer, StreamNotFound, StreamState, patiently
from seriatim.brokers.nats.channels import Channel, Search, decode_mark, is_mark
from seriatim.brokers.nats.identity import Sighting, difference
from seriatim.brokers.nats.messages import decode_slot, decode_stamps, event_of
from seriatim.brokers.nats.readers import Reader
from seriatim.brokers.nats.stamps import stamped_log
from seriatim.brokers.seam import Deliver
from seriatim.model import ConnectionFailed, Node, Number, RemoteError, RequestRefused, SeriatimError, Topic
from seriatim.protocols.with_broker import Delivered, Listen, Listening, Trimmed, Voids

if TYPE_CHECKING:
    from seriatim.brokers.nats.jetstream import JetStreamBroker

logger = logging.getLogger(__name__)

BLOCK = 8_192  # numbers in a block of slots
EMPTY_BLOCKS_MAX = 16  # this many empty ones in a row, twice the largest ticket, end the search for higher numbers


def slot_subject(names: Names, topic: Topic, number: Number) -> str:
    return f"{names.slots_subject(topic)}.{number // BLOCK}.{number}"


class TopicListening(ABC):
    """Starts, and starts again after an outage, until it is closed. `on_error` gets errors that waiting cannot cure."""

    def __init__(
        self, listen: Listen, broker: "JetStreamBroker", deliver: Deliver, on_error: Callable[[SeriatimError], None]
    ) -> None:
        self.listen = listen
        self.topic = listen.topic
        self.closed = False
        self._broker = broker
        self._topic_names = broker.topic_names
        self._streams = broker.streams
        self._api = broker.api
        self._names = broker.names
        self._deliver = deliver
        self._on_error = on_error
        self._readers: list[Reader] = []
        self._paused = False
        self._is_held = False  # the events alone are paused
        self._task = asyncio.get_running_loop().create_task(self._begin())

    @property
    def beginning(self) -> bool:
        """Whether the answer `Listening` is still to come."""
        return not self._task.done()

    def pause(self, everything: bool, events: bool) -> None:
        """Pause or resume. The first reader reads the events; `events` alone lets stamps still come."""
        self._paused, self._is_held = everything, events
        for index, reader in enumerate(self._readers):
            reader.pause(everything or (events and index == 0))

    def close(self) -> None:
        self.closed = True
        self._task.cancel()
        for reader in self._readers:
            reader.close()

    async def _begin(self) -> None:
        try:
            await patiently(self._start)
            self._deliver(Listening(self.topic, self.listen.version))
        except SeriatimError as error:
            self._on_error(error)

    @abstractmethod
    async def _start(self) -> None:
        """Begin to read. Called again after a failure, it goes on from there."""

    def _read(
        self, stream: str, subject: str | None, position: int, take: Callable[[int, Msg], None], created: str = ""
    ) -> Reader:
        reader = Reader(self._broker.readers, stream, subject, position, take, self._on_error, created)
        reader.pause(self._paused or (self._is_held and not self._readers))
        self._readers.append(reader)
        reader.begin()
        return reader


class LogListening(TopicListening):
    """A topic's log and its stamps."""

    def __init__(self, *arguments: Any) -> None:
        self._after = 0  # where this began
        self._done = 0  # the last number that was delivered, or is known to be gone
        self._stamped_to = 0  # the last number whose stamp was delivered, or is known to be gone
        self._subject = ""
        self._log = StreamAnswer()  # as it was when this began
        self._held: list[tuple[int, Msg]] | None = None  # what came while a hole is being looked at
        self._hole: asyncio.Task[None] | None = None
        self._moving: asyncio.Task[None] | None = None  # from one channel to another
        super().__init__(*arguments)

    async def _start(self) -> None:
        if not self._readers:
            await self._read_log()
        await self._read_stamps()

    async def _read_log(self) -> None:
        stream = await self._streams.log(self.topic)
        self._subject = self._names.log_subject(self.topic)
        try:
            self._log = await self._api.info(stream)
        except StreamNotFound:
            if await self._streams.was_removed(self.topic):
                self._streams.forget(self.topic)
                raise ConnectionFailed(f"stream {stream} was removed; it is being created again") from None
            raise
        self._check_log(Sighting())
        state = self._log.state
        self._done = state.last_seq if self.listen.after is None else self.listen.after
        if self._done + 1 < state.first:
            self._deliver(Trimmed(self.topic, state.first))
            self._done = state.first - 1
        self._after = self._stamped_to = self._done
        await self._read(stream, None, self._after + 1, self._take, self._log.created).ready()

    def _check_log(self, known: Sighting) -> None:
        """Check that `after` is a position in this log. `known`: the log that the stamps of `after` name."""
        problem = difference(self._log, self.listen.after or 0, known)
        if problem is not None:
            raise RequestRefused(f"the log of {self.topic} (stream {self._streams.known_log(self.topic)}) {problem}")

    def _take(self, position: int, message: Msg) -> None:
        if self._held is not None:
            self._held.append((position, message))
        elif position == self._done + 1:
            self._done = position
            event = event_of(message, self.topic, self._subject, position)
            self._deliver(Delivered(self.topic, position, None, event))
        elif position > self._done:
            self._held = [(position, message)]
            self._hole = asyncio.get_running_loop().create_task(self._look_at_hole(position))

    async def _look_at_hole(self, position: int) -> None:
        """Positions from the one after the last up to `position` are missing: trimmed, or deleted individually."""

        async def state() -> StreamState:
            return (await self._api.info(await self._streams.log(self.topic))).state

        try:
            first = min((await patiently(state)).first, position)
        except SeriatimError as error:
            self._on_error(error)
            return
        if self.closed:
            return
        if self._done + 1 < first:
            self._deliver(Trimmed(self.topic, first))
            self._done = first - 1
        if self._done + 1 < position:
            self._deliver(Voids(self.topic, self._done + 1, position - 1))
            self._done = position - 1
        held, self._held = self._held or [], None
        for each_position, message in held:
            self._take(each_position, message)

    async def _read_stamps(self) -> None:
        channel = await self._search(await self._broker.home(self.topic), self.listen.is_kept)
        is_missing = channel.first is None or channel.first > self._after + 1
        if self.listen.is_kept and self._after == self.listen.after and is_missing:
            self._deliver(Trimmed(self.topic, channel.first if channel.first is not None else self._after + 2))
        self._go_on_at(channel)

    async def _search(self, begin: Node, thorough: bool) -> Channel:
        search = Search(self._broker, self.topic, self._stamped_to, lambda stored: self._check_log(stamped_log(stored)))
        return await search.run(begin, thorough)

    def _go_on_at(self, channel: Channel) -> None:
        """Read the channel from there on. What is missing before is on no other channel."""
        if channel.first is not None:
            self._stamped_to = max(self._stamped_to, channel.first - 1)

        def take(_position: int, message: Msg) -> None:
            try:
                self._take_stamps(reader, channel.node, message)
            except RemoteError as error:
                self._on_error(error)

        stream, subject = self._names.stamps_stream(channel.node), self._names.stamps_subject(channel.node, self.topic)
        reader = self._read(stream, subject, channel.position, take)

    def _take_stamps(self, reader: Reader, node: Node, message: Msg) -> None:
        if reader.closed:
            return
        if is_mark(message.data):
            mark = decode_mark(message.data, self.topic)
            if mark.last >= self._stamped_to:  # else it is an old one
                self._leave_channel(reader, mark.next)
            return
        for stamp in decode_stamps(message.data, self.topic, self._topic_names):
            if stamp.last <= self._stamped_to:
                continue
            if stamp.first > self._stamped_to + 1:
                self._leave_channel(reader, node)
                return
            self._stamped_to = stamp.last
            self._deliver(stamp)

    def _leave_channel(self, reader: Reader, begin: Node) -> None:
        """The next stamp is on another channel. Begin to look at that of this node."""
        reader.close()
        self._readers.remove(reader)
        self._moving = asyncio.get_running_loop().create_task(self._change_channel(begin))

    async def _change_channel(self, begin: Node) -> None:
        try:
            channel = await patiently(lambda: self._search(begin, False))
        except SeriatimError as error:
            self._on_error(error)
            return
        if not self.closed:
            self._go_on_at(channel)

    def close(self) -> None:
        super().close()
        for task in (self._hole, self._moving):
            if task is not None:
                task.cancel()


class SlotListening(TopicListening):
    """A topic's slots."""

    async def _start(self) -> None:
        stream = await self._streams.slots(self.topic)
        try:
            answer = await self._api.info(stream)
        except StreamNotFound:
            self._streams.forget_other(stream)
            raise ConnectionFailed(f"stream {stream} was deleted; it is being created again") from None
        state = answer.state
        after = self.listen.after
        position = state.last_seq + 1
        if after is not None:
            position = min(position, await self._first_slot_after(stream, after))
            if state.first > 1 or self.listen.is_kept:
                await self._tell_trimmed(stream, after)
        self._after = after if after is not None else 0
        self._position = max(1, position) - 1  # the last that was read
        await self._read(stream, None, max(1, position), self._take, answer.created).ready()

    def _take(self, position: int, message: Msg) -> None:
        number = number_of(message.subject)
        if self.listen.tells_losses and position > self._position + 1:
            self._deliver(Trimmed(self.topic, number or 0))
        self._position = position
        if number is None or number <= self._after:
            return
        if message.subject != slot_subject(self._names, self.topic, number):
            # Another block, or zeros before it: a second subject for the same number, which would not be write-once.
            logger.warning(
                "message ignored, its subject is not that of a slot: topic=%s subject=%s", self.topic, message.subject
            )
            return
        try:
            self._deliver(decode_slot(message.data, self.topic, number, self._topic_names))
        except RemoteError as error:
            # Whoever wrote it has used up the slot. Where stamps are proven this is not believed and the home is asked.
            logger.error("slot cannot be read: topic=%s number=%s reason=%s", self.topic, number, error)
            self._deliver(Delivered(self.topic, number, {}, None))

    async def _first_slot_after(self, stream: str, after: Number) -> int:
        """A position; no slot before it has a number above `after`."""
        first = 1 << 62
        block, empty = (after + 1) // BLOCK, 0
        while empty < EMPTY_BLOCKS_MAX:
            blocks = range(block, block + EMPTY_BLOCKS_MAX)
            questions = [
                {"seq": 1, "next_by_subj": f"{self._names.slots_subject(self.topic)}.{each}.*"} for each in blocks
            ]
            for found in await asyncio.gather(*[self._api.message(stream, each) for each in questions]):
                empty = empty + 1 if found is None else 0
                if found is not None:
                    first = min(first, found.seq)
            block += EMPTY_BLOCKS_MAX
        return first

    async def _tell_trimmed(self, stream: str, after: Number) -> None:
        """Report where the slots begin if retention has removed the next number.

        Slots are not in the order of their numbers: a missing one may still come, unless its home says that it was
        filled.
        """
        subject = slot_subject(self._names, self.topic, after + 1)
        if await self._api.message(stream, {"last_by_subj": subject}) is not None:
            return
        oldest = await self._api.message(
            stream, {"seq": 1, "next_by_subj": f"{self._names.slots_subject(self.topic)}.>"}
        )
        number = number_of(oldest.subject) if oldest is not None else None
        if number is not None and number > after + 1:
            self._deliver(Trimmed(self.topic, number))
        elif self.listen.is_kept:
            self._deliver(Trimmed(self.topic, after + 2))


def number_of(subject: str) -> Number | None:
    """The number of a slot's subject."""
    word = subject.rpartition(".")[2]
    return int(word) if word.isascii() and word.isdigit() else None
