"""The two charts of a report: how values are distributed, and how measures change along an axis."""

from collections.abc import Callable, Sequence
from itertools import combinations, product
from math import ceil, log
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from seriatim.pipeline.report.drawing.axes import Scale, number, scale_from_zero, scale_of_lines, scale_over, short
from seriatim.pipeline.report.drawing.shapes import (
    SMALL_PX,
    Area,
    Drawing,
    Label,
    Line,
    Mark,
    MarkShape,
    Shape,
    box,
    legend,
    series_mark,
    series_tone,
    shortened,
    text_width,
)
from seriatim.pipeline.report.figures import Distribution

WIDTH, HEIGHT = 420.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, 14.0, 40.0, 44.0
BINS_MAX = 40
DOTS_MAX = 30  # a line of more has no marks
WHOLE_MAX = 40  # whole numbers up to this many get a bar each
NAME_ROWS = 3  # above the frame, for names of quantiles
QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))


class Dot(Struct, frozen=True):
    """A value at a place, with how far it may be off."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Series(Struct, frozen=True, kw_only=True):
    """Dots joined by a line. The paper's own are dashed and hollow."""

    name: str
    dots: tuple[Dot, ...]
    tone: str = ""
    mark: MarkShape | None = None
    is_reference: bool = False


class Axis(Struct, frozen=True, kw_only=True):
    """The scale of an axis. `names` instead of numbers, if places are things: place i is the i-th name."""

    name: str
    names: tuple[str, ...] = ()
    show: Callable[[float], str] = number  # in words
    tick: Callable[[float], str] = short  # beside the axis


def distribution_chart(
    title: str, distribution: Distribution, axis: str, show: Callable[[float], str], what: str
) -> Drawing:
    """Bars, and lines where half, 95 % and 99 % are reached. `what` is counted: notifications, events, ..."""
    bars = _bars(distribution)
    count = distribution.count
    x = _bar_scale(distribution, bars)
    y = scale_from_zero([bar[2] / count for bar in bars], HEIGHT - BOTTOM, TOP)
    up = Axis(name=f"share of {what}", tick=lambda share: f"{number(share * 100)} %")
    shapes = _frame(x, y, Axis(name=axis, tick=show), up)
    for low, high, many in bars:
        left, right = x(low), x(high)
        top = y(many / count)
        spread = f"{show(low)} to {show(high)}" if high - low != 1 or not distribution.is_whole else show(low + 0.5)
        hint = f"{spread}: {many:,} of {count:,} {what}"
        shapes.append(box(left + 0.4, top, max(right - left - 0.8, 0.6), HEIGHT - BOTTOM - top, "series-1", 0.75, hint))
    marks = [(distribution.quantile(share), name) for share, name in QUANTILES]
    together: dict[float, str] = {}
    for value, name in marks:
        together[value] = f"{together[value]}, {name}" if value in together else name
    shapes += _quantile_lines(list(together.items()), x, show)
    told = ", ".join(f"{name} {show(value)}" for value, name in marks)
    ends = f"lowest {show(distribution.lowest)}, highest {show(distribution.highest)}"
    description = f"{count:,} {what}; {told}; {ends}."
    return Drawing(title=title, description=description, width=WIDTH, height=HEIGHT, shapes=tuple(shapes))


class _Named(NamedTuple):
    """Where the line of a quantile is, in which row above the frame its name stands, and from where to where."""

    line: float
    row: int
    left: float
    right: float

    def collides(self, other: "_Named") -> bool:
        """Whether the names overlap, or a line, which ends beside its own name, strikes the other name through."""
        if self.row == other.row and self.left < other.right + 4 and other.left < self.right + 4:
            return True
        return self._strikes(other) or other._strikes(self)

    def _strikes(self, other: "_Named") -> bool:
        return self.row >= other.row and other.left < self.line < other.right


