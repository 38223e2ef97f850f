"""A home writes its stamps: each once, in the order of their numbers, whatever happens on the way.

Per topic one message is under way; stamps that come meanwhile go into the next one, so a busy topic costs one message
per round trip. Every message says which message of the *stream* it follows (`Nats-Expected-Last-Sequence`): one home
writes it, so a repeat is refused however late it comes, and so is whatever another process writes. When it is not known
whether a message has arrived (no answer, a new process), the end of the stream and the last stamp of the topic are read
back: what it covers is kept. For that to be true a stamp is written only after its predecessor; one that comes too
early waits for it, since homes repeat what is not kept.

*A life begins* with a message of its own (subject `$begun`, the epoch is its body). Whatever an earlier life still
writes expects another end of the stream, and is refused: it looks why, finds the later epoch, and is told (`Begun`). So
what a life reads of its stamps after that message is all there will ever be of those before.

Every message also says, in the header `Seriatim-Log`, when the log was created whose events are stamped. So a home that
starts again, and a subscriber that comes back, knows its numbers from those of another log of the same name.
"""

import asyncio
import logging
import time

from msgspec import Struct, field

from seriatim.brokers.naming import unescape
from seriatim.brokers.nats.api import EXPECTED_IN_STREAM, Stored, StreamNotFound, WrongLastSequence, ack_of, patiently
from seriatim.brokers.nats.identity import Sighting, earlier
from seriatim.brokers.nats.link import Reply
from seriatim.brokers.nats.messages import decode_stamps, encode_stamps, stored_headers
from seriatim.brokers.nats.streams import Streams
from seriatim.brokers.seam import Deliver, OnError
from seriatim.model import ConnectionFailed, Node, Number, RequestRefused, SeriatimError, Topic
from seriatim.protocols.with_broker import Begun, Kept, Stamped

logger = logging.getLogger(__name__)

STAMPS_PER_MESSAGE = 1_000
ENTRIES_PER_MESSAGE = 20_000  # roughly half a megabyte
PREDECESSOR_S = 5.0  # then the stamps before were lost with an earlier stream, and nothing is gained by waiting
READ_TOGETHER = 256  # topics whose last stamps are asked for at once
LOG = "Seriatim-Log"
NOTICED_S = 60.0  # within this time a home has noticed that a log was made anew, and stamps no more


class Lane(Struct):
    """One topic."""

    queue: dict[Number, Stamped] = field(default_factory=dict)  # not kept yet, by first number, in order
    kept_to: Number | None = None  # None: not known; the last stamp must be read
    log: Sighting = Sighting()  # whose positions the numbers are
    busy: bool = False
    too_early_since: float | None = None


