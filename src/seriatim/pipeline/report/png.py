"""A drawing as PNG, for slides and messages. The same shapes as on the page, on white."""

import warnings
from pathlib import Path
from typing import Any

from seriatim.pipeline.report.drawing import Area, Drawing, Label, Line, Mark, Shape
from seriatim.pipeline.report.markup import plain
from seriatim.pipeline.report.style import LIGHT
from seriatim.pipeline.report.svg import arrow, outline, strokes

PIXELS_PER_POINT = 2  # twice as fine as on the page, for sharp print
DPI = 100
POINTS_PER_PIXEL = 72 / DPI  # matplotlib measures fonts and lines in points


def write_png(drawing: Drawing, path: Path) -> None:
    """Draw into a file. Needs matplotlib, of the extra `spark`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawing.width / DPI, drawing.height / DPI), dpi=DPI, facecolor=LIGHT["paper"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    for layer, shape in enumerate(drawing.shapes):
        _draw(axes, shape, layer)
    with warnings.catch_warnings():  # a name in a script that the font lacks is drawn as boxes: that is all we can do
        warnings.filterwarnings("ignore", message=r"(?s)Glyph .* missing from font", category=UserWarning)
        figure.savefig(path, dpi=DPI * PIXELS_PER_POINT, metadata={"Title": plain(drawing.title), "Software": None})


def _draw(axes: Any, shape: Shape, layer: int) -> None:
    colour = LIGHT[shape.tone]
    match shape:
        case Line():
            style: Any = (0, (4, 3)) if shape.is_dashed else "solid"
            xs, ys = zip(*shape.points, strict=True)
            axes.plot(xs, ys, color=colour, linewidth=shape.width * POINTS_PER_PIXEL, linestyle=style, zorder=layer)
            if shape.has_arrow:
                xs, ys = zip(*arrow(shape), strict=True)
                axes.fill(xs, ys, color=colour, linewidth=0, zorder=layer)
        case Area():
            xs, ys = zip(*shape.points, strict=True)
            axes.fill(xs, ys, color=colour, alpha=shape.opacity, linewidth=0, zorder=layer)
        case Mark():
            _draw_mark(axes, shape, colour, layer)
        case Label():
            from matplotlib.patheffects import withStroke

            axes.text(
                *shape.at,
                plain(shape.text),
                color=colour,
                fontsize=shape.size * POINTS_PER_PIXEL,
                fontweight="bold" if shape.is_bold else "normal",
                horizontalalignment={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
                verticalalignment="baseline",
                rotation=90 if shape.is_upright else 0,
                rotation_mode="anchor",
                parse_math=False,
                path_effects=[withStroke(linewidth=3 * POINTS_PER_PIXEL, foreground=LIGHT["paper"])],
                zorder=layer,
            )


def _draw_mark(axes: Any, mark: Mark, colour: str, layer: int) -> None:
    from matplotlib.patches import Circle, Polygon

    look: dict[str, Any] = {
        "facecolor": LIGHT["paper"] if mark.is_hollow else colour,
        "edgecolor": colour,
        "linewidth": 1.5 * POINTS_PER_PIXEL,
        "zorder": layer,
    }
    if mark.shape == "circle":
        axes.add_patch(Circle(mark.at, mark.radius, **look))
    elif corners := outline(mark):
        axes.add_patch(Polygon(corners, closed=True, **look))
    for (x0, y0), (x1, y1) in strokes(mark):
        axes.plot((x0, x1), (y0, y1), color=colour, linewidth=2 * POINTS_PER_PIXEL, zorder=layer)
