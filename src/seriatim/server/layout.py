"""The layout of a cluster: what the files of all its processes must say alike.

Which nodes there are, which is whose parent, who numbers events, and what is promised. Not where topics live now, where
nodes listen, or times: these may differ from one process to another for a while. The order may become stronger, from
pairwise to global, one process after the other; whoever has the weaker one is then behind.

Commands change the layout while the cluster runs: nodes and standbys come and go. Changes are numbered, one is under
way at a time, and those that were made are kept in `history`. So a file from before is known as such. The addresses
that a command has set are those of the layout, whatever a file says; all others are those of the files.
"""

import hashlib
from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct, field, structs

from seriatim.model import UNREADABLE, Node, RemoteError
from seriatim.server.config import ClusterConfig, NodeConfig
from seriatim.server.description import ClusterDescription
from seriatim.server.orders import Order

VERSION = 1
DIGEST_CHARACTERS = 16
STRENGTH: dict[Order, int] = {"atoms": 0, "pairwise": 0, "global": 1}
HISTORY_MAX = 1_000  # changes that are kept

ChangeKind = Literal["add", "remove", "root", "addresses"]


class Disagreement(RemoteError):
    """Two processes describe one cluster differently, and nobody can tell which of them is right."""


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of the layout. `id`: of the command that asked for it, which may ask again.

    - `add`: the node is a leaf below `parent`.
    - `remove`: it is no more; `parent` says where it was.
    - `root`: the node is the root, above the one before (`parent`).
    - `addresses`: these are its addresses, the first one and those of standbys; `former`: these were.
    """

    id: str
    kind: ChangeKind
    node: Node
    number: int = 0
    parent: Node = ""
    addresses: list[str] = field(default_factory=list)
    former: list[str] = field(default_factory=list)
    journal: str = ""
    at: str = ""

    @property
    def text(self) -> str:
        match self.kind:
            case "add":
                return f"node {self.node} was added below {self.parent}"
            case "remove":
                return f"node {self.node} was removed"
            case "root":
                return f"node {self.node} was added above {self.parent}, as the root"
        return f"node {self.node} is at {', '.join(self.addresses)}"

    def made(self, parents: dict[Node, Node | None]) -> dict[Node, Node | None]:
        """The shape after it."""
        if self.kind == "add":
            return {**parents, self.node: self.parent}
        if self.kind == "remove":
            return {node: parent for node, parent in parents.items() if node != self.node}
        if self.kind == "root":
            return {self.node: None, **parents, self.parent: self.node}
        return parents

    def undone(self, parents: dict[Node, Node | None]) -> dict[Node, Node | None]:
        """The shape before it."""
        if self.kind in ("add", "root"):
            before = {node: parent for node, parent in parents.items() if node != self.node}
            return {**before, self.parent: None} if self.kind == "root" else before
        return {**parents, self.node: self.parent} if self.kind == "remove" else parents


class Layout(Struct, frozen=True, kw_only=True):
    """What the nodes of one cluster agree on.

    `changes`: how many changes commands have made. `change`: the one that is under way. `default_home`: where topics
    live that nobody lists; empty: what the files say, because the root is the one they know.
    """

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
    changes: int = 0
    change: Change | None = None
    addresses: dict[Node, list[str]] = field(default_factory=dict)  # where commands have set them
    journals: dict[Node, str] = field(default_factory=dict)  # of the same nodes
    default_home: Node = ""
    history: list[Change] = field(default_factory=list)  # the latest last

    @classmethod
    def of(cls, told: ClusterDescription) -> "Layout":
        """The layout that a description is of."""
        return cls(
            cluster=told.cluster,
            order=told.order,
            mode=told.mode,
            parents=told.tree.parents,
            full_stamps=told.full_stamps,
            buckets=told.buckets,
            causal=told.causal and told.order == "atoms",
            coordinator=told.coordinator,
            ingresses=told.ingresses,
        )

    @property
    def digest(self) -> str:
        """A digest of the layout. The strength of the order does not count, nor do the commands that led to it."""
        order = "atoms" if self.order == "atoms" else "tree"
        fields = {**msgspec.to_builtins(self), "order": order}
        for name in CHANGED_BY_COMMANDS:
            del fields[name]
        return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()[:DIGEST_CHARACTERS]

    @property
    def strength(self) -> int:
        """The order may become stronger, never weaker."""
        return STRENGTH[self.order]

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def whole(self) -> "Layout":
        """The layout with what the change under way adds, so that it can be connected to. What the change removes is
        still there."""
        change = self.change
        return self if change is None or change.kind == "remove" else _made(self, change)

    def begun(self, change: Change, default_home: Node = "") -> "Layout":
        """The layout with this change under way. `default_home`: used if the layout has none yet."""
        assert self.change is None, "one at a time"
        numbered = structs.replace(change, number=self.changes + 1)
        return structs.replace(self, change=numbered, default_home=self.default_home or default_home)

    def finished(self, at: str) -> "Layout":
        """The layout after the change under way."""
        assert self.change is not None, "it was begun"
        made = structs.replace(self.change, at=at)
        history = [*self.history, made][-HISTORY_MAX:]
        return structs.replace(_made(self, made), changes=made.number, change=None, history=history)

    def abandoned(self) -> "Layout":
        """The layout without the change under way."""
        return structs.replace(self, change=None)

    def ended(self, id_: str) -> Change | None:
        """The change that this command asked for, if it was made."""
        return next((each for each in self.history if each.id == id_), None)

    def shapes(self) -> Iterator[tuple[dict[Node, Node | None], list[Change]]]:
        """The shape that it has, and those before, each with the changes since then. The latest first."""
        parents, since = self.parents, list[Change]()
        yield parents, since
        for change in reversed(self.history):
            parents, since = change.undone(parents), [change, *since]
            yield parents, since

    @property
    def is_reshaped(self) -> bool:
        """Whether nodes have joined or left, or are about to."""
        changes = [*self.history, *([self.change] if self.change is not None else [])]
        return len(self.history) < self.changes or any(each.kind != "addresses" for each in changes)

    @property
    def possible_shapes(self) -> list[dict[Node, Node | None]]:
        """The shapes that the nodes may know: with and without the change under way."""
        shapes = [self.parents]
        if self.change is not None and self.change.made(self.parents) != self.parents:
            shapes.append(self.change.made(self.parents))
        return shapes

    def is_newcomer(self, node: Node) -> bool:
        """Whether a node came, or comes, into a cluster that ran already."""
        changes = [*self.history, *([self.change] if self.change is not None else [])]
        return any(each.node == node and each.kind in ("add", "root") for each in changes)

    def since(self, parents: dict[Node, Node | None]) -> list[Change] | None:
        """The changes since the cluster had this shape; None: it never had."""
        shapes = [(self.whole.parents, list[Change]()), *self.shapes()]
        return next((since for shape, since in shapes if shape == parents), None)


CHANGED_BY_COMMANDS = ("changes", "change", "addresses", "journals", "default_home", "history")


def _made(layout: Layout, change: Change) -> Layout:
    addresses, journals = dict(layout.addresses), dict(layout.journals)
    if change.kind == "remove":
        addresses.pop(change.node, None)
        journals.pop(change.node, None)
    else:
        addresses[change.node] = change.addresses
        if change.journal:
            journals[change.node] = change.journal
    return structs.replace(layout, parents=change.made(layout.parents), addresses=addresses, journals=journals)


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

    A registered layout counts more than one that is not, a later one more than an earlier one. Whoever is behind in a
    change that is under way will follow, and is not named.
    """
    best = max(answers, key=_standing)
    equals = [each for each in answers if _standing(each)[:2] == _standing(best)[:2]]
    digest = Layout.of(best).digest
    for other in equals:
        if Layout.of(other).digest != digest:
            differs = difference(Layout.of(best), Layout.of(other))
            who = f"{_names(best)} one layout, {_names(other)} another one ({differs})"
            fix = "stop the process that was started with the wrong file"
            raise Disagreement(f"the sequencers of cluster {best.cluster!r} do not agree: {who}; {fix}")
    strangers = [each for each in answers if not (each.layout_version and best.layout_version)]
    return best, [each for each in strangers if Layout.of(each).digest != digest]


def _standing(told: ClusterDescription) -> tuple[int, int, int]:
    return told.layout_version, told.moves if told.layout_version else 0, Layout.of(told).strength


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


def in_force(config: ClusterConfig, layout: Layout) -> ClusterConfig:
    """The configuration with the nodes of the layout, and their addresses where commands have set them.

    The file says the rest. A topic that it gives to a node which is no more has moved.
    """
    if not layout.changes and layout.change is None:
        return config
    whole = layout.whole
    nodes: dict[Node, NodeConfig] = {}
    for name, parent in whole.parents.items():
        known = config.nodes.get(name, NodeConfig())
        addresses = tuple(whole.addresses.get(name, known.addresses))
        journal = whole.journals.get(name, known.journal)
        nodes[name] = structs.replace(known, parent=parent, address=addresses, journal=journal)
    homes = {topic: node for topic, node in config.homes.items() if node in nodes}
    default_home = layout.default_home or config.default_home
    return structs.replace(config, nodes=nodes, homes=homes, default_home=default_home)
