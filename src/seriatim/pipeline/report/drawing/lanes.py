"""Draws the picture of a witness: lanes, dots, and the lines that prove it."""

from math import hypot
from typing import Literal, TypeAlias

from seriatim.pipeline.report.drawing.shapes import (
    FONT_PX,
    MARKS,
    SMALL_PX,
    Anchor,
    Drawing,
    Label,
    Line,
    Mark,
    MarkShape,
    Point,
    Shape,
    box,
    curve,
    shortened,
    text_width,
)
from seriatim.pipeline.report.drawing.witnesses import Link, Picture, Spot

LabelPlace: TypeAlias = Literal["above", "below", "beside", "before"]

LABELS: dict[LabelPlace, tuple[Anchor, float, float, float]] = {  # anchor, to the right, name and place down
    "above": ("middle", 0, -28, -14),
    "below": ("middle", 0, 23, 37),
    "beside": ("start", 9, -11, 20),
    "before": ("end", 4, 21, 34),
}

LANE_PX = 74.0
RADIUS = 7.0
NAME_LENGTH_MAX = 22
EVENT_LENGTH_MAX = 18
COLUMNS_MAX = 40  # a longer chain of causes is described in words only
TONES = ("series-1", "series-3", "series-4", "series-5", "series-6", "series-7")  # none that looks like `wrong`


def draw_lanes(picture: Picture) -> Drawing | None:
    """The figure; None if the witness is too long to be drawn."""
    columns = max((spot.column for spot in picture.spots), default=0)
    columns = max([columns, *(span.end for span in picture.spans)])
    if columns > COLUMNS_MAX or not picture.spots:
        return None
    names = [shortened(name, NAME_LENGTH_MAX) for name in picture.lanes]
    left = 20 + max(text_width(name) for name in names)
    widest = max(text_width(text, SMALL_PX) for spot in picture.spots for text in (spot.below, _shown(spot)))
    column_px = max(96.0, widest + 24)
    first = left + column_px / 2
    labels = _labels_of(picture)
    top = 56.0 if "back" in {link.kind for link in picture.links} or "above" in labels else 26.0
    bottom = (32.0 if "beside" in labels else 44.0) + 14.0 * len(picture.spans)
    room = [columns * column_px + column_px * (0.95 if "beside" in labels else 0.5)]
    room += [span.start * column_px + text_width(span.text, SMALL_PX) for span in picture.spans]
    width = first + max(room) + 12

    def at(lane: int, column: float) -> Point:
        return first + column * column_px, top + lane * LANE_PX

    shapes: list[Shape] = []
    for lane, (name, shown) in enumerate(zip(picture.lanes, names, strict=True)):
        y = at(lane, 0)[1]
        shapes.append(
            Label((8, y + 4), shown, "start", "ink", FONT_PX, is_bold=True, hint=name if name != shown else "")
        )
        shapes.append(Line(((left, y), (width - 8, y)), "rule", 1.5, has_arrow=True))
    for index, span in enumerate(picture.spans):
        (x0, y), (x1, _) = at(span.lane, span.start), at(span.lane, span.end)
        if x1 > x0:
            shapes.append(box(x0, y - 12, x1 - x0, 24, "series-1", 0.16, span.text))
        shapes.append(Label((max(x0, left), y + 52 + 14 * index), span.text, "start", "muted", SMALL_PX))
    points = [at(spot.lane, spot.column) for spot in picture.spots]
    events = list(dict.fromkeys(spot.event_id for spot in picture.spots))
    for link in picture.links:
        shapes += _link(link, points, column_px)
    for spot, point in zip(picture.spots, points, strict=True):
        shapes += _spot(spot, point, events.index(spot.event_id), labels[spot.lane])
    return Drawing(
        title=f"{picture.title}: witness",
        description=picture.sentence,
        width=width,
        height=top + LANE_PX * (len(names) - 1) + bottom,
        shapes=tuple(shapes),
    )


