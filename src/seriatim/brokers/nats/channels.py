"""Where the stamps of a topic are: each home writes the stamps that it gives to its own channel.

A topic that moves continues on the channel of its new home. The last thing that the former home writes there about it
is a *mark*: it names the next home, and the number up to which the stamps are here or before. When the topic comes
back, its stamps continue after the mark. So on every channel the numbers of a topic rise, and the numbers missing
between two of them are on another channel.

A reader begins at the stamp after its last number, and continues from mark to mark. A home that crashes may owe its
mark until it is back. Then there is a hole in the numbers, or they end; and all channels are asked.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec
from msgspec import Meta, Struct, field

from seriatim.brokers.naming import Names, unescape
from seriatim.brokers.nats.api import Api, Stored, StreamNotFound
from seriatim.brokers.nats.messages import decode_stamps, last_stamped, stored_headers
from seriatim.model import UNREADABLE, Node, Number, RemoteError, Topic

if TYPE_CHECKING:
    from seriatim.brokers.nats.jetstream import JetStreamBroker

END = "Seriatim-Removed"  # the topic was removed: a new log begins after the number of this message
_BEGINNING = b"{"  # stamps are an array in MessagePack, and never begin so
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class MovedMark(Struct, frozen=True):
    """The stamps of a topic continue on the channel of `next`. `last`: up to this number they are here, or before.

    `move`: the one that brought it there. `epoch`: of the home that wrote this; `era`: how late it may be.
    """

    next: Node
    last: _Count
    move: _Count = 0
    epoch: _Count = 0
    era: _Count = 0


encode_mark: Callable[[MovedMark], bytes] = msgspec.json.Encoder().encode
_mark = msgspec.json.Decoder(MovedMark)


def is_mark(data: bytes) -> bool:
    """Whether a message on a stamp channel holds no stamps, but says where they continue."""
    return data[:1] == _BEGINNING


def decode_mark(data: bytes, topic: Topic) -> MovedMark:
    """RemoteError: no home wrote this."""
    try:
        return _mark.decode(data)
    except UNREADABLE as error:
        raise RemoteError(f"the stamp channel of {topic} holds a message that is not a mark: {error}") from None


def last_number(data: bytes, subject: str) -> Number:
    """The number up to which the stamps of a topic are out, as this message on its channel says."""
    return last_of(data, subject)[0]


def last_of(data: bytes, subject: str) -> tuple[Number, int]:
    """The same, and the era of these stamps."""
    if is_mark(data):
        mark = decode_mark(data, subject)
        return mark.last, mark.era
    return last_stamped(data, subject)


def is_end(stored: Stored) -> bool:
    """Whether a message on a stamp channel says that its topic was removed, and has not been used again there."""
    return END in stored_headers(stored.hdrs)


class Channel(Struct):
    """The stamps that one channel has of a topic, for a reader that has the stamps up to some number."""

    node: Node
    position: int = 1  # of the message that has the next stamp, or where it will be at the earliest
    first: Number | None = None  # the first number behind that of the reader; None: there is none yet
    last: Number = 0
    mark: MovedMark | None = None  # the last thing there
    stored: Stored | None = None  # the same, as it is stored


class Search(Struct):
    """A reader of one topic that has the stamps up to `after` looks for the next channel.

    `check` is given the furthest message that was found: it says which log the stamps are of. What is behind it, on
    other channels, may be of one that was removed since.
    """

    broker: "JetStreamBroker"
    topic: Topic
    after: Number
    check: Callable[[Stored], None] = lambda stored: None
    found: dict[Node, Channel] = field(default_factory=dict)

    async def run(self, begin: Node, thorough: bool = False) -> Channel:
        """Look at the channel of this node first, and go from mark to mark.

        `thorough`: look at all channels, also if there is nothing strange.
        """
        channel = await self._look(begin)
        while channel.first is None and channel.mark is not None and channel.mark.next not in self.found:
            channel = await self._look(channel.mark.next)
        best = await self._best(begin)
        if thorough or self._is_strange(best):
            for node in await channels_of(self.broker, self.topic):
                await self._look(node)
            best = await self._best(begin)
        if stored := [each.stored for each in self.found.values() if each.stored is not None]:
            self.check(max(stored, key=lambda each: _reach(each, self.topic)))
        return best

    def _is_strange(self, channel: Channel) -> bool:
        """Whether stamps are missing before the first one here, or the channel is empty and no mark led to it."""
        if channel.first is not None:
            return channel.first > self.after + 1
        return self.after > 0 and len(self.found) == 1 and channel.stored is None

    async def _best(self, begin: Node) -> Channel:
        """Where the next stamp is; otherwise where the first one after it is; otherwise where it will be."""
        channels = list(self.found.values())
        if ahead := [each for each in channels if each.first is not None]:
            return min(ahead, key=lambda each: each.first or 0)
        stamped = max((each for each in channels if each.mark is None), key=lambda each: each.last, default=None)
        marks = [each.mark for each in channels if each.mark is not None]
        mark = max(marks, key=lambda each: (each.last, each.move), default=None)
        if mark is not None and (stamped is None or stamped.last <= mark.last):
            return await self._look(mark.next)
        if stamped is None or self.found[begin].stored is None:  # it has just moved there, and a mark is owed
            return self.found[begin]
        return stamped

    async def _look(self, node: Node) -> Channel:
        if node not in self.found:
            self.found[node] = await self._read(node)
        return self.found[node]

    async def _read(self, node: Node) -> Channel:
        names, api = self.broker.names, self.broker.api
        stream, subject = names.stamps_stream(node), names.stamps_subject(node, self.topic)
        last = await last_message(self.broker, node, self.topic)
        if last is None:
            return Channel(node)
        mark = decode_mark(last.data, self.topic) if is_mark(last.data) else None
        number = last_number(last.data, subject)
        if number <= self.after:
            return Channel(node, last.seq + 1, None, number, mark, last)
        best, low, top = last, 1, last.seq - 1  # `best` is late enough; what is before `low` is too early
        while low <= top:
            middle = (low + top) // 2
            found = await api.message(stream, {"seq": middle, "next_by_subj": subject})
            if found is not None and found.seq < best.seq and last_number(found.data, subject) <= self.after:
                low = found.seq + 1
            else:
                best = found if found is not None and found.seq < best.seq else best
                top = middle - 1
        first = None
        if not is_mark(best.data):
            first = next(each.first for each in decode_stamps(best.data, self.topic) if each.last > self.after)
        return Channel(node, best.seq, first, number, mark, last)


class Server(Protocol):
    """An object that knows the server, and the names of streams there."""

    @property
    def api(self) -> Api: ...

    @property
    def names(self) -> Names: ...


async def last_message(broker: Server, node: Node, topic: Topic) -> Stored | None:
    """The last thing that a channel has of a topic."""
    names = broker.names
    try:
        return await broker.api.message(names.stamps_stream(node), {"last_by_subj": names.stamps_subject(node, topic)})
    except StreamNotFound:
        return None  # the home has not made its stream yet


async def channels_of(broker: Server, topic: Topic) -> list[Node]:
    """The nodes that have a channel, and may have stamps of this topic on it."""
    prefix = broker.names.stamps_stream("")
    streams = await broker.api.streams_with(broker.names.stamps_subject("", topic))
    return sorted(unescape(stream.removeprefix(prefix)) for stream in streams if stream.startswith(prefix))


async def furthest(broker: "JetStreamBroker", topic: Topic, thorough: bool) -> Stored | None:
    """The last stamps of a topic, or the mark behind them.

    `thorough`: look on all channels, not only where the marks lead to.
    """
    node, best = await broker.home(topic), None
    subject = broker.names.stamps_subject(node, topic)
    passed: set[Node] = set()
    waiting = [node, *(await channels_of(broker, topic) if thorough else ())]
    while waiting:
        node = waiting.pop(0)
        if node in passed:
            continue
        passed.add(node)
        stored = await last_message(broker, node, topic)
        if stored is None:
            continue
        if best is None or _reach(stored, subject) > _reach(best, subject):
            best = stored
        if is_mark(stored.data):
            waiting.append(decode_mark(stored.data, topic).next)
    return best


def _reach(stored: Stored, subject: str) -> tuple[Number, bool, bool]:
    """How far a message on a channel goes. Of equals, one that says that the topic was removed counts (it is in use
    again from the next number on), then one of stamps, then a mark."""
    return last_number(stored.data, subject), is_end(stored), not is_mark(stored.data)
