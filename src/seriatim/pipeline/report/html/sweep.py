"""Experiments as HTML: a panel for each measure, ours as lines, the paper's values hollow with their band, a table."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from seriatim.pipeline.report.drawing.axes import number
from seriatim.pipeline.report.drawing.charts import Axis, Dot, Series, lines_chart
from seriatim.pipeline.report.drawing.shapes import Drawing, series_mark, series_tone
from seriatim.pipeline.report.html.markup import Markup, element, joined
from seriatim.pipeline.report.html.parts import Column, Sheet, banner, grid, lines, more, table
from seriatim.pipeline.report.pages import Experiment, Measurement, SweepSection

SERIES_MAX = 6  # in one panel
BETWEEN = ", "  # the words of a variant
NAME_LENGTH_MAX = 32  # of a vertical axis
BAND = 0.1  # "the same" is within a tenth of what the paper states


def is_within(measurement: Measurement) -> bool | None:
    """Whether ours is within the band around the paper's value; None if the paper states none."""
    low, high = band_of(measurement)
    return None if low is None or high is None else low <= measurement.mean <= high


def band_of(measurement: Measurement) -> tuple[float | None, float | None]:
    paper = measurement.paper
    low, high = measurement.paper_low, measurement.paper_high
    if paper is not None:
        room = abs(paper) * BAND
        low, high = paper - room if low is None else low, paper + room if high is None else high
    return low, high


def sweep_headline(section: SweepSection) -> str:
    """How much of what the paper states was found again."""
    within, judged = _score(section)
    experiments = len({row.experiment for row in section.measurements})
    what = f"{experiments:,} experiment{'' if experiments == 1 else 's'}"
    if not judged:
        return f"{what}; nothing that the paper states was measured."
    return f"{what}; {within:,} of {judged:,} statements of the paper within their band."


def _score(section: SweepSection) -> tuple[int, int]:
    """How many statements are within their band, and how many were judged."""
    verdicts: list[bool] = []
    for name in dict.fromkeys(row.experiment for row in section.measurements):
        compared = section.experiments[name].comparisons if name in section.experiments else ()
        if compared:
            verdicts += [one.verdict == "within" for one in compared if one.verdict in ("within", "outside")]
        else:
            rows = (is_within(row) for row in section.measurements if row.experiment == name)
            verdicts += [within for within in rows if within is not None]
    return sum(verdicts), len(verdicts)


def sweep_html(section: SweepSection, sheet: Sheet) -> Markup:
    within, judged = _score(section)
    parts = [banner("right" if judged and within == judged else "doubt", sweep_headline(section))]
    for name in dict.fromkeys(row.experiment for row in section.measurements):
        rows = [row for row in section.measurements if row.experiment == name]
        parts.append(_experiment(section.experiments.get(name, Experiment(id=name)), rows, sheet))
    if section.failures:
        failures = (f"{row}: {why}" for row, why in section.failures)
        parts.append(more(f"{len(section.failures):,} runs have no result", lines(failures)))
    return joined(parts)


def _experiment(experiment: Experiment, rows: Sequence[Measurement], sheet: Sheet) -> Markup:
    title = f"{experiment.id}: {experiment.title}" if experiment.title else experiment.id
    parts = [element("h3", title)]
    if experiment.citation:
        parts.append(element("p", experiment.citation, class_="quiet"))
    if experiment.comparisons:
        parts.append(_statements(experiment))
    figures = []
    for measure in dict.fromkeys(row.measure for row in rows):
        for part, mine in _parts([row for row in rows if row.measure == measure]):
            drawing = panel(experiment, measure, mine, part)
            name = f"{experiment.id}-{measure}{f'-{part}' if part else ''}"
            key = re.sub(r"[^A-Za-z0-9._-]+", "-", name)  # it is also the name of a file
            figures.append(sheet.figure(drawing, key, element("strong", drawing.title)))
    parts.append(grid(figures))
    parts.append(more(f"all {len(rows):,} values", _table(experiment, rows)))
    return joined(parts)


def _statements(experiment: Experiment) -> Markup:
    columns = [Column("where"), Column("paper"), Column("ours"), Column("band"), Column("verdict")]
    rows = []
    for one in experiment.comparisons:
        verdict = joined([_verdict(one.verdict), f" {one.reason}" if one.reason else ""])
        rows.append((one.point, one.paper, one.ours, one.band, verdict))
    return table(f"What the paper states about {experiment.id}, and ours", columns, rows)