def _quantile_lines(marks: Sequence[tuple[float, str]], x: Scale, show: Callable[[float], str]) -> list[Shape]:
    """Each line with its name beside its upper end, left of it if that leaves the names of the axis alone."""
    names = [f"{name} {show(value)}" for value, name in marks]
    choices = [_places(x(value), text_width(name, SMALL_PX)) for (value, _), name in zip(marks, names, strict=True)]
    tried = sorted(product(*choices), key=lambda placed: sum(each.row for each in placed))
    fitting = (each for each in tried if not any(one.collides(other) for one, other in combinations(each, 2)))
    placed = next(fitting, tried[-1])
    shapes: list[Shape] = []
    for name, place in zip(names, placed, strict=True):
        height = TOP - 6 - 12 * place.row
        shapes.append(Line(((place.line, HEIGHT - BOTTOM), (place.line, height - 8)), "ink", 1.0, is_dashed=True))
        is_left = place.left < place.line
        shapes.append(
            Label(
                (place.right if is_left else place.left, height), name, "end" if is_left else "start", "ink", SMALL_PX
            )
        )
    return shapes


def _places(line: float, width: float) -> list[_Named]:
    """Where a name may stand, best first; what fits on neither side stands where it is least in the way."""
    starts = [start for start in (line - 3 - width, line + 3) if start >= LEFT - 3 and start + width <= WIDTH]
    return [
        _Named(line, row, start, start + width)
        for row in range(NAME_ROWS)
        for start in starts or [max(4.0, line - 3 - width)]
    ]


def _bars(distribution: Distribution) -> list[tuple[float, float, int]]:
    """(from, to, how many): single whole numbers if there are few, otherwise some tens of bins of suitable width."""
    values = distribution.values()
    if distribution.is_whole and distribution.highest - distribution.lowest <= WHOLE_MAX:
        return [(value - 0.5, value + 0.5, count) for value, count in values]
    low, high = distribution.lowest, distribution.highest
    positive = [value for value, _ in values if value > 0]
    if low == high or not positive:
        return [(low - 0.5, low + 0.5, distribution.count)]
    is_log = _is_log(distribution)
    edges = _edges(positive[0] if is_log else low, high, is_log)
    bars: list[list[float]] = [[edges[i], edges[i + 1], 0] for i in range(len(edges) - 1)]
    for value, count in values:
        place = next((i for i in range(len(bars)) if value < bars[i][1]), len(bars) - 1)
        bars[place][2] += count
    return [(start, end, int(count)) for start, end, count in bars if count]


def _is_log(distribution: Distribution) -> bool:
    """Whether an axis is logarithmic: the lowest and the highest hundredth are far apart, and hardly anything is
    zero."""
    low, high = distribution.quantile(0.01), distribution.quantile(0.99)
    return low > 0 and high / low > 30


def _edges(low: float, high: float, is_log: bool) -> list[float]:
    if is_log:
        bins = min(BINS_MAX, max(4, ceil(log(high / low) / log(1.08))))
        factor = (high / low) ** (1 / bins)
        return [low * factor**i for i in range(bins + 1)]
    step = (high - low) / BINS_MAX
    return [low + step * i for i in range(BINS_MAX + 1)]


def _bar_scale(distribution: Distribution, bars: Sequence[tuple[float, float, int]]) -> Scale:
    low, high = bars[0][0], bars[-1][1]
    is_log = not distribution.is_whole and _is_log(distribution) and low > 0
    return Scale(low, high, LEFT, WIDTH - RIGHT, is_log)


