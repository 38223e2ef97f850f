"""Columns on a terminal."""

from collections.abc import Iterator, Mapping, Sequence

import click


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], colours: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A line per row, columns as wide as they must be. `colours`: of cells that hold just this word."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in (headings, *rows):
        cells = [f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(
            click.style(cell, fg=colours[cell.strip()]) if colours and cell.strip() in colours else cell
            for cell in cells
        )
        yield line.rstrip()
