"""The root as operators see it: moves are asked for over the broker, one after the other, and followed to their end.

The machine decides and journals (protocols/tree/moving.py). Here bad questions are refused by name, before anything
changes, and the time that a topic waited is taken.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.json import encode

from seriatim.model import InputError, Node, RemoteError, Topic
from seriatim.model.topics import check_topic
from seriatim.order import Place, SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import CancelMove, Move, MoveEnded, MoveStep
from seriatim.protocols.tree.sequencer import Sequencer
from seriatim.server.moving import AskMove, StartMove, StopMove, TopicMove, decode_question

logger = logging.getLogger(__name__)

ENDED_MAX = 10_000  # moves whose end is remembered
SHARE = 0.95  # of a message: the rest is for addresses and options
PLACE_MAX = 999_999_999


class Ended(Struct, frozen=True):
    """The last move of a topic: how long it took, and why it did not take place if it did not."""

    to: Node
    waited_ms: float | None
    reason: str = ""


class Room:
    """Whether the description of the cluster, with one more topic that has moved, fits into a message of the broker.

    Clients find the cluster by it. To count it exactly takes long, so a bound is kept from move to move.
    """

    def __init__(self, bytes_max: Callable[[], int]) -> None:
        self._bytes_max = bytes_max
        self._bound: int | None = None

    def problem(self, tree: SequencingTree, topic: Topic, to: Node) -> str:
        """Why it does not. Empty: it does."""
        if topic in tree.moves.places:
            return ""
        most = int(self._bytes_max() * SHARE)
        more = len(encode({topic: Place(to, PLACE_MAX)})) - _bytes_of(tree.began.homes, [topic])
        if self._bound is None or self._bound + more > most:
            places = tree.moves.places
            self._bound = len(encode(places)) + _bytes_of(tree.began.homes, tree.began.homes.keys() - places.keys())
        if self._bound + more > most:
            problem = f"the description of the cluster would be too long for a message of the broker ({most:,} bytes)"
            return f"{problem}; move topics that have moved before, or raise the broker's limit (max_payload)"
        self._bound += max(0, more)
        return ""


def _bytes_of(homes: Mapping[Topic, Node], topics: Iterable[Topic]) -> int:
    return len(encode({topic: homes[topic] for topic in topics if topic in homes}))


class Operator:
    """Answers for one root. `command` hands the machine one input; `refuses`: why topics do not move here.

    `room`: whether one more moved topic can be described; None: it always can.
    """

    def __init__(
        self,
        root: Callable[[], Sequencer],
        command: Callable[[Move | CancelMove], None],
        *,
        refuses: str = "",
        room: Room | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._command = command
        self._refuses = refuses
        self._room = room
        self._now_s = now_s
        self._asked: dict[Topic, Node] = {}  # moves that the machine was given, until it says how they ended
        self._since_s: dict[Topic, float] = {}  # of moves under way: when their topic began to wait
        self._ended: dict[Topic, Ended] = {}

    def answer(self, data: bytes) -> bytes:
        try:
            question = decode_question(data)
        except RemoteError as error:
            return encode(TopicMove(topic="", refused=str(error)))
        refused = self._refused(question)
        if not refused:
            match question:
                case StartMove():
                    self._start(question)
                case StopMove():
                    self._command(CancelMove(question.topic))
        return encode(self._told(question.topic, refused))

    def told(self, notice: Payload) -> None:
        """Take what the machine says of its moves."""
        match notice:
            case MoveStep(step="quiesce"):
                self._since_s[notice.topic] = self._now_s()
                logger.info("topic moves: topic=%s to=%s move=%s", notice.topic, notice.to, notice.move)
            case MoveEnded():
                self._asked.pop(notice.topic, None)
                since_s = self._since_s.pop(notice.topic, None)
                waited_ms = (self._now_s() - since_s) * 1000.0 if since_s is not None else None
                self._ended.pop(notice.topic, None)
                self._ended[notice.topic] = Ended(notice.to, waited_ms, notice.reason)
                if len(self._ended) > ENDED_MAX:
                    del self._ended[next(iter(self._ended))]
                if notice.reason:
                    logger.warning("topic not moved: topic=%s to=%s reason=%s", notice.topic, notice.to, notice.reason)
                else:
                    shown = "unknown" if waited_ms is None else f"{waited_ms:.1f}"
                    logger.info("topic moved: topic=%s home=%s waited_ms=%s", notice.topic, notice.to, shown)

    def _start(self, question: StartMove) -> None:
        if self._step(question.topic)[0]:
            return  # a repeat
        self._ended.pop(question.topic, None)
        if self._root().tree.home(question.topic) != question.to:
            self._asked[question.topic] = question.to
            self._command(Move(question.topic, question.to))

    def _refused(self, question: AskMove | StartMove | StopMove) -> str:
        """Why this cannot be asked; empty: it can."""
        tree, topic = self._root().tree, question.topic
        if self._refuses:
            return self._refuses
        try:
            check_topic(topic)
        except InputError as error:
            return str(error)
        if not tree.knows(topic):
            return f"topic {topic!r} has no home: no node lists it, and there is no default home"
        if isinstance(question, StartMove):
            if question.to not in tree.parents:
                return f"there is no node {question.to!r}; the nodes are {', '.join(tree.parents)}"
            step, to = self._step(topic)
            if step and to != question.to:
                return f"topic {topic!r} is being moved to {to}; wait until it is there"
            if not step and self._room is not None and tree.home(topic) != question.to:
                return self._room.problem(tree, topic, question.to)
        return ""

    def _step(self, topic: Topic) -> tuple[str, Node]:
        """How far a move of this topic is, and where it goes."""
        moving = self._root().state.moving
        if moving.move is not None and moving.move.topic == topic:
            return ("switch" if moving.move.is_switching else "quiesce"), moving.move.to
        to = next((to for each, to in moving.wanted if each == topic), self._asked.get(topic, ""))
        return ("waiting" if to else ""), to

    def _told(self, topic: Topic, refused: str) -> TopicMove:
        tree = self._root().tree
        step, to = self._step(topic) if not self._refuses else ("", "")
        ended = self._ended.get(topic)
        return TopicMove(
            topic=topic,
            home=tree.home(topic) if tree.knows(topic) else "",
            to=to or (ended.to if ended is not None else ""),
            step=step,  # type: ignore[arg-type]
            waited_ms=ended.waited_ms if ended is not None and not step else None,
            reason=ended.reason if ended is not None and not step else "",
            refused=refused,
        )

    def explain(self) -> list[str]:
        """The moves that wait for their turn. What is under way is told by the machine."""
        return [f"{topic} waits to be moved to {to}" for topic, to in self._root().state.moving.wanted]
