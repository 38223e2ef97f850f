"""JetStream's API as we use it: questions in JSON, answers decoded by type, every one of them bounded in time.

A question ends in one of three ways: an answer, `ApiRefused` (the server refuses, with its code), or
`ConnectionFailed` (no answer: the server is away, and the caller will ask again).
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field
from nats.aio.msg import Msg

from seriatim.brokers.nats.link import ASK_S, NatsLink, Reply, no_responders
from seriatim.model import UNREADABLE, ConnectionFailed, RequestRefused

# The server's numbers for the errors that we must tell apart.
CONSUMER_NOT_FOUND = 10014
MESSAGE_NOT_FOUND = 10037
STREAM_NAME_IN_USE = 10058
STREAM_NOT_FOUND = 10059
SUBJECTS_OVERLAP = 10065
WRONG_LAST_SEQUENCE = 10071
STORE_FAILED = 10077
# A cluster that is choosing a leader, or has lost too many servers: the answer may be another one in a moment.
UNDECIDED = frozenset({10004, 10008, 10009, 10118, 10119})
EXPECTED = "Nats-Expected-Last-Subject-Sequence"  # a publication is refused if it is not behind this one
NANOSECONDS = 1_000_000_000
NEVER = "0001-01-01T00:00:00Z"  # the time of the messages of an empty stream

T = TypeVar("T")


class Problem(Struct):
    """Why the server refuses a request."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class ApiRefused(RequestRefused):
    """The server refuses a request. `number` is the server's own for the reason."""

    def __init__(self, what: str, problem: Problem) -> None:
        super().__init__(f"{what}: the NATS server says {problem.description!r} ({problem.err_code})")
        self.number = problem.err_code
        self.problem = problem


class StreamState(Struct):
    """How far a stream goes. An empty stream has first_seq = last_seq + 1, or both 0."""

    first_seq: int = 0
    last_seq: int = 0
    first_ts: str = NEVER  # when these two were stored
    last_ts: str = NEVER
    messages: int = 0
    bytes: int = 0

    @property
    def first(self) -> int:
        """The first position that is still there, or the one that will come next."""
        return max(1, self.first_seq)


class StreamConfig(Struct):
    """What we look at in a stream's configuration."""

    name: str = ""
    subjects: list[str] = field(default_factory=list)
    retention: str = "limits"
    no_ack: bool = False
    sealed: bool = False
    allow_direct: bool = False
    discard: str = "old"
    max_msgs_per_subject: int = -1
    max_age: int = 0
    discard_new_per_subject: bool = False
    allow_rollup_hdrs: bool = False
    mirror: dict[str, Any] | None = None
    subject_transform: dict[str, Any] | None = None


class StreamAnswer(Struct):
    """To STREAM.INFO, CREATE and UPDATE; and each part of the answer to STREAM.LIST."""

    error: Problem | None = None
    config: StreamConfig = field(default_factory=StreamConfig)
    created: str = ""
    state: StreamState = field(default_factory=StreamState)


class RawStreamAnswer(Struct):
    """The whole configuration, to be sent back with a change."""

    error: Problem | None = None
    config: dict[str, Any] = field(default_factory=dict)


class NamesAnswer(Struct):
    """The answer to STREAM.NAMES."""

    error: Problem | None = None
    streams: list[str] | None = None


class SubjectsState(Struct):
    """The subjects of a stream's messages, with how many there are."""

    subjects: dict[str, int] | None = None


class SubjectsAnswer(Struct):
    """One page of the answer to STREAM.INFO with a filter of subjects."""

    error: Problem | None = None
    total: int = 0
    state: SubjectsState = field(default_factory=SubjectsState)


class PlainAnswer(Struct):
    """An answer without content."""

    error: Problem | None = None


class Stored(Struct):
    """One message as the stream keeps it."""

    seq: int
    subject: str
    data: bytes = b""
    hdrs: bytes = b""  # as on the wire: a line for the version, then one per header
    time: str = ""  # when it was stored


class StoredAnswer(Struct):
    """The answer to STREAM.MSG.GET."""

    error: Problem | None = None
    message: Stored | None = None


class PubAck(Struct):
    """The answer to a publication: its position in the stream."""

    error: Problem | None = None
    stream: str = ""
    seq: int = 0
    duplicate: bool = False


_acks = msgspec.json.Decoder(PubAck)
_streams = msgspec.json.Decoder(StreamAnswer)
_raw_streams = msgspec.json.Decoder(RawStreamAnswer)
_names = msgspec.json.Decoder(NamesAnswer)
_subjects = msgspec.json.Decoder(SubjectsAnswer)
_plain = msgspec.json.Decoder(PlainAnswer)
_stored = msgspec.json.Decoder(StoredAnswer)
_encode = msgspec.json.Encoder().encode


