"""The layout of a cluster: what the files of all its processes must say alike.

Which nodes there are, which is whose parent, who numbers events, and what is promised. Not where topics live now, where
nodes listen, or times: these may differ from one process to another for a while. The order may become stronger, from
pairwise to global, one process after the other; whoever has the weaker one is then behind.
"""

import hashlib

import msgspec
from msgspec import Struct, field

from seriatim.model import UNREADABLE, Node, RemoteError
from seriatim.server.config import ClusterConfig
from seriatim.server.description import ClusterDescription
from seriatim.server.orders import Order

VERSION = 1
DIGEST_CHARACTERS = 16
STRENGTH: dict[Order, int] = {"atoms": 0, "pairwise": 0, "global": 1}


class Disagreement(RemoteError):
    """Two processes describe one cluster differently, and nobody can tell which of them is right."""


class Layout(Struct, frozen=True, kw_only=True):
    """What the nodes of one cluster agree on."""

    version: int = VERSION
    cluster: str
    order: Order
    mode: str
    parents: dict[Node, Node | None]
    full_stamps: bool = False
    buckets: int = 0
    causal: bool = False  # atoms
    coordinator: Node = ""
    ingresses: list[Node] = field(default_factory=list)

    @classmethod
    def of(cls, told: ClusterDescription) -> "Layout":
        """The layout that a description is of."""
        return cls(
            cluster=told.cluster,
            order=told.order,
            mode=told.mode,
            parents=told.parents,
            full_stamps=told.full_stamps,
            buckets=told.buckets,
            causal=told.causal and told.order == "atoms",
            coordinator=told.coordinator,
            ingresses=told.ingresses,
        )

    @property
    def digest(self) -> str:
        """The same for equal layouts; the strength of the order is left out."""
        order = "atoms" if self.order == "atoms" else "tree"
        fields = {**msgspec.to_builtins(self), "order": order}
        return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()[:DIGEST_CHARACTERS]

    @property
    def strength(self) -> int:
        """The order may become stronger, never weaker."""
        return STRENGTH[self.order]


def difference(ours: Layout, theirs: Layout) -> str:
    """The first thing that differs, in words. Empty: nothing does."""
    for node in sorted({*ours.parents, *theirs.parents}):
        if node not in theirs.parents:
            return f"node {node!r} is not in it"
        if node not in ours.parents:
            return f"it has a node {node!r}"
        if ours.parents[node] != theirs.parents[node]:
            return f"node {node!r} is {_below(theirs.parents[node])} there, and {_below(ours.parents[node])} here"
    for name in ("order", "mode", "full_stamps", "buckets", "causal", "coordinator", "ingresses"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{name} is {getattr(theirs, name)!r} there, and {getattr(ours, name)!r} here"
    return ""


def _below(parent: Node | None) -> str:
    return f"below {parent!r}" if parent is not None else "the root"


def encode_layout(layout: Layout) -> bytes:
    return msgspec.json.encode(layout)


def decode_layout(data: bytes) -> Layout:
    """RemoteError: it is none, or one of a later version."""
    try:
        layout = msgspec.json.decode(data, type=Layout)
    except UNREADABLE as error:
        raise RemoteError(f"the registered layout of the cluster cannot be read: {error}") from None
    if layout.version != VERSION:
        problem = f"the layout of the cluster is registered in version {layout.version}, this program reads {VERSION}"
        raise RemoteError(f"{problem}; install the same release everywhere")
    return layout


def choose(answers: list[ClusterDescription]) -> tuple[ClusterDescription, list[ClusterDescription]]:
    """The description to go by, and those of other layouts that do not count. Disagreement: nobody can tell.

    A registered layout counts more than one that is not, a later one more than an earlier one.
    """
    best = max(answers, key=_standing)
    equals = [each for each in answers if each.layout_version == best.layout_version]
    digest = Layout.of(best).digest
    for other in equals:
        if Layout.of(other).digest != digest:
            differs = difference(Layout.of(best), Layout.of(other))
            who = f"{_names(best)} one layout, {_names(other)} another one ({differs})"
            fix = "stop the process that was started with the wrong file"
            raise Disagreement(f"the sequencers of cluster {best.cluster!r} do not agree: {who}; {fix}")
    return best, [each for each in answers if Layout.of(each).digest != digest]


def _standing(told: ClusterDescription) -> tuple[int, int]:
    return told.layout_version, Layout.of(told).strength


def _names(told: ClusterDescription) -> str:
    return f"the process of {', '.join(told.by)} tells" if told.by else "some tell"


def of_config(config: ClusterConfig) -> Layout:
    """The layout in a file."""
    is_atoms = config.order == "atoms"
    return Layout(
        cluster=config.cluster,
        order=config.order,
        mode=config.options.mode,
        parents=dict(config.tree.parents),
        full_stamps=config.options.full_stamps,
        buckets=config.streams.buckets,
        causal=config.causal and is_atoms,
        coordinator=config.coordinator if is_atoms else "",
        ingresses=list(config.playing("ingress")) if is_atoms else [],
    )
