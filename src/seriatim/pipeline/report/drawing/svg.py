"""A drawing as SVG for the page. Colours are classes: the page's style gives them a light and a dark value."""

from math import atan2, cos, pi, sin

from seriatim.pipeline.report.drawing.shapes import Area, Drawing, Label, Line, Mark, Point, Shape
from seriatim.pipeline.report.html.markup import Markup, element, joined

ARROW_PX = 7.0
LARGER_MAX = 1.3  # how much a figure may grow with the page


def svg(drawing: Drawing, key: str) -> Markup:
    """The figure; `key` is part of its ids and belongs to no other figure of the page."""
    return element(
        "svg",
        element("title", drawing.title, id=f"{key}-title"),
        element("desc", drawing.description, id=f"{key}-desc"),
        joined(_shape(shape) for shape in drawing.shapes),
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        viewBox=f"0 0 {_n(drawing.width)} {_n(drawing.height)}",
        width=_n(drawing.width),
        height=_n(drawing.height),
        style=f"max-width:{_n(drawing.width * LARGER_MAX)}px",
    )


def _shape(shape: Shape) -> Markup:
    match shape:
        case Line():
            return _line(shape)
        case Area():
            opacity = None if shape.opacity == 1 else _n(shape.opacity)
            return _hinted(
                "polygon", shape.hint, points=_points(shape.points), class_=f"fill {shape.tone}", opacity=opacity
            )
        case Mark():
            return _mark(shape)
        case Label():
            return _label(shape)


def _line(line: Line) -> Markup:
    drawn = _hinted(
        "polyline",
        line.hint,
        points=_points(line.points),
        class_=f"line {line.tone}",
        stroke_width=_n(line.width),
        stroke_dasharray="5 4" if line.is_dashed else None,
    )
    if not line.has_arrow:
        return drawn
    return joined([drawn, element("polygon", points=_points(arrow(line)), class_=f"fill {line.tone}")])


def arrow(line: Line) -> tuple[Point, ...]:
    """The head of an arrow at the end of a line."""
    (x0, y0), (x, y) = line.points[-2:]
    angle = atan2(y - y0, x - x0)
    back = [(x - ARROW_PX * cos(angle + side), y - ARROW_PX * sin(angle + side)) for side in (pi / 7, -pi / 7)]
    return ((x, y), *back)


def outline(mark: Mark) -> tuple[Point, ...]:
    """The corners of a mark that has some."""
    (x, y), r = mark.at, mark.radius
    match mark.shape:
        case "square":
            r *= 0.9
            return ((x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r))
        case "triangle":
            r *= 1.15
            return ((x, y - r), (x + r, y + r * 0.8), (x - r, y + r * 0.8))
        case "diamond":
            r *= 1.25
            return ((x, y - r), (x + r, y), (x, y + r), (x - r, y))
        case _:
            return ()


def strokes(mark: Mark) -> tuple[tuple[Point, Point], ...]:
    """The two strokes of a mark that is made of strokes."""
    (x, y), r = mark.at, mark.radius
    match mark.shape:
        case "cross":
            return (((x - r, y - r), (x + r, y + r)), ((x - r, y + r), (x + r, y - r)))
        case "plus":
            r *= 1.2
            return (((x - r, y), (x + r, y)), ((x, y - r), (x, y + r)))
        case _:
            return ()


def _mark(mark: Mark) -> Markup:
    kind = f"{'hollow' if mark.is_hollow else 'fill'} {mark.tone}"
    if mark.shape == "circle":
        x, y = mark.at
        return _hinted("circle", mark.hint, cx=_n(x), cy=_n(y), r=_n(mark.radius), class_=kind)
    if corners := outline(mark):
        return _hinted("polygon", mark.hint, points=_points(corners), class_=kind)
    ways = "".join(f"M{_n(a[0])} {_n(a[1])}L{_n(b[0])} {_n(b[1])}" for a, b in strokes(mark))
    return _hinted("path", mark.hint, d=ways, class_=f"line {mark.tone}", stroke_width="2")


def _label(label: Label) -> Markup:
    x, y = label.at
    return _hinted(
        "text",
        label.hint,
        label.text,
        x=_n(x),
        y=_n(y),
        class_=f"text {label.tone}",
        font_size=_n(label.size),
        font_weight="600" if label.is_bold else None,
        text_anchor=None if label.anchor == "start" else label.anchor,
        transform=f"rotate(-90 {_n(x)} {_n(y)})" if label.is_upright else None,
    )


def _hinted(name: str, hint: str, /, *children: object, **attributes: object) -> Markup:
    """An element with its hint, which a browser shows when one points at it."""
    return element(name, *([element("title", hint)] if hint else []), *children, **attributes)


def _points(points: tuple[Point, ...]) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in points)


def _n(value: float) -> str:
    """A coordinate, as short as it can be."""
    return f"{value:.1f}".removesuffix(".0") if value != int(value) else str(int(value))
