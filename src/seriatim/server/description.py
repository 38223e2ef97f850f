"""The description of a cluster for its clients: the tree, the mode, the times. Sequencers send it over the broker.

A client that knows the broker's URL asks on `describe_subject(cluster)`; any sequencer of the cluster answers with a
`ClusterDescription` as JSON, so that people can read it too. It holds no secrets: only whether a token is needed.
"""

from typing import Literal

import msgspec
from msgspec import Struct, field, structs

from seriatim.model import UNREADABLE, Node, RemoteError, Topic
from seriatim.order import Moves, Place, SequencingTree, ShapeChange
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.options import TreeOrder
from seriatim.server.orders import Order

VERSION = 1
MOVED = 2  # topics have moved; earlier versions of clients do not find their stamps
RESHAPED = 3  # nodes have come or gone; earlier versions of clients do not know where topics meet
# The options that a client must know, by their name in `TreeOptions`.
SHARED = (
    "mode", "full_stamps", "retry_ms", "lease_ms", "patience_ms",
    "subscriber_lease_ms", "ticket_count_max", "jump_max",
)  # fmt: skip


class ClusterDescription(Struct, frozen=True, kw_only=True):
    """One cluster as its clients see it. Times are in milliseconds and mean what they mean in `TreeOptions`."""

    version: int = VERSION
    cluster: str
    mode: Literal["log", "ticket"] = "log"
    # Tree: publishers keep their own order across topics. Atoms: causal order.
    causal: bool = False
    full_stamps: bool = False
    retry_ms: float = 500.0
    lease_ms: float = 10_000.0
    patience_ms: float = 2_000.0
    subscriber_lease_ms: float | None = None
    ticket_count_max: int = 65_536
    jump_max: int | None = None
    # Whether nodes prove their stamps. A subscriber with the key drops what is not proven; others trust all stamps.
    stamps_proven: bool = False
    parents: dict[Node, Node | None]
    homes: dict[Topic, Node] = field(default_factory=dict)
    default_home: Node | None = None
    # Where topics live that have moved, and the number of the latest move; `homes` has the others.
    moved: dict[Topic, Place] = field(default_factory=dict)
    moves: int = 0
    # How the shape of the tree has changed since (`parents` is the one that it began with).
    shape: list[ShapeChange] = field(default_factory=list)
    # Where each node listens, as "host:port"; more than one: standbys. Empty: it runs in the client's own process.
    addresses: dict[Node, list[str]] = field(default_factory=dict)
    # How topics lie on the broker: 0: each in a log of its own; n: hashed into n logs, each ordered as one.
    buckets: int = 0
    # How streams are created on the broker (replicas, storage, ...): clients create them too, for new topics.
    broker_options: dict[str, str | int | float] = field(default_factory=dict)
    token_needed: bool = False
    tls: bool = False

    # Who orders: a sequencing tree, or sequencing atoms. Then `parents` is a star, and only names the nodes. Under the
    # name that clients of earlier versions read.
    sequenced_by: Literal["tree", "atoms"] = field(default="tree", name="order")
    # Atoms: the node that subscribers join and leave topics at.
    coordinator: Node = ""
    # Atoms: the nodes that events enter at; which one follows from the topic, so the order of this list counts.
    ingresses: list[Node] = field(default_factory=list)
    # Which layout of the cluster this is, and which process says so (its nodes): clients notice when two do not agree
    # (layout.py). 0: it is registered nowhere, or an earlier program describes it.
    layout_version: int = 0
    by: list[Node] = field(default_factory=list)
    # What the tree promises. Clusters of earlier versions do not say it: global order went with `causal`.
    tree_order: TreeOrder | None = None

    @property
    def order(self) -> Order:
        """The order that is promised, in the words of configuration files."""
        return "atoms" if self.sequenced_by == "atoms" else self._tree_order

    @property
    def _tree_order(self) -> TreeOrder:
        return self.tree_order or ("global" if self.causal else "pairwise")

    @property
    def tree(self) -> SequencingTree:
        tree = SequencingTree(self.parents, self.homes, self.default_home)
        tree.learn(self.moves, self.moved, self.shape)
        return tree

    @property
    def options(self) -> TreeOptions:
        """The options every role of this cluster shares, without the key. A client adds its own gap policy."""
        shared = {name: getattr(self, name) for name in SHARED}
        own_order = self.causal and self._tree_order == "global"
        return TreeOptions(order=self._tree_order, own_order=own_order, **shared)

    @classmethod
    def of(
        cls, cluster: str, tree: SequencingTree, options: TreeOptions, moves: Moves | None = None
    ) -> "ClusterDescription":
        """The description of a tree that runs with these options. `tree`: as topics began; `moves`: and moved since."""
        moves = moves if moves is not None else Moves()
        return cls(
            **{name: getattr(options, name) for name in SHARED},
            cluster=cluster,
            causal=options.own_order,
            tree_order=options.order,
            stamps_proven=options.stamp_key is not None,
            parents=tree.parents,
            homes=tree.homes,
            default_home=tree.default_home,
        ).moved_by(moves)

    def moved_by(self, moves: Moves) -> "ClusterDescription":
        """The description after these moves and changes of shape.

        It must fit into a message, so it says of each topic only where it lives now.
        """
        version = RESHAPED if moves.shape else MOVED if moves.places else VERSION
        moved, shape = dict(moves.places), list(moves.shape)
        homes = {topic: node for topic, node in self.homes.items() if topic not in moved}
        return structs.replace(self, homes=homes, moved=moved, moves=moves.number, shape=shape, version=version)


def describe_subject(cluster: str) -> str:
    """Where on the broker to ask for the description of a cluster. No topic begins with an underscore, or its stream
    would answer instead of the sequencers."""
    return f"_{cluster}.describe"


def look_subject(cluster: str) -> str:
    """Where on the broker processes of a cluster are told to look at its layout."""
    return f"_{cluster}.look"


def encode_description(description: ClusterDescription) -> bytes:
    return msgspec.json.encode(description)


def decode_description(data: bytes) -> ClusterDescription:
    """Read an answer. RemoteError: it is not a description, or one of another version."""
    try:
        description = msgspec.json.decode(data, type=ClusterDescription)
    except UNREADABLE as error:
        raise RemoteError(
            f"the description of the cluster cannot be read: {error}; another program answers there"
        ) from None
    if description.version not in (VERSION, MOVED, RESHAPED):
        raise RemoteError(
            f"the sequencers describe their cluster in version {description.version}, this client reads {RESHAPED}; "
            "install the same release of seriatim on both sides"
        )
    return description
