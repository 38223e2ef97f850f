"""Copies of streams, as the server makes and takes them: `STREAM.SNAPSHOT` and `STREAM.RESTORE`.

A stream that is put back has its configuration, positions, times and consumers. The server makes it when it has
everything, so a stream is there as it was, or not at all. The pieces are the server's own format; their content is
checked by the server when it copies (`jsck`) and when it takes them.

*Order.* Lives come first: a node that finds itself registered and has no journal does not act. The layout is next,
which a process would make that is started. Journals come last.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg

from seriatim.brokers.capabilities import Part
from seriatim.brokers.naming import BEGUN, Names, unescape
from seriatim.brokers.nats.api import Answer, Api, StreamAnswer, StreamNotFound, failure
from seriatim.brokers.nats.facts import logs_among
from seriatim.brokers.nats.link import no_responders
from seriatim.model import UNREADABLE, ConnectionFailed, InputError, RequestRefused, Topic

PIECE_S = 30.0  # the longest time between two pieces
TAKEN_S = 120.0  # how long the server may take for a stream once it has everything


class SnapshotAnswer(Answer):
    """To STREAM.SNAPSHOT: what the stream is; the pieces follow."""

    config: dict[str, Any] = msgspec.field(default_factory=dict)
    state: dict[str, Any] = msgspec.field(default_factory=dict)


class RestoreAnswer(Answer):
    """To STREAM.RESTORE: where the pieces go."""

    deliver_subject: str = ""


class About(Struct):
    """The data that the server needs to create the stream again."""

    config: dict[str, Any]
    state: dict[str, Any]


def _part(stream: StreamAnswer, topic: Topic = "") -> Part:
    state = stream.state
    return Part(
        name=stream.config.name,
        topic=topic,
        first=state.first_seq,
        last=state.last_seq,
        messages=state.messages,
        bytes=state.bytes,
    )


class NatsCopies:
    """See `Copies`."""

    def __init__(self, api: Api, names: Names) -> None:
        self._api = api
        self._names = names

    async def parts(self) -> list[Part]:
        streams = await self._api.all_streams()
        stamped = await self._stamped(streams)
        logs = {facts.stream: topic for topic, facts in logs_among(streams, self._names).items()}
        found = []
        for each in streams:
            name, topic = each.config.name, logs.get(each.config.name, "")
            is_own_log = topic and name == self._names.log_stream(topic)
            if not (is_own_log or topic in stamped or self._is_own(each)):
                continue
            if each.config.storage == "memory":
                problem = f"stream {name} is kept in memory, which the server does not copy"
                raise InputError("--streams", problem, "keep streams in files, or make copies of journals only")
            found.append(_part(each, topic if is_own_log or topic in stamped else ""))
        return sorted(found, key=lambda part: (self._rank(part.name), part.name))

    async def _stamped(self, streams: list[StreamAnswer]) -> set[Topic]:
        """The topics that nodes of this cluster have stamped: their logs may be streams of somebody else."""
        prefix, topics = f"{self._names.prefix}.stamps.", set()
        for each in streams:
            if any(subject.startswith(prefix) for subject in each.config.subjects):
                subjects = await self._api.subjects(each.config.name, f"{prefix}>")
                topics |= {unescape(subject.rpartition(".")[2]) for subject in subjects}
        return topics - {BEGUN}

    def _is_own(self, stream: StreamAnswer) -> bool:
        prefixes = (f"{self._names.prefix}.", f"{self._names.prefix}-durable.")
        return any(subject.startswith(prefixes) for subject in stream.config.subjects)

    def _rank(self, name: str) -> int:
        first = (self._names.lives_stream, self._names.register_stream("layout"))
        return first.index(name) if name in first else 3 if "-journal-" in name else 2

    async def look(self, name: str) -> Part | None:
        try:
            return _part(await self._api.info(name))
        except StreamNotFound:
            return None

    def read(self, name: str) -> "NatsCopyStream":
        return NatsCopyStream(self._api, name)

    async def write(self, part: Part, pieces: AsyncIterator[bytes]) -> None:
        if await self.look(part.name) is not None:
            raise RequestRefused(f"stream {part.name} is there already; nothing was changed")
        answer = await self._api.ask(RestoreAnswer, f"STREAM.RESTORE.{part.name}", f"making {part.name}", part.about)
        link = self._api.link
        async for piece in pieces:
            reply = await link.call(answer.deliver_subject, piece, timeout_s=PIECE_S)
            self._check(part, reply)
        reply = await link.call(answer.deliver_subject, b"", timeout_s=TAKEN_S)
        self._check(part, reply)

    def _check(self, part: Part, reply: "Msg | RequestRefused | None") -> None:
        """The answer to a piece is empty, or an error."""
        what = f"putting stream {part.name} back"
        if reply is None:
            raise ConnectionFailed(f"{what}: the NATS server does not answer")
        if isinstance(reply, RequestRefused):
            raise reply
        if no_responders(reply):
            raise RequestRefused(f"{what}: the NATS server accepts no more of it; read its log, and try again")
        if reply.data:
            try:
                answer = msgspec.json.decode(reply.data, type=Answer)
            except UNREADABLE:
                raise RequestRefused(f"{what}: the NATS server says {reply.data[:200]!r}") from None
            if answer.error is not None:
                raise failure(what, answer.error)


class NatsCopyStream:
    """See `CopyStream`."""

    def __init__(self, api: Api, name: str) -> None:
        self.part = Part(name=name)
        self._api = api

    async def pieces(self) -> AsyncIterator[bytes]:
        name, link = self.part.name, self._api.link
        waiting: asyncio.Queue[Msg] = asyncio.Queue()
        inbox = link.inbox(f"copy.{name.replace('.', '_')}")
        link.listen(inbox, waiting.put_nowait)
        try:
            question = msgspec.json.encode({"deliver_subject": inbox, "jsck": True})
            answer = await self._api.ask(SnapshotAnswer, f"STREAM.SNAPSHOT.{name}", f"copying stream {name}", question)
            while True:
                try:
                    message = await asyncio.wait_for(waiting.get(), PIECE_S)
                except TimeoutError:
                    raise ConnectionFailed(f"copying stream {name}: nothing came for {PIECE_S:g} s") from None
                if not message.data:
                    break
                yield message.data
                if message.reply:
                    link.publish(message.reply, b"")
            status = (message.headers or {}).get("Status", "")
            if status not in ("", "204"):
                said = (message.headers or {}).get("Description", status)
                raise RequestRefused(f"copying stream {name}: the NATS server says {said!r}")
        finally:
            link.unlisten(inbox)
        state = answer.state
        self.part = Part(
            name=name,
            first=state.get("first_seq", 0),
            last=state.get("last_seq", 0),
            messages=state.get("messages", 0),
            bytes=state.get("bytes", 0),
            about=msgspec.json.encode(About(answer.config, answer.state)),
        )
