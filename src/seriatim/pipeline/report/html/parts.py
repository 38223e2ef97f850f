"""The parts that sections of a page are made of: tables, tiles, banners, figures."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from seriatim.pipeline.report.drawing.shapes import Drawing
from seriatim.pipeline.report.drawing.svg import svg
from seriatim.pipeline.report.html.markup import Markup, element, joined

COLUMN_PX = 500  # a figure that is wider and must not shrink gets a row of its own
SYMBOLS = {"valid": "✓", "invalid": "✗", "unknown": "?"}
ANSWER_TONES = {"valid": "right", "invalid": "wrong", "unknown": "doubt"}


class Column(Struct, frozen=True):
    """A column of a table. `kind`: a class of its cells, such as `number`."""

    name: str
    kind: str = ""


class Bar(Struct, frozen=True):
    """A cell that is a bar, `share` of its width long."""

    share: float
    tone: str = "series-1"


class Sheet:
    """A page being made: gives every figure its key and remembers it, so that it can also be written as PNG."""

    def __init__(self) -> None:
        self.drawings: dict[str, Drawing] = {}

    def figure(
        self, drawing: Drawing, key: str, caption: object = "", is_scrolling: bool = False, heading: object = ""
    ) -> Markup:
        """A figure with its caption. `key` says what it is; a number is added if there is another such one."""
        base, count = key, 1
        while key in self.drawings:
            count += 1
            key = f"{base}-{count}"
        self.drawings[key] = drawing
        drawn = svg(drawing, key)
        is_wide = is_scrolling and drawing.width > COLUMN_PX
        if is_scrolling:
            drawn = element("div", drawn, class_="scroll", tabindex="0", role="group", aria_label=drawing.title)
        words = element("figcaption", caption) if caption else ""
        return element("figure", heading, drawn, words, class_="wide" if is_wide else None)


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> Markup:
    """A table whose rows begin with their heading."""
    head = element("tr", *(element("th", one.name, scope="col", class_=one.kind or None) for one in columns))
    body = []
    for row in rows:
        cells = []
        for index, (column, cell) in enumerate(zip(columns, row, strict=True)):
            kind = column.kind or None
            if isinstance(cell, Bar):
                width = f"width:{min(max(cell.share, 0.0), 1.0) * 100:.1f}%"
                bar = element("span", style=width, class_=cell.tone) if cell.share > 0 else ""
                cells.append(element("td", bar, class_="bar"))
            elif index == 0:
                cells.append(element("th", cell, scope="row", class_=kind))
            else:
                cells.append(element("td", cell, class_=kind))
        body.append(element("tr", *cells))
    whole = element("table", element("caption", caption), element("thead", head), element("tbody", *body))
    return element("div", whole, class_="scroll")


def tiles(pairs: Iterable[tuple[str, str, str]]) -> Markup:
    """Key figures: (name, value, what it means)."""
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", value, " ", element("small", note) if note else ""))
            for name, value, note in pairs
        ),
        class_="tiles",
    )


def banner(tone: str, headline: str, *rest: object) -> Markup:
    """The most important sentence of a section."""
    return element("p", element("strong", headline), " " if rest else "", *rest, class_=f"banner {tone}")


def answer(word: str) -> Markup:
    """An answer of the auditor, told by word and symbol, not by colour alone."""
    return element("span", f"{SYMBOLS[word]} {word}", class_=f"answer {ANSWER_TONES[word]}")


def grid(figures: Iterable[Markup]) -> Markup:
    """Figures beside each other where there is room."""
    return element("div", *figures, class_="figures")


def more(summary: str, *content: object) -> Markup:
    return element("details", element("summary", summary), *content)


def lines(texts: Iterable[object]) -> Markup:
    """Rows as they are in the log."""
    return joined(element("p", text, class_="row") for text in texts)
