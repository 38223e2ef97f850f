"""Adds topic names to a bucket: the subjects that the bucket's stream captures.

The subjects are a list in the stream's configuration. The server lets every client replace the whole list, and has no
way to say "only if nobody else has changed it". So clients take turns, and a name once captured stays captured.

*Claims.* A client that needs a name publishes it to the stream `<cluster>-names`, where it stays. The client that has
the turn adds all claimed names at once, so a hundred clients with a hundred names need one or two turns.

*Turns.* One message per bucket in the same stream names the turn (a random token), or says that nobody has it. It is
replaced by compare-and-set (expected last sequence of its subject). A turn sends exactly one update, and ends when the
server has answered it. The end is announced, and the waiting clients look again.

*Crashes.* A turn that has not ended after `PATIENCE_S` is presumed dead. Its update may still be under way, and must
not replace a newer list. So each update also adds a marker, a subject with the token of its turn, and removes the
marker before it. The next client creates an empty stream that captures the dead turn's marker. Only one stream can
capture a subject, so a later update of that turn is refused. One that the server is just carrying out gets `GRACE_S`. A
client that was presumed dead takes another turn, and a home that misses a name in a bucket adds it again.

*How long a client waits.* A turn that was taken over stays in the message until its successor has ended. So everybody
sees how many turns in a row have not ended, and gives the latest of them twice as long as the one before: if the server
is slow, turns are given time to end. A single dead turn costs every client `PATIENCE_S` and `GRACE_S`, however often
the client has lost the race for a turn: whoever won it has added the claimed names.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Iterable
from typing import Any

from seriatim.brokers.naming import Names, escape, unescape
from seriatim.brokers.nats.api import EXPECTED, Api, SubjectsOverlap, WrongLastSequence
from seriatim.model import RequestRefused, Topic

logger = logging.getLogger(__name__)

PATIENCE_S = 0.5  # with a turn that does not end, if the one before it has ended
PATIENCE_MAX_S = 8.0  # with a turn that does not end, however many before it have not
GRACE_S = 0.1  # for an update that the server had checked before the marker was taken


def patience_s(turns: int) -> float:
    """How long the latest of so many turns in a row may take that have not ended. 0: nobody has the turn."""
    return min(PATIENCE_S * 2 ** (turns - 1), PATIENCE_MAX_S) if turns else 0.0


class Members:
    """Adds names to the buckets of one cluster."""

    def __init__(self, api: Api, names: Names) -> None:
        self._api = api
        self._names = names
        self._markers = f"{names.prefix}.turns"
        self._claims = f"{names.prefix}.names"
        self.stream = f"{names.cluster}-names"
        self.subject = f"{self._claims}.>"  # <bucket>: who has the turn; <bucket>.<name>: a claim

    def of(self, subjects: Iterable[str]) -> set[str]:
        """The subjects of a bucket's stream without its marker."""
        return {subject for subject in subjects if not subject.startswith(f"{self._markers}.")}

    def changes(self, bucket: Topic) -> str:
        """The subject on which changes of a bucket are announced. `*`: of any bucket."""
        return f"{self._names.prefix}.changed.{bucket}"

    async def captured_elsewhere(self, bucket: Topic, names: Iterable[str]) -> dict[str, list[str]]:
        """The names that cannot be in this bucket, and which streams capture them."""
        stream, asked = self._names.log_stream(bucket), sorted(names)
        answers = await asyncio.gather(*[self._api.streams_with(name) for name in asked])
        others = {name: [each for each in found if each != stream] for name, found in zip(asked, answers, strict=True)}
        return {name: streams for name, streams in others.items() if streams}

    async def add(self, bucket: Topic, wanted: set[str]) -> None:
        """Claim these names. Returns when they are captured, or when we had the turn to add all claimed names."""
        claims = [f"{self._claims}.{bucket}.{escape(name)}" for name in sorted(wanted)]
        await asyncio.gather(*[self._api.publish(claim, b"") for claim in claims])
        seen, since = 0, 0.0
        while True:
            changed = asyncio.Event()
            stop = self._api.link.once(self.changes(bucket), lambda message, changed=changed: changed.set())  # type: ignore[misc]
            try:
                position, tokens = await self._turn(bucket)
                now = time.monotonic()
                if position != seen:
                    seen, since = position, now
                waits_until = since + patience_s(len(tokens))
                if now >= waits_until:
                    if tokens:
                        context = (bucket, tokens[-1], now - since)
                        logger.warning("taking over the turn to add names: bucket=%s from=%s waited_s=%.2f", *context)
                    if await self._take_turn(bucket, position, tokens):
                        return
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(waits_until - now):
                        await changed.wait()
            finally:
                stop()
            if wanted <= self.of((await self._api.info(self._names.log_stream(bucket))).config.subjects):
                return

    async def _turn(self, bucket: Topic) -> tuple[int, list[str]]:
        """The position of the message that says who has the turn, and the tokens of all turns that have not ended."""
        found = await self._api.message(self.stream, {"last_by_subj": f"{self._claims}.{bucket}"})
        return (found.seq, found.data.decode("ascii", "replace").split()) if found is not None else (0, [])

    async def _set_turn(self, bucket: Topic, tokens: list[str], position: int) -> int | None:
        """Replace the message at `position` that says who has the turn. None: somebody else has replaced it."""
        try:
            headers = {EXPECTED: str(position)}
            return (await self._api.publish(f"{self._claims}.{bucket}", " ".join(tokens).encode(), headers)).seq
        except WrongLastSequence:
            return None

    async def _take_turn(self, bucket: Topic, position: int, dead: list[str]) -> bool:
        """Send one update, and end the turn when the server has answered it. False: we did not get it, or lost it."""
        token = secrets.token_hex(8)
        turn = await self._set_turn(bucket, [*dead, token], position)
        if turn is None:
            return False
        await asyncio.gather(*[self._rule_out(bucket, each) for each in dead])
        is_under_way, is_ours = False, True
        try:
            config = await self._next_configuration(bucket, token)
            is_under_way = True
            await self._api.update_stream(config)
            is_under_way = False
        except RequestRefused as refused:
            is_under_way = False
            if not isinstance(refused, SubjectsOverlap):
                raise
            # We were presumed dead, or another stream has just begun to capture one of the names.
        finally:
            if not is_under_way and await self._set_turn(bucket, [], turn) is None:
                is_ours = False
                self._api.delete_stream(self._tombstone(bucket, token))
        self._api.link.publish(self.changes(bucket), b"")
        return is_ours

    async def _next_configuration(self, bucket: Topic, token: str) -> dict[str, Any]:
        config = await self._api.configuration(self._names.log_stream(bucket))
        captured = self.of(config["subjects"])
        claims = await self._api.subjects(self.stream, f"{self._claims}.{bucket}.*")
        missing = {unescape(claim.rpartition(".")[2]) for claim in claims} - captured
        missing.difference_update(await self.captured_elsewhere(bucket, missing))
        return {**config, "subjects": [*sorted(captured | missing), self._marker(bucket, token)]}

    def _marker(self, bucket: Topic, token: str) -> str:
        return f"{self._markers}.{bucket}.{token}"

    def _tombstone(self, bucket: Topic, token: str) -> str:
        return f"{self._names.cluster}-ended-{bucket}-{token}"

    async def _rule_out(self, bucket: Topic, token: str) -> None:
        """When this returns, the update of this turn has been carried out, or never will be."""
        config = {"name": self._tombstone(bucket, token), "subjects": [self._marker(bucket, token)]}
        with contextlib.suppress(SubjectsOverlap):  # it has been carried out
            await self._api.create_stream(config)
            await asyncio.sleep(GRACE_S)
