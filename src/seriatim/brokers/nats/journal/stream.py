"""The stream that holds a journal: read it, append with an expectation, purge. Every request is bounded in time.

An append names the last sequence that its writer knows. The stream refuses it if there is a later one. A request that
is not answered may or may not have been carried out. Then the place where it would be is read. If it holds our message,
the append is done; if it holds somebody else's, we are fenced; if it is empty, the message is sent again *with the same
expectation*, so that the stream takes at most one of the two. This continues for `patience_s`. After that the result is
unknown, and the journal is broken.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from seriatim.brokers.nats.api import STORE_FAILED, Api, ApiRefused, Stored, StreamNotFound, WrongLastSequence
from seriatim.brokers.nats.journal.messages import (
    ENVELOPE_BYTES_MAX,
    FORMAT_VERSION,
    JournalMessage,
    Snapshot,
    damage,
    decode,
)
from seriatim.brokers.nats.link import NatsLink
from seriatim.model import ConnectionFailed, Fenced, JournalError, RequestRefused, Unreachable

logger = logging.getLogger(__name__)

T = TypeVar("T")

VERSION_KEY = "seriatim-journal"
UNFINISHED = "unfinished"  # in place of the version, while a copy is put back
WRONG_LAST_MESSAGE = 10164  # like WRONG_LAST_SEQUENCE, where the stream does not know what is last yet
READ_AT_ONCE = (8, 256)
READ_BYTES = 4 * 1024 * 1024  # of answers under way
BODY_BYTES_MIN = 1024
RETRY_S = 0.05
RETRY_S_MAX = 1.0
UNAVAILABLE = 503  # no leader, or the server is shutting down


class JournalStream:
    """One stream and its subjects. `last` is its last sequence as far as we know: what our next message expects."""

    def __init__(
        self, link: NatsLink, name: str, subject: str, *, replicas: int, timeout_s: float, patience_s: float
    ) -> None:
        self.name = name
        self.subject = subject
        self.last = 0
        self.written_at = 0.0
        self._link = link
        self._api = Api(link, timeout_s=timeout_s)
        self._replicas = replicas
        self._patience_s = patience_s

    def body_bytes_max(self) -> int:
        body_bytes_max = self._link.max_payload - ENVELOPE_BYTES_MAX
        if body_bytes_max < BODY_BYTES_MIN:
            raise JournalError(
                f"stream {self.name}: the server takes messages of {self._link.max_payload} bytes; "
                f"set its max_payload to at least {BODY_BYTES_MIN + ENVELOPE_BYTES_MAX}"
            )
        return body_bytes_max

    async def ensure(self) -> None:
        """Make the stream if there is none. JournalError: there is another stream of this name."""
        try:
            found = await self._patiently("look at", lambda: self._api.configuration(self.name))
        except ApiRefused:  # there is none
            await self._patiently("make", lambda: self._api.create_stream(self._wanted(FORMAT_VERSION)))
            found = await self._patiently("look at", lambda: self._api.configuration(self.name))
        self._check(found)
        if found["num_replicas"] != self._replicas:
            changed = {**found, "num_replicas": self._replicas}
            await self._patiently("change the replicas of", lambda: self._api.update_stream(changed))

    async def exists(self) -> bool:
        """Whether there is such a journal. JournalError: there is another stream of this name."""
        try:
            self._check(await self._patiently("look at", lambda: self._api.configuration(self.name)))
        except StreamNotFound:
            return False
        return True

    def _wanted(self, version: str) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": "journal of a Seriatim node; only the node itself may write to it",
            "subjects": [f"{self.subject}.*"],
            "retention": "limits",
            "discard": "new",  # a limit that somebody sets must refuse what is new, not drop what is old
            "storage": "file",
            "num_replicas": self._replicas,
            "deny_delete": True,
            "allow_rollup_hdrs": True,
            "metadata": {VERSION_KEY: version},
        }

    def _check(self, found: dict[str, Any]) -> None:
        version = found.get("metadata", {}).get(VERSION_KEY)
        if version is None or found["subjects"] != self._wanted("")["subjects"]:
            raise JournalError(
                f"stream {self.name}: is not a journal on {self.subject}; name another stream for this node's journal"
            )
        if version == UNFINISHED:
            raise JournalError(f"stream {self.name}: a copy is being put back; if that was ended, do it again")
        if version != FORMAT_VERSION:
            raise JournalError(
                f"stream {self.name}: journal format {version}, this program reads and writes format "
                f"{FORMAT_VERSION}; start the version of the program that wrote it"
            )

    async def begin_filling(self) -> None:
        """Make the stream, which nobody can open before `end_filling`. RequestRefused: there is one already."""
        try:
            found = await self._patiently("look at", lambda: self._api.configuration(self.name))
        except StreamNotFound:
            found = None
        if found is not None:
            if found.get("metadata", {}).get(VERSION_KEY) != UNFINISHED:
                raise RequestRefused(f"stream {self.name} is there already; delete it if what it holds is not needed")
            await self._patiently("delete", lambda: self._api.remove_stream(self.name))
        await self._patiently("make", lambda: self._api.create_stream(self._wanted(UNFINISHED)))
        self.last = 0

    async def end_filling(self) -> None:
        await self._patiently("finish", lambda: self._api.update_stream(self._wanted(FORMAT_VERSION)))

    async def last_sequence(self) -> int:
        return (await self._patiently("look at", lambda: self._api.info(self.name))).state.last_seq

    async def look(self) -> int | None:
        """The last sequence of the stream; 0 if it does not exist, None if the server does not answer."""
        try:
            return (await self._answer("watch", self._api.info(self.name))).state.last_seq
        except ConnectionFailed:
            return None
        except StreamNotFound:
            return 0
        except ApiRefused as refused:
            raise self._refused("watch", refused) from refused

    async def newest_snapshot(self) -> tuple[int, int]:
        """The last message that the newest snapshot stands for, and the message that completes it. Zeros: none."""
        found = await self._next({"last_by_subj": f"{self.subject}.snapshot"})
        if found is None:
            return 0, 0
        marker = decode(self.name, found.seq, found.data)
        if not isinstance(marker, Snapshot):
            raise damage(self.name, found.seq, "is not a snapshot")
        return marker.until, found.seq

    async def read(self, first: int, last: int) -> dict[int, JournalMessage]:
        """Everything from `first` to `last` that the stream has, by sequence. It may be purged while we read."""
        messages: dict[int, JournalMessage] = {}
        patience, at_once = self._patience("read"), READ_AT_ONCE[0]
        while first <= last:
            places = range(first, min(first + at_once, last + 1))
            questions = [self._answer("read", self._api.message(self.name, {"seq": place})) for place in places]
            answers = await asyncio.gather(*questions, return_exceptions=True)
            size, found = 0, False
            for place, answer in zip(places, answers, strict=True):
                if isinstance(answer, ConnectionFailed):  # what came before it is good
                    await patience.wait(str(answer))
                    size = 2 * READ_BYTES
                    break
                if isinstance(answer, ApiRefused):
                    raise self._refused("read", answer) from answer
                if isinstance(answer, BaseException):
                    raise answer
                first = place + 1
                if answer is not None:
                    messages[place] = decode(self.name, place, answer.data)
                    size, found = size + len(answer.data), True
            at_once = max(1, at_once // 2) if size > READ_BYTES else min(2 * at_once, READ_AT_ONCE[1])
            if not found and first <= last:  # a long hole: beats that later ones have replaced
                following = await self._next({"seq": first, "next_by_subj": f"{self.subject}.*"})
                first = following.seq if following is not None else last + 1
        return messages

    async def _next(self, question: dict[str, Any]) -> Stored | None:
        return await self._patiently("read", lambda: self._api.message(self.name, question))

    async def _answer(self, what: str, answer: Awaitable[T]) -> T:
        """The answer to one request. ConnectionFailed: it may have been carried out. ApiRefused: it was not."""
        try:
            return await answer
        except (ConnectionFailed, RequestRefused) as error:
            if self._link.is_closed:
                problem = "the connection to NATS is closed; connect again"
                raise JournalError(f"stream {self.name}: cannot {what} it: {problem}") from error
            if not isinstance(error, ApiRefused):  # also a missing permission: it may be given
                raise ConnectionFailed(str(error)) from error
            if error.problem.code == UNAVAILABLE and error.problem.err_code != STORE_FAILED:
                raise ConnectionFailed(error.problem.description) from error
            raise

    async def _patiently(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request that may be carried out twice, until somebody answers. ApiRefused: there is no stream."""
        patience = self._patience(what)
        while True:
            try:
                return await self._answer(what, ask())
            except ConnectionFailed as error:
                await patience.wait(str(error))
            except StreamNotFound:
                raise
            except ApiRefused as refused:
                # Servers of a cluster that do not all know each other yet say that a peer is offline.
                if "peer offline" not in refused.problem.description or patience.is_over:
                    raise self._refused(what, refused) from refused
                await patience.wait(refused.problem.description)

    # ── appending ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def publish(self, kind: str, data: bytes, writer: str, *, anywhere: bool = False) -> None:
        """Append after the last message that we know. Fenced: another writer has appended.

        `anywhere`: append at the end, also while another writer appends.
        """
        patience = self._patience("append to")
        while True:
            place = self.last + 1
            sequence, why_not = await self._request(kind, data, None if anywhere else self.last)
            if sequence is None and not anywhere:
                found = await self._at(place, writer)
                if found == data:
                    sequence = place
                elif found is not None:  # our own claim, which came late and once more: it changes nothing
                    self.last = place
                    continue
            if sequence is not None:
                self.last = sequence
                self.written_at = time.monotonic()
                return
            await patience.wait(why_not)

    async def _request(self, kind: str, data: bytes, expected: int | None) -> tuple[int | None, str]:
        """Send one append. Returns its sequence, or None and the reason why it may not have been stored."""
        headers = {"Nats-Expected-Stream": self.name}
        if expected is not None:
            headers["Nats-Expected-Last-Sequence"] = str(expected)
        if kind == "beat":
            headers["Nats-Rollup"] = "sub"  # only the last one is kept
        try:
            ack = await self._answer("append to", self._api.publish(f"{self.subject}.{kind}", data, headers))
        except ConnectionFailed as error:
            return None, str(error)
        except (StreamNotFound, WrongLastSequence) as refused:
            return None, refused.problem.description
        except ApiRefused as refused:
            if refused.problem.err_code != WRONG_LAST_MESSAGE:
                raise JournalError(
                    f"stream {self.name}: does not take an append: {refused.problem.description}; "
                    "check the limits of the stream and of the server's storage"
                ) from refused
            return None, refused.problem.description
        return ack.seq, ""

    async def _at(self, place: int, writer: str) -> bytes | None:
        """The message at this position; None: nothing yet, or no answer. Fenced: the message is another writer's.

        Our own message may arrive between two of our requests. So if the stream turns out to reach this position, the
        position is read once more.
        """
        try:
            found = await self._answer("append to", self._api.message(self.name, {"seq": place}))
            if found is None:
                last = (await self._answer("append to", self._api.info(self.name))).state.last_seq
                if last < place - 1:
                    raise JournalError(
                        f"stream {self.name}: ends at message {last}, but had acknowledged {place - 1}: its server has "
                        "lost data; let servers keep it on several replicas, or run with sync_interval: always"
                    )
                if last < place:
                    return None
                found = await self._answer("append to", self._api.message(self.name, {"seq": place}))
                if found is None:  # it was there, and whoever has replaced us has purged it since
                    raise Fenced(f"stream {self.name}: is at message {last}, we are at {place - 1}")
        except ConnectionFailed:
            return None
        except StreamNotFound:
            raise JournalError(f"stream {self.name}: was deleted while it was in use") from None
        except ApiRefused as refused:
            raise self._refused("append to", refused) from refused
        message = decode(self.name, place, found.data)
        if message.writer != writer:
            raise Fenced(f"stream {self.name}: writer {message.writer} has taken over at message {place}")
        return found.data

    async def purge(self, until: int) -> None:
        """Remove the messages that the snapshot replaces. After a failure the next snapshot removes them."""
        try:
            await self._patiently("purge", lambda: self._api.purge_stream(self.name, until + 1))
        except (JournalError, ApiRefused) as error:
            logger.warning("journal not purged: stream=%s reason=%s", self.name, error)

    def _refused(self, what: str, refused: ApiRefused) -> JournalError:
        return JournalError(f"stream {self.name}: cannot {what} it: {refused.problem.description}")

    def _patience(self, what: str) -> "_Patience":
        return _Patience(f"stream {self.name}: cannot {what} it", self._patience_s)


class _Patience:
    """Pauses between attempts, for `patience_s`. `failed`: what could not be done, for the error."""

    def __init__(self, failed: str, patience_s: float) -> None:
        self._failed = failed
        self._patience_s = patience_s
        self._give_up_at = time.monotonic() + patience_s
        self._delay_s = RETRY_S

    @property
    def is_over(self) -> bool:
        return time.monotonic() + self._delay_s > self._give_up_at

    async def wait(self, why: str) -> None:
        """Wait before the next attempt. Unreachable: there was no answer for too long."""
        if self.is_over:
            raise Unreachable(
                f"{self._failed}: no answer from NATS for {self._patience_s:g} s ({why}); "
                "check the servers and this user's permissions, then start again"
            )
        await asyncio.sleep(self._delay_s)
        self._delay_s = min(2 * self._delay_s, RETRY_S_MAX)
