"""Every rule that is switched off is caught, in a world that is small enough to meet it soon.

`docs/explorer.md` has the numbers of random worlds that it takes without such help.
"""

from random import Random

import pytest

from seriatim.lab.explore.engine.plan import Journey, walk_plan
from seriatim.lab.explore.engine.world import Budget
from seriatim.lab.explore.registry import TREE
from seriatim.lab.explore.tree.cast import TreeWorld, change
from seriatim.lab.explore.tree.random_worlds import TreeWalk
from seriatim.model import BROKER, InputError
from seriatim.order import SequencingTree
from seriatim.protocols.broker import KeepOrder
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.with_broker import Start
from tests.lab.explore.healing_stories import HEALING_STORIES
from tests.lab.explore.moving_stories import MOVING_STORIES
from tests.lab.explore.shaping_stories import SHAPING_STORIES
from tests.lab.explore.stories import ONE, events, story

WALKS_MAX = 3_000
SEED = 20

TWO_LEAVES = SequencingTree.star({"A": 1, "B": 2}, 2)
THREE_LEAVES = SequencingTree.star({"A": 1, "B": 2, "C": 3}, 3)
ABOVE = SequencingTree({"n1": None, "n2": "n1"}, {"A": "n2", "B": "n1", "C": "n2"})

PAIRWISE = TreeOptions(mode="ticket", order="pairwise")
OWN_ORDER = TreeOptions(mode="ticket", own_order=True)
STAGES = TreeOptions(mode="log", stages=True)
AWAITED = TreeOptions(mode="log", confirm="placed")

GLOBAL = TreeOptions(mode="ticket", order="global")
CHAIN = SequencingTree.chain({"A": 1, "B": 2, "C": 3, "D": 3}, 3)

JOIN_WHILE_EVENTS_FLOW = story(
    {"y": [change("B")], "z": [change("B")], "p": events("p", "A A"), "q": events("q", "B B")},
    setup={"y": "A", "z": "A"},
)
JOIN_ON_TWO_NODES = story(
    {"y": [change("B")], "z": [change("A")], "p": events("p", "A A"), "q": events("q", "B B")},
    PAIRWISE,
    TWO_LEAVES,
    setup={"y": "A", "z": "B"},
)
# Nobody holds A and B. z sees a, moves to B and sees b; c, which x sees before a, is late where B is, and y sees it
# after b.
MOVE_ON = story(
    {"z": [change("B", "A")], "p": events("p", "A A"), "q": events("q", "B B"), "r": events("r", "C C")},
    tree=ABOVE,
    setup={"x": "A C", "y": "B C", "z": "A"},
)
ORDER_OF_A_CHAIN = story(
    {"p": events("p", "D C D C"), "q": events("q", "D A C")},
    GLOBAL,
    CHAIN,
    setup={"y": "A C", "z": "C D"},  # passes of C climb, those of D do not
)
READ_THE_PAST = story(
    {"s": [change("A B", start=Start())], "p": events("p", "A B A B"), "q": events("q", "B A B A")},
    TreeOptions(order="global", durable=True, history_window=1, order_ms=0.0),
    setup={"y": "A B"},
    budgets={"s": Budget(crashes=1), "root": Budget(ticks=99)},
)

READ_A_CUT_LOG, READ_A_CUT_LOG_FROM_A_PLACE = (
    story(
        {"s": [change("A B", start=Start(is_place=is_place))], "p": events("p", "A B"), BROKER: [KeepOrder(0, 0)]},
        TreeOptions(mode="log", order="global", order_ms=0.0),
        setup={"y": "A B"},
        budgets={"root": Budget(ticks=99)},
    )
    for is_place in (False, True)
)

COPIES_OF_A_LEAF, COPIES_OF_A_ROOT = (
    story(
        {"p": events("p", "A A A"), "q": events("q", "B B B")},
        TreeOptions(mode="log", order_ms=0.0),
        TWO_LEAVES,
        setup={"y": "A B", "z": "A B"},
        budgets={node: Budget(ticks=99, copies=2)},
    )
    for node in ("n1", "n0")
)
COPIES_OF_ONE = story(
    {"p": events("p", "A A A A"), "q": events("q", "B B B B")},
    TreeOptions(mode="log", order_ms=0.0),
    ONE,
    setup={"y": "A B", "z": "A B"},
    budgets={"root": Budget(ticks=99, copies=3)},
)

