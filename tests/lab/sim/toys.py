"""Small machines for testing the engine."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from seriatim.lab.sim.process import Restore
from seriatim.model import Address
from seriatim.protocols.machine import Effects, Payload


class Number(Struct, frozen=True, order=True):
    """A message to tell from others."""

    value: int


class Word(Struct, frozen=True):
    """A message that is only heard."""

    text: str


class Total(Struct, frozen=True):
    """What `Counter` says: the sum so far, and in which epoch it says so."""

    epoch: int
    total: int


GO = Word("go")


class Script:
    """Does what a function says: `react(source, message, now)` gives the effects of a step, `wake(now)` of a tick."""

    def __init__(
        self,
        react: Callable[[Address, Payload, float], Effects] | None = None,
        wake: Callable[[float], Effects] | None = None,
    ) -> None:
        self.seen: list[tuple[Address, Payload, float]] = []
        self.woken: list[float] = []
        self._react = react
        self._wake = wake

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        self.seen.append((source, message, now))
        return self._react(source, message, now) if self._react else Effects()

    def tick(self, now: float) -> Effects:
        self.woken.append(now)
        return self._wake(now) if self._wake else Effects()

    @property
    def heard(self) -> list[Payload]:
        return [message for _, message, _ in self.seen]

    @property
    def times(self) -> list[float]:
        return [now for _, _, now in self.seen]


class Counter:
    """A durable role: journals every message before it passes the running sum on."""

    def __init__(self, target: Address, records: Sequence[Payload] = (), epoch: int = 1) -> None:
        self.target = target
        self.total = sum(record.value for record in records if isinstance(record, Number))
        self.epoch = epoch

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        assert isinstance(message, Number), message
        self.total += message.value
        effects = effects_of(sends=[(self.target, Total(self.epoch, self.total))])
        effects.persist.append(message)
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()


def effects_of(sends: Sequence[tuple[Address, Payload]] = (), wake_at: float | None = None) -> Effects:
    effects = Effects()
    effects.send.extend(sends)
    effects.wake_at = wake_at
    return effects


def pour(sends: Sequence[tuple[Address, Payload]]) -> Callable[[Address, Payload, float], Effects]:
    """Answer every message with these sends."""
    return lambda source, message, now: effects_of(sends)


def same(machine: Script) -> Restore:
    """A restore that hands out one machine, which thus forgets nothing."""
    return lambda records, epoch: machine
