"""How long a message is on its way: the delay models, as plain values.

A model becomes a *draw*, a function without arguments, once per pair of addresses; the engine calls only the draw.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias

from msgspec import Struct, field

from seriatim.model import Address, InputError

Draw: TypeAlias = Callable[[], float]


class Constant(Struct, frozen=True):
    """Always the same."""

    delay_ms: float

    def draw(self, random: Random, source: Address, target: Address) -> Draw:
        delay_ms = _at_least_zero("delay_ms", self.delay_ms)
        return lambda: delay_ms


class Uniform(Struct, frozen=True):
    """Anything between two bounds, all equally likely."""

    low_ms: float
    high_ms: float

    def draw(self, random: Random, source: Address, target: Address) -> Draw:
        low_ms = _at_least_zero("low_ms", self.low_ms)
        if self.high_ms < low_ms:
            raise InputError("high_ms", f"{self.high_ms} is below low_ms {low_ms}", "swap the two bounds")
        width_ms = self.high_ms - low_ms
        draw = random.random
        return lambda: low_ms + width_ms * draw()


class Normal(Struct, frozen=True):
    """Normal around a mean; what falls below zero counts as zero."""

    mean_ms: float
    deviation_ms: float

    def draw(self, random: Random, source: Address, target: Address) -> Draw:
        mean_ms = _at_least_zero("mean_ms", self.mean_ms)
        deviation_ms = _at_least_zero("deviation_ms", self.deviation_ms)
        gauss = random.gauss

        def draw() -> float:
            delay_ms = gauss(mean_ms, deviation_ms)
            return delay_ms if delay_ms > 0.0 else 0.0

        return draw


class Matrix(Struct, frozen=True):
    """A delay per pair. `sites` may gather addresses into places; an address without a site is its own place."""

    between: Mapping[tuple[str, str], "Delay"]
    otherwise: "Delay"
    sites: Mapping[Address, str] = field(default_factory=dict)

    def draw(self, random: Random, source: Address, target: Address) -> Draw:
        pair = (self.sites.get(source, source), self.sites.get(target, target))
        return self.between.get(pair, self.otherwise).draw(random, source, target)


Delay: TypeAlias = Constant | Uniform | Normal | Matrix

LOCAL_NETWORK = Normal(10.0, 2.0)  # the two settings of paper 000's evaluation
WIDE_NETWORK = Normal(100.0, 10.0)


def _at_least_zero(field_name: str, value: float) -> float:
    if not value >= 0.0:
        raise InputError(field_name, f"{value} is not a duration", "give 0 or more milliseconds")
    return value
