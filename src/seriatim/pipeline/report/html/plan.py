"""A plan as HTML: both trees, their costs beside the lower bound, load, couplings, advice."""

from seriatim.pipeline.report.drawing.axes import NOTHING, number
from seriatim.pipeline.report.drawing.trees import draw_costs, draw_tree
from seriatim.pipeline.report.html.markup import Markup, element, joined
from seriatim.pipeline.report.html.parts import COLUMN_PX, Bar, Column, Sheet, banner, grid, table, tiles
from seriatim.pipeline.report.pages import PlanSection, TreeNode


def plan_headline(section: PlanSection) -> str:
    """What the plan saves, in one line."""
    after = section.after.hops_per_event
    before = section.before.hops_per_event if section.before is not None else None
    if after is None:
        return f"{len(section.after.nodes):,} nodes."
    bound = section.bound_per_event
    least = f"; no plan can have less than {number(bound)}" if bound is not None else ""
    if before is None:
        return f"{number(after)} wide-area hops per event{least}."
    saved = f" ({(1 - after / before) * 100:.0f} % fewer)" if before > 0 and after <= before else ""
    return f"{number(before)} → {number(after)} wide-area hops per event{saved}{least}."


def plan_html(section: PlanSection, sheet: Sheet) -> Markup:
    parts: list[object] = [banner("right", plan_headline(section))]
    if section.facts:
        parts.append(tiles((name, value, "") for name, value in section.facts.items()))
    costs = draw_costs(section)
    figures = [] if costs is None else [sheet.figure(costs, "plan-hops", element("strong", costs.title))]
    if section.before is not None:  # the two trees beside each other
        parts.append(grid(figures))
        figures = []
    for when, shape in (("before", section.before), ("after", section.after)):
        drawing = draw_tree(shape, section.load_max_per_s) if shape is not None else None
        if drawing is not None:
            is_large = drawing.width > COLUMN_PX
            figures.append(sheet.figure(drawing, f"plan-tree-{when}", element("strong", drawing.title), is_large))
    parts.append(grid(figures))
    parts.append(_loads(section))
    if section.couplings:
        parts += [element("h3", "What costs most"), _couplings(section)]
    if section.advice:
        advice = element("ul", *(element("li", one) for one in section.advice))
        parts += [element("h4", "What would make it cheaper"), advice]
    return joined(parts)


def _loads(section: PlanSection) -> Markup:
    before = {node.name: node for node in section.before.nodes} if section.before is not None else {}
    after = {node.name: node for node in section.after.nodes}
    if not after:
        return Markup("")
    loads = [node.load_per_s or 0.0 for node in (*before.values(), *after.values())]
    most = section.load_max_per_s or max(loads) or 1.0
    rows = []
    for name in dict.fromkeys([*after, *before]):
        old, new = before.get(name), after.get(name)
        load = (new.load_per_s or 0.0) if new is not None else 0.0
        tone = "wrong" if section.load_max_per_s and load > section.load_max_per_s else "series-1"
        site = new.site if new is not None else old.site if old is not None else ""
        cells = [_topics(old), _topics(new), _load(old), _load(new)] if before else [_topics(new), _load(new)]
        rows.append([name, site, *cells, Bar(load / most, tone)])
    heads = ["topics before", "after", "events/s before", "after"] if before else ["topics", "events/s"]
    columns = [Column("node"), Column("site"), *(Column(head, "number") for head in heads), Column("", "bar")]
    bound = f"; the bound is {number(section.load_max_per_s)} events/s" if section.load_max_per_s else ""
    return joined([element("h3", "Nodes"), table(f"Homes and load of each node{bound}", columns, rows)])


def _topics(node: TreeNode | None) -> str:
    return NOTHING if node is None else f"{node.topics:,}"


def _load(node: TreeNode | None) -> str:
    return NOTHING if node is None or node.load_per_s is None else number(node.load_per_s)


def _couplings(section: PlanSection) -> Markup:
    most = max((one.entries_per_s or 0.0 for one in section.couplings), default=0.0) or 1.0
    rows = [
        [
            one.first,
            one.second,
            f"{one.subscribers:,}",
            NOTHING if one.entries_per_s is None else number(one.entries_per_s),
            Bar((one.entries_per_s or 0.0) / most),
        ]
        for one in section.couplings
    ]
    numbers = [Column("held by both", "number"), Column("entries/s", "number")]
    columns = [Column("topic"), Column("and topic"), *numbers, Column("", "bar")]
    return table("Pairs of topics that are ordered against each other, the most expensive first", columns, rows)
