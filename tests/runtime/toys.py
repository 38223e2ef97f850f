"""A toy machine and a journal that does what a test says: for the driver alone."""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from seriatim.model import Address, InputError, JournalError, RemoteError
from seriatim.protocols.machine import Effects, Payload
from seriatim.runtime.journal.interface import Recovered


class Added(Struct, frozen=True, tag=True):
    """What the toy persists."""

    amount: int


class Add(Struct, frozen=True, tag=True):
    """Persist `records` times, then send the total to each target and notify of it `notes` times."""

    amount: int = 1
    records: int = 1
    targets: tuple[Address, ...] = ("t",)
    notes: int = 0
    wake_at: float | None = None


class Fail(Struct, frozen=True):
    """Raise this kind of error."""

    kind: str


class Said(Struct, frozen=True):
    """The total, and how many records the toy has asked for so far."""

    total: int
    persisted: int


class Toy:
    """Adds up, and says so."""

    def __init__(self) -> None:
        self.total = 0
        self.persisted = 0
        self.ticks: list[float] = []
        self.on_tick = Effects()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        match message:
            case Fail("remote"):
                raise RemoteError("nobody says that")
            case Fail("input"):
                raise InputError("toy", "it is wrong", "correct it")
            case Fail():
                raise KeyError("a mistake in the machine")
        assert isinstance(message, Add), message
        effects = Effects()
        for _ in range(message.records):
            self.total += message.amount
            self.persisted += 1
            effects.persist.append(Added(message.amount))
        said = Said(self.total, self.persisted)
        effects.send += [(target, said) for target in message.targets]
        effects.notify += [said] * message.notes
        effects.wake_at = message.wake_at
        return effects

    def tick(self, now: float) -> Effects:
        self.ticks.append(now)
        effects, self.on_tick = self.on_tick, Effects()
        return effects

    def encode(self) -> bytes:
        return msgspec.msgpack.encode([self.total, self.persisted])

    @classmethod
    def rebuilt(cls, recovered: Recovered) -> "Toy":
        toy = cls()
        if recovered.snapshot is not None:
            toy.total, toy.persisted = msgspec.msgpack.decode(recovered.snapshot)
        for record in recovered.records:
            toy.total += msgspec.msgpack.decode(record, type=Added).amount
            toy.persisted += 1
        return toy


class GatedJournal:
    """Durable when the test says so: `let` lets one append or snapshot through, `fail` makes it raise."""

    def __init__(self, gated: bool = True) -> None:
        self.gated = gated
        self.snapshot_state: bytes | None = None
        self.kept: list[bytes] = []
        self.appends: list[int] = []  # records of each, when it was asked for
        self.snapshots = 0
        self.durable = 0  # records ever
        self._gate: asyncio.Future[None] | None = None

    @property
    def bytes_since_snapshot(self) -> int:
        return sum(map(len, self.kept))

    async def open(self) -> Recovered:
        return self.recovered()

    def recovered(self) -> Recovered:
        """What a process that starts now would find."""
        return Recovered(self.snapshot_state, list(self.kept))

    async def append(self, records: Sequence[bytes]) -> None:
        self.appends.append(len(records))
        await self._pass()
        self.kept += records
        self.durable += len(records)

    async def snapshot(self, state: bytes) -> None:
        self.snapshots += 1
        await self._pass()
        self.snapshot_state, self.kept = state, []

    async def close(self) -> None:
        """Nothing to do."""

    @property
    def waits(self) -> bool:
        """Whether somebody waits at the gate."""
        return self._gate is not None

    def let(self) -> None:
        assert self._gate is not None, "nobody waits"
        self._gate.set_result(None)
        self._gate = None

    def fail(self, error: BaseException | None = None) -> None:
        assert self._gate is not None, "nobody waits"
        self._gate.set_exception(error or JournalError("the disk is full"))
        self._gate = None

    async def _pass(self) -> None:
        if self.gated:
            self._gate = asyncio.get_running_loop().create_future()
            await self._gate


async def turns(count: int = 4) -> None:
    """Let everything run that can run."""
    for _ in range(count):
        await asyncio.sleep(0)
