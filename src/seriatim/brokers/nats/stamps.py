"""A home writes its stamps: each once, in the order of their numbers, whatever happens on the way.

Per topic one message is under way; stamps that come meanwhile go into the next one, so a busy topic costs one message
per round trip. Every message says which message of its topic it follows (`Nats-Expected-Last-Subject-Sequence`), so a
repeat is refused however late it comes. When it is not known whether a message has arrived (no answer, a new process),
the last stamp of the topic is read back: what it covers is kept. For that to be true a stamp is written only after its
predecessor; one that comes too early waits for it, since homes repeat what is not kept.

Every message also says, in the header `Seriatim-Log`, when the log was created whose events are stamped. So a home that
starts again, and a subscriber that comes back, knows its numbers from those of another log of the same name.
"""

import asyncio
import logging
import time

from msgspec import Struct, field

from seriatim.brokers.nats.api import EXPECTED, Stored, StreamNotFound, WrongLastSequence, ack_of, patiently
from seriatim.brokers.nats.identity import Sighting, earlier
from seriatim.brokers.nats.link import Reply
from seriatim.brokers.nats.messages import decode_stamps, encode_stamps, stored_headers
from seriatim.brokers.nats.streams import Streams
from seriatim.brokers.seam import Deliver, OnError
from seriatim.model import ConnectionFailed, Node, Number, RequestRefused, SeriatimError, Topic
from seriatim.protocols.with_broker import Kept, Stamped

logger = logging.getLogger(__name__)

STAMPS_PER_MESSAGE = 1_000
ENTRIES_PER_MESSAGE = 20_000  # roughly half a megabyte
PREDECESSOR_S = 5.0  # then the stamps before were lost with an earlier stream, and nothing is gained by waiting
LOG = "Seriatim-Log"
END = "Seriatim-Removed"  # the topic was removed: a log that is made anew begins behind the number of this stamp
NOTICED_S = 60.0  # within this time a home has noticed that a log was made anew, and stamps no more


class Lane(Struct):
    """One topic."""

    queue: dict[Number, Stamped] = field(default_factory=dict)  # not kept yet, by first number, in order
    kept_to: Number | None = None  # None: not known; the last stamp must be read
    position: int = 0  # of the last message of this topic in the stream
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
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()

    def send(self, stamped: Stamped) -> None:
        """Store a stamp unless it is stored already. The answer is `Kept` in both cases."""
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

    async def end(self, topic: Topic, last: Number, epoch: int) -> None:
        """Forget the stamps of a topic, except how far they went: a log that is made anew goes on behind that.

        Call it when all of them are kept. ConnectionFailed: try again; it may be done already, or in part.
        """
        lane = self._lanes.setdefault(topic, Lane())
        await self._read_back(topic, lane)
        stream = self._streams.names.stamps_stream(self._node)
        subject = self._streams.names.stamps_subject(self._node, topic)
        if last:
            body = encode_stamps([Stamped(topic, last, last, {}, epoch)])
            await self._streams.api.publish(subject, body, {EXPECTED: str(lane.position), END: str(last)})
        await self._streams.api.purge_subject(stream, subject, keep=1 if last else 0)
        self._lanes.pop(topic, None)

    async def is_ended(self, topic: Topic) -> bool:
        """Whether the last that was written of this topic is that it was removed."""
        subject = self._streams.names.stamps_subject(self._node, topic)
        last = await self._streams.api.message(await self._streams.stamps(self._node), {"last_by_subj": subject})
        return last is not None and is_end(last)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _pump(self, topic: Topic, lane: Lane) -> None:
        if self._closed or not lane.queue:
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

        headers = {EXPECTED: str(lane.position)}
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
        if self._closed:
            return
        try:
            lane.position, lane.kept_to = ack_of(reply, f"keeping stamps of {topic}").seq, batch[-1].last
        except (ConnectionFailed, WrongLastSequence):
            lane.kept_to = None  # it may or may not have arrived; or an earlier attempt has
        except StreamNotFound:
            self._streams.forget_other(self._streams.names.stamps_stream(self._node))
            lane.kept_to = None
        except RequestRefused as refused:
            self._give_up(lane, batch, refused)
        self._pump(topic, lane)

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
            lane.position, lane.kept_to = 0, 0
        else:
            lane.position, lane.kept_to = last.seq, decode_stamps(last.data, topic)[-1].last
            if not lane.log.created:
                lane.log = stamped_log(last)


def stamped_log(stored: Stored) -> Sighting:
    """The log that a message of stamps belongs to. Stamps written before a home looks again prove nothing."""
    return Sighting(stored_headers(stored.hdrs).get(LOG, ""), earlier(stored.time, NOTICED_S))


def is_end(stored: Stored) -> bool:
    """Whether a message of stamps says that its topic was removed."""
    return END in stored_headers(stored.hdrs)
