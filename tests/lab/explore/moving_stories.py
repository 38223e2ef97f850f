"""A topic moves, and one step of that is switched off."""

from seriatim.lab.explore.engine.world import Budget
from seriatim.lab.explore.tree.cast import TreeWorld, change
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Move
from tests.lab.explore.stories import TICKET, events, story

LOG = TreeOptions(mode="log")
PAIRWISE = TreeOptions(mode="ticket", order="pairwise")
STAGES = TreeOptions(mode="log", stages=True)

LEAVES = SequencingTree({"n1": None, "n2": "n1", "n3": "n1"}, {"A": "n2", "B": "n3"})
CHAIN = SequencingTree({"n1": None, "n2": "n1", "n3": "n2"}, {"A": "n2", "B": "n3", "C": "n2"})
BRANCHES = SequencingTree({"n1": None, "n2": "n1", "n3": "n1", "n4": "n3", "n5": "n3"}, {"A": "n2", "B": "n4"})

MOVE_IN_LOG_MODE = story(
    {"n1": [Move("A", "n3")], "p": events("p", "A A A"), "q": events("q", "B B B")},
    LOG,
    LEAVES,
    setup={"y": "A B", "z": "A B"},
)
MOVE_IN_TICKET_MODE = story(
    {"n1": [Move("A", "n3")], "p": events("p", "A A A"), "q": events("q", "B B B")},
    TICKET,
    LEAVES,
    setup={"y": "A B", "z": "A B"},
    budgets={"p": Budget(ticks=9, losses=2)},
)
MOVE_CLOSER = story(
    {"n1": [Move("A", "n5")], "p": events("p", "A A"), "q": events("q", "B B")},
    LOG,
    BRANCHES,
    setup={"y": "A B", "z": "A B"},
)

MOVING_STORIES: dict[str, tuple[TreeWorld, set[str]]] = {
    "no-quiesce": (MOVE_IN_TICKET_MODE, {"contradiction", "loss", "stuck", "failure"}),
    "no-quiesce, log mode": (MOVE_IN_LOG_MODE, {"failure"}),
    "no-quiet": (MOVE_IN_LOG_MODE, {"failure"}),
    "no-count-handed-over": (MOVE_IN_TICKET_MODE, {"contradiction", "loss", "stuck"}),
    "no-table-handed-over": (
        story(
            {"n1": [Move("A", "n1")], "p": events("p", "A A"), "q": events("q", "B B")},
            LOG,
            LEAVES,
            setup={"y": "A B", "z": "A B"},
        ),
        {"inversion"},
    ),
    "no-closing-handed-over": (
        story(
            {
                "n1": [Move("A", "n1")],
                "z": [change(remove="B")],
                "p": events("p", "B"),
                "q": events("q", "A"),
            },
            PAIRWISE,
            SequencingTree({"n1": None, "n2": "n1"}, {"A": "n2", "B": "n1"}),
            setup={"y": "A B", "z": "A B"},
        ),
        {"inversion"},
    ),
    "no-requests-handed-over": (MOVE_IN_TICKET_MODE, {"contradiction"}),
    "no-ranges-handed-over": (MOVE_IN_TICKET_MODE, {"stuck"}),
    "no-announced-count": (MOVE_CLOSER, {"inversion"}),
    "no-switch-awaited": (MOVE_CLOSER, {"inversion"}),
    "no-related-counts": (
        story(
            {"n1": [Move("A", "n1")], "p": events("p", "A A"), "q": events("q", "B B")},
            LOG,
            SequencingTree({"n1": None, "n2": "n1"}, {"A": "n2", "B": "n2"}),
            setup={"y": "A B", "z": "A B"},
        ),
        {"inversion"},
    ),
    "no-recollecting": (MOVE_IN_LOG_MODE, {"inversion"}),
    "no-map-of-the-home": (
        story(
            {"n1": [Move("A", "n3")], "z": [change("B")], "p": events("p", "A A"), "q": events("q", "B B")},
            LOG,
            LEAVES,
            setup={"y": "A B", "z": "A"},
        ),
        {"inversion"},
    ),
    "no-map-of-a-stage": (
        story(
            {"n1": [Move("A", "n1")], "p": events("p", "A A"), "q": events("q", "B B")},
            STAGES,
            CHAIN,
            setup={"w": "B C", "y": "A B", "z": "A B"},
        ),
        {"inversion"},
    ),
}