class Api:
    """Questions to JetStream over one link."""

    def __init__(self, link: NatsLink, domain: str | None = None, timeout_s: float = ASK_S) -> None:
        self.link = link
        self._timeout_s = timeout_s
        self.prefix = f"$JS.{domain}.API" if domain else "$JS.API"

    async def info(self, stream: str) -> StreamAnswer:
        """How long a stream is, and how it is configured."""
        answer = await self._ask(f"STREAM.INFO.{stream}", None, _streams)
        return _checked(answer, answer.error, f"stream {stream}")

    async def create_stream(self, config: dict[str, Any]) -> StreamAnswer:
        """Make a stream; one that is there with the same configuration counts as made."""
        name = config["name"]
        answer = await self._ask(f"STREAM.CREATE.{name}", config, _streams)
        return _checked(answer, answer.error, f"making stream {name}")

    async def configuration(self, stream: str) -> dict[str, Any]:
        """The whole configuration, to be changed and given to `update_stream`."""
        answer = await self._ask(f"STREAM.INFO.{stream}", None, _raw_streams)
        return _checked(answer, answer.error, f"stream {stream}").config

    async def update_stream(self, config: dict[str, Any]) -> StreamAnswer:
        """Change a stream."""
        name = config["name"]
        answer = await self._ask(f"STREAM.UPDATE.{name}", config, _streams)
        return _checked(answer, answer.error, f"changing stream {name}")

    async def purge_stream(self, stream: str, first: int) -> None:
        """Remove everything before this position."""
        answer = await self._ask(f"STREAM.PURGE.{stream}", {"seq": first}, _plain)
        _checked(answer, answer.error, f"purging stream {stream}")

    async def streams_with(self, subject: str) -> list[str]:
        """The streams that capture a subject, or some subjects of a pattern."""
        answer = await self._ask("STREAM.NAMES", {"subject": subject}, _names)
        return _checked(answer, answer.error, f"streams with {subject}").streams or []

    async def subjects(self, stream: str, pattern: str) -> set[str]:
        """The subjects of the messages in a stream."""
        found: set[str] = set()
        while True:
            question = {"subjects_filter": pattern, "offset": len(found)}
            answer = await self._ask(f"STREAM.INFO.{stream}", question, _subjects)
            page = _checked(answer, answer.error, f"subjects of stream {stream}").state.subjects or {}
            found |= page.keys()
            if not page or len(found) >= answer.total:
                return found

    def delete_stream(self, stream: str) -> None:
        """Delete a stream, without waiting for an answer."""
        self.link.publish(f"{self.prefix}.STREAM.DELETE.{stream}", b"")

    async def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> PubAck:
        """Store a message. STREAM_NOT_FOUND: no stream captures the subject."""
        return ack_of(await self.link.call(subject, data, headers, self._timeout_s), f"publishing to {subject}")

    async def message(self, stream: str, question: dict[str, Any]) -> Stored | None:
        """One stored message, by `seq`, `last_by_subj`, or `seq` and `next_by_subj`. None: there is none."""
        answer = await self._ask(f"STREAM.MSG.GET.{stream}", question, _stored)
        if answer.error is not None and answer.error.err_code == MESSAGE_NOT_FOUND:
            return None
        return _checked(answer, answer.error, f"a message of stream {stream}").message

    async def create_consumer(self, stream: str, name: str, config: dict[str, Any]) -> None:
        """Make a consumer of this name."""
        question = {"stream_name": stream, "config": {**config, "name": name}}
        answer = await self._ask(f"CONSUMER.CREATE.{stream}.{name}", question, _plain)
        _checked(answer, answer.error, f"reading stream {stream}")

    def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer without waiting for an answer. The server forgets an unused consumer anyway."""
        self.link.publish(f"{self.prefix}.CONSUMER.DELETE.{stream}.{name}", b"")

    async def _ask(self, what: str, question: dict[str, Any] | None, decoder: "msgspec.json.Decoder[T]") -> T:
        data = _encode(question) if question is not None else b""
        reply = await self.link.call(f"{self.prefix}.{what}", data, timeout_s=self._timeout_s)
        return decode_reply(reply, decoder, what)


def decode_reply(reply: Reply, decoder: "msgspec.json.Decoder[T]", what: str) -> T:
    """An answer as a value, or why there is none."""
    if reply is None:
        raise ConnectionFailed(f"the NATS server did not answer {what}")
    if isinstance(reply, RequestRefused):
        raise reply
    if no_responders(reply):
        raise RequestRefused(
            f"nobody answers {what}: JetStream is not enabled on this NATS server; start it with -js, "
            "or use nats+core:// to do without a log"
        )
    try:
        return decoder.decode(reply.data)
    except UNREADABLE as error:
        raise RequestRefused(f"the answer to {what} cannot be read: {error}") from None


def decode_info(reply: Msg) -> StreamAnswer:
    """The answer to a STREAM.INFO that was asked without waiting."""
    return _streams.decode(reply.data)


def ack_of(reply: Reply, what: str) -> PubAck:
    """Where a publication is stored, or why it is not. STREAM_NOT_FOUND: no stream captures its subject."""
    if reply is not None and not isinstance(reply, RequestRefused) and no_responders(reply):
        raise ApiRefused(what, Problem(404, STREAM_NOT_FOUND, "no stream captures this subject"))
    ack = decode_reply(reply, _acks, what)
    return _checked(ack, ack.error, what)


def decode_ack(reply: Msg) -> PubAck:
    """The answer to a publication."""
    return _acks.decode(reply.data)


def _checked(answer: T, problem: Problem | None, what: str) -> T:
    if problem is not None:
        raise failure(what, problem)
    return answer


def failure(what: str, problem: Problem) -> ApiRefused | ConnectionFailed:
    """The error for a problem: the server refuses, or cannot decide at the moment."""
    if problem.err_code in UNDECIDED:
        return ConnectionFailed(f"{what}: the NATS server says {problem.description!r} ({problem.err_code})")
    return ApiRefused(what, problem)
