"""The requests of operators to the root of a tree over the broker, and its answers: where a topic lives, and that it
moves.

The subject is `_<cluster>.admin.<root>`. A user that may publish there may move topics; the broker's permissions decide
who may (docs/serving.md). Questions and answers are JSON, so that people can ask too.
"""

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from seriatim.model import UNREADABLE, Node, RemoteError, Topic

Step = Literal["", "waiting", "quiesce", "switch"]


class AskMove(Struct, frozen=True, tag="ask", tag_field="do"):
    """Where does this topic live, and is it being moved?"""

    topic: Topic


class StartMove(Struct, frozen=True, tag="move", tag_field="do"):
    """Move the topic to this node. Asking again for the same changes nothing."""

    topic: Topic
    to: Node


class StopMove(Struct, frozen=True, tag="cancel", tag_field="do"):
    """Leave the topic where it is, if it can still stay."""

    topic: Topic


Question: TypeAlias = AskMove | StartMove | StopMove


class TopicMove(Struct, frozen=True, kw_only=True):
    """The answer. `step`: how far a move of the topic is; empty: it is not being moved."""

    topic: Topic
    home: Node = ""
    to: Node = ""
    step: Step = ""
    waited_ms: float | None = None  # so long its last move took; None: it is not known
    reason: str = ""  # why its last move did not take place
    refused: str = ""  # why this question was refused; nothing has changed


def admin_subject(cluster: str, node: Node) -> str:
    """Where on the broker operators ask a node."""
    return f"_{cluster}.admin.{node}"


_question = msgspec.json.Decoder(Question)
_answer = msgspec.json.Decoder(TopicMove)


def decode_question(data: bytes) -> Question:
    """RemoteError: it is no question."""
    try:
        question: Question = _question.decode(data)
    except UNREADABLE as error:
        raise RemoteError(f"the question cannot be read: {error}") from None
    return question


def decode_answer(data: bytes) -> TopicMove:
    """RemoteError: it is no answer."""
    try:
        return _answer.decode(data)
    except UNREADABLE as error:
        raise RemoteError(f"the answer of the root cannot be read: {error}; is it the same release?") from None
