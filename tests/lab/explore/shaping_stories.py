"""The tree changes, and one rule of that is switched off."""

from seriatim.lab.explore.engine.world import Budget
from seriatim.lab.explore.tree.cast import TreeWorld, change
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Move, Reshape
from tests.lab.explore.stories import TICKET, events, story

LOG = TreeOptions(mode="log", order_ms=0.0)

ALONE = SequencingTree({"n1": None}, {"A": "n1", "B": "n1"})
LEAVES = SequencingTree({"n1": None, "n2": "n1", "n3": "n1"}, {"A": "n2", "B": "n3"})

A_LEAF_JOINS = story(
    {"n1": [Reshape("join", "m1", "n2"), Move("A", "m1")], "p": events("p", "A A A"), "q": events("q", "B B B")},
    LOG,
    LEAVES,
    setup={"y": "A B", "z": "A B"},
)
A_LEAF_LEAVES = story(
    {"n1": [Move("A", "n3"), Reshape("leave", "n2")], "p": events("p", "A A A"), "q": events("q", "B B B")},
    TICKET,
    LEAVES,
    setup={"y": "A B"},
)
A_ROOT_GROWS = story(
    {
        "n1": [Reshape("root", "m1")],
        "m1": [Move("A", "m1")],
        "p": events("p", "A A A"),
        "q": events("q", "B B B"),
    },
    LOG,
    LEAVES,
    setup={"y": "A B", "z": "A B"},
    budgets={"n1": Budget(ticks=99), "m1": Budget(ticks=99)},
)
A_ROOT_GROWS_ABOVE_ONE_NODE = story(
    {
        "n1": [Reshape("root", "m1")],
        "m1": [Move("A", "m1")],
        "p": events("p", "A A A A"),
        "q": events("q", "B B B B"),
    },
    LOG,
    ALONE,
    setup={"y": "A B"},
    budgets={"n1": Budget(ticks=99, copies=2), "m1": Budget(ticks=99)},
)

SHAPING_STORIES: dict[str, tuple[TreeWorld, set[str]]] = {
    "no-shape-awaited": (A_LEAF_LEAVES, {"shape"}),
    "no-empty-leaf": (
        story({"n1": [Reshape("leave", "n2")], "p": events("p", "A A")}, TICKET, LEAVES, setup={"y": "A B"}),
        {"shape", "stuck", "loss"},
    ),
    "no-last-word": (A_LEAF_LEAVES, {"shape"}),
    "no-order-handed-over": (A_ROOT_GROWS, {"order-log", "failure", "stuck"}),
    "no-rest-handed-over": (A_ROOT_GROWS, {"order-log"}),
    "no-end-of-reign": (A_ROOT_GROWS, {"order-log"}),
    "no-cession": (A_ROOT_GROWS_ABOVE_ONE_NODE, {"order-log", "shape", "stuck"}),
    "no-order-fence": (A_ROOT_GROWS_ABOVE_ONE_NODE, {"order-log", "shape", "stuck"}),
    "no-strangers": (
        story(
            {"n1": [Reshape("join", "m1", "n2"), Move("A", "m1")], "p": events("p", "A A A")},
            LOG,
            LEAVES,
            setup={"y": "A B"},
            budgets={"m1": Budget(ticks=99, losses=2, crashes=1), "n2": Budget(ticks=99, losses=2)},
        ),
        {"stuck", "shape"},
    ),
    "no-epoch-with-welcome": (
        story(
            {"n1": [Reshape("join", "m1", "n2"), Move("A", "m1")], "p": events("p", "A A")},
            LOG,
            LEAVES,
            setup={"y": "A B"},
            budgets={"m1": Budget(ticks=99, copies=1)},
        ),
        {"stuck", "shape"},
    ),
    "no-shape-told": (
        story(
            {
                "n1": [Reshape("join", "m1", "n2"), Move("A", "m1")],
                "y": [change(remove="B"), change("B")],
                "p": events("p", "A A A"),
            },
            TreeOptions(mode="log", stages=True),
            LEAVES,
            setup={"y": "A B"},
        ),
        {"failure", "stuck"},
    ),
    "no-asking-around": (A_LEAF_LEAVES, {"stuck"}),
}