def _verdict(word: str) -> Markup:
    symbol, tone = {"within": ("✓", "right"), "outside": ("✗", "wrong")}.get(word, ("?", "doubt"))
    return element("span", f"{symbol} {word}", class_=f"answer {tone}")


def _parts(rows: Sequence[Measurement]) -> list[tuple[str, list[Measurement]]]:
    """Panels of a measure: one, or one for each first word of the variants if these are too many for one."""
    if len({row.variant for row in rows}) <= SERIES_MAX or any(BETWEEN not in row.variant for row in rows):
        return [("", list(rows))]
    parts: dict[str, list[Measurement]] = {}
    for row in rows:
        part, _, rest = row.variant.partition(BETWEEN)
        parts.setdefault(part, []).append(replace(row, variant=rest))
    return list(parts.items())


def panel(experiment: Experiment, measure: str, rows: Sequence[Measurement], part: str = "") -> Drawing:
    """One measure: a series for each variant, and what the paper states."""
    names = tuple(dict.fromkeys(str(row.x) for row in rows)) if any(isinstance(row.x, str) for row in rows) else ()

    def place(row: Measurement) -> float:
        return float(names.index(str(row.x))) if names else float(row.x)

    def references(chosen: Sequence[Measurement]) -> tuple[Dot, ...]:
        return tuple(Dot(place(row), row.paper, *band_of(row)) for row in chosen if row.paper is not None)

    firsts: dict[tuple[float | str, float], Measurement] = {}
    for row in rows:  # each value of the paper once: it is the same for all variants that are compared with it
        if row.paper is not None:
            firsts.setdefault((row.x, row.paper), row)
    stated = list(firsts.values())
    is_shared = len({row.variant for row in stated}) < 2  # one curve of the paper's, or none: it belongs to nobody
    series: list[Series] = []
    for index, variant in enumerate(dict.fromkeys(row.variant for row in rows)):
        mine = [row for row in rows if row.variant == variant]
        tone, mark = series_tone(index), series_mark(index)
        dots = tuple(Dot(place(row), row.mean, row.mean - row.std, row.mean + row.std) for row in mine)
        series.append(Series(name=variant or "ours", dots=dots, tone=tone, mark=mark))
        dots = references([row for row in stated if row in mine])
        if dots and not is_shared:
            series.append(Series(name=f"{variant}, stated", dots=dots, tone=tone, mark=mark, is_reference=True))
    if is_shared and stated:
        dots = references(stated)
        series.append(Series(name="stated by the paper", dots=dots, tone="ink", mark="diamond", is_reference=True))
    told = experiment.measures.get(measure, measure.replace("_", " "))
    across = "part of the system" if names and experiment.places else experiment.x
    return lines_chart(
        f"{experiment.id}: {told}{f', {part}' if part else ''}",
        _described(rows),
        series,
        Axis(name=across, names=names),
        Axis(name=told if len(told) <= NAME_LENGTH_MAX else measure.replace("_", " ")),
    )


def _described(rows: Sequence[Measurement]) -> str:
    """The figure in words: where each variant begins and ends."""
    told = []
    for variant in dict.fromkeys(row.variant for row in rows):
        mine = [row for row in rows if row.variant == variant]
        first, last = mine[0], mine[-1]
        end = f" to {number(last.mean)} at {_x(last)}" if len(mine) > 1 else ""
        way = f"{number(first.mean)} at {_x(first)}{end}"
        told.append(f"{variant or 'ours'}: {way}")
    return "; ".join(told)


def _x(row: Measurement) -> str:
    return row.x if isinstance(row.x, str) else number(row.x)


def _table(experiment: Experiment, rows: Sequence[Measurement]) -> Markup:
    numbers = [Column(name, "number") for name in (experiment.x, "ours", "± std", "seeds", "paper", "ours ÷ paper")]
    cells = [
        [
            experiment.measures.get(row.measure, row.measure.replace("_", " ")),
            row.variant,
            _x(row),
            number(row.mean, 4),
            number(row.std),
            f"{row.count:,}",
            "" if row.paper is None else number(row.paper),
            "" if not row.paper else f"{row.mean / row.paper:.2f}",
            {None: "", True: _verdict("within"), False: _verdict("outside")}[is_within(row)],
        ]
        for row in rows
    ]
    columns = [Column("measure"), Column("variant"), *numbers, Column("band")]
    return table(f"Values of {experiment.id}", columns, cells)