STORIES: dict[str, tuple[TreeWorld, set[str]]] = (
    MOVING_STORIES
    | SHAPING_STORIES
    | HEALING_STORIES
    | {
        "no-hop-by-hop": (
            story(
                {"p": events("p", "A A"), "q": events("q", "B B"), "r": events("r", "C C")},
                PAIRWISE,
                SequencingTree({"n1": None, "n2": "n1", "n3": "n2"}, {"A": "n3", "B": "n3", "C": "n1", "D": "n2"}),
                setup={"x": "A B C D", "y": "A B C", "z": "B D"},
            ),
            {"stuck"},
        ),
        "no-two-phase-start": (JOIN_ON_TWO_NODES, {"inversion"}),
        "no-two-phase-start, three subscribers": (MOVE_ON, {"cycle"}),
        "no-holding": (JOIN_WHILE_EVENTS_FLOW, {"inversion"}),
        "no-floor": (
            story(
                {"z": [change("B")], "p": events("p", "A"), "q": events("q", "B B")},
                setup={"x": "A B", "y": "A B", "z": "A"},
            ),
            {"inversion"},
        ),
        "no-base": (JOIN_WHILE_EVENTS_FLOW, {"inversion"}),
        "no-left-topics": (
            story(
                {"z": [change("B", "A")], "p": events("p", "A A"), "q": events("q", "B B")},
                PAIRWISE,
                setup={"y": "A B", "z": "A"},
            ),
            {"inversion"},
        ),
        "no-closing": (
            story(
                {"z": [change(remove="B")], "p": events("p", "B"), "q": events("q", "A")},
                PAIRWISE,
                setup={"y": "A B", "z": "A B"},
            ),
            {"inversion"},
        ),
        "no-at-least": (JOIN_WHILE_EVENTS_FLOW, {"stuck"}),
        "no-idempotence": (
            story({"p": events("p", "A A")}, setup={"y": "A"}, budgets={"p": Budget(ticks=9)}),
            {"contradiction"},
        ),
        "no-void-stamp": (
            story(
                {"p": events("p", "B B"), "q": events("q", "A"), "r": events("r", "A")},
                setup={"y": "A B", "z": "A B"},
                budgets={"root": Budget(ticks=9), "q": Budget(deaths=1)},
            ),
            {"inversion"},
        ),
        "no-write-once": (
            story({"p": events("p", "A A")}, setup={"y": "A", "z": "A"}, budgets={"root": Budget(ticks=9)}),
            {"loss"},
        ),
        "no-fencing": (
            story(
                {"p": events("p", "A A"), "q": events("q", "A A")},
                setup={"y": "A"},
                budgets={"root": Budget(takeovers=1), "p": Budget(ticks=9), "q": Budget(ticks=9)},
            ),
            {"contradiction", "loss", "stuck"},
        ),
        "no-left-announcement": (MOVE_ON, {"cycle"}),
        "no-global-coupling": (
            story(
                {"p": events("p", "A"), "q": events("q", "B"), "r": events("r", "C")},
                tree=THREE_LEAVES,
                setup={"x": "A B", "y": "B C", "z": "A C"},
            ),
            {"cycle"},
        ),
        "no-order-first": (ORDER_OF_A_CHAIN, {"order-log"}),
        "no-order-carried": (ORDER_OF_A_CHAIN, {"order-log"}),
        "no-order-journal": (
            story(
                {"p": events("p", "C C B"), "q": events("q", "B D")},
                GLOBAL,
                CHAIN,
                setup={"y": "A B"},
                budgets={node: Budget(ticks=99, crashes=1) for node in ("n1", "n2", "n3")},
            ),
            {"order-log", "stuck", "loss"},
        ),
        "no-cover": (READ_THE_PAST, {"loss"}),
        "no-lost-told": (READ_A_CUT_LOG, {"loss"}),
        "no-stop-in-past": (READ_A_CUT_LOG_FROM_A_PLACE, {"loss"}),
        "no-lost-noticed": (READ_A_CUT_LOG, {"order-log", "stuck"}),
        "no-history-journal": (READ_THE_PAST, {"duplicate"}),
        "no-stamp-comparison": (COPIES_OF_ONE, {"stuck", "contradiction", "failure", "inversion", "order-log"}),
        "no-link-comparison": (COPIES_OF_A_ROOT, {"stuck", "contradiction", "failure", "inversion"}),
        "no-confirmation": (COPIES_OF_A_LEAF, {"stuck", "contradiction", "failure", "inversion"}),
        "no-stamp-fence": (COPIES_OF_A_ROOT, {"order-log", "inversion"}),
        "no-global-coupling, a reaction": (
            story(
                {"p": events("p", "A"), "q": events("q", "B")},
                TreeOptions(mode="log"),
                setup={"y": "A B", "z": "A"},
                readers={"q": "z"},
            ),
            {"causal-inversion", "order-log"},
        ),
        "no-placed": (
            story({"p": events("p", "A B")}, AWAITED, TWO_LEAVES, setup={"y": "A B"}, one_at_a_time=frozenset({"p"})),
            {"causal-inversion"},
        ),
        "no-journal-before-telling": (
            story(
                {"p": events("p", "A"), "q": events("q", "B")},
                STAGES,
                TWO_LEAVES,
                setup={"y": "A B", "z": "A B"},
                budgets={"n0": Budget(crashes=1)},
            ),
            {"contradiction", "inversion"},
        ),
        "no-level": (
            story(
                {"p": events("p", "A"), "q": events("q", "B")},
                STAGES,
                TWO_LEAVES,
                setup={"x": "A", "y": "A B", "z": "A B"},
            ),
            {"inversion"},
        ),
        "no-joining-level": (
            story(
                {"x": [change("B")], "p": events("p", "A A"), "q": events("q", "B B")},
                STAGES,
                TWO_LEAVES,
                setup={"w": "A", "x": "A", "y": "A B"},  # for w, stages of A are told where A is at home
            ),
            {"inversion"},
        ),
        "no-waiting-reaction": (
            story(
                {"p": events("p", "A"), "q": events("q", "B")},
                STAGES,
                TWO_LEAVES,
                setup={"y": "A B", "z": "A"},
                readers={"q": "z"},
            ),
            {"causal-inversion"},
        ),
        "no-own-order": (
            story({"p": events("p", "A B")}, OWN_ORDER, TWO_LEAVES, setup={"y": "A B"}),
            {"causal-inversion"},
        ),
    }
)


