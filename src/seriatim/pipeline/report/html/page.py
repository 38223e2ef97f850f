"""A report as one HTML file: no script, nothing loaded from anywhere, and the page itself forbids both."""

from seriatim.pipeline.report.drawing.shapes import Drawing
from seriatim.pipeline.report.html.markup import Markup, element, joined
from seriatim.pipeline.report.html.parts import Sheet
from seriatim.pipeline.report.html.plan import plan_headline, plan_html
from seriatim.pipeline.report.html.run import headline, run_html
from seriatim.pipeline.report.html.style import CSS
from seriatim.pipeline.report.html.sweep import sweep_headline, sweep_html
from seriatim.pipeline.report.pages import Page, PlanSection, RunSection, Section, SweepSection

VALID = "“Valid” means: no violation in these logs. It does not say that a system is correct."
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(page: Page) -> tuple[str, dict[str, Drawing]]:
    """The page, and its figures by name, to be written as PNG too."""
    sheet = Sheet()
    sections = [_section(section, index, sheet) for index, section in enumerate(page.sections, start=1)]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", page.title),
        element("style", Markup(CSS)),
    )
    body = element(
        "body",
        element(
            "header",
            element("p", "Seriatim report", class_="brand"),
            element("h1", page.title),
            element("p", page.made_at, class_="quiet") if page.made_at else "",
            _contents(page) if len(page.sections) > 1 else "",
        ),
        element("main", *sections),
        element(
            "footer",
            f"Made by {page.made_by}. " if page.made_by else "",
            VALID if any(isinstance(section, RunSection) for section in page.sections) else "",
        ),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n", sheet.drawings


def _contents(page: Page) -> Markup:
    items = []
    for index, section in enumerate(page.sections, start=1):
        link = element("a", section.name, href=f"#section-{index}")
        items.append(element("li", link, element("span", _headline(section), class_="quiet")))
    return element("nav", element("ul", *items), aria_label="Contents")


def _headline(section: Section) -> str:
    match section:
        case RunSection():
            return headline(section.judgement)
        case SweepSection():
            return sweep_headline(section)
        case PlanSection():
            return plan_headline(section)


def _section(section: Section, index: int, sheet: Sheet) -> Markup:
    match section:
        case RunSection():
            kind, content = "Run", run_html(section, sheet)
        case SweepSection():
            kind, content = "Experiments", sweep_html(section, sheet)
        case PlanSection():
            kind, content = "Plan", plan_html(section, sheet)
    key = f"section-{index}"
    heading = element("h2", section.name, id=f"{key}-name")
    return element(
        "section",
        joined([element("p", kind, class_="brand"), heading, content]),
        id=key,
        class_="source",
        aria_labelledby=f"{key}-name",
    )
