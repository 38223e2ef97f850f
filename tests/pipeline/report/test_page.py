"""Pages: they stand alone, they are well formed, and names cannot break out of them."""

import re
from itertools import pairwise

import pytest

from seriatim.audit import audit
from seriatim.model import History
from seriatim.pipeline.report import Judgement, Page, RunSection, SweepSection, render
from seriatim.pipeline.report.drawing.axes import milliseconds, number, scale_over
from seriatim.pipeline.report.html.markup import Markup, element, escaped
from seriatim.pipeline.report.html.style import DARK, LIGHT
from seriatim.pipeline.report.pages import Measurement
from tests.pipeline.report.cases import (
    HOSTILE,
    Reader,
    log,
    plan_section,
    run_section,
    sweep_section,
    timed_history,
    whole_page,
)


def text_of(page: Page) -> str:
    return " ".join(Reader(render(page)[0]).words)


@pytest.mark.parametrize("name", ["plain", HOSTILE, "very-long-" * 60, "名前 🦆", "' onload='x", ""])
def test_a_page_with_everything_is_well_formed_and_loads_nothing(name: str) -> None:
    html, drawings = render(whole_page(name))
    page = Reader(html)
    assert html.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert {"script", "img", "link", "iframe", "object", "embed", "base", "form", "image", "use"}.isdisjoint(
        tag for tag, _ in page.elements
    )
    for tag, attributes in page.elements:
        for attribute, value in attributes.items():
            assert not attribute.startswith("on"), f"<{tag} {attribute}={value}>"
            assert attribute not in ("src", "srcset", "action", "background", "xlink:href")
            assert attribute != "href" or re.fullmatch(r"#section-\d+", value)
            assert attribute != "style" or re.fullmatch(r"(max-)?width:[\d.]+(px|%)", value)
    styles = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in styles and "@import" not in styles and "http" not in styles
    assert len(drawings) > 20


def test_every_figure_has_a_name_and_a_description() -> None:
    html, drawings = render(whole_page("plain"))
    page = Reader(html)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    figures = list(page.named("svg"))
    assert len(figures) == len(drawings)
    for figure in figures:
        assert figure["role"] == "img"
        assert set(figure["aria-labelledby"].split()) <= set(ids)
    for drawing in drawings.values():
        assert drawing.title and drawing.description
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(headings)), "a level is skipped"
    assert len(list(page.named("table"))) == len(list(page.named("caption")))


def test_hostile_names_are_shown_as_they_are() -> None:
    history = History(log(s1="a b", s2="b a"))
    html, _ = render(Page(title=HOSTILE, sections=(run_section(history, HOSTILE),)))
    assert "<script" not in html and "onerror=alert(1)&gt;" in html
    assert "\x00" not in html and "\u202e" not in html
    html.encode()  # no half of a pair is left


