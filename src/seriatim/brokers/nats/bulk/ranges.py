"""Reading a range of positions of a JetStream stream, whole, once, at the speed of the connection.

With `allow_direct` (all streams of ours) a server answers one question with thousands of messages (DIRECT.GET with a
batch). Each message names the position before it, and the end names the last one: so a message that was lost on the way
is noticed, and distinguished from a message that the stream does not have. Any replica may answer, also one that is
behind: a short answer is not the end. Messages that a replica does not have are requested from the stream's leader.
Only a message that the leader does not have is a *hole*: it was deleted, or is older than the stream keeps. Streams
without `allow_direct` are read through their leader, message by message, many questions at a time.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from seriatim.brokers.bulk import Messages
from seriatim.brokers.nats.api import MESSAGE_NOT_FOUND, A, ApiRefused, Stored, StoredAnswer, failure
from seriatim.brokers.nats.bulk.socket import NO_RESPONDERS, NatsSocket
from seriatim.model import UNREADABLE, ConnectionFailed, TimedOut

BATCH = 8_192
BATCH_BYTES = 8 * 1024 * 1024
WINDOW = 256  # questions under way where each brings one message
PATIENCE_S = 60.0  # without a single message more: a server that is away, a replica that is behind
RETRY_S = (0.02, 1.0)

# What the server appends to the headers of a message that it sends from a stream. It comes last, so a publisher who
# writes such headers himself changes nothing.
_PLACE = re.compile(
    rb"Nats-Stream: [^\r\n]*\r\nNats-Subject: ([^\r\n]*)\r\nNats-Sequence: (\d+)\r\nNats-Time-Stamp: ([^\r\n]*)\r\n"
    rb"Nats-Num-Pending: \d+\r\nNats-Last-Sequence: (\d+)\r\n\r\n\Z"
)
_END = re.compile(rb"Nats-Last-Sequence: (\d+)\r\n")


_stored = msgspec.json.Decoder(StoredAnswer)


def read_range(
    connect: Callable[[], NatsSocket],
    stream: str,
    first: int,
    last: int,
    *,
    direct: bool = True,
    prefix: str = "$JS.API",
    batch: int = BATCH,
    patience_s: float = PATIENCE_S,
) -> Iterator[Messages]:
    """The messages at positions `first` … `last` that the stream has, and the holes between them.

    A lost connection is made again, and reading continues. TimedOut: no message and no explanation came for
    `patience_s`.
    """
    reader = _RangeReader(connect, stream, prefix, batch, patience_s)
    try:
        yield from reader.read(first, last, direct)
    finally:
        reader.close()


class _RangeReader:
    def __init__(
        self, connect: Callable[[], NatsSocket], stream: str, prefix: str, batch: int, patience_s: float
    ) -> None:
        self._connect = connect
        self._stream = stream
        self._prefix = prefix
        self._batch = batch
        self._patience_s = patience_s
        self._socket: NatsSocket | None = None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def read(self, first: int, last: int, direct: bool) -> Iterator[Messages]:
        read_some = self._read_direct if direct else self._read_from_leader
        next_position, heard_at, pause_s = first, time.monotonic(), RETRY_S[0]
        while next_position <= last:
            problem = "the answers are empty"
            messages = Messages()
            try:
                if self._socket is None:
                    self._socket = self._connect()
                reached = read_some(self._socket, next_position, last, messages)
            except ConnectionFailed as error:
                problem, reached = str(error), None
                self.close()
            if reached is None:  # nobody knows: what came before is good, and the rest is asked for again
                reached = messages.positions[-1] if messages.positions else next_position - 1
            if reached >= next_position:
                next_position, heard_at, pause_s = reached + 1, time.monotonic(), RETRY_S[0]
                yield messages
                continue
            if time.monotonic() - heard_at > self._patience_s:
                raise TimedOut(
                    f"position {next_position} of stream {self._stream} was not read for {self._patience_s:g} s: "
                    f"{problem}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S[1])

    def _read_direct(self, connection: NatsSocket, first: int, last: int, into: Messages) -> int | None:
        """Read one answer of the server. Returns the last position that is known now. None: up to the end of `into`."""
        count = min(self._batch, last - first + 1)
        question = f'{{"seq":{first},"batch":{count},"max_bytes":{BATCH_BYTES}}}'.encode()
        reply = connection.ask(f"{self._prefix}.DIRECT.GET.{self._stream}", question)
        positions, subjects, times = into.positions, into.subjects, into.times
        headers, bodies = into.headers, into.bodies
        expected, before = first, 0
        for head, body, subject in connection.answers():
            if subject != reply:
                continue  # of a question that was given up
            if head[8:9] == b" ":  # NATS/1.0 204 EOB, and why there is nothing
                return self._end_of_answer(connection, head, into, expected, last, before)
            at = head.rfind(b"Nats-Stream: ")
            place = _PLACE.match(head, at) if at >= 0 else None
            if place is None:
                raise ConnectionFailed(f"an answer about stream {self._stream} cannot be read: {head[:200]!r}")
            position = int(place[2])
            if int(place[4]) != before:
                raise ConnectionFailed(f"messages of stream {self._stream} were lost on the way")
            before = position
            if position > last:
                if expected <= last:
                    into.holes.append((expected, last))
                    expected = last + 1
                continue
            if position != expected:
                into.holes.append((expected, position - 1))
            expected = position + 1
            positions.append(position)
            subjects.append(place[1])
            times.append(place[3])
            headers.append(head[10:at])
            bodies.append(body)
        raise AssertionError("answers() never ends")

    def _end_of_answer(
        self, connection: NatsSocket, head: bytes, into: Messages, expected: int, last: int, before: int
    ) -> int | None:
        status = head[9:12]
        if head.startswith(NO_RESPONDERS):
            raise ConnectionFailed(f"nobody answers for stream {self._stream}; it was deleted, or has no leader")
        if status == b"204":
            end = _END.search(head)
            if end is None or int(end[1]) != before:
                raise ConnectionFailed(f"messages of stream {self._stream} were lost on the way")
        elif status != b"404":
            raise ConnectionFailed(f"stream {self._stream}: the server says {head[9:60].decode(errors='replace')!r}")
        if expected > last:
            return last
        if into.positions:
            return None
        return self._read_from_leader(connection, expected, last, into)  # also what one answer has no room for

    def _next_of_leader(self, connection: NatsSocket, position: int) -> int | None:
        """The first position from here on that the stream has, by its leader; None: there is none."""
        question = f'{{"seq":{position},"next_by_subj":">"}}'.encode()
        answer = connection.request(f"{self._prefix}.STREAM.MSG.GET.{self._stream}", question)
        message = self._stored(answer.body)
        return message.seq if message is not None else None

    def _read_from_leader(self, connection: NatsSocket, first: int, last: int, into: Messages) -> int | None:
        following = self._next_of_leader(connection, first)
        if following is None or following > last:
            into.holes.append((first, last))
            return last
        if following > first:
            into.holes.append((first, following - 1))
        reached = min(last, following + WINDOW - 1)
        questions = [f'{{"seq":{position}}}'.encode() for position in range(following, reached + 1)]
        replies = connection.ask_many(f"{self._prefix}.STREAM.MSG.GET.{self._stream}", questions)
        found: dict[bytes, Stored | None] = {}
        for answer in connection.answers():
            if answer.subject in replies:
                found[answer.subject] = self._stored(answer.body)
                if len(found) == len(replies):
                    break
        for position, reply in enumerate(replies, following):
            message = found[reply]
            if message is None:
                if into.holes and into.holes[-1][1] == position - 1:
                    into.holes[-1] = (into.holes[-1][0], position)
                else:
                    into.holes.append((position, position))
                continue
            into.positions.append(position)
            into.subjects.append(message.subject.encode())
            into.times.append(message.time.encode())
            into.headers.append(message.hdrs[10:-2])
            into.bodies.append(message.data)
        return reached

    def _stored(self, body: bytes) -> Stored | None:
        try:
            return _decoded(body, _stored, f"stream {self._stream}").message
        except ApiRefused as refused:
            if refused.problem.err_code != MESSAGE_NOT_FOUND:
                raise
            return None


def ask_api(connection: NatsSocket, what: str, question: dict[str, Any], kind: type[A], prefix: str) -> A:
    """A question to JetStream's API and its answer, decoded. ApiRefused: the server says no."""
    answer = connection.request(f"{prefix}.{what}", msgspec.json.encode(question))
    return _decoded(answer.body, msgspec.json.Decoder(kind), what)


def _decoded(body: bytes, decoder: "msgspec.json.Decoder[A]", what: str) -> A:
    try:
        answer = decoder.decode(body)
    except UNREADABLE as error:
        raise ConnectionFailed(f"an answer about {what} cannot be read: {error}") from None
    if answer.error is not None:
        raise failure(what, answer.error)
    return answer
