"""The small worlds that are searched exhaustively, by name."""

from collections.abc import Mapping, Sequence

from seriatim.lab.explore.engine.plan import Plan, by_name
from seriatim.lab.explore.engine.world import Budget
from seriatim.lab.explore.tree.cast import Cast, TreeWorld, change, publish
from seriatim.model import Address
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Move, Reshape
from seriatim.protocols.with_broker import Change, Publish, Start

Script = Mapping[Address, Sequence[Publish | Change]]
Operators = Mapping[Address, Sequence[Move | Reshape]]

ONE = SequencingTree.single("AB")
TWO = SequencingTree.chain({"A": 1, "B": 2}, 2)
CHAIN = SequencingTree.chain({"A": 1, "B": 2, "C": 3}, 3)
STAR = SequencingTree.star({"A": 1, "B": 2, "C": 3}, 3)
ABOVE = SequencingTree({"n1": None, "n2": "n1"}, {"A": "n2", "B": "n1", "C": "n2"})

# z has seen e and leaves its topic; then f, on the topic it keeps. y holds both all the time.
LEAVING: Script = {"z": [change(remove="B")], "p": [publish("p", "B", "e")], "q": [publish("q", "A", "f")]}

# z has seen e and moves to the other topic, where f comes. y holds both; z never does.
MOVING: Script = {"z": [change("B", "A")], "p": [publish("p", "A", "e")], "q": [publish("q", "B", "f")]}

# y joins B while z, which holds both, leaves it, with one event on each topic meanwhile, or two.
PAIR: Script = {
    "y": [change("B")],
    "z": [change(remove="B")],
    "p": [publish("p", "A", "a1")],
    "q": [publish("q", "B", "b1")],
}
PAIR_TWICE: Script = {
    **PAIR,
    "p": [publish("p", "A", "a1"), publish("p", "A", "a2")],
    "q": [publish("q", "B", "b1"), publish("q", "B", "b2")],
}

# x, y and z hold one topic each and join the next one at the same time.
JOINING: Script = {
    "x": [change("B")],
    "y": [change("C")],
    "z": [change("A")],
    "p": [publish("p", "A", "a1")],
    "q": [publish("q", "B", "b1")],
}
JOINING_ALL: Script = {**JOINING, "r": [publish("r", "C", "c1")]}

# x, y and z hold two of three topics each, and share one topic with each other.
CIRCLE: Script = {
    "p": [publish("p", "A", "a1")],
    "q": [publish("q", "B", "b1")],
    "r": [publish("r", "C", "c1")],
}

# z has seen a1 and moves to B, where b1 comes. c1, which is before a1, is late where B is.
MOVING_ON: Script = {**CIRCLE, "z": [change("B", "A")]}

# x holds B, whose stamps climb to A's node because of y, and joins A. For w they are told where B is at home.
STAGED: Script = {"x": [change("A")], "p": [publish("p", "A", "a1")], "q": [publish("q", "B", "b1")]}

BOTH = [("y", change("A B")), ("z", change("A B"))]
APART = [("y", change("A B")), ("z", change("A"))]
UNEVEN = [("y", change("A")), ("z", change("A B"))]
WATCHED = [("w", change("B")), ("x", change("B")), ("y", change("A B"))]
ROUND = [("x", change("A")), ("y", change("B")), ("z", change("C"))]
PAIRS = [("x", change("A B")), ("y", change("B C")), ("z", change("A C"))]
PASSING = [("x", change("A C")), ("y", change("B C")), ("z", change("A"))]

STORIES: list[tuple[str, SequencingTree, list[tuple[Address, Change]], Script, str]] = [
    ("leave", ONE, BOTH, LEAVING, "2 topics on one node; z leaves one of them, y keeps both; 2 events"),
    ("move", ONE, APART, MOVING, "2 topics on one node; z moves from one to the other, y holds both; 2 events"),
    ("pair", ONE, UNEVEN, PAIR, "2 topics on one node; y joins B while z leaves it; 2 events"),
    ("pair-twice", ONE, UNEVEN, PAIR_TWICE, "the same with 4 events"),
    ("pair-chain", TWO, UNEVEN, PAIR, "2 topics on a chain of 2 nodes; y joins B while z leaves it; 2 events"),
    ("pair-chain-twice", TWO, UNEVEN, PAIR_TWICE, "the same with 4 events"),
    ("chain", CHAIN, ROUND, JOINING, "3 topics on a chain of 3 nodes; 3 subscribers join at once; 2 events"),
    ("chain-all", CHAIN, ROUND, JOINING_ALL, "the same with 3 events"),
    ("star", STAR, ROUND, JOINING, "3 topics on a star of 4 nodes; 3 subscribers join at once; 2 events"),
    ("circle", STAR, PAIRS, CIRCLE, "3 topics on a star of 4 nodes; 3 subscribers hold 2 topics each; 3 events"),
    ("move-on", ABOVE, PASSING, MOVING_ON, "3 topics on 2 nodes; z moves to the topic on the upper one; 3 events"),
    ("star-all", STAR, ROUND, JOINING_ALL, "the same with 3 events"),
]

