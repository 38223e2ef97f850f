"""A home writes its stamps: each once, in the order of their numbers, whatever happens on the way.

Per topic one message is under way; stamps that come meanwhile go into the next one, so a busy topic costs one message
per round trip. Every message says which message of the *stream* it follows (`Nats-Expected-Last-Sequence`): one home
writes it, so a repeat is refused however late it comes, and so is whatever another process writes. When it is not known
whether a message has arrived (no answer, a new process), the end of the stream and the last stamp of the topic are read
back: the numbers that it covers are kept. For this to hold, a stamp is written only after its predecessor; one that
comes too early waits for it, since homes repeat stamps that are not kept.

*A life begins* with a message of its own (subject `$begun`, the epoch is its body). Every message of an earlier life
expects another end of the stream, and is refused; that life then finds the later epoch and learns why (`Begun`). So
what a life reads of its stamps after that message is all there will ever be of those before.

*A topic moves away*: behind all its stamps comes a mark that names its next home (channels.py), which stamps on, on its
own channel. If the topic comes back, its stamps continue after the mark, with a hole before them.

Every message also says, in the header `Seriatim-Log`, when the log was created whose events are stamped. So a home that
starts again, and a subscriber that comes back, knows its numbers from those of another log of the same name.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from msgspec import Struct, field

from seriatim.brokers.naming import unescape
from seriatim.brokers.nats.api import EXPECTED_IN_STREAM, Stored, StreamNotFound, WrongLastSequence, ack_of, patiently
from seriatim.brokers.nats.channels import (
    END,
    MovedMark,
    channels_of,
    decode_mark,
    encode_mark,
    is_end,
    is_mark,
    last_message,
    last_number,
)
from seriatim.brokers.nats.identity import Sighting, earlier
from seriatim.brokers.nats.link import Reply
from seriatim.brokers.nats.messages import encode_stamps, stored_headers
from seriatim.brokers.nats.streams import Streams
from seriatim.brokers.seam import Deliver, OnError
from seriatim.model import ConnectionFailed, Node, Number, RequestRefused, SeriatimError, Topic
from seriatim.protocols.with_broker import Begun, Kept, Stamped, Unwatch, Unwatched

logger = logging.getLogger(__name__)

STAMPS_PER_MESSAGE = 1_000
ENTRIES_PER_MESSAGE = 20_000  # roughly half a megabyte
PREDECESSOR_S = 5.0  # then the stamps before were lost with an earlier stream, and nothing is gained by waiting
READ_TOGETHER = 256  # topics whose last stamps are asked for at once
LOG = "Seriatim-Log"
NOTICED_S = 60.0  # within this time a home has noticed that a log was created again, and stamps no more


class TopicStamps(Struct):
    """One topic."""

    queue: dict[Number, Stamped] = field(default_factory=dict)  # not kept yet, by first number, in order
    kept_to: Number | None = None  # None: not known; the last stamp must be read
    log: Sighting = Sighting()  # whose positions the numbers are
    busy: bool = False
    too_early_since: float | None = None
    left: Unwatch | None = None  # the topic has moved away, and the mark that says so is not kept yet
    mark: MovedMark | None = None  # the last thing that is known to be kept
    is_ended: bool = False  # that it was removed is the last thing


async def stamped_to(streams: Streams, node: Node) -> dict[Topic, Number]:
    """How far the stamps of each topic are kept on the channel of this node. StreamNotFound: there is none."""
    names, api, stream = streams.names, streams.api, streams.names.stamps_stream(node)
    found = await api.subjects(stream, names.stamps_subject(node))
    topics = [unescape(subject.rpartition(".")[2]) for subject in sorted(found - {names.begun_subject(node)})]
    stamped: dict[Topic, Number] = {}
    for at in range(0, len(topics), READ_TOGETHER):
        some = topics[at : at + READ_TOGETHER]
        subjects = [names.stamps_subject(node, topic) for topic in some]
        lasts = await asyncio.gather(*(api.message(stream, {"last_by_subj": each}) for each in subjects))
        for topic, last in zip(some, lasts, strict=True):
            if last is not None:  # else retention has just removed it
                stamped[topic] = last_number(last.data, last.subject)
    return stamped


class StampChannel:
    """The stamps of one home node."""

    def __init__(self, node: Node, streams: Streams, deliver: Deliver, on_error: OnError) -> None:
        self._node = node
        self._streams = streams
        self._link = streams.api.link
        self._deliver = deliver
        self._on_error = on_error
        self._lanes: dict[Topic, TopicStamps] = {}
        self._end: int | None = None  # of the stream, with all that is under way; None: not known, read it
        self._under_way = 0
        self._epoch = 0  # of the life that writes
        self._later = 0  # the epoch of a later one, which has fenced it
        self._finding_end: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()

    async def begin(self, epoch: int) -> Begun:
        """Refuse from now on what earlier lives write, and tell how far the stamps go. May be repeated."""
        self._epoch = max(self._epoch, epoch)
        stream = await self._streams.stamps(self._node)
        subject = self._streams.names.begun_subject(self._node)
        while True:
            try:
                end, latest = await self._look(stream)
                if latest > epoch:
                    return self._fenced(epoch, latest)
                if latest < epoch:
                    headers = {EXPECTED_IN_STREAM: str(end)}
                    end = (await self._streams.api.publish(subject, str(epoch).encode(), headers)).seq
                stamped = await stamped_to(self._streams, self._node)
            except (WrongLastSequence, StreamNotFound):  # the earlier life still writes; or somebody deletes the stream
                self._streams.forget_other(stream)
                await self._streams.stamps(self._node)
                continue
            return Begun(epoch, epoch, stamped)

    async def _look(self, stream: str) -> tuple[int, int]:
        """The end of the stream, and the epoch of the last life that began here."""
        end = (await self._streams.api.info(stream)).state.last_seq
        begun = await self._streams.api.message(stream, {"last_by_subj": self._streams.names.begun_subject(self._node)})
        return end, int(begun.data) if begun is not None and begun.data.isdigit() else 0

    def _fenced(self, epoch: int, latest: int) -> Begun:
        self._later = latest
        for lane in self._lanes.values():
            lane.queue.clear()
            lane.left = None
        return Begun(epoch, latest)

    def send(self, stamped: Stamped) -> None:
        """Store a stamp unless it is stored already. The answer is `Kept` in both cases."""
        self._epoch = max(self._epoch, stamped.epoch)
        if self._later > self._epoch:
            self._deliver(Begun(self._epoch, self._later))
            return
        lane = self._lanes.setdefault(stamped.topic, TopicStamps())
        lane.queue.setdefault(stamped.first, stamped)
        if not lane.busy:
            self._pump(stamped.topic, lane)

    def leave(self, message: Unwatch) -> None:
        """Store the mark behind the stamps of a topic that has moved. The answer is `Unwatched`."""
        if self._later > self._epoch:
            return
        lane = self._lanes.setdefault(message.topic, TopicStamps())
        lane.left = message
        if not lane.busy:
            self._pump(message.topic, lane)

    async def look_up(self, topic: Topic) -> Number:
        """How far the stamps of a topic are kept; makes the stream if there is none yet."""
        lane = self._lanes.setdefault(topic, TopicStamps())
        if lane.kept_to is None:
            await self._read_back(topic, lane)
        assert lane.kept_to is not None, "just read"
        return lane.kept_to

    def log_of(self, topic: Topic) -> Sighting:
        """The log that the kept stamps are of, as far as they say so. Known after `look_up`.

        That of a topic that was removed is gone: any other one may follow.
        """
        lane = self._lanes[topic]
        return lane.log if not lane.is_ended else Sighting()

    async def all_logs(self, topic: Topic) -> list[Sighting]:
        """The logs that its stamps are of on all channels, the latest last: the topic may have moved here.

        Where it was removed there is none: any other one may follow.
        """
        subject, found = self._streams.names.stamps_subject(self._node, topic), list[tuple[Number, bool, Sighting]]()
        for node in await channels_of(self._streams, topic):
            last = await last_message(self._streams, node, topic)
            if last is not None:
                log = stamped_log(last) if not is_end(last) else Sighting()
                found.append((last_number(last.data, subject), is_end(last), log))
        return [log for _, ended, log in sorted(found, key=lambda each: each[:2]) if ended or log.created]

    def name_log(self, topic: Topic, log: Sighting) -> None:
        """The log that the next stamps are of."""
        self._lanes.setdefault(topic, TopicStamps()).log = log

    async def end(self, topic: Topic, last: Number, epoch: int) -> None:
        """Forget the stamps of a topic, except how far they went: a new log continues after that.

        Call it when all of them are kept. ConnectionFailed: try again; it may be done already, or in part.
        """
        stream = self._streams.names.stamps_stream(self._node)
        subject = self._streams.names.stamps_subject(self._node, topic)
        if last:
            await self._write_end(topic, encode_stamps([Stamped(topic, last, last, {}, epoch)]), last)
        await self._streams.api.purge_subject(stream, subject, keep=1 if last else 0)
        self._lanes.pop(topic, None)

    async def _write_end(self, topic: Topic, body: bytes, last: Number) -> None:
        if self._end is None:
            self._find_end()
            raise ConnectionFailed(f"it is not known yet where the stamps of {self._node} end")
        lane = self._lanes.setdefault(topic, TopicStamps())
        answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._ask(topic, lane, body, answered.set_result, {END: str(last)})
        is_kept = self._answered(topic, lane, await answered, [])
        self._go_on(topic, lane)
        if not is_kept:
            raise ConnectionFailed(f"it is not known whether the end of {topic} was kept")

    async def is_ended(self, topic: Topic) -> bool:
        """Whether the last that was written of this topic is that it was removed."""
        subject = self._streams.names.stamps_subject(self._node, topic)
        last = await self._streams.api.message(await self._streams.stamps(self._node), {"last_by_subj": subject})
        return last is not None and is_end(last)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _pump(self, topic: Topic, lane: TopicStamps) -> None:
        if self._closed or not (lane.queue or lane.left):
            return
        if self._end is None:
            self._find_end()
            return
        if lane.kept_to is None:
            lane.busy = True
            task = asyncio.get_running_loop().create_task(self._recover(topic, lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        for first in [first for first, each in lane.queue.items() if each.last <= lane.kept_to]:
            del lane.queue[first]
            asyncio.get_running_loop().call_soon(self._deliver, Kept(topic, first))
        if lane.left is not None and all(first > lane.left.last for first in lane.queue):
            self._write_mark(topic, lane, lane.left)
        elif batch := self._next_batch(lane):
            self._ask(topic, lane, encode_stamps(batch), lambda reply: self._on_reply(topic, lane, batch, reply))

    def _ask(
        self,
        topic: Topic,
        lane: TopicStamps,
        data: bytes,
        on_reply: Callable[[Reply], None],
        more: dict[str, str] | None = None,
    ) -> None:
        assert self._end is not None, "known before anything is written"
        lane.busy = True
        headers = {EXPECTED_IN_STREAM: str(self._end), **(more or {})}
        self._end += 1
        self._under_way += 1
        if lane.log.created:
            headers[LOG] = lane.log.created
        self._link.ask(self._streams.names.stamps_subject(self._node, topic), data, on_reply, headers)

    def _write_mark(self, topic: Topic, lane: TopicStamps, left: Unwatch) -> None:
        is_written = lane.mark is not None and lane.mark.move >= left.move
        if is_written or (lane.kept_to or 0) > left.last:  # or too late: the topic has come back, and is stamped on
            self._has_left(topic, lane, left)
            self._pump(topic, lane)
            return
        mark = MovedMark(left.to, left.last, left.move, self._epoch, left.era)

        def on_reply(reply: Reply) -> None:
            if self._answered(topic, lane, reply, []):
                lane.mark, lane.kept_to = mark, 0
                if lane.left is left:
                    self._has_left(topic, lane, left)
            self._go_on(topic, lane)

        self._ask(topic, lane, encode_mark(mark), on_reply, {END: str(left.last)} if lane.is_ended else None)

    def _has_left(self, topic: Topic, lane: TopicStamps, left: Unwatch) -> None:
        lane.left = None
        if not lane.queue:
            self._lanes.pop(topic, None)
        asyncio.get_running_loop().call_soon(self._deliver, Unwatched(topic, left.move))

    def _next_batch(self, lane: TopicStamps) -> list[Stamped]:
        """The stamps that follow the last kept one without a hole."""
        batch: list[Stamped] = []
        entries, reached = 0, lane.kept_to or 0
        for _, each in sorted(lane.queue.items()):
            entries += len(each.entries)
            if batch and (entries > ENTRIES_PER_MESSAGE or len(batch) == STAMPS_PER_MESSAGE):
                break
            if reached and each.first > reached + 1 and not (not batch and self._waited_enough(lane, each)):
                break
            batch.append(each)
            reached = each.last
        if batch:
            lane.too_early_since = None
        return batch

    def _waited_enough(self, lane: TopicStamps, early: Stamped) -> bool:
        now = time.monotonic()
        if lane.too_early_since is None:
            lane.too_early_since = now
        if now - lane.too_early_since < PREDECESSOR_S:
            return False
        text = "stamps missing on the stamp channel, continuing without them: topic=%s kept_to=%s next=%s"
        logger.error(text, early.topic, lane.kept_to, early.first)
        return True

    def _on_reply(self, topic: Topic, lane: TopicStamps, batch: list[Stamped], reply: Reply) -> None:
        if self._answered(topic, lane, reply, batch):
            lane.kept_to, lane.mark, lane.is_ended = batch[-1].last, None, False
        self._go_on(topic, lane)

    def _answered(self, topic: Topic, lane: TopicStamps, reply: Reply, batch: list[Stamped]) -> bool:
        """Whether a message is kept."""
        lane.busy = False
        self._under_way -= 1
        if self._closed:
            return False
        try:
            ack_of(reply, f"keeping stamps of {topic}")
        except (ConnectionFailed, WrongLastSequence):
            self._end = lane.kept_to = None  # it may or may not have arrived; or an earlier attempt, or another's has
        except StreamNotFound:
            self._streams.forget_other(self._streams.names.stamps_stream(self._node))
            self._end = lane.kept_to = None
        except RequestRefused as refused:
            self._end = None
            self._give_up(lane, batch, refused)
        else:
            return True
        return False

    def _go_on(self, topic: Topic, lane: TopicStamps) -> None:
        if self._closed:
            return
        if self._end is None:
            self._find_end()
        else:
            self._pump(topic, lane)

    def _find_end(self) -> None:
        """Read where the stream ends once nothing is under way, and whether a later life has begun; then continue."""
        if self._under_way or (self._finding_end is not None and not self._finding_end.done()):
            return
        self._finding_end = asyncio.get_running_loop().create_task(self._read_end())
        self._tasks.add(self._finding_end)
        self._finding_end.add_done_callback(self._tasks.discard)

    async def _read_end(self) -> None:
        try:
            self._end, latest = await patiently(self._look_again)
        except SeriatimError as error:
            for lane in list(self._lanes.values()):
                self._give_up(lane, list(lane.queue.values()), error)
            return
        if latest > self._epoch:
            self._deliver(self._fenced(self._epoch, latest))
            return
        for topic, lane in list(self._lanes.items()):
            if not lane.busy:
                self._pump(topic, lane)

    async def _look_again(self) -> tuple[int, int]:
        stream = await self._streams.stamps(self._node)
        try:
            return await self._look(stream)
        except StreamNotFound:
            self._streams.forget_other(stream)
            raise ConnectionFailed(f"stream {stream} was deleted; it is being created again") from None

    def _give_up(self, lane: TopicStamps, batch: list[Stamped], error: SeriatimError) -> None:
        """Give up stamps that the server refuses; the machine may try again.

        Later stamps are given up too: written without its predecessor, a stamp would make that one seem to be kept.
        """
        lane.queue.clear()
        if lane.left is not None:
            asyncio.get_running_loop().call_later(PREDECESSOR_S, self._pump_again, lane.left.topic, lane)
        refused: Stamped | Unwatch | None = batch[0] if batch else lane.left
        if refused is not None:
            self._on_error(refused, error)

    def _pump_again(self, topic: Topic, lane: TopicStamps) -> None:
        if not lane.busy:
            self._pump(topic, lane)

    # ── reading back ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _recover(self, topic: Topic, lane: TopicStamps) -> None:
        """Find out which stamps are kept. Tries until it succeeds: stamps that were handed to us are not forgotten."""
        try:
            await patiently(lambda: self._read_back(topic, lane))
        except SeriatimError as error:
            lane.busy = False
            self._give_up(lane, list(lane.queue.values()), error)
            return
        lane.busy = False
        self._pump(topic, lane)

    async def _read_back(self, topic: Topic, lane: TopicStamps) -> None:
        stream = await self._streams.stamps(self._node)
        subject = self._streams.names.stamps_subject(self._node, topic)
        try:
            last = await self._streams.api.message(stream, {"last_by_subj": subject})
        except StreamNotFound:
            self._streams.forget_other(stream)
            raise ConnectionFailed(f"stream {stream} was deleted; it is being created again") from None
        lane.kept_to, lane.mark, lane.is_ended = 0, None, False
        if last is not None:
            lane.is_ended = is_end(last)
            if is_mark(last.data):  # what follows has a hole before it
                lane.mark = decode_mark(last.data, topic)
            else:
                lane.kept_to = last_number(last.data, subject)
            if not lane.log.created:
                lane.log = stamped_log(last)


def stamped_log(stored: Stored) -> Sighting:
    """The log that a message of stamps belongs to. Stamps written before a home looks again prove nothing."""
    return Sighting(stored_headers(stored.hdrs).get(LOG, ""), earlier(stored.time, NOTICED_S))