class StampChannel:
    """The stamps of one home node."""

    def __init__(self, node: Node, streams: Streams, deliver: Deliver, on_error: OnError) -> None:
        self._node = node
        self._streams = streams
        self._link = streams.api.link
        self._deliver = deliver
        self._on_error = on_error
        self._lanes: dict[Topic, Lane] = {}
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
                stamped = await self._read_all(stream)
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

    async def _read_all(self, stream: str) -> dict[Topic, Number]:
        """How far the stamps of each topic are kept."""
        begun = self._streams.names.begun_subject(self._node)
        found = await self._streams.api.subjects(stream, self._streams.names.stamps_subject(self._node))
        topics = [unescape(subject.rpartition(".")[2]) for subject in sorted(found - {begun})]
        stamped: dict[Topic, Number] = {}
        for at in range(0, len(topics), READ_TOGETHER):
            some = topics[at : at + READ_TOGETHER]
            subjects = [self._streams.names.stamps_subject(self._node, topic) for topic in some]
            lasts = await asyncio.gather(
                *(self._streams.api.message(stream, {"last_by_subj": each}) for each in subjects)
            )
            for topic, last in zip(some, lasts, strict=True):
                if last is not None:  # else retention has just removed it
                    stamped[topic] = decode_stamps(last.data, topic)[-1].last
        return stamped

    def _fenced(self, epoch: int, latest: int) -> Begun:
        self._later = latest
        for lane in self._lanes.values():
            lane.queue.clear()
        return Begun(epoch, latest)

    def send(self, stamped: Stamped) -> None:
        """Store a stamp unless it is stored already. The answer is `Kept` in both cases."""
        self._epoch = max(self._epoch, stamped.epoch)
        if self._later > self._epoch:
            self._deliver(Begun(self._epoch, self._later))
            return
        lane = self._lanes.setdefault(stamped.topic, Lane())
        lane.queue.setdefault(stamped.first, stamped)
        if not lane.busy:
            self._pump(stamped.topic, lane)

    async def look_up(self, topic: Topic) -> Number:
        """How far the stamps of a topic are kept; makes the stream if there is none yet."""
        lane = self._lanes.setdefault(topic, Lane())
        if lane.kept_to is None:
            await self._read_back(topic, lane)
        assert lane.kept_to is not None, "just read"
        return lane.kept_to

    def log_of(self, topic: Topic) -> Sighting:
        """The log that the kept stamps are of, as far as they say so. Known after `look_up`."""
        return self._lanes[topic].log

    def name_log(self, topic: Topic, log: Sighting) -> None:
        """The log that the next stamps are of."""
        self._lanes.setdefault(topic, Lane()).log = log

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _pump(self, topic: Topic, lane: Lane) -> None:
        if self._closed or not lane.queue:
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
        batch = self._next_batch(lane)
        if not batch:
            return
        lane.busy = True
        subject = self._streams.names.stamps_subject(self._node, topic)

        def on_reply(reply: Reply) -> None:
            self._on_reply(topic, lane, batch, reply)

        headers = {EXPECTED_IN_STREAM: str(self._end)}
        self._end += 1
        self._under_way += 1
        if lane.log.created:
            headers[LOG] = lane.log.created
        self._link.ask(subject, encode_stamps(batch), on_reply, headers)

    def _next_batch(self, lane: Lane) -> list[Stamped]:
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

    def _waited_enough(self, lane: Lane, early: Stamped) -> bool:
        now = time.monotonic()
        if lane.too_early_since is None:
            lane.too_early_since = now
        if now - lane.too_early_since < PREDECESSOR_S:
            return False
        text = "stamps missing on the stamp channel, going on without them: topic=%s kept_to=%s next=%s"
        logger.error(text, early.topic, lane.kept_to, early.first)
        return True

    def _on_reply(self, topic: Topic, lane: Lane, batch: list[Stamped], reply: Reply) -> None:
        lane.busy = False
        self._under_way -= 1
        if self._closed:
            return
        try:
            ack_of(reply, f"keeping stamps of {topic}")
            lane.kept_to = batch[-1].last
        except (ConnectionFailed, WrongLastSequence):
            self._end = lane.kept_to = None  # it may or may not have arrived; or an earlier attempt, or another's has
        except StreamNotFound:
            self._streams.forget_other(self._streams.names.stamps_stream(self._node))
            self._end = lane.kept_to = None
        except RequestRefused as refused:
            self._end = None
            self._give_up(lane, batch, refused)
        if self._end is None:
            self._find_end()
        else:
            self._pump(topic, lane)

    def _find_end(self) -> None:
        """Read where the stream ends once nothing is under way, and whether a later life has begun; then go on."""
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
                if batch := list(lane.queue.values()):
                    self._give_up(lane, batch, error)
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
            raise ConnectionFailed(f"stream {stream} was deleted; it is made again") from None

    def _give_up(self, lane: Lane, batch: list[Stamped], error: SeriatimError) -> None:
        """Give up stamps that the server refuses; the machine may try again.

        Later stamps are given up too: written without its predecessor, a stamp would make that one seem to be kept.
        """
        lane.queue.clear()
        self._on_error(batch[0], error)

    # ── reading back ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _recover(self, topic: Topic, lane: Lane) -> None:
        """Find out which stamps are kept. Tries until it succeeds: stamps that were handed to us are not forgotten."""
        try:
            await patiently(lambda: self._read_back(topic, lane))
        except SeriatimError as error:
            batch, lane.busy = list(lane.queue.values()), False
            if batch:
                self._give_up(lane, batch, error)
            return
        lane.busy = False
        self._pump(topic, lane)

    async def _read_back(self, topic: Topic, lane: Lane) -> None:
        stream = await self._streams.stamps(self._node)
        subject = self._streams.names.stamps_subject(self._node, topic)
        try:
            last = await self._streams.api.message(stream, {"last_by_subj": subject})
        except StreamNotFound:
            self._streams.forget_other(stream)
            raise ConnectionFailed(f"stream {stream} was deleted; it is made again") from None
        if last is None:
            lane.kept_to = 0
        else:
            lane.kept_to = decode_stamps(last.data, topic)[-1].last
            if not lane.log.created:
                lane.log = stamped_log(last)


def stamped_log(stored: Stored) -> Sighting:
    """The log that a message of stamps belongs to. Stamps written before a home looks again prove nothing."""
    return Sighting(stored_headers(stored.hdrs).get(LOG, ""), earlier(stored.time, NOTICED_S))
