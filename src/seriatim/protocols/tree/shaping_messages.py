"""The messages that change the shape of the tree (shaping.py). Part of the messages of the tree (messages.py)."""

from typing import Literal

from msgspec import Struct

from seriatim.model import Node, Number, Topic
from seriatim.order import Moves, OrderedRange, ShapeChange, ShapeKind

# ── the operator and the root ─────────────────────────────────────────────────────────────────────────────────────


class Reshape(Struct, frozen=True, tag=True):
    """Operator → root: change the shape of the tree. Changes and moves are made one after the other; others wait.

    - `join`: a new node, a leaf below node `at`.
    - `leave`: a leaf on which no topic lives. `at` may be left out.
    - `root`: a new node above the root. `at` is the root, and may be left out.

    Answered by `ReshapeEnded`. May be repeated: what is so already has been done.
    """

    kind: ShapeKind
    node: Node
    at: Node = ""


class CancelReshape(Struct, frozen=True, tag=True):
    """Operator → root: leave the tree as it is, if this node's change waits or has not got beyond the preparation.

    Also answered by the `ReshapeEnded` of the change.
    """

    node: Node


class ReshapeStep(Struct, frozen=True, tag=True):
    """Root → operator: a change of shape has got so far.

    - `prepare`: the new node is welcomed, and has to answer; a leaf that leaves is asked whether it can.
    - `switch`: it has answered; all nodes are told. It can no longer be cancelled.
    """

    change: ShapeChange
    step: Literal["prepare", "switch"]


class ReshapeEnded(Struct, frozen=True, tag=True):
    """Root → operator: all nodes know the new shape. With a `reason` it stays as it was, and this is why.

    Of a new root the former one says so. A root that crashes may not say so; its `tree` shows the shape.
    """

    change: ShapeChange
    reason: str = ""


# ── every node and its driver ─────────────────────────────────────────────────────────────────────────────────────


class NodeExpected(Struct, frozen=True, tag=True):
    """Node → driver: messages go to this node from now on, which is not in the tree yet: the step `move` brings it."""

    node: Node
    move: int


class ShapeChanged(Struct, frozen=True, tag=True):
    """Node → driver: this node knows of the change now. `SequencerNode.neighbours` may be others than before."""

    change: ShapeChange


class NodeLeft(Struct, frozen=True, tag=True):
    """Node → driver: this node is no longer part of the tree, and owes nobody anything. Its process may end."""

    move: int


# ── between nodes ─────────────────────────────────────────────────────────────────────────────────────────────────


class Prepare(Struct, frozen=True, tag=True):
    """Root → node, routed: welcome the new leaf, or say whether you can leave."""

    change: ShapeChange


class Prepared(Struct, frozen=True, tag=True):
    """Node → root, routed: what the change needs is there."""

    move: int


class Abandon(Struct, frozen=True, tag=True):
    """Root → node, routed: the change was cancelled; welcome nobody."""

    move: int


class Welcome(Struct, frozen=True, tag=True):
    """Node → new node, without a link, until it answers: this is the tree that you are to be part of.

    `parents`: its shape when the change is made. `homes` and `default_home`: where topics began; `moves`: what has
    moved since.
    """

    change: ShapeChange
    parents: dict[Node, Node | None]
    homes: dict[Topic, Node]
    default_home: Node | None
    moves: Moves


class Arrived(Struct, frozen=True, tag=True):
    """New node → node that welcomed it, without a link: I have journaled that. `epoch`: of this life."""

    move: int
    epoch: int = 0


class SwitchShape(Struct, frozen=True, tag=True):
    """Parent → child, down to all nodes: the tree has another shape from now on. Answered by `Switched`."""

    change: ShapeChange


class Reign(Struct, frozen=True, tag=True):
    """Former root → new root, the first message on their link: you are the root.

    `end`: so many positions are given; `told`: so many of them the broker is known to keep; `order`: the others.
    `lost`: as in the state of the order. `order` is None if there is no order log.
    """

    change: ShapeChange
    end: Number = 0
    told: Number = 0
    lost: Number = 0
    order: tuple[OrderedRange, ...] | None = None
