"""Drawings of a plan: a sequencing tree with its homes, and what placements cost beside the least possible."""

from seriatim.pipeline.report.drawing.axes import Scale, number, scale_from_zero
from seriatim.pipeline.report.drawing.shapes import (
    FONT_PX,
    SMALL_PX,
    Anchor,
    Drawing,
    Label,
    Line,
    Shape,
    box,
    shortened,
    text_width,
)
from seriatim.pipeline.report.pages import PlanSection, TreeNode
from seriatim.pipeline.report.pages import Shape as TreeShape

NODE_WIDTH, NODE_HEIGHT = 116.0, 56.0
GAP_X, GAP_Y = 14.0, 40.0
MARGIN = 12.0
NODES_MAX = 60  # more would be too small to read; the table has them all
BAR_HEIGHT, BAR_STEP = 20.0, 32.0


def draw_tree(shape: TreeShape, load_max_per_s: float | None = None) -> Drawing | None:
    """Boxes from the root down; None if there are too many to be read, or none."""
    nodes = {node.name: node for node in shape.nodes}
    if not nodes or len(nodes) > NODES_MAX:
        return None
    children: dict[str | None, list[str]] = {}
    for node in shape.nodes:
        parent = node.parent if node.parent in nodes else None
        children.setdefault(parent, []).append(node.name)
    column: dict[str, float] = {}
    level: dict[str, int] = {}
    widest = _place(children, column, level)
    if len(column) < len(nodes):  # a cycle: not a tree, and not ours to draw
        return None
    width = 2 * MARGIN + widest * NODE_WIDTH + (widest - 1) * GAP_X
    depth = max(level.values()) + 1
    height = 2 * MARGIN + depth * NODE_HEIGHT + (depth - 1) * GAP_Y
    shapes: list[Shape] = []

    def corner(name: str) -> tuple[float, float]:
        return MARGIN + column[name] * (NODE_WIDTH + GAP_X), MARGIN + level[name] * (NODE_HEIGHT + GAP_Y)

    for node in shape.nodes:
        if node.parent in nodes:
            (x, y), (parent_x, parent_y) = corner(node.name), corner(node.parent)
            start = (parent_x + NODE_WIDTH / 2, parent_y + NODE_HEIGHT)
            shapes.append(Line((start, (x + NODE_WIDTH / 2, y)), "muted", 1.5))
    for node in shape.nodes:
        shapes += _node(node, *corner(node.name), load_max_per_s)
    root = ", ".join(children.get(None, []))
    return Drawing(
        title=f"{shape.name}: {shape.tree}" if shape.tree else f"Sequencing tree, {shape.name}",
        description=f"{len(nodes)} nodes in {depth} levels; root {root}. "
        + "; ".join(f"{node.name} is home to {node.topics:,} topics" for node in shape.nodes),
        width=max(width, 200.0),
        height=height,
        shapes=tuple(shapes),
    )


def _place(children: dict[str | None, list[str]], column: dict[str, float], level: dict[str, int]) -> int:
    """Leaves from left to right, parents over the middle of their children; how many columns there are."""
    leaves = 0
    stack: list[tuple[str, int, bool]] = [(root, 0, False) for root in reversed(children.get(None, []))]
    while stack:
        name, depth, is_done = stack.pop()
        below = children.get(name, [])
        level[name] = depth
        if not below:
            column[name] = float(leaves)
            leaves += 1
        elif is_done:
            column[name] = (column[below[0]] + column[below[-1]]) / 2
        else:
            stack.append((name, depth, True))
            stack += [(child, depth + 1, False) for child in reversed(below)]
    return leaves


def _node(node: TreeNode, x: float, y: float, load_max_per_s: float | None) -> list[Shape]:
    middle = x + NODE_WIDTH / 2
    about = f"{node.topics:,} topic{'' if node.topics == 1 else 's'}"
    hint = f"{node.name}{f' at {node.site}' if node.site else ''}: home to {about}"
    name = shortened(node.name if not node.site or node.site == node.name else f"{node.name} · {node.site}", 15)
    shapes: list[Shape] = [
        box(x, y, NODE_WIDTH, NODE_HEIGHT, "muted", 1.0, hint),
        box(x + 1, y + 1, NODE_WIDTH - 2, NODE_HEIGHT - 2, "paper", 1.0, hint),
        Label((middle, y + 18), name, "middle", "ink", FONT_PX, True, hint=hint),
        Label((middle, y + 33), about, "middle", "muted", SMALL_PX),
    ]
    if node.load_per_s is not None:
        shapes.append(Label((middle, y + 46), f"{number(node.load_per_s)} events/s", "middle", "muted", SMALL_PX))
        if load_max_per_s:
            share = node.load_per_s / load_max_per_s
            tone = "wrong" if share > 1 else "series-1"
            hint = f"{share:.0%} of the bound"
            shapes.append(box(x, y + NODE_HEIGHT - 4, NODE_WIDTH * min(share, 1.0), 4, tone, 1.0, hint))
    return shapes


def draw_costs(plan: PlanSection) -> Drawing | None:
    """Wide-area hops per event of each placement as bars; the line is the least that any plan could have."""
    shapes = [shape for shape in (plan.before, *plan.others, plan.after) if shape is not None]
    costs = [(shape.name, shape.hops_per_event) for shape in shapes if shape.hops_per_event is not None]
    tones = {plan.after.name: "right"} | ({plan.before.name: "series-7"} if plan.before is not None else {})
    bound = plan.bound_per_event
    if not costs:
        return None
    width = 420.0
    left = 18 + max(text_width(shortened(name, 24)) for name, _ in costs)
    top = 30.0
    height = top + BAR_STEP * len(costs) + 12
    reach = scale_from_zero([*(cost for _, cost in costs), bound or 0.0], 0, 1)
    x = Scale(0.0, reach.high, left, width - 56)
    drawn: list[Shape] = []
    for index, (name, cost) in enumerate(costs):
        y = top + index * BAR_STEP
        shown = shortened(name, 24)
        drawn.append(Label((left - 8, y + 14), shown, "end", "ink", FONT_PX, name in tones, hint=name))
        tone, hint = tones.get(name, "series-6"), f"{name}: {number(cost)} hops per event"
        drawn.append(box(left, y, max(x(cost) - left, 1.0), BAR_HEIGHT, tone, 0.8, hint))
        drawn.append(Label((x(cost) + 6, y + 14), number(cost), "start", "ink", FONT_PX))
    if bound is not None:
        drawn.append(Line(((x(bound), top - 8), (x(bound), height - 6)), "ink", 1.5, is_dashed=True))
        side: Anchor = "start" if x(bound) < width / 3 else "end" if x(bound) > width * 2 / 3 else "middle"
        drawn.append(Label((x(bound), 14), f"lower bound {number(bound)}", side, "ink", SMALL_PX))
    told = "; ".join(f"{name}: {number(cost)}" for name, cost in costs)
    least = f"; no plan can have less than {number(bound)}" if bound is not None else ""
    title = "Wide-area hops per event"
    return Drawing(title=title, description=told + least, width=width, height=height, shapes=tuple(drawn))
