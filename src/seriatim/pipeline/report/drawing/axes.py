"""Scales and ticks: from values to pixels, and to numbers that people read."""

from collections.abc import Sequence
from math import ceil, floor, isfinite, log10

from msgspec import Struct

NOTHING, MINUS = "\u2013", "\u2212"
LOG_FROM = 60.0  # an axis that spans more than this many times its beginning is logarithmic


class Scale(Struct, frozen=True):
    """From values between `low` and `high` to pixels between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high, place = self.low, self.high, value
        if self.is_log:
            low, high, place = log10(low), log10(high), log10(max(value, self.low))
        share = (place - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, about: int) -> list[float]:
        """Round values to write beside the axis."""
        return _log_ticks(self.low, self.high, about) if self.is_log else linear_ticks(self.low, self.high, about)


def scale_from_zero(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale for heights: from zero to a bit above the highest; below zero only if a value is."""
    finite = [value for value in values if isfinite(value)] or [0.0]
    low, high = min(0.0, *finite), max(0.0, *finite)
    if low == high:
        high = 1.0
    step = nice_step((high - low) / 5)
    return Scale(floor(low / step) * step, ceil(high * 1.04 / step) * step, start, end)


def scale_of_lines(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale for lines: from zero, or logarithmic if many low values would otherwise lie on the axis."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low > 0 and isfinite(high) and high / low >= LOG_FROM:
        return Scale(low / 1.3, high * 1.3, start, end, is_log=True)
    return scale_from_zero(values, start, end)


def scale_over(values: Sequence[float], start: float, end: float) -> Scale:
    """For places along an axis: just these, logarithmic if they span orders of magnitude."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= LOG_FROM:
        return Scale(low / 1.15, high * 1.15, start, end, is_log=True)
    if low == high:
        low, high = low - 0.5, high + 0.5
    room = (high - low) * 0.04
    if 0 <= low < (high - low) * 0.25:
        return Scale(0.0, high + room, start, end)
    return Scale(low - room, high + room, start, end)


def nice_step(about: float) -> float:
    """1, 2 or 5 times a power of ten, at least as large."""
    power = 10.0 ** floor(log10(about))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= about * (1 - 1e-9))


def linear_ticks(low: float, high: float, about: int) -> list[float]:
    step = nice_step((high - low) / max(1, about))
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [count * step for count in range(first, last + 1)]


def _log_ticks(low: float, high: float, about: int) -> list[float]:
    for factors in ((1, 2, 5), (1, 3), (1,)):
        powers = range(floor(log10(low)), ceil(log10(high)) + 1)
        ticks = [factor * 10.0**power for power in powers for factor in factors]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) <= about:
            return inside
    return inside[:: ceil(len(inside) / about)]


def number(value: float, digits: int = 3) -> str:
    """Short and exact enough to read: 0.042, 17.3, 1,250, 2.4M."""
    size = abs(value)
    if not isfinite(value):
        return NOTHING
    for bound, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if size >= bound:
            return f"{float(f'{value / bound:.{digits}g}'):g}{unit}"
    if size >= 1000 or value == int(value):
        return f"{round(value):,}".replace("-", MINUS)
    shown = f"{float(f'{value:.{digits}g}'):f}".rstrip("0").rstrip(".") if size >= 1e-4 else f"{value:.{digits - 1}g}"
    return shown.replace("-", MINUS)


def short(value: float) -> str:
    """For numbers beside an axis, where there is little room: 25k."""
    return f"{value / 1e3:g}k" if 1e4 <= abs(value) < 1e6 and value % 100 == 0 else number(value)


def milliseconds(value: float) -> str:
    """A duration in the unit that fits it."""
    size = abs(value)
    if size >= 120_000:
        return f"{number(value / 60_000)} min"
    if size >= 1_000:
        return f"{number(value / 1_000)} s"
    if size >= 1 or size == 0:
        return f"{number(value)} ms"
    return f"{number(value * 1_000)} µs"
