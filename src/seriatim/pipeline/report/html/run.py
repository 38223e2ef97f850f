"""A run as HTML: the verdicts with their witnesses, then the figures."""

from collections import Counter
from collections.abc import Iterator

from msgspec import to_builtins

from seriatim.audit import BREAKS, CERTIFICATE, Anomaly, Row
from seriatim.order import GUARANTEES
from seriatim.pipeline.report.drawing.axes import milliseconds, number
from seriatim.pipeline.report.drawing.charts import Axis, Dot, Series, distribution_chart, lines_chart
from seriatim.pipeline.report.drawing.lanes import draw_lanes
from seriatim.pipeline.report.drawing.shapes import Drawing
from seriatim.pipeline.report.drawing.witnesses import picture_of
from seriatim.pipeline.report.figures import Ranking, RunFigures, Timeline
from seriatim.pipeline.report.html.markup import Markup, element, joined
from seriatim.pipeline.report.html.parts import (
    ANSWER_TONES,
    SYMBOLS,
    Bar,
    Column,
    Sheet,
    answer,
    banner,
    grid,
    lines,
    more,
    table,
    tiles,
)
from seriatim.pipeline.report.pages import Judgement, RunSection

PROMISES = {name: guarantee.promise for name, guarantee in GUARANTEES.items()} | {
    CERTIFICATE: "Every delivery fits the order log, which is dense and has each number once."
}
QUANTILES = ((0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99"), (0.999, "p99.9"))


def run_headline(judgement: Judgement) -> str:
    by_answer = {word: [n for n, v in judgement.verdicts.items() if v.answer == word] for word in SYMBOLS}
    if by_answer["invalid"]:
        return f"{SYMBOLS['invalid']} Violated: {', '.join(by_answer['invalid'])}."
    if by_answer["unknown"]:
        kept = f" No violation of the others: {', '.join(by_answer['valid'])}." if by_answer["valid"] else ""
        return f"{SYMBOLS['unknown']} Not known from this log: {', '.join(by_answer['unknown'])}.{kept}"
    return f"{SYMBOLS['valid']} No violation in this log."


def run_html(section: RunSection, sheet: Sheet) -> Markup:
    judgement = section.judgement
    parts = [
        banner(ANSWER_TONES[judgement.answer], run_headline(judgement)),
        _key_figures(judgement, section.figures),
        element("p", section.note, class_="quiet") if section.note else "",
        _verdicts(judgement),
        _witnesses(judgement, sheet),
    ]
    if section.figures is not None:
        parts.append(_figures(section.figures, sheet))
    return joined(parts)


def _key_figures(judgement: Judgement, figures: RunFigures | None) -> Markup:
    pairs = [
        ("deliveries", f"{judgement.deliveries:,}", ""),
        ("subscribers", f"{judgement.subscribers:,}", ""),
        ("events", f"{judgement.events:,}", f"{judgement.shared:,} notified to two or more"),
    ]
    if figures is not None:
        pairs.append(("topics", f"{figures.topics.names:,}", ""))
        if figures.latency is not None:
            low, high = (milliseconds(figures.latency.quantile(share)) for share in (0.5, 0.99))
            pairs.append(("published to notified", low, f"p50, p99 {high}"))
        if figures.stamp_entries is not None:
            pairs.append(("stamp", number(figures.stamp_entries.mean), "entries on average"))
    if judgement.deliveries:
        percent = number(judgement.out_of_order / judgement.deliveries * 100)
        note = f"{percent} % tagged so, not judged for order" if judgement.out_of_order else "none tagged so"
        pairs.append(("out of order", f"{judgement.out_of_order:,}", note))
    return tiles(pairs)


def _verdicts(judgement: Judgement) -> Markup:
    rows = [
        (name, answer(verdict.answer), PROMISES.get(name, ""), verdict.reason)
        for name, verdict in judgement.verdicts.items()
    ]
    columns = (Column("guarantee", "name"), Column("answer"), Column("promise", "promise"), Column("reason"))
    return joined([element("h3", "Verdicts"), table("What this log says about each guarantee", columns, rows)])


def _witnesses(judgement: Judgement, sheet: Sheet) -> Markup:
    if not judgement.anomalies:
        return Markup("")
    parts = [
        element("h3", "Witnesses"),
        element(
            "p",
            "One lane per subscriber or publisher, its events from left to right in its own order (not to scale). The "
            "same event has the same colour and shape; a red line or a hollow mark shows what is wrong.",
            class_="quiet",
        ),
    ]
    shown = Counter(anomaly.name for anomaly in judgement.anomalies)
    figures = []
    for anomaly in judgement.anomalies:
        name = anomaly.name
        found = judgement.counts.get(name, shown[name])
        some = f", {shown[name]:,} shown" if found > shown[name] else ""
        breaks = f"breaks {BREAKS[name]}, " if name in BREAKS else ""
        heading = element("h4", name, " ", element("span", f"{breaks}{found:,} found{some}", class_="quiet"))
        figures.append(_witness(anomaly, heading, sheet))
    return joined([*parts, grid(figures)])


def _witness(anomaly: Anomaly, heading: Markup, sheet: Sheet) -> Markup:
    picture = picture_of(anomaly)
    drawing = None if picture is None else draw_lanes(picture)
    proof = "the row that proves it" if len(anomaly.witness) == 1 else f"the {len(anomaly.witness)} rows that prove it"
    rows = more(proof, lines(_row(row) for row in anomaly.witness))
    caption = joined([anomaly.sentence, rows])
    if drawing is None:
        return element("figure", heading, element("figcaption", caption))
    return sheet.figure(drawing, f"witness-{anomaly.name}", caption, is_scrolling=True, heading=heading)


def _row(row: Row) -> str:
    fields = to_builtins(row)
    return f"{type(row).__name__.lower()} " + " ".join(f"{name}={value}" for name, value in fields.items())


def _figures(figures: RunFigures, sheet: Sheet) -> Markup:
    parts: list[object] = [element("h3", "Figures"), grid(_charts(figures, sheet))]
    rows = list(_quantile_rows(figures))
    if rows:
        names = [name for _, name in QUANTILES]
        columns = [Column(name, "number") for name in ("rows", "mean", *names, "highest")]
        parts += [element("h4", "Quantiles"), table("Of all values, within 1 %", [Column("what"), *columns], rows)]
    parts.append(element("h4", "Who was notified of how much"))
    parts.append(grid([_ranking("subscriber", figures.subscribers), _ranking("topic", figures.topics)]))
    if figures.traffic:
        heaviest = max(one.bytes for one in figures.traffic) or 1
        traffic = [(one.kind, f"{one.count:,}", f"{one.bytes:,}", Bar(one.bytes / heaviest)) for one in figures.traffic]
        columns = [Column("kind"), Column("messages", "number"), Column("bytes", "number"), Column("", "bar")]
        parts += [element("h4", "Messages"), table("Between all roles, by kind", columns, traffic)]
    return joined(parts)


def _charts(figures: RunFigures, sheet: Sheet) -> Iterator[Markup]:
    for key, title, distribution, axis, show in (
        ("latency", "Published to notified", figures.latency, "time", milliseconds),
        ("held", "Held back by the subscriber", figures.held, "time from received to notified", milliseconds),
        ("stamp-entries", "Entries of stamps", figures.stamp_entries, "entries for other topics", number),
    ):
        if distribution is None:
            continue
        if distribution.lowest == distribution.highest:
            told = f": {show(distribution.highest)}, the same for all {distribution.count:,} notifications."
            yield element("figure", element("figcaption", element("strong", title), told))
            continue
        drawing = distribution_chart(title, distribution, axis, show, "notifications")
        below = f": {distribution.negative:,} are below zero, so the clocks that wrote them disagree"
        yield sheet.figure(drawing, key, joined([element("strong", title), below if distribution.negative else ""]))
    if figures.timeline is not None and figures.timeline.steps > 1:
        title = "Events per second"
        yield sheet.figure(_rates(figures.timeline, title), "rates", element("strong", title))


def _rates(timeline: Timeline, title: str) -> Drawing:
    def dots(counts: tuple[tuple[int, int], ...]) -> tuple[Dot, ...]:
        known = dict(counts)
        return tuple(
            Dot(step * timeline.step_ms / 1_000, known.get(step, 0) * 1_000 / timeline.step_ms)
            for step in range(timeline.steps)
        )

    series = [Series(name="notified, all subscribers", dots=dots(timeline.notified))]
    if timeline.published:
        series.append(Series(name="published", dots=dots(timeline.published)))
    highest = max(dot.y for dot in series[0].dots)
    return lines_chart(
        title,
        f"In steps of {milliseconds(timeline.step_ms)}; at most {number(highest)} notifications per second.",
        series,
        Axis(name="seconds since the first row"),
        Axis(name="events per second"),
    )


def _quantile_rows(figures: RunFigures) -> Iterator[list[str]]:
    for name, distribution, show in (
        ("published to notified", figures.latency, milliseconds),
        ("held back", figures.held, milliseconds),
        ("entries of stamps", figures.stamp_entries, number),
        ("notifications per subscriber", figures.subscribers.spread, number),
    ):
        if distribution is not None:
            values = [show(distribution.quantile(share)) for share, _ in QUANTILES]
            yield [name, f"{distribution.count:,}", show(distribution.mean), *values, show(distribution.highest)]


def _ranking(what: str, ranking: Ranking) -> Markup:
    most = ranking.first[0][1] if ranking.first else 1
    rows = [(name, f"{count:,}", Bar(count / most)) for name, count in ranking.first]
    rest = f", the first {len(rows)} of {ranking.names:,}" if ranking.names > len(rows) else ""
    columns = [Column(what), Column("notifications", "number"), Column("", "bar")]
    return table(f"By {what}{rest}", columns, rows)
