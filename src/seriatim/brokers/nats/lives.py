"""Lives in a JetStream stream: one subject per name, of which only the last message is kept.

Every message expects the one that its writer has last seen of the subject, so of two that register one succeeds, and
whoever had the name is refused from then on. When it is not known whether a message has arrived, the last one is read:
a life knows its own by `holder`.

The holder of a name listens on its subject, and reads the stream when something is published there, when the connection
is new, and every `CHECK_S`. A message on the subject is only a reason to look, because messages that the stream refuses
are heard, too. If the stream was deleted, or restored from an older copy, a life registers again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from msgspec import structs
from nats.aio.msg import Msg

from seriatim.brokers.lives import ANSWER_S, Life, LifeKind, decode_life, encode_life, fenced_by
from seriatim.brokers.naming import unescape
from seriatim.brokers.nats.api import EXPECTED, StreamNotFound, WrongLastSequence, for_a_while
from seriatim.brokers.nats.link import no_responders
from seriatim.brokers.nats.streams import Streams
from seriatim.model import Closed, ConnectionFailed, Fenced, RequestRefused, SeriatimError

logger = logging.getLogger(__name__)

CHECK_S = 3.0
ATTEMPTS = 5  # to register or say something, when the server does not answer


class NatsLives:
    """See `Lives`."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._heard: dict[str, list[Callable[[Msg], None]]] = {}

    def claim(self, kind: LifeKind, name: str) -> "NatsClaim":
        return NatsClaim(self, self._streams, kind, name)

    async def registered(self, kind: LifeKind) -> dict[str, Life]:
        names, stream = self._streams.names, self._streams.names.lives_stream
        found: dict[str, Life] = {}
        try:
            for subject in sorted(await self._streams.api.subjects(stream, f"{names.prefix}.lives.{kind}.*")):
                stored = await self._streams.api.message(stream, {"last_by_subj": subject})
                if stored is not None:
                    name = unescape(subject.rpartition(".")[2])
                    found[name] = decode_life(stored.data, name)
        except StreamNotFound:
            self._streams.forget_other(stream)
        return found

    def listen(self, subject: str, handler: Callable[[Msg], None]) -> None:
        """Several claims of one connection may hear the same subject."""
        handlers = self._heard.setdefault(subject, [])
        handlers.append(handler)
        if len(handlers) == 1:
            self._streams.api.link.listen(subject, lambda message: self._hear(subject, message), _not_heard)

    def unlisten(self, subject: str, handler: Callable[[Msg], None]) -> None:
        handlers = self._heard.get(subject, [])
        if handler in handlers:
            handlers.remove(handler)
            if not handlers:
                del self._heard[subject]
                self._streams.api.link.unlisten(subject)

    def _hear(self, subject: str, message: Msg) -> None:
        for handler in list(self._heard.get(subject, ())):
            handler(message)


def _not_heard(refused: RequestRefused) -> None:
    logger.warning("lives are only polled now and then: reason=%s", refused)


class NatsClaim:
    """See `Claim`."""

    def __init__(self, lives: NatsLives, streams: Streams, kind: LifeKind, name: str) -> None:
        self.kind = kind
        self.name = name
        self.last: Life | None = None
        self.lost: asyncio.Future[Fenced] = asyncio.get_running_loop().create_future()
        self._lives = lives
        self._streams = streams
        self._api = streams.api
        self._subject = streams.names.lives_subject(kind, name)
        self._questions = streams.names.alive_subject(kind, name)
        self._life: Life | None = None  # ours, once it is registered
        self._position = 0  # of the last message of the subject
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> Life | None:
        try:
            stream, question = self._streams.names.lives_stream, {"last_by_subj": self._subject}
            stored = await for_a_while(lambda: self._api.message(stream, question))
        except StreamNotFound:
            self._streams.forget_other(self._streams.names.lives_stream)
            stored = None
        if stored is None:
            self._position, self.last = 0, None
        else:
            self.last = decode_life(stored.data, self.name)
            self._position = stored.seq
        return self.last

    async def answers(self, timeout_s: float = ANSWER_S) -> bool:
        if self.last is None:
            return False
        holder = self.last.holder.encode()

        async def ask() -> bool:
            reply = await self._api.link.call(self._questions, holder, timeout_s=timeout_s)
            if reply is None and not self._api.link.is_up:  # nobody was asked
                raise ConnectionFailed(f"{self.kind} {self.name}: the NATS server is away, so nobody can be asked")
            return reply is not None and not isinstance(reply, RequestRefused) and not no_responders(reply)

        return await for_a_while(ask)

    async def register(self, life: Life) -> None:
        async with self._writing:
            await self._write(life)
        self._life = life
        self._lives.listen(self._subject, self._on_news)
        self._lives.listen(self._questions, self._on_question)
        self._api.link.on_up.append(self._news.set)
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def say(self, numbers: Mapping[str, int], *, is_ended: bool = False) -> None:
        async with self._writing:
            life = self._registered()
            said = structs.replace(life, numbers=dict(numbers), is_ended=is_ended)
            await self._write(said)
            self._life = said

    async def check(self) -> None:
        async with self._writing:
            mine = self._registered()
            found = await self.look()
            if found is not None and found.holder == mine.holder:
                return
            if found is None or found.epoch < mine.epoch:
                text = "registered lives were deleted, or an older copy restored; registering again: kind=%s name=%s"
                logger.warning(text, self.kind, self.name)
                await self._write(mine)
                return
            raise self._lose(found)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._lives.unlisten(self._subject, self._on_news)
            self._lives.unlisten(self._questions, self._on_question)
            self._api.link.on_up.remove(self._news.set)

    def _registered(self) -> Life:
        if self.lost.done():
            raise self.lost.result()
        if self._life is None:
            raise Closed(f"{self.kind} {self.name}: no life is registered; register it first")
        return self._life

    async def _write(self, life: Life) -> None:
        """Write this behind the last message that we know of. Fenced: there is another life by now."""
        data = encode_life(life)
        for attempt in range(ATTEMPTS):
            try:
                await self._streams.lives()
                if self.last is not None and self.last.holder != life.holder and self.last.epoch >= life.epoch:
                    raise self._lose(self.last)
                ack = await self._api.publish(self._subject, data, {EXPECTED: str(self._position)})
            except ConnectionFailed:  # it may have arrived
                if attempt == ATTEMPTS - 1:
                    raise
            except StreamNotFound:
                self._streams.forget_other(self._streams.names.lives_stream)
            except WrongLastSequence:
                pass
            else:
                self._position, self.last = ack.seq, life
                return
            before = self.last
            found = await self.look()
            if found == life:
                return
            if found is not None and found.holder != life.holder and (before is None or found.holder != before.holder):
                raise self._lose(found)
        raise ConnectionFailed(f"{self.kind} {self.name}: cannot be registered, the server keeps refusing it")

    def _lose(self, later: Life | None) -> Fenced:
        error = fenced_by(self, later)
        if self._life is not None and not self.lost.done():
            self.lost.set_result(error)
        return error

    async def _watch(self) -> None:
        while not self.lost.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), CHECK_S)
            self._news.clear()
            try:
                await self.check()
            except Fenced:
                return
            except SeriatimError as error:
                logger.debug("registered life not read: kind=%s name=%s reason=%s", self.kind, self.name, error)

    def _on_news(self, message: Msg) -> None:
        self._news.set()

    def _on_question(self, message: Msg) -> None:
        """Answer whether this life is alive. A life that has lost its name does not answer."""
        life = self._life
        if life is not None and not self.lost.done() and message.data == life.holder.encode() and message.reply:
            self._api.link.publish(message.reply, message.data)
