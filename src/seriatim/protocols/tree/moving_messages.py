"""The messages that move a topic to another home (moving.py). Part of the messages of the tree (messages.py)."""

from typing import Literal

from msgspec import Struct

from seriatim.model import Node, Number, Topic
from seriatim.order import OrderedRange
from seriatim.protocols.tree.estate import Estate


class Move(Struct, frozen=True, tag=True):
    """Operator → root: this topic shall live on node `to`. Moves are made one after the other; others wait.

    Answered by `MoveEnded`. May be repeated: a topic that is there already is moved.
    """

    topic: Topic
    to: Node


class CancelMove(Struct, frozen=True, tag=True):
    """Operator → root: leave this topic where it is, if its move waits or has not got beyond the announcement.

    Also answered by the `MoveEnded` of the move.
    """

    topic: Topic


class MoveStep(Struct, frozen=True, tag=True):
    """Root → operator: a move has got so far.

    - `quiesce`: the former home is asked to give out no more numbers, to finish what it has, and to hand over.
    - `switch`: the new home has everything and has announced the topic's count; all nodes are told. It
      can no longer be cancelled.
    """

    topic: Topic
    to: Node
    move: int
    step: Literal["quiesce", "switch"]


class MoveEnded(Struct, frozen=True, tag=True):
    """Root → operator: the topic lives on `to`, since this move. With a `reason` it does not, and this is why.

    A root that crashes may not say so; its `tree` shows where a topic lives.
    """

    topic: Topic
    to: Node
    move: int
    reason: str = ""


class Quiesce(Struct, frozen=True, tag=True):
    """Root → home, routed: give out no more numbers of this topic. When all is finished, vouch, and hand over to `to`.

    Whoever asks meanwhile waits here.
    """

    move: int
    topic: Topic
    to: Node


class Vouch(Struct, frozen=True, tag=True, omit_defaults=True):
    """Child → parent, up to the root: all `number` events of a topic that is being moved were issued before this.

    First the former home says so, then the new one: its word ends the hand-over. `related`: the topics that are coupled
    with this one, or were and it still has to name them; with full stamps all that it ever named.
    """

    move: int
    topic: Topic
    number: Number
    node: Node
    related: frozenset[Topic] = frozenset()
    order: tuple[OrderedRange, ...] | None = None


class HandOver(Struct, frozen=True, tag=True):
    """Former home → new home, routed: all that is known of the topic. The former home keeps it until the switch."""

    move: int
    topic: Topic
    estate: Estate


class Switch(Struct, frozen=True, tag=True):
    """Parent → child, down to all nodes: the topic lives on `home` from now on."""

    move: int
    topic: Topic
    home: Node
    related: frozenset[Topic] = frozenset()


class Switched(Struct, frozen=True, tag=True, omit_defaults=True):
    """Child → parent, from all nodes: this node and those below know where the topic lives.

    `counts`: how many events of each topic that the moved one is related with were issued before this.
    """

    move: int
    counts: dict[Topic, Number] = {}
    order: tuple[OrderedRange, ...] | None = None


class GoOn(Struct, frozen=True, tag=True):
    """Root → new home, routed: all nodes know. Give out numbers."""

    move: int
    topic: Topic


class Resume(Struct, frozen=True, tag=True):
    """Root → former and new home, routed: this move was cancelled; the topic stays where it was."""

    move: int
    topic: Topic
