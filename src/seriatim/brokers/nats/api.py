"""JetStream's API as we use it: questions in JSON, answers decoded by type, every one of them bounded in time.

A question ends in one of three ways: an answer, `ApiRefused` (the server refuses, with its code), or
`ConnectionFailed` (no answer: the server is away, and the caller will ask again).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from seriatim.brokers.nats.link import ASK_S, NatsLink, Reply, no_responders
from seriatim.model import UNREADABLE, ConnectionFailed, RequestRefused

# The server's numbers for the errors that we must tell apart.
MESSAGE_NOT_FOUND = 10037
STREAM_NOT_FOUND = 10059
WRONG_LAST_SEQUENCE = 10071
STORE_FAILED = 10077
# A cluster that is choosing a leader, or has lost too many servers: the answer may be another one in a moment.
UNDECIDED = frozenset({10004, 10008, 10009, 10118, 10119})
EXPECTED = "Nats-Expected-Last-Subject-Sequence"  # a publication is refused if it is not behind this one
EXPECTED_IN_STREAM = "Nats-Expected-Last-Sequence"  # the same for the whole stream
NANOSECONDS = 1_000_000_000
RETRY_S = 0.25
NEVER = "0001-01-01T00:00:00Z"  # the time of the messages of an empty stream


class Problem(Struct):
    """Why the server refuses a request."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class ApiRefused(RequestRefused):
    """The server refuses a request. The subclasses are the reasons that callers tell apart."""

    def __init__(self, what: str, problem: Problem) -> None:
        super().__init__(f"{what}: the NATS server says {problem.description!r} ({problem.err_code})")
        self.problem = problem


class StreamNotFound(ApiRefused):
    """The stream does not exist, or no stream captures the subject."""


class StreamNameInUse(ApiRefused):
    """A stream of this name exists with another configuration."""


class SubjectsOverlap(ApiRefused):
    """Another stream captures one of the subjects."""


class WrongLastSequence(ApiRefused):
    """A publication did not follow the message that it expected to follow."""


_REASONS: dict[int, type[ApiRefused]] = {
    10058: StreamNameInUse,
    STREAM_NOT_FOUND: StreamNotFound,
    10065: SubjectsOverlap,
    WRONG_LAST_SEQUENCE: WrongLastSequence,
}


class Answer(Struct):
    """The common part of all answers."""

    error: Problem | None = None


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
    """The parts of a stream's configuration that we read."""

    name: str = ""
    subjects: list[str] = field(default_factory=list)
    retention: str = "limits"
    storage: str = "file"
    no_ack: bool = False
    sealed: bool = False
    allow_direct: bool = False
    discard: str = "old"
    max_msgs_per_subject: int = -1
    max_age: int = 0
    max_bytes: int = -1
    max_msgs: int = -1
    discard_new_per_subject: bool = False
    allow_rollup_hdrs: bool = False
    mirror: dict[str, Any] | None = None
    subject_transform: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None


class StreamAnswer(Answer):
    """To STREAM.INFO, CREATE and UPDATE; and each part of the answer to STREAM.LIST."""

    config: StreamConfig = field(default_factory=StreamConfig)
    created: str = ""
    state: StreamState = field(default_factory=StreamState)


class StreamsAnswer(Answer):
    """One page of the answer to STREAM.LIST."""

    total: int = 0
    streams: list[StreamAnswer] | None = None


class RawStreamAnswer(Answer):
    """The whole configuration, to be sent back with a change."""

    config: dict[str, Any] = field(default_factory=dict)


class NamesAnswer(Answer):
    """The answer to STREAM.NAMES."""

    streams: list[str] | None = None


class SubjectsState(Struct):
    """The subjects of a stream's messages, with how many there are."""

    subjects: dict[str, int] | None = None


class SubjectsAnswer(Answer):
    """One page of the answer to STREAM.INFO with a filter of subjects."""

    total: int = 0
    state: SubjectsState = field(default_factory=SubjectsState)


class Stored(Struct):
    """One message as the stream keeps it."""

    seq: int
    subject: str
    data: bytes = b""
    hdrs: bytes = b""  # as on the wire: a line for the version, then one per header
    time: str = ""  # when it was stored


class StoredAnswer(Answer):
    """The answer to STREAM.MSG.GET."""

    message: Stored | None = None


