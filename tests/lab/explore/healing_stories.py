"""A node loses its journal, and one step of healing it is switched off."""

from seriatim.lab.explore.engine.world import Budget
from seriatim.lab.explore.tree.cast import TreeWorld, change
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Move
from tests.lab.explore.stories import events, story

LOG = TreeOptions(mode="log", order_ms=0.0)
UNORDERED = TreeOptions(mode="log", order_log=False)
STAGES = TreeOptions(mode="log", stages=True)

PAIR = SequencingTree({"n1": None, "n2": "n1"}, {"A": "n2", "B": "n1"})
BELOW = SequencingTree({"n1": None, "n2": "n1"}, {"A": "n2", "B": "n2", "C": "n1"})
LEAVES = SequencingTree({"n1": None, "n2": "n1", "n3": "n1"}, {"A": "n2", "B": "n1"})
CHAIN = SequencingTree({"n1": None, "n2": "n1", "n3": "n2"}, {"A": "n3", "B": "n1"})
LOST, TWICE = (Budget(losses_of_journal=count, ticks=9) for count in (1, 2))

LOSE_LEAF, LOSE_ROOT = (
    story(
        {"p": events("p", "A A A"), "q": events("q", "B B B")},
        LOG,
        PAIR,
        setup={"y": "A B", "z": "A B"},
        budgets={"n1": Budget(ticks=9), "n2": Budget(ticks=9)} | {node: LOST},
    )
    for node in ("n2", "n1")
)
# x and z hold nothing but topics of the lost node: nobody else knows of them.
UNKNOWN = story(
    {"p": events("p", "A A A"), "q": events("q", "B B B")},
    LOG,
    BELOW,
    setup={"x": "A B", "z": "A B"},
    budgets={"n2": LOST},
)

HEALING_STORIES: dict[str, tuple[TreeWorld, set[str]]] = {
    "no-drain": (LOSE_ROOT, {"failure", "contradiction", "stuck", "inversion"}),
    "no-barrier": (
        story(
            {"p": events("p", "A A A"), "q": events("q", "B B B")},
            LOG,
            LEAVES,
            setup={"y": "A B", "z": "A B"},
            budgets={"n3": LOST},
        ),
        {"failure", "contradiction", "stuck"},
    ),
    "no-era-base": (
        story(
            {"z": [change(remove="B")], "p": events("p", "B B"), "q": events("q", "A A")},
            TreeOptions(mode="log", order="pairwise"),
            SequencingTree({"n1": None, "n2": "n1"}, {"A": "n2", "B": "n2"}),
            setup={"y": "A B", "z": "A B"},
            budgets={"n1": LOST},
            one_at_a_time=frozenset("pqz"),
        ),
        {"inversion"},
    ),
    "no-named-known": (
        story(
            {"p": events("p", "A"), "q": events("q", "B")},
            UNORDERED,
            BELOW,
            setup={"x": "A B", "z": "A C"},
            budgets={"n1": LOST},
        ),
        {"stuck"},
    ),
    "no-told-known": (
        story(
            {"p": events("p", "A A"), "q": events("q", "C")},
            STAGES,
            BELOW,
            setup={"x": "A B", "z": "A C"},
            budgets={"n1": LOST},
        ),
        {"contradiction"},
    ),
    "no-ahead": (
        story(
            {"p": events("p", "A A A"), "q": events("q", "B B")},
            STAGES,
            BELOW,
            setup={"x": "A B", "y": "A B", "z": "A C"},
            budgets={"n1": Budget(losses=9, ticks=9), "n2": LOST},
        ),
        {"contradiction", "inversion"},
    ),
    "no-stamps-in-order": (
        story(
            {"p": events("p", "A A A"), "z": [change(remove="B")]},
            TreeOptions(mode="log", confirm="placed"),
            PAIR,
            setup={"z": "A B", "y": "A"},
            budgets={"n2": LOST},
        ),
        {"loss"},
    ),
    "no-doubt": (UNKNOWN, {"inversion"}),
    "no-break": (UNKNOWN, {"inversion"}),
    "no-blank": (
        story(
            {"p": events("p", "A A A"), "q": events("q", "B B B")},
            LOG,
            PAIR,
            setup={"y": "A B", "z": "A B"},
            budgets={"n1": Budget(crashes=1, ticks=9), "n2": LOST},
        ),
        {"failure", "stuck"},
    ),
    "no-hole": (LOSE_ROOT, {"order-log"}),
    "no-joins-again": (
        story({"y": [change("B")], "z": [change("B")]}, LOG, CHAIN, setup={"y": "A", "z": "A"}, budgets={"n2": LOST}),
        {"stuck"},
    ),
    "no-later-place": (
        story(
            {"n1": [Move("B", "n2")], **{name: [change("B")] for name in "uvwx"}},
            LOG,
            PAIR,
            setup={"y": "A B"},
            budgets={"n1": TWICE, "n2": Budget(losses=4, ticks=9)},
        ),
        {"stuck"},
    ),
    "no-proof-of-links": (
        story(
            {"p": events("p", "A A A"), "q": events("q", "B B B")},
            LOG,
            PAIR,
            setup={"y": "A B", "z": "A B"},
            budgets={"n1": Budget(takeovers=1, ticks=9), "n2": TWICE},
        ),
        {"stuck"},
    ),
}