MODES: dict[str, tuple[TreeOptions, str]] = {
    "": (TreeOptions(mode="log"), ""),
    "-ticket": (TreeOptions(mode="ticket"), "; ticket mode"),
    "-pairwise": (TreeOptions(mode="log", order="pairwise"), "; pairwise order"),
    "-pairwise-ticket": (TreeOptions(mode="ticket", order="pairwise"), "; pairwise order, ticket mode"),
}

# Each story in global order and log mode under its name, and with other options.
WORLDS: dict[str, Plan[Cast]] = by_name(
    [
        TreeWorld(
            name=name + suffix,
            tree=tree,
            options=options,
            scripts=scripts,
            setup=setup,
            about=about + also,
        )
        for name, tree, setup, scripts, about in STORIES
        for suffix, (options, also) in MODES.items()
    ]
    + [
        TreeWorld(
            name="stages",
            tree=TWO,
            options=TreeOptions(mode="log", stages=True),
            scripts=STAGED,
            setup=WATCHED,
            about="2 topics on a chain of 2 nodes, stamps in stages; x joins A, y holds both; 2 events",
        )
    ]
)

# A moves to the node of B, while an event comes on each; while y joins B and z leaves it, too.
WORLDS |= by_name(
    [
        TreeWorld(
            name=name + suffix,
            tree=TWO,
            options=options,
            scripts={"n1": [Move("A", "n2")], **scripts},
            setup=setup,
            about=f"2 topics on a chain of 2 nodes; A moves to the node of B{also}; 2 events{in_mode}",
        )
        for name, setup, scripts, also in (
            ("moving", BOTH, {each: PAIR[each] for each in "pq"}, ", y and z hold both"),
            ("moving-pair", UNEVEN, PAIR, ", y joins B while z leaves it"),
        )
        for suffix, (options, in_mode) in MODES.items()
        if options.order == "global"
    ]
)

CHANGES_OF_THE_TREE: list[tuple[str, Operators, str]] = [
    ("joining-leaf", {"n1": [Reshape("join", "n3", "n1"), Move("A", "n3")]}, "a leaf joins, and A moves to it"),
    ("leaving-leaf", {"n1": [Move("B", "n1"), Reshape("leave", "n2")]}, "B moves up, and its leaf leaves"),
    ("growing-root", {"n1": [Reshape("root", "n0")], "n0": [Move("A", "n0")]}, "a root grows, and A moves to it"),
]

# A leaf joins, and A moves to it; B moves away, and its leaf leaves; a root grows, and A moves to it. Meanwhile events
# come on both topics; or y joins B while z leaves it, too.
WORLDS |= by_name(
    [
        TreeWorld(
            name=name + of + suffix,
            tree=TWO,
            options=options,
            scripts={**operators, **scripts},
            setup=setup,
            about=f"2 topics on a chain of 2 nodes; {story}{also}; 2 events{in_mode}",
        )
        for name, operators, story in CHANGES_OF_THE_TREE
        for of, setup, scripts, also in (
            ("", BOTH, {each: PAIR[each] for each in "pq"}, "; y and z hold both"),
            ("-pair", UNEVEN, PAIR, "; y joins B while z leaves it"),
        )
        for suffix, (options, in_mode) in MODES.items()
        if options.order == "global"
    ]
)

# z begins with the past, of one event, while another one comes on each topic. The root may write the order log at any
# moment, once before the world comes to rest.
PAST = TreeWorld(
    name="past",
    tree=ONE,
    options=TreeOptions(mode="log", order="global", order_ms=0.0, history_window=1),
    scripts={
        "z": [change("A B", start=Start())],
        "p": [publish("p", "A", "a2")],
        "q": [publish("q", "B", "b1")],
    },
    setup=[("y", change("A B")), ("p", publish("p", "A", "a1"))],
    budgets={"root": Budget(ticks=1)},
    patience=8,
    about="2 topics on one node; z begins with the past, y holds both; 3 events",
)
WORLDS[PAST.name] = PAST