def lines_chart(title: str, description: str, series: Sequence[Series], across: Axis, up: Axis) -> Drawing:
    """A panel: each series with its marks, its band, and the paper's values hollow and dashed."""
    styled = [_styled(one, index) for index, one in enumerate(series)]
    entries = [(one.name, one.tone, one.mark or "circle", one.is_reference) for one in styled]
    shapes, top = legend(entries if len(series) > 1 else [], WIDTH - RIGHT, 8, 12)
    top = max(top, 14.0) + 4
    height = HEIGHT + max(0.0, top - TOP)
    dots = [dot for one in series for dot in one.dots]
    if across.names:
        x = Scale(-0.5, len(across.names) - 0.5, LEFT, WIDTH - RIGHT)
    else:
        x = scale_over([dot.x for dot in dots], LEFT, WIDTH - RIGHT)
    reached = [value for dot in dots for value in (dot.y, dot.high) if value is not None]  # a band may be cut off below
    y = (scale_from_zero if across.names else scale_of_lines)(reached, height - BOTTOM, top)
    if y.is_log:
        up = replace(up, name=f"{up.name} (logarithmic)")
    shapes += _frame(x, y, across, up, height)
    asides = [(index - (len(styled) - 1) / 2) * 11 if across.names else 0.0 for index in range(len(styled))]
    for one, aside in zip(styled, asides, strict=True):
        shapes += _band(one, x, y, aside, is_line=not across.names)
    for one in styled:
        if not across.names and len(one.dots) > 1:
            way = tuple((x(dot.x), y(dot.y)) for dot in one.dots)
            shapes.append(Line(way, one.tone, 1.5, one.is_reference))
    for one, aside in zip(styled, asides, strict=True):
        for dot in one.dots if len(one.dots) <= DOTS_MAX else ():
            where = across.names[round(dot.x)] if across.names else across.show(dot.x)
            hint = f"{one.name}, {across.name} {where}: {up.show(dot.y)}"
            place = (x(dot.x) + aside, y(dot.y))
            shapes.append(Mark(place, one.mark or "circle", one.tone, 4.0, one.is_reference, hint))
    return Drawing(title=title, description=description, width=WIDTH, height=height, shapes=tuple(shapes))


def _styled(series: Series, index: int) -> Series:
    tone = series.tone or ("muted" if series.is_reference else series_tone(index))
    dots = tuple(sorted(series.dots, key=lambda dot: dot.x))
    return replace(series, dots=dots, tone=tone, mark=series.mark or series_mark(index))


def _band(series: Series, x: Scale, y: Scale, aside: float, is_line: bool) -> list[Shape]:
    ranged = [(dot, dot.low, dot.high) for dot in series.dots if dot.low is not None and dot.high is not None]
    if is_line and len(ranged) > 1 and not series.is_reference:
        upper = [(x(dot.x), y(high)) for dot, _, high in ranged]
        lower = [(x(dot.x), y(low)) for dot, low, _ in reversed(ranged)]
        return [Area((*upper, *lower), series.tone, 0.16)]
    whiskers: list[Shape] = []
    for dot, low, high in ranged:
        if low != high:
            hint = f"{series.name}: {number(low)} to {number(high)}"
            whiskers.append(box(x(dot.x) + aside - 5, y(low), 10, y(high) - y(low), series.tone, 0.25, hint))
    return whiskers


def _frame(x: Scale, y: Scale, across: Axis, up: Axis, height: float = HEIGHT) -> list[Shape]:
    """Grid, numbers and names of both axes."""
    shapes: list[Shape] = []
    for tick in y.ticks(5):
        place = y(tick)
        shapes.append(Line(((LEFT, place), (WIDTH - RIGHT, place)), "rule", 1.0))
        shapes.append(Label((LEFT - 6, place + 3.5), up.tick(tick), "end", "muted", SMALL_PX))
    floor_y = height - BOTTOM
    shapes.append(Line(((LEFT, floor_y), (WIDTH - RIGHT, floor_y)), "muted", 1.0))
    if across.names:
        room = int((WIDTH - LEFT - RIGHT) / len(across.names) / (SMALL_PX * 0.58))
        places = [(float(i), shortened(name, max(3, room))) for i, name in enumerate(across.names)]
    else:
        places = _apart([(tick, across.tick(tick)) for tick in x.ticks(7)], x)
    for tick, text in places:
        shapes.append(Line(((x(tick), floor_y), (x(tick), floor_y + 4)), "muted", 1.0))
        shapes.append(Label((x(tick), floor_y + 16), text, "middle", "muted", SMALL_PX))
    shapes.append(Label(((LEFT + WIDTH - RIGHT) / 2, height - 8), across.name, "middle", "ink", SMALL_PX))
    shapes.append(Label((12, (y.start + y.end) / 2), up.name, "middle", "ink", SMALL_PX, is_upright=True))
    return shapes


def _apart(places: Sequence[tuple[float, str]], x: Scale) -> list[tuple[float, str]]:
    """The numbers that do not touch the one before."""
    kept: list[tuple[float, str]] = []
    end = float("-inf")
    for tick, text in places:
        half = text_width(text, SMALL_PX) / 2
        if x(tick) - half > end + 5:
            kept.append((tick, text))
            end = x(tick) + half
    return kept