def _labels_of(picture: Picture) -> list[LabelPlace]:
    """Where the words of each lane go, so that no line strikes them through."""
    lanes = len(picture.lanes)
    if lanes > 1 and any(link.kind == "back" for link in picture.links):
        return ["beside"] * lanes  # lines run straight down
    if lanes > 2:
        below: list[LabelPlace] = ["before"] * (lanes - 1)
        return ["above", *below]  # lines run to the right, and up to the first lane
    return ["above", "below"] if lanes == 2 else ["below"]


def _shown(spot: Spot) -> str:
    return shortened(spot.event_id, EVENT_LENGTH_MAX)


def _spot(spot: Spot, point: Point, event: int, labels: LabelPlace) -> list[Shape]:
    """The dot, the event's name and its place; the same event has the same colour and shape."""
    x, y = point
    shape: MarkShape = MARKS[event % 4]
    tone = TONES[event % len(TONES)]
    anchor, dx, name_dy, below_dy = LABELS[labels]
    name_tone = "wrong" if spot.is_wrong else "ink"
    return [
        Mark(point, shape, "wrong" if spot.is_hollow else tone, RADIUS, spot.is_hollow, spot.hint or spot.event_id),
        Label((x + dx, y + name_dy), _shown(spot), anchor, name_tone, FONT_PX, True, hint=spot.event_id),
        Label((x + dx, y + below_dy), spot.below, anchor, "wrong" if spot.is_hollow else "muted", SMALL_PX),
    ]


def _link(link: Link, points: list[Point], column_px: float) -> list[Shape]:
    start, end = points[link.start], points[link.end]
    match link.kind:
        case "before":
            return [Line(_trimmed(start, end), "muted", 2.0, has_arrow=True)]
        case "same":
            return [Line(_trimmed(start, end), "muted", 1.5, is_dashed=True, has_arrow=True)]
        case "wrong":
            x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
            way: tuple[Point, ...] = _trimmed(start, end)
            if start[1] == end[1] and end[0] - start[0] > 1.5 * column_px:  # over the dots between them
                y -= 44
                way = curve((start[0] + 3, start[1] - RADIUS - 3), (x, y), (end[0] - 3, end[1] - RADIUS - 3))
                y += 18
            shapes: list[Shape] = [Line(way, "wrong", 2.5, has_arrow=bool(link.text))]
            if link.text:
                shapes.append(_beside(start, end, (x, y), link.text))
            return shapes
        case "back":
            return _turned_back(link, start, end)


def _beside(start: Point, end: Point, middle: Point, text: str) -> Label:
    """What a line says: to the right of a steep one, above a flat one and nearer to its beginning."""
    across, down = abs(end[0] - start[0]), end[1] - start[1]
    if abs(down) > across * 0.4:
        return Label((middle[0] + 10, middle[1] + (0 if down > 0 else 8)), text, "start", "wrong", SMALL_PX)
    if not down:
        return Label((middle[0], middle[1] - 8), text, "middle", "wrong", SMALL_PX)
    near = (start[0] * 0.7 + end[0] * 0.3, start[1] * 0.7 + end[1] * 0.3)
    return Label((near[0], near[1] - 12), text, "middle", "wrong", SMALL_PX)


def _turned_back(link: Link, start: Point, end: Point) -> list[Shape]:
    """An arrow from the last dot back to the first, above all lanes, against the direction of reading."""
    top = min(start[1], end[1]) - 32
    rim = RADIUS + 4
    corner = 10
    way = (
        (start[0], start[1] - rim),
        *curve((start[0], top + corner), (start[0], top), (start[0] - corner, top), 6),
        *curve((end[0] + corner, top), (end[0], top), (end[0], top + corner), 6),
        (end[0], end[1] - rim),
    )
    label = Label(((start[0] + end[0]) / 2, top - 6), link.text, "middle", "wrong", SMALL_PX)
    return [Line(way, "wrong", 2.5, has_arrow=True), label]


def _trimmed(start: Point, end: Point) -> tuple[Point, Point]:
    """From the rim of one dot to the rim of the other."""
    length = hypot(end[0] - start[0], end[1] - start[1])
    if length <= 2 * RADIUS + 6:
        return start, end
    share = (RADIUS + 3) / length
    dx, dy = (end[0] - start[0]) * share, (end[1] - start[1]) * share
    return (start[0] + dx, start[1] + dy), (end[0] - dx, end[1] - dy)
