"""What a run consists of: the tree, who publishes, who subscribes to what. Small on purpose: faults do the work."""

from typing import Literal

from msgspec import Struct, structs

from seriatim.model import InputError, Node, Topic

QUIET = 0.03


class Shape(Struct, frozen=True, kw_only=True):
    """One cluster and its clients. Rates are events per second of each publisher."""

    parents: dict[Node, Node | None]
    homes: dict[Topic, Node]
    mode: Literal["log", "ticket"] = "log"
    journal: Literal["file", "jetstream"] = "file"
    standbys: tuple[Node, ...] = ()  # nodes with a second process that waits to take over
    subscribers: dict[str, tuple[Topic, ...]]
    batches: dict[str, int] = {}  # subscribers that take more than one event at a time, and how many
    wanderers: tuple[str, ...] = ()  # subscribers that change their topics all the time
    visitors: tuple[str, ...] = ()  # subscribers that are not durable: after a restart they are somebody new
    guests: tuple[str, ...] = ()  # subscribers that begin with the past, become live, leave, and come again
    in_turns: dict[str, tuple[Topic, ...]] = {}  # publishers that await each event, on these topics in turns
    quiet: tuple[Topic, ...] = ()  # topics with few events: who takes events one by one holds only these
    publishers: tuple[str, ...] = ("p1", "p2")
    plain: tuple[str, ...] = ("plain",)
    rate: float = 300.0
    plain_rate: float = 100.0
    turns_rate: float = 100.0

    @property
    def topics(self) -> tuple[Topic, ...]:
        """All topics."""
        return tuple(self.homes)

    def with_rate(self, rate: float | None) -> "Shape":
        """The same with another load; None: as it is."""
        return self if rate is None else structs.replace(self, rate=rate)

    @property
    def weights(self) -> list[float]:
        """How often each topic is published to, compared with the others."""
        return [QUIET if topic in self.quiet else 1.0 for topic in self.topics]

    @property
    def steady(self) -> list[str]:
        """Subscribers that are there from the beginning."""
        return [name for name in self.subscribers if name not in self.guests]

    @property
    def root(self) -> Node:
        """The node without a parent."""
        return next(node for node, parent in self.parents.items() if parent is None)

    def with_leaf(self, node: Node, parent: Node) -> "Shape":
        """The same with one more leaf."""
        return structs.replace(self, parents={**self.parents, node: parent})

    def with_root(self, node: Node) -> "Shape":
        """The same with a new root above the root."""
        return structs.replace(self, parents={node: None, **self.parents, self.root: node})

    def without(self, node: Node) -> "Shape":
        """The same without this leaf."""
        return structs.replace(self, parents={each: parent for each, parent in self.parents.items() if each != node})

    def below(self, node: Node) -> list[Node]:
        """A node and everything under it."""
        children = [child for child, parent in self.parents.items() if parent == node]
        return [node, *(each for child in children for each in self.below(child))]

    def topics_of(self, node: Node, homes: dict[Topic, Node] | None = None) -> list[Topic]:
        """The topics that stop when this node stops: stamps of what is homed below it may have to pass it.

        `homes`: where they live now; None: where they began.
        """
        nodes = self.below(node)
        return [topic for topic, home in (homes if homes is not None else self.homes).items() if home in nodes]

    def holders_of(self, topics: list[Topic]) -> list[str]:
        """Subscribers that hold any of these topics from the beginning to the end, over all their lives."""
        wanted = set(topics)
        return [
            name
            for name, held in self.subscribers.items()
            if name not in (*self.visitors, *self.guests) and wanted & set(held[:1] if name in self.wanderers else held)
        ]


_ONE = Shape(
    parents={"root": None},
    homes={topic: "root" for topic in ("orders", "payments", "stock")},
    quiet=("orders", "payments"),
    subscribers={
        "billing": ("orders", "payments"),
        "shipping": ("orders", "payments", "stock"),
        "auditor": ("orders", "payments", "stock"),
    },
    guests=("auditor",),
    in_turns={"turns": ("orders", "stock")},
    turns_rate=20.0,  # one of its topics is quiet
    batches={"shipping": 100, "auditor": 100},
)

# Topics of both children are held together, so their stamps must meet at the root.
_TREE = Shape(
    parents={"root": None, "east": "root", "west": "root"},
    homes={"orders": "east", "payments": "east", "stock": "west", "prices": "west", "news": "root"},
    quiet=("payments", "prices"),
    subscribers={
        "billing": ("payments", "prices"),
        "shipping": ("orders", "stock", "payments"),
        "support": ("news", "orders", "payments", "stock", "prices"),
        "reports": ("news", "orders", "payments", "stock", "prices"),
        "window": ("news", "orders", "prices"),
        "ledger": ("payments", "prices"),
        "auditor": ("orders", "stock", "news"),
    },
    visitors=("window",),
    wanderers=("reports",),
    guests=("ledger", "auditor"),
    in_turns={"turns": ("orders", "stock")},  # of two nodes, and somebody always holds both
    batches={"shipping": 100, "support": 100, "reports": 100, "window": 100, "ledger": 100, "auditor": 100},
)

SHAPES: dict[str, Shape] = {
    "one": _ONE,
    "tree": _TREE,
    # No plain publisher: who does not ask for numbers first has none.
    "ticket": structs.replace(_TREE, mode="ticket", plain=()),
    "standby": structs.replace(_TREE, journal="jetstream", standbys=tuple(_TREE.parents)),
}


def shape_named(name: str) -> Shape:
    """One of SHAPES, or an error that lists them."""
    if name not in SHAPES:
        raise InputError("shape", f"there is none called {name!r}", f"use one of {', '.join(SHAPES)}")
    return SHAPES[name]