class PubAck(Answer):
    """The answer to a publication: its position in the stream."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False


A = TypeVar("A", bound=Answer)
T = TypeVar("T")


@cache
def _decoder(kind: type[A]) -> "msgspec.json.Decoder[A]":
    return msgspec.json.Decoder(kind)


decode_ack = _decoder(PubAck).decode
decode_info = _decoder(StreamAnswer).decode


class Api:
    """Questions to JetStream over one link."""

    def __init__(self, link: NatsLink, domain: str | None = None, timeout_s: float = ASK_S) -> None:
        self.link = link
        self._timeout_s = timeout_s
        self.domain = domain
        self.prefix = f"$JS.{domain}.API" if domain else "$JS.API"

    async def info(self, stream: str) -> StreamAnswer:
        return await self._ask(StreamAnswer, f"STREAM.INFO.{stream}", f"stream {stream}")

    async def create_stream(self, config: dict[str, Any]) -> StreamAnswer:
        """Make a stream; one that is there with the same configuration counts as made."""
        name = config["name"]
        return await self._ask(StreamAnswer, f"STREAM.CREATE.{name}", f"making stream {name}", config)

    async def configuration(self, stream: str) -> dict[str, Any]:
        """The whole configuration, to be changed and given to `update_stream`."""
        return (await self._ask(RawStreamAnswer, f"STREAM.INFO.{stream}", f"stream {stream}")).config

    async def update_stream(self, config: dict[str, Any]) -> StreamAnswer:
        name = config["name"]
        return await self._ask(StreamAnswer, f"STREAM.UPDATE.{name}", f"changing stream {name}", config)

    async def purge_subject(self, stream: str, subject: str, keep: int = 0) -> None:
        """Remove all messages of a subject but the last `keep`."""
        question = {"filter": subject, "keep": keep} if keep else {"filter": subject}
        await self._ask(Answer, f"STREAM.PURGE.{stream}", f"purging {subject}", question)

    async def purge_stream(self, stream: str, first: int) -> None:
        """Remove everything before this position."""
        await self._ask(Answer, f"STREAM.PURGE.{stream}", f"purging stream {stream}", {"seq": first})

    async def streams_with(self, subject: str) -> list[str]:
        """The streams that capture a subject, or some subjects of a pattern."""
        question = {"subject": subject}
        return (await self._ask(NamesAnswer, "STREAM.NAMES", f"streams with {subject}", question)).streams or []

    async def subjects(self, stream: str, pattern: str) -> set[str]:
        found: set[str] = set()
        while True:
            question = {"subjects_filter": pattern, "offset": len(found)}
            answer = await self._ask(SubjectsAnswer, f"STREAM.INFO.{stream}", f"subjects of stream {stream}", question)
            page = answer.state.subjects or {}
            found |= page.keys()
            if not page or len(found) >= answer.total:
                return found

    def delete_stream(self, stream: str) -> None:
        """Delete a stream, without waiting for an answer."""
        self.link.publish(f"{self.prefix}.STREAM.DELETE.{stream}", b"")

    async def remove_stream(self, stream: str) -> None:
        """Delete a stream with all that it holds. One that is not there counts as deleted."""
        with contextlib.suppress(StreamNotFound):
            await self._ask(Answer, f"STREAM.DELETE.{stream}", f"deleting stream {stream}")

    async def all_streams(self) -> "list[StreamAnswer]":
        """Every stream of the account, with its state."""
        found: list[StreamAnswer] = []
        while True:
            answer = await self._ask(StreamsAnswer, "STREAM.LIST", "the list of streams", {"offset": len(found)})
            page = answer.streams or []
            found += page
            if not page or len(found) >= answer.total:
                return found

    async def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> PubAck:
        """Store a message. StreamNotFound: no stream captures the subject."""
        return ack_of(await self.link.call(subject, data, headers, self._timeout_s), f"publishing to {subject}")

    async def message(self, stream: str, question: dict[str, Any]) -> Stored | None:
        """One stored message, by `seq`, `last_by_subj`, or `seq` and `next_by_subj`. None: there is none."""
        what = f"a message of stream {stream}"
        try:
            return (await self._ask(StoredAnswer, f"STREAM.MSG.GET.{stream}", what, question)).message
        except ApiRefused as refused:
            if refused.problem.err_code != MESSAGE_NOT_FOUND:
                raise
            return None

    async def create_consumer(self, stream: str, name: str, config: dict[str, Any]) -> None:
        question = {"stream_name": stream, "config": {**config, "name": name}}
        await self._ask(Answer, f"CONSUMER.CREATE.{stream}.{name}", f"reading stream {stream}", question)

    def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer without waiting for an answer. The server forgets an unused consumer anyway."""
        self.link.publish(f"{self.prefix}.CONSUMER.DELETE.{stream}.{name}", b"")

    async def _ask(self, kind: type[A], request: str, what: str, question: dict[str, Any] | None = None) -> A:
        """The answer to a request. `what`: the request in words, for errors."""
        return await self.ask(kind, request, what, msgspec.json.encode(question) if question is not None else b"")

    async def ask(self, kind: type[A], request: str, what: str, data: bytes) -> A:
        """Send a request whose body is encoded already, and decode the answer. `what`: the request in words, for
        errors."""
        reply = await self.link.call(f"{self.prefix}.{request}", data, timeout_s=self._timeout_s)
        return _decoded(reply, kind, request, what)


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer: the server may be away for a while."""
    while True:
        try:
            return await ask()
        except ConnectionFailed:
            await asyncio.sleep(RETRY_S)


def ack_of(reply: Reply, what: str) -> PubAck:
    """Where a publication is stored, or why it is not. StreamNotFound: no stream captures its subject."""
    if reply is not None and not isinstance(reply, RequestRefused) and no_responders(reply):
        raise StreamNotFound(what, Problem(404, STREAM_NOT_FOUND, "no stream captures this subject"))
    return _decoded(reply, PubAck, what, what)


def _decoded(reply: Reply, kind: type[A], request: str, what: str) -> A:
    """An answer as a value, or why there is none."""
    if reply is None:
        raise ConnectionFailed(f"the NATS server did not answer {request}")
    if isinstance(reply, RequestRefused):
        raise reply
    if no_responders(reply):
        raise RequestRefused(
            f"nobody answers {request}: JetStream is not enabled on this NATS server; start it with -js, "
            "or use nats+core:// to do without a log"
        )
    try:
        answer: A = _decoder(kind).decode(reply.data)
    except UNREADABLE as error:
        raise RequestRefused(f"the answer to {request} cannot be read: {error}") from None
    if answer.error is not None:
        raise failure(what, answer.error)
    return answer


def failure(what: str, problem: Problem) -> ApiRefused | ConnectionFailed:
    """The error for a problem: the server refuses, or cannot decide at the moment."""
    if problem.err_code in UNDECIDED:
        return ConnectionFailed(f"{what}: the NATS server says {problem.description!r} ({problem.err_code})")
    return _REASONS.get(problem.err_code, ApiRefused)(what, problem)
