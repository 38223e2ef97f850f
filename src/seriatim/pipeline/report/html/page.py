"""A report as one HTML file: no script, nothing loaded from anywhere, and the page itself forbids both."""

from seriatim.pipeline.report.drawing.shapes import Drawing
from seriatim.pipeline.report.html.markup import Markup, element, joined
from seriatim.pipeline.report.html.parts import Sheet
from seriatim.pipeline.report.html.plan import plan_headline, plan_html
from seriatim.pipeline.report.html.run import run_headline, run_html
from seriatim.pipeline.report.html.style import CSS
from seriatim.pipeline.report.html.sweep import sweep_headline, sweep_html
from seriatim.pipeline.report.pages import Page, PlanSection, RunSection, Section, SweepSection

VALID = "“Valid” means: no violation in these logs. It does not say that a system is correct."
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(page: Page) -> tuple[str, dict[str, Drawing]]:
    """The page, and its figures by name, to be written as PNG too."""
    sheet = Sheet()
    made = [(section.name, *_made(section, sheet)) for section in page.sections]
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
            _contents([(name, headline) for name, _, headline, _ in made]) if len(made) > 1 else "",
        ),
        element("main", *(_section(f"section-{place}", *each) for place, each in enumerate(made, start=1))),
        element(
            "footer",
            f"Made by {page.made_by}. " if page.made_by else "",
            VALID if any(isinstance(section, RunSection) for section in page.sections) else "",
        ),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n", sheet.drawings


def _contents(sections: list[tuple[str, str]]) -> Markup:
    items = []
    for index, (name, headline) in enumerate(sections, start=1):
        link = element("a", name, href=f"#section-{index}")
        items.append(element("li", link, element("span", headline, class_="quiet")))
    return element("nav", element("ul", *items), aria_label="Contents")


def _made(section: Section, sheet: Sheet) -> tuple[str, str, Markup]:
    """What kind of section it is, what it says in one line, and all of it."""
    match section:
        case RunSection():
            return "Run", run_headline(section.judgement), run_html(section, sheet)
        case SweepSection():
            return "Experiments", sweep_headline(section), sweep_html(section, sheet)
        case PlanSection():
            return "Plan", plan_headline(section), plan_html(section, sheet)


def _section(key: str, name: str, kind: str, headline: str, content: Markup) -> Markup:
    heading = element("h2", name, id=f"{key}-name")
    return element(
        "section",
        joined([element("p", kind, class_="brand"), heading, content]),
        id=key,
        class_="source",
        aria_labelledby=f"{key}-name",
    )
