"""Runs one machine: gives it its inputs and timers, and carries out its effects in their order of obligation.

*Journal before acting.* A step's records are buffered; its messages and notifications wait behind them. One task
appends whatever has gathered in one go (group commit) and then lets go what waited. The machine meanwhile steps on in
memory. A step without records waits only if something before it does: order is never changed. A step without messages
starts no append; if it is lost in a crash, it is as if its input had never arrived. It goes with the next append, or
after a moment.

*Snapshots.* The state is encoded in the same turn of the loop in which its records are taken for an append, so it
stands for exactly the records up to and including that append.

*Failure.* A journal that refuses an append (Fenced) or breaks, and any error of a machine that is not about its input,
ends this driver: nothing that waited is sent, and `failed` holds the reason. Never half a step.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from seriatim.model import Address, Closed, InputError, JournalError, RemoteError, SeriatimError, TimedOut
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.runtime.clock import Clock
from seriatim.runtime.journal.interface import Journal

logger = logging.getLogger(__name__)

SNAPSHOT_BYTES_MIN = 4 * 1024 * 1024
STOP_S = 5.0
CANCEL_AGAIN_S = 0.1
SETTLED_S = 60.0
TIMER_S_MIN = 0.001
UNTOLD_S = 0.05  # how long records that nobody waits for may stay in memory

# What code raises that is wrong. A machine's mistake ends its driver, never the loop or connection that fed it.
MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Driver:
    """One machine at one address. `send` and `notify` must not block and must not raise.

    `encode_state`: how to take a snapshot; None: never take one. It may give None: not now.
    """

    def __init__(
        self,
        address: Address,
        machine: Machine,
        clock: Clock,
        *,
        send: Callable[[Address, Address, Payload], None],
        notify: Callable[[Sequence[Payload]], None] | None = None,
        journal: Journal | None = None,
        encode_state: Callable[[], bytes | None] | None = None,
        snapshot_bytes_min: int = SNAPSHOT_BYTES_MIN,
    ) -> None:
        self.address = address
        self.machine = machine
        self.clock = clock
        self._now_ms = clock.now_ms
        self._loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[BaseException] = self._loop.create_future()
        self.steps = 0
        self.appends = 0
        self._send = send
        self._notify = notify
        self._journal = journal
        self._encode_state = encode_state
        self._snapshot_bytes_min = snapshot_bytes_min
        self._snapshot_bytes = 0  # size of the last one: the next is taken after at least as many bytes of records
        self._encode = msgspec.msgpack.Encoder().encode
        self._records: list[bytes] = []
        self._outbox: list[tuple[Address | None, Any]] = []  # (target, message), or (None, notifications)
        self._gathered = 0  # steps whose records are in `_records`, or that wait behind such
        self._under_way = 0  # steps of the append that is under way
        self._appending_since: float | None = None  # that append
        self._released = 0
        self._releasing = False
        self._settling: deque[tuple[int, asyncio.Future[None]]] = deque()  # callers, and the count each waits for
        self._dirty = asyncio.Event()
        self._awaited = False  # somebody waits for what is gathered, and the commit knows
        self._someday: asyncio.TimerHandle | None = None  # an append that nobody waits for
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._running = False
        self._ending = False

    @property
    def backlog(self) -> int:
        """Steps whose effects wait for the journal: what back-pressure looks at."""
        return self._gathered + self._under_way

    @property
    def appending_s(self) -> float:
        """How long the journal has been taking the append that is under way; 0: none is."""
        return self._loop.time() - self._appending_since if self._appending_since is not None else 0.0

    def start(self) -> None:
        """Tick the machine once, then accept inputs."""
        self._running = True
        if self._journal is not None:
            self._task = self._loop.create_task(self._commit_forever(self._journal))
            self._task.add_done_callback(self._on_commit_ended)
        self._tick()

    async def stop(self) -> None:
        """Take no more inputs. Wait a limited time for the journal, send what waited for it, then end."""
        self._running = False
        self._cancel_timer()
        if self._task is None:
            return
        if not await self._until_released(STOP_S):
            logger.warning("stopped before the journal was done: node=%s steps=%s", self.address, self.backlog)
        self._ending = True
        while not self._task.done():  # what a journal stands on may swallow a cancellation that comes with an answer
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CANCEL_AGAIN_S)
        self._task = None

    def deliver(self, source: Address, message: Payload) -> None:
        """Give the machine one input from elsewhere. Never raises: an input that the machine refuses is logged."""
        if not self._running:
            return
        self.steps += 1
        try:
            self._carry_out(self.machine.step(source, message, self._now_ms()))
        except (RemoteError, InputError) as error:
            logger.warning("message refused: node=%s source=%s reason=%s", self.address, source, error)
        except MISTAKES as error:
            self.end(error)

    def command(self, source: Address, message: Payload) -> None:
        """Give the machine one input. RemoteError, InputError: the machine refuses it and has not changed."""
        if not self._running:
            reason = f": {self.failed.result()}" if self.failed.done() else ""
            raise Closed(f"{self.address} is not running{reason}")
        self.steps += 1
        try:
            self._carry_out(self.machine.step(source, message, self._now_ms()))
        except (RemoteError, InputError):
            raise
        except MISTAKES as error:
            self.end(error)
            raise

    async def settled(self, timeout_s: float = SETTLED_S) -> None:
        """Wait until everything so far is durable and sent. Raises what ended the driver."""
        if not await self._until_released(timeout_s):
            raise TimedOut(
                f"{self.backlog} steps of {self.address} wait for the journal, which has not taken them within "
                f"{timeout_s:g} s; check its disk or its stream"
            )
        if self.failed.done():
            raise self.failed.result()

    async def _until_released(self, timeout_s: float) -> bool:
        """Wait for the effects that are queued now, not for later ones. False: timeout. A failure ends the wait."""
        if not self.backlog:
            return True
        self._dirty.set()
        future = self._loop.create_future()
        self._settling.append((self._released + self.backlog, future))
        await asyncio.wait({future, self.failed}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return future.done() or self.failed.done()

    # ── effects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, effects: Effects) -> None:
        if effects.persist and self._journal is not None:
            records, encode = self._records, self._encode
            for record in effects.persist:
                records.append(encode(record))
            self._gather(effects)
        elif self._gathered or self._under_way or self._releasing:
            self._gather(effects)
        elif effects.send or effects.notify:
            outbox: list[tuple[Address | None, Any]] = [*effects.send]
            if effects.notify:
                outbox.append((None, effects.notify))
            self._release(outbox)
        wish = effects.wake_at
        if wish is not None and (self._timer is None or wish < self._timer_at):
            self._wake_at(wish)

    def _gather(self, effects: Effects) -> None:
        """Keep only what is still to be released: long-lived objects cost the garbage collector time."""
        self._gathered += 1
        if effects.send or effects.notify:
            self._outbox += effects.send
            if effects.notify:
                self._outbox.append((None, effects.notify))
            if not self._awaited:
                self._awaited = True
                self._dirty.set()
        elif self._someday is None:
            self._someday = self._loop.call_later(UNTOLD_S, self._dirty.set)

    def _release(self, outbox: list[tuple[Address | None, Any]]) -> None:
        """A callback may step this machine again; those effects queue behind the ones being released."""
        self._releasing = True
        address, send, notify = self.address, self._send, self._notify
        while outbox:
            for target, message in outbox:
                if target is not None:
                    send(address, target, message)
                elif notify is not None:
                    notify(message)
            outbox = []
            if self._journal is None:
                outbox, self._outbox, self._gathered = self._outbox, [], 0
                self._awaited = False
        self._releasing = False

    async def _commit_forever(self, journal: Journal) -> None:
        # Being cancelled is not enough: a journal that waits with a timeout may swallow it (before Python 3.12).
        while not self._ending:
            await self._dirty.wait()
            self._dirty.clear()
            if self._someday is not None:
                self._someday.cancel()
                self._someday = None
            if self._gathered:
                await self._commit(journal)

    async def _commit(self, journal: Journal) -> None:
        records, self._records = self._records, []
        outbox, self._outbox = self._outbox, []
        self._under_way, self._gathered = self._gathered, 0
        self._awaited = False
        due = max(self._snapshot_bytes_min, self._snapshot_bytes)
        state = None
        if self._encode_state is not None and journal.bytes_since_snapshot >= due:
            state = self._encode_state()
        if records:
            self.appends += 1
            self._appending_since = self._loop.time()
            await journal.append(records)
            self._appending_since = None
        if self.failed.done():
            return
        self._release(outbox)
        self._released += self._under_way
        self._under_way = 0
        while self._settling and self._settling[0][0] <= self._released:
            _, future = self._settling.popleft()
            if not future.done():
                future.set_result(None)
        if state is not None:
            self._snapshot_bytes = len(state)
            await journal.snapshot(state)

    def _on_commit_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.end(error)

    def end(self, error: BaseException) -> None:
        """End at once. The journal stays readable, but no waiting effect is sent."""
        self._running = False
        self._cancel_timer()
        self._records.clear()
        self._outbox.clear()
        self._gathered = self._under_way = 0
        if not self.failed.done():
            self.failed.set_result(error)
            if not isinstance(error, JournalError):
                logger.error("machine failed because of a bug in its code: node=%s", self.address, exc_info=error)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wake_at(self, wish: float) -> None:
        """A timer that is early enough stays: when it fires, the machine says what it wants next."""
        if not self._running:
            return
        self._cancel_timer()
        self._timer_at = wish
        self._timer = self._loop.call_later(max(TIMER_S_MIN, self.clock.seconds_until(wish)), self._tick)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        if not self._running:
            return
        try:
            self._carry_out(self.machine.tick(self.clock.now_ms()))
        except (SeriatimError, *MISTAKES) as error:
            self.end(error)
