"""A figure as plain shapes, in the pixels of its own box. Its look on a page or in a file is not defined here.

Every figure of a report is drawn once, with these few shapes, and written twice: as SVG into the page (`svg.py`) and as
PNG (`png.py`). Colours are tones with a meaning, such as "ink" or "wrong"; `html/style.py` has a light and a dark value
for each. No figure says anything by colour alone: a series also has its own mark, and a violation its own line.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

Point: TypeAlias = tuple[float, float]
Anchor: TypeAlias = Literal["start", "middle", "end"]
MarkShape: TypeAlias = Literal["circle", "square", "triangle", "diamond", "cross", "plus"]

SERIES = tuple(f"series-{number}" for number in range(1, 8))  # of a palette that colour-blind people can tell apart
MARKS: tuple[MarkShape, ...] = ("circle", "square", "triangle", "diamond", "plus", "cross")

FONT_PX = 12.0
SMALL_PX = 11.0
CHARACTER_WIDTH = 0.58  # of the font size, on average and a bit more: labels get room, not measure


class Line(Struct, frozen=True):
    """A way from point to point, with an arrow at its end if asked."""

    points: tuple[Point, ...]
    tone: str = "ink"
    width: float = 1.5
    is_dashed: bool = False
    has_arrow: bool = False
    hint: str = ""


class Area(Struct, frozen=True):
    """A filled polygon; a box is one too."""

    points: tuple[Point, ...]
    tone: str
    opacity: float = 1.0
    hint: str = ""


class Mark(Struct, frozen=True):
    """A dot of some shape. `hint` is shown when one points at it."""

    at: Point
    shape: MarkShape = "circle"
    tone: str = "ink"
    radius: float = 4.0
    is_hollow: bool = False
    hint: str = ""


class Label(Struct, frozen=True):
    at: Point
    text: str
    anchor: Anchor = "start"
    tone: str = "ink"
    size: float = FONT_PX
    is_bold: bool = False
    is_upright: bool = False  # turned by a quarter, for the name of a vertical axis
    hint: str = ""


Shape: TypeAlias = Line | Area | Mark | Label


class Drawing(Struct, frozen=True, kw_only=True):
    """A figure: `title` names it, `description` says in words what it shows, for screen readers."""

    title: str
    description: str
    width: float
    height: float
    shapes: tuple[Shape, ...] = field(default_factory=tuple)


def box(x: float, y: float, width: float, height: float, tone: str, opacity: float = 1.0, hint: str = "") -> Area:
    """A rectangle by its upper left corner."""
    return Area(((x, y), (x + width, y), (x + width, y + height), (x, y + height)), tone, opacity, hint)


def curve(start: Point, bend: Point, end: Point, steps: int = 16) -> tuple[Point, ...]:
    """Points of a quadratic curve, so that lines are the only ways there are."""
    points = []
    for step in range(steps + 1):
        t = step / steps
        a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t**2
        points.append((a * start[0] + b * bend[0] + c * end[0], a * start[1] + b * bend[1] + c * end[1]))
    return tuple(points)


def text_width(text: str, size: float = FONT_PX) -> float:
    """About how wide a text is; wide characters (Chinese, emoji) count twice."""
    return sum(2 if ord(character) > 0x2E7F else 1 for character in text) * size * CHARACTER_WIDTH


def shortened(text: str, length_max: int) -> str:
    """The beginning and the end: what differs in names is often the end."""
    if len(text) <= length_max:
        return text
    kept = length_max - 1
    return f"{text[: kept - kept // 3]}…{text[len(text) - kept // 3 :]}"


def series_tone(index: int) -> str:
    return SERIES[index % len(SERIES)]


def series_mark(index: int) -> MarkShape:
    return MARKS[index % len(MARKS)]


def legend(
    entries: Sequence[tuple[str, str, MarkShape, bool]], width: float, left: float, top: float
) -> tuple[list[Shape], float]:
    """Entries (text, tone, mark, is hollow) in as many lines as they need; the shapes and where they end."""
    shapes: list[Shape] = []
    x, y = left, top
    for text, tone, shape, is_hollow in entries:
        shown = shortened(text, 34)
        needed = 26 + text_width(shown, SMALL_PX)
        if x > left and x + needed > width:
            x, y = left, y + 16
        shapes.append(Line(((x, y), (x + 16, y)), tone, 1.5, is_hollow))
        shapes.append(Mark((x + 8, y), shape, tone, 3.5, is_hollow))
        shapes.append(Label((x + 21, y + 3.5), shown, "start", "ink", SMALL_PX, hint=text if shown != text else ""))
        x += needed + 12
    return shapes, (y + 16 if entries else y)
