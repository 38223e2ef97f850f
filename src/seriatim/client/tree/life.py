"""The life of a durable subscription: registered with the broker before it acts, so that old state never does.

Its journal holds the holders of its lives (`Lived`), the broker the last one (brokers/lives.py). At the start both are
compared, and then one of these is true:

- the journal has the registered life, and is as far: a restart. It goes on at once.
- the journal does not have it, or is not as far: it is new, an older copy, or somebody else's. `Behind`, before
  anything is delivered. With `accept` the subscription begins anew instead.
- the process of the registered life answers, and this journal is a copy of its: `Taken`. (A journal that two processes
  share refuses one of them by itself.)

*One at a time.* A process that registers fences the previous life, which is told so. A life that is cut off, and so not
told, stops by itself: it hands out and acknowledges nothing later than `TRUST_S` after the broker has confirmed it. A
life that continues from a copy, while the previous one has not ended, waits that long before it hands out anything. One
that has the very journal of the life before does not: nobody else can have it.

*How far it is* is told to the broker every few seconds, for `seriatim durables` and for the comparison. So if a copy is
older by less than that, after a kill, the events that were acknowledged since come again.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from msgspec import Struct, structs

from seriatim.brokers.lives import Claim, Life, Lives, new_life, refuse_if_taken
from seriatim.client.tree.durable import Lived, Past
from seriatim.model import Behind, ConnectionFailed, Fenced, Number, SeriatimError, TimedOut, Topic

logger = logging.getLogger(__name__)

REPORT_S = 2.0  # how often the application's progress is reported, if there is any
BEAT_S = 60.0  # … and if it is not
TRUST_S = 6.0  # how long after a confirmation something may be handed out
MARGIN_S = 1.0  # longer than clocks can differ in that time
ASK_AGAIN_S = 0.2
LAST_WORD_S = 2.0  # how long closing waits for the broker to hear how far it is

COUNT, TIME, FOLDER, TOPIC = "count", "time", "folder", "topic/"  # keys of the numbers in a registered life
REMOVED = "removed"  # the same: an operator has removed the subscription


class DurableRecord(Struct, frozen=True):
    """The registered state of a durable subscription.

    `epoch`: of its last life. `where`: process, host and journal. `acknowledged`: of each topic it holds, up to which
    number. `told_at`: when it reported this, in seconds. `is_ended`: the life ended in an orderly way.
    """

    name: str
    epoch: int
    where: str
    since: str
    acknowledged: dict[Topic, Number]
    told_at: float
    is_ended: bool


async def registered_durables(lives: Lives) -> list[DurableRecord]:
    """The durable subscriptions of a cluster, by name; without those that were unsubscribed."""
    found = await lives.registered("durable")
    return [_record(name, life) for name, life in sorted(found.items()) if _has_topics(life)]


async def registered_durable(lives: Lives, name: str) -> DurableRecord | None:
    """The one of this name. None: there is none."""
    claim = lives.claim("durable", name)
    try:
        life = await claim.look()
    finally:
        await claim.close()
    return _record(name, life) if life is not None and _has_topics(life) else None


async def remove_registered(lives: Lives, name: str) -> None:
    """Register a life that has ended and holds nothing. The running process is fenced, and an earlier journal is
    refused."""
    claim = lives.claim("durable", name)
    try:
        last = await claim.look()
        if last is not None:
            await claim.register(structs.replace(new_life(last.epoch + 1, "", {REMOVED: 1}), is_ended=True))
    finally:
        await claim.close()


def _record(name: str, life: Life) -> DurableRecord:
    told_at = life.numbers.get(TIME, 0) / 1000.0
    return DurableRecord(name, life.epoch, life.where, life.since, _acknowledged(life), told_at, life.is_ended)


def _acknowledged(life: Life) -> dict[Topic, Number]:
    return {key.removeprefix(TOPIC): number for key, number in life.numbers.items() if key.startswith(TOPIC)}


def _has_topics(life: Life) -> bool:
    """Whether the subscription has ever held a topic. If not, an empty journal loses nothing."""
    return any(key.startswith(TOPIC) for key in life.numbers)


def why_behind(past: Past, last: Life) -> str | None:
    """Why a journal must not be used: it is not that of the last life, or lacks acknowledged messages. None: it may be
    used."""
    if REMOVED in last.numbers and not past.is_empty:
        return "an operator has removed the subscription since, and the nodes have forgotten it"
    if not _has_topics(last):
        return None
    if all(each.holder != last.holder for each in past.lives):
        return "it is empty" if past.is_empty else "it is older, or of another subscriber: it ends before that life"
    told = last.numbers.get(COUNT, 0)
    return f"it is older: it has {past.count} of {told} acknowledged messages" if past.count < told else None


class JournalPlace(Struct, frozen=True):
    """Where the journal is, if it is a folder. `number`: of the folder itself; a copy has another one."""

    folder: str = ""
    number: int = 0

    @classmethod
    def of(cls, folder: Path) -> "JournalPlace":
        return cls(str(folder.resolve()), folder.stat().st_ino)

    @property
    def shown(self) -> str:
        return f"journal {self.folder}" if self.folder else ""

    def is_that_of(self, life: Life) -> bool:
        """Whether that life had this very journal. One that is no folder refuses its earlier writers by itself."""
        here = life.where.endswith(f" on {socket.gethostname()}, {self.shown}")
        return life.numbers.get(FOLDER) == self.number and (here or not self.folder)


class Progress(Protocol):
    """A machine that knows how far its application is."""

    @property
    def acknowledged(self) -> Mapping[Topic, Number]:
        """The last acknowledged number of each topic held."""


class DurableLife:
    """One life. `on_lost` is called when another life has taken over."""

    def __init__(self, claim: Claim, name: str, place: JournalPlace, timeout_s: float) -> None:
        self.lived: Lived | None = None
        self._claim = claim
        self._name = name
        self._place = place
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._is_over = False  # the subscription was left for good
        self._told: dict[str, int] = {}
        self._confirmed_at = 0.0
        self._silent_until = 0.0
        self._progress: Progress | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self, past: Past, accept: bool, keep: Callable[[Lived, bool], Awaitable[None]]) -> "DurableLife":
        """Compare the journal with what is registered, and register this life.

        `keep` writes the life to the journal; anew, if that is asked for. Behind, Taken, Fenced: nothing was changed.
        """
        claim, name = self._claim, self._name
        last = await self._ask(claim.look())
        is_anew = False
        if last is not None:
            if not self._place.is_that_of(last):
                fix = "stop that process first, or subscribe under another name"
                await self._ask(refuse_if_taken(claim, f"durable subscription {name!r}", fix))
            if (problem := why_behind(past, last)) is not None:
                if not accept:
                    raise Behind(self._explained(problem, last))
                is_anew = True
                logger.warning("journal not used, the subscription starts over: durable=%s reason=%s", name, problem)
        epoch = 1 + max([each.epoch for each in past.lives] + ([last.epoch] if last is not None else []), default=0)
        self._count = 0 if is_anew else past.count
        numbers = self._numbers({} if is_anew or last is None else _acknowledged(last))
        life = new_life(epoch, self._place.shown, numbers)
        self.lived = Lived(life.holder, epoch)
        await keep(self.lived, is_anew)  # first: a registered life that the journal does not know would be refused
        asked_at = self._loop.time()
        try:
            await self._ask(claim.register(life))
        except Fenced as error:
            raise Fenced(f"durable subscription {name!r} was started twice at the same time: {error}") from None
        self._told, self._confirmed_at = numbers, asked_at
        if last is not None and not last.is_ended and not self._place.is_that_of(last):
            self._silent_until = self._loop.time() + TRUST_S + MARGIN_S
            text = "waiting until the previous life has stopped by itself: durable=%s seconds=%g before=%s"
            logger.warning(text, name, TRUST_S + MARGIN_S, last.where)
        return self

    def start(self, progress: Progress, on_lost: Callable[[Fenced], None]) -> None:
        """Tell the broker how far `progress` is, from now on."""
        self._progress = progress
        self._claim.lost.add_done_callback(lambda lost: None if lost.cancelled() else on_lost(self._fenced()))
        self._task = self._loop.create_task(self._report())

    def reached(self, count: int) -> None:
        """The journal has recorded this progress of the application."""
        self._count = count

    def ends_for_good(self) -> None:
        """The subscription is over: nothing of it is left to lose."""
        self._is_over = True

    async def confirm(self, timeout_s: float | None = None) -> None:
        """Return when something may be handed out. Fenced: never more. TimedOut: the broker does not answer."""
        now = self._loop.time()
        if not self._claim.lost.done() and now >= self._silent_until and now - self._confirmed_at <= TRUST_S:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._confirm()
        except TimeoutError:
            problem = f"the broker has not confirmed for {timeout_s:g} s that no other process has taken over"
            raise TimedOut(f"durable subscription {self._name!r}: {problem}") from None

    async def _confirm(self) -> None:
        while not self._claim.lost.done():
            now = self._loop.time()
            if (left_s := self._silent_until - now) > 0:
                await asyncio.wait([self._claim.lost], timeout=left_s)
                continue
            if now - self._confirmed_at <= TRUST_S:
                return
            try:
                await self._claim.check()
                self._confirmed_at = now
            except Fenced:
                break
            except SeriatimError:
                await asyncio.wait([self._claim.lost], timeout=ASK_AGAIN_S)
        raise self._fenced()

    async def end(self) -> None:
        """Tell the broker how far it is, and that it ends here. Bounded; it may fail."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            with contextlib.suppress(SeriatimError, TimeoutError):
                async with asyncio.timeout(min(LAST_WORD_S, self._timeout_s)):
                    await self._claim.say(self._progress_numbers(), is_ended=True)
        await self._claim.close()

    async def _report(self) -> None:
        """The broker hears immediately which topics are held, and then every few seconds how far the subscription
        is."""
        told_at = -BEAT_S
        while not self._claim.lost.done():
            numbers, now = self._progress_numbers(), self._loop.time()
            if now - told_at >= BEAT_S or _without_time(numbers) != _without_time(self._told):
                try:
                    await self._claim.say(numbers)
                    self._told, self._confirmed_at, told_at = numbers, now, now
                except SeriatimError as error:  # Fenced: `lost` is done
                    text = "progress not reported to the broker: durable=%s reason=%s"
                    logger.debug(text, self._name, error)
            await asyncio.wait([self._claim.lost], timeout=REPORT_S)

    def _progress_numbers(self) -> dict[str, int]:
        if self._is_over:
            return {}
        return self._numbers(self._progress.acknowledged if self._progress is not None else {})

    def _numbers(self, acknowledged: Mapping[Topic, Number]) -> dict[str, int]:
        topics = {f"{TOPIC}{topic}": number for topic, number in sorted(acknowledged.items())}
        return {COUNT: self._count, TIME: int(time.time() * 1000), FOLDER: self._place.number, **topics}

    def _explained(self, problem: str, last: Life) -> str:
        here = f"the journal in {self._place.folder}" if self._place.folder else "the journal given here"
        moment = datetime.fromtimestamp(last.numbers.get(TIME, 0) / 1000.0, UTC).isoformat(timespec="seconds")
        upto = ", ".join(f"{topic} {number}" for topic, number in sorted(_acknowledged(last).items()))
        return (
            f"durable subscription {self._name!r} cannot continue from {here}: {problem}. Its last life was "
            f"{last.where}, epoch {last.epoch}, and had acknowledged {upto} at {moment}. Nothing was delivered. "
            "Give it the journal of that life; or subscribe under another name; or, if that journal is lost, start "
            "over under this name with subscribe(accept=True), on the command line --accept, and with start=... if the "
            "past is to come again"
        )

    def _fenced(self) -> Fenced:
        reason = self._claim.lost.result()
        return Fenced(
            f"durable subscription {self._name!r} was taken over: {reason}. Nothing more is handed out or acknowledged "
            "here. Stop this process, or subscribe under another name"
        )

    async def _ask(self, answer: Awaitable[None] | Awaitable[Life | None]) -> Life | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except TimeoutError:
            problem = f"the broker has not answered for {self._timeout_s:g} s"
            raise ConnectionFailed(f"durable subscription {self._name!r} cannot be registered: {problem}") from None


def _without_time(numbers: dict[str, int]) -> dict[str, int]:
    return {key: number for key, number in numbers.items() if key != TIME}