def replay(name: str) -> str:
    return f"replay: python -m pytest 'tests/lab/explore/test_variants.py::test_a_switched_off_rule_is_caught[{name}]'"


@pytest.mark.parametrize("name", STORIES)
def test_a_switched_off_rule_is_caught(name: str) -> None:
    plan, kinds = STORIES[name]
    variant = name.split(",")[0]
    for index in range(WALKS_MAX):
        violations = walk_plan(Journey(plan, TreeWalk), Random(f"{SEED}/{index}"), TREE.cast(variant)).violations
        if violations:
            assert violations[0].kind in kinds | {"order-log"}, violations  # it may contradict the order log first
            return
    pytest.fail(f"{variant} was not caught in {WALKS_MAX} walks of seed {SEED}; {replay(name)}")


@pytest.mark.parametrize("walks", [15, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", STORIES)
def test_the_same_worlds_are_right_with_the_rule(name: str, walks: int) -> None:
    plan, _ = STORIES[name]
    for index in range(walks):
        violations = walk_plan(Journey(plan, TreeWalk), Random(f"{SEED}/{index}"), TREE.cast(None)).violations
        assert not violations, f"walk {index} of seed {SEED}: {violations}; {replay(name)}"


def test_every_variant_has_a_story() -> None:
    assert {name.split(",")[0] for name in STORIES} == set(TREE.variants)
    with pytest.raises(InputError, match="variant: unknown variant 'no-way'; use one of no-hop-by-hop, "):
        TREE.cast("no-way")