def test_only_markup_passes_unescaped() -> None:
    assert element("p", "<b>", Markup("<i></i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></i></p>'
    assert escaped(Markup("<i>")) == "<i>"
    assert escaped("\ud800") == "\ufffd"


def test_the_page_forbids_scripts_and_loads_itself() -> None:
    page = Reader(render(Page(title="t", sections=(plan_section(),)))[0])
    (policy,) = (one["content"] for one in page.named("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "script" not in policy


def test_verdicts_say_what_they_are() -> None:
    words = text_of(Page(title="t", sections=(run_section(History(log(s1="a b", s2="b a"))),)))
    assert "✗ Violated: tno, acyclic, causal-total." in words
    assert "✓ valid" in words and "✗ invalid" in words and "? unknown" in words
    assert "no publications in the log: who published what, and when, is not known" in words
    assert "s1 was notified of a before b, s2 of b before a" in words


def test_an_unknown_verdict_is_not_a_good_one() -> None:
    words = text_of(Page(title="t", sections=(run_section(History(log(s1="a b", s2="a b"))),)))
    assert (
        "? Not known from this log: fifo, fifo-across-topics, causal, causal-total, integrity, completeness." in words
    )
    assert "No violation of the others: per-topic, tno, acyclic." in words


def test_an_empty_log_makes_a_page() -> None:
    words = text_of(Page(title="t", sections=(run_section(History()),)))
    assert "the log has no deliveries" in words


def test_figures_of_a_run() -> None:
    html, drawings = render(Page(title="t", sections=(run_section(timed_history()),)))
    assert {"latency", "held", "stamp-entries", "rates"} <= drawings.keys()
    words = " ".join(Reader(html).words)
    assert "Ticket" in words and "p99.9" in words
    assert "100 notifications; p50" in drawings["latency"].description


def test_what_is_always_the_same_is_told_in_words() -> None:
    history = timed_history()
    history.deliveries = [
        type(row)(row.subscriber, row.position, row.event_id, row.topic, stamp={}) for row in history.deliveries
    ]
    html, drawings = render(Page(title="t", sections=(run_section(history),)))
    assert "stamp-entries" not in drawings
    assert "Entries of stamps : 0, the same for all 100 notifications." in " ".join(Reader(html).words)


def test_latencies_below_zero_are_said() -> None:
    history = timed_history()
    for row in history.publications[:5]:
        history.publications[row.sequence or 0] = type(row)(row.event_id, row.topic, row.publisher, 1e6, row.sequence)
    words = text_of(Page(title="t", sections=(run_section(history),)))
    assert "10 are below zero, so the clocks that wrote them disagree" in words


def test_a_sweep_shows_ours_beside_the_papers() -> None:
    section = sweep_section("000")
    html, drawings = render(Page(title="t", sections=(section,)))
    words = " ".join(Reader(html).words)
    assert {"000-fig7-entries", "000-fig11-share"} <= drawings.keys()
    assert "2 experiments; 1 of 7 statements of the paper within their band." in words
    assert "45 ± 1" in words and "✓ within" in words and "✗ outside" in words
    labels = [getattr(shape, "text", "") for shape in drawings["000-fig7-entries"].shapes]
    assert {"chain 000", "star 000", "stated by the paper"} <= set(labels)


def test_a_sweep_of_one_value_is_drawn() -> None:
    (row,) = sweep_section().measurements[:1]
    _, drawings = render(Page(title="t", sections=(SweepSection(name="one", measurements=(row,)),)))
    assert list(drawings) == ["000-fig7-entries"]


def test_a_plan_before_and_after() -> None:
    html, drawings = render(Page(title="t", sections=(plan_section(),)))
    words = " ".join(Reader(html).words)
    assert {"plan-hops", "plan-tree-before", "plan-tree-after"} <= drawings.keys()
    assert "3 → 1 wide-area hops per event (67 % fewer); no plan can have less than 0.5." in words
    assert "if they dropped plan" in words


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_words_and_marks_stand_out_from_the_paper(palette: dict[str, str]) -> None:
    def brightness(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    def contrast(one: str, other: str) -> float:
        low, high = sorted((brightness(palette[one]), brightness(palette[other])))
        return (high + 0.05) / (low + 0.05)

    for tone in ("ink", "muted", "wrong", "right", "doubt"):
        assert contrast(tone, "paper") >= 4.5 and contrast(tone, "ground") >= 4.5, tone
    for tone in palette:
        if tone.startswith("series"):
            assert contrast(tone, "paper") >= 3, tone


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.0421, "0.0421"),
        (17.345, "17.3"),
        (1250.0, "1,250"),
        (2_400_000.0, "2.4M"),
        (-3.5, "\u22123.5"),
        (0.00001, "1e\u221205"),
        (float("nan"), "\u2013"),
    ],
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0 ms"), (0.05, "50 µs"), (12.34, "12.3 ms"), (1_500.0, "1.5 s"), (600_000.0, "10 min")]
)
def test_durations_have_the_unit_that_fits(value: float, shown: str) -> None:
    assert milliseconds(value) == shown


@pytest.mark.parametrize("values", [[5.0], [0.0, 0.0], [1.0, 1e9], [-3.0, 8.0], [1e-9, 2e-9], [1e15, 1e15 + 1]])
def test_an_axis_has_room_for_every_value(values: list[float]) -> None:
    scale = scale_over(values, 10, 110)
    assert all(10 <= scale(value) <= 110 for value in values)
    assert 1 <= len(scale.ticks(7)) <= 9


@pytest.mark.parametrize(
    ("means", "is_log"), [([300.0, 24_000.0], True), ([300.0, 2_000.0], False), ([0.0, 24_000.0], False)]
)
def test_heights_of_orders_of_magnitude_are_logarithmic_and_say_so(means: list[float], is_log: bool) -> None:
    rows = tuple(Measurement(experiment="e", variant="v", x=mean, measure="u.t.", mean=mean) for mean in means)
    _, drawings = render(Page(title="t", sections=(SweepSection(name="n", measurements=rows),)))
    (drawing,) = drawings.values()
    named = [text for shape in drawing.shapes if "(logarithmic)" in (text := getattr(shape, "text", ""))]
    assert bool(named) == is_log


def test_a_judgement_without_figures_is_a_section() -> None:
    section = RunSection(name="n", judgement=Judgement.of(audit(History(log(s1="a")))))
    assert "Verdicts" in text_of(Page(title="t", sections=(section,)))


def test_many_variants_are_split_into_panels() -> None:
    rows = tuple(
        Measurement(experiment="e", variant=f"{pattern}, {layout}", x=x, measure="m/s", mean=x)
        for pattern in ("geographic", "spray")
        for layout in ("paper", "chain", "star", "two levels")
        for x in (1.0, 2.0)
    )
    _, drawings = render(Page(title="t", sections=(SweepSection(name="many", measurements=rows),)))
    assert list(drawings) == ["e-m-s-geographic", "e-m-s-spray"], "names of files, too"
    for drawing in drawings.values():
        assert {"paper", "chain", "star", "two levels"} <= {getattr(shape, "text", "") for shape in drawing.shapes}
