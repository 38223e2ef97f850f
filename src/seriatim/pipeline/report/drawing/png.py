"""A drawing as PNG, for slides and messages. The same shapes as on the page, on white, painted with Pillow."""

from __future__ import annotations

from itertools import pairwise
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seriatim.pipeline.report.drawing.axes import MINUS, NOTHING
from seriatim.pipeline.report.drawing.shapes import Area, Drawing, Label, Line, Mark, Point, Shape
from seriatim.pipeline.report.drawing.svg import arrow, outline, strokes
from seriatim.pipeline.report.html.markup import plain
from seriatim.pipeline.report.html.style import LIGHT

if TYPE_CHECKING:
    from PIL import Image, ImageDraw

SCALE = 2  # twice as fine as on the page, for sharp print
FINER = 3  # painted this much larger and reduced, which smooths the edges
UNIT = SCALE * FINER
DASH, DASH_GAP = 5.0, 4.0  # as on the page
HALO = 1.5  # of paper around a text, so that lines behind it do not hide it
FONTS = {  # the first that the machine has; Pillow looks where the system keeps fonts
    False: ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "segoeui.ttf", "Arial.ttf"),
    True: ("DejaVuSans-Bold.ttf", "NotoSans-Bold.ttf", "LiberationSans-Bold.ttf", "segoeuib.ttf", "Arial Bold.ttf"),
}
# What axes write and Pillow's own font, which is used if none is found, lacks.
BUILT_IN_LACKS = str.maketrans({NOTHING: "-", MINUS: "-", "µ": "u", "→": ">", "÷": "/"})


def write_png(drawing: Drawing, path: Path) -> None:
    """Draw into a file. Needs Pillow, of the extra `spark`."""
    from PIL import Image, ImageDraw
    from PIL.PngImagePlugin import PngInfo

    size = round(drawing.width * SCALE), round(drawing.height * SCALE)
    image = Image.new("RGB", (size[0] * FINER, size[1] * FINER), LIGHT["paper"])
    pen = ImageDraw.Draw(image, "RGBA")
    for shape in drawing.shapes:
        _draw(image, pen, shape)
    info = PngInfo()
    info.add_itxt("Title", plain(drawing.title))
    image.resize(size, Image.Resampling.BOX).save(path, pnginfo=info)


def _draw(image: Image.Image, pen: ImageDraw.ImageDraw, shape: Shape) -> None:
    colour = LIGHT[shape.tone]
    match shape:
        case Line():
            for way in _dashes(shape.points) if shape.is_dashed else [shape.points]:
                _stroke(pen, way, colour, shape.width)
            if shape.has_arrow:
                pen.polygon(_scaled(arrow(shape)), fill=colour)
        case Area():
            pen.polygon(_scaled(shape.points), fill=f"{colour}{round(shape.opacity * 255):02x}")
        case Mark():
            _draw_mark(pen, shape, colour)
        case Label():
            _draw_label(image, pen, shape, colour)


def _draw_mark(pen: ImageDraw.ImageDraw, mark: Mark, colour: str) -> None:
    fill = LIGHT["paper"] if mark.is_hollow else colour
    if mark.shape == "circle":
        pen.circle(_scaled([mark.at])[0], mark.radius * UNIT, fill, colour, round(1.5 * UNIT))
    elif corners := outline(mark):
        pen.polygon(_scaled(corners), fill)
        _stroke(pen, (*corners, *corners[:2]), colour, 1.5)
    for way in strokes(mark):
        _stroke(pen, way, colour, 2.0)


def _draw_label(image: Image.Image, pen: ImageDraw.ImageDraw, label: Label, colour: str) -> None:
    from PIL import Image, ImageDraw

    font, is_built_in = _font(label.size, label.is_bold)
    text = plain(label.text).translate(BUILT_IN_LACKS) if is_built_in else plain(label.text)
    anchor = {"start": "ls", "middle": "ms", "end": "rs"}[label.anchor]
    look: dict[str, Any] = {"font": font, "stroke_width": round(HALO * UNIT), "stroke_fill": LIGHT["paper"]}
    (x, y) = _scaled([label.at])[0]
    if not label.is_upright:
        pen.text((x, y), text, colour, anchor=anchor, **look)
        return
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font, anchor=anchor, stroke_width=look["stroke_width"])
    words = Image.new("RGBA", (round(right - left), round(bottom - top)))
    ImageDraw.Draw(words).text((-left, -top), text, colour, anchor=anchor, **look)
    turned = words.rotate(90, expand=True)
    image.paste(turned, (round(x + top), round(y - right)), turned)


def _font(size: float, is_bold: bool) -> tuple[Any, bool]:
    """The font, and whether it is Pillow's own, which has few letters."""
    from PIL import ImageFont

    for name in FONTS[is_bold]:
        try:
            return ImageFont.truetype(name, size * UNIT), False
        except OSError:
            continue
    return ImageFont.load_default(size * UNIT), True


def _stroke(pen: ImageDraw.ImageDraw, way: tuple[Point, ...], colour: str, width: float) -> None:
    pen.line(_scaled(way), colour, round(width * UNIT), joint="curve")


def _dashes(points: tuple[Point, ...]) -> list[tuple[Point, ...]]:
    """A way in pieces; the pattern runs on round corners."""
    dashes = []
    done = 0.0
    for (x0, y0), (x1, y1) in pairwise(points):
        length = hypot(x1 - x0, y1 - y0)
        at = -(done % (DASH + DASH_GAP))
        while at < length:
            start, end = max(at, 0.0), min(at + DASH, length)
            if end > start:
                dashes.append(tuple((x0 + (x1 - x0) * s / length, y0 + (y1 - y0) * s / length) for s in (start, end)))
            at += DASH + DASH_GAP
        done += length
    return dashes


def _scaled(points: Any) -> list[Point]:
    return [(x * UNIT, y * UNIT) for x, y in points]
