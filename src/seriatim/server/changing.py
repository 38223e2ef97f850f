"""What operators ask the root of a tree to change its layout: nodes and standbys come and go.

Asked on the same subject as moves of topics (moving.py), by the same people. A command gives its change an id and asks
until it has ended: asking again with this id changes nothing, so that an answer may get lost and the root may crash.
"""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from seriatim.model import UNREADABLE, Node, RemoteError
from seriatim.server.layout import Change
from seriatim.server.moving import AskMove, StartMove, StopMove

Wish = Literal["add", "remove", "root", "standby", "no standby", "address"]
ChangeStep = Literal["", "begin", "prepare", "switch", "register"]


class AskLayout(Struct, frozen=True, tag="layout", tag_field="do"):
    """Asks how far a change is. Without an id: whether one is under way, and what runs new nodes."""

    id: str = ""


class StartChange(Struct, frozen=True, tag="change", tag_field="do", omit_defaults=True):
    """Change the layout.

    - `add`: `node` becomes a leaf below `parent`, at `addresses`; `journal`: as in the file of its process.
    - `remove`: the leaf `node`, on which no topic lives, is no more.
    - `root`: `node` becomes the root, above `parent`.
    - `standby`, `no standby`: the only one of `addresses` is added to those of `node`, or is taken away.
    - `address`: the first address of `node` is this one.
    """

    id: str
    wish: Wish
    node: Node
    parent: Node = ""
    addresses: list[str] = field(default_factory=list)
    journal: str = ""


class StopChange(Struct, frozen=True, tag="stop", tag_field="do"):
    """Leave the layout as it is, if the change can still be cancelled."""

    id: str


LayoutQuestion: TypeAlias = AskLayout | StartChange | StopChange


class LayoutAnswer(Struct, frozen=True, kw_only=True):
    """How far a change is. `step`: empty: it is not under way.

    `made`: it was made. `reason`: why it was not. `refused`: why the question was refused; nothing has changed.
    `other`: another change is under way. `runs_new`: the root's process runs each node that is added.
    """

    id: str
    step: ChangeStep = ""
    made: Change | None = None
    reason: str = ""
    refused: str = ""
    other: Change | None = None
    runs_new: bool = False


_question = msgspec.json.Decoder(AskMove | StartMove | StopMove | LayoutQuestion)
_answer = msgspec.json.Decoder(LayoutAnswer)


def layout_question(data: bytes) -> LayoutQuestion | None:
    """Decode a question about the layout. None: it is something else."""
    try:
        question = _question.decode(data)
    except UNREADABLE:
        return None
    return question if isinstance(question, LayoutQuestion) else None


def decode_layout_answer(data: bytes) -> LayoutAnswer:
    """RemoteError: it is no answer."""
    try:
        return _answer.decode(data)
    except UNREADABLE as error:
        problem = f"the answer of the root cannot be read: {error}"
        raise RemoteError(f"{problem}; the process that runs the root is of an earlier release") from None
