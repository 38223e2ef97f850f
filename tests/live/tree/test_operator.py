"""What the root answers operators: bad questions are refused by name, and each move is followed to its end."""

from collections.abc import Callable

import msgspec
import pytest

from seriatim.live.tree.operator import Operator, Room
from seriatim.order import Moves, Place, SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import CancelMove, Move, MoveEnded, MoveStep
from seriatim.protocols.tree.sequencer import Sequencer
from seriatim.server.description import ClusterDescription
from seriatim.server.moving import AskMove, Question, StartMove, StopMove, TopicMove, decode_answer

TREE = SequencingTree({"root": None, "eu": "root"}, {"orders": "root", "prices": "eu", "stock": "root"})


class Desk:
    """An operator's desk at a root whose only child does not answer yet."""

    def __init__(self, refuses: str = "", room: Room | None = None) -> None:
        self.now_s = 0.0
        self.root = Sequencer(TREE, "root", TreeOptions())
        self.held: list[MoveStep | MoveEnded] = []  # what waits for the journal
        self.operator = Operator(lambda: self.root, self._command, refuses=refuses, room=room, now_s=lambda: self.now_s)

    def _command(self, command: Move | CancelMove) -> None:
        self.held += self.root.step("application", command, 0.0).notify  # type: ignore[arg-type]

    def journal(self) -> None:
        for notice in self.held:
            self.operator.told(notice)
        self.held.clear()

    def ask(self, question: Question) -> TopicMove:
        return decode_answer(self.operator.answer(msgspec.json.encode(question)))


@pytest.mark.parametrize(
    ("question", "refused"),
    [
        (StartMove("orders", "asia"), "there is no node 'asia'; the nodes are root, eu"),
        (StartMove("news", "eu"), "topic 'news' has no home: no node lists it, and there is no default home"),
        (AskMove("news"), "topic 'news' has no home"),
        (StopMove("a b"), "topic 'a b': it holds ' '"),
        (StartMove("", "eu"), "topic '': it is empty"),
    ],
)
def test_a_bad_question_is_refused_and_changes_nothing(question: Question, refused: str) -> None:
    desk = Desk()
    assert refused in desk.ask(question).refused
    assert not desk.held


@pytest.mark.parametrize("data", [b"", b"{}", b'{"do":"fly"}', b'{"do":"move","topic":1}', b"\xff"])
def test_nonsense_is_refused(data: bytes) -> None:
    assert "the question cannot be read" in decode_answer(Desk().operator.answer(data)).refused


def test_where_topics_do_not_move() -> None:
    assert Desk("events may get lost").ask(StartMove("orders", "eu")).refused == "events may get lost"


def test_a_move_is_told_until_it_has_ended_and_how_long_the_topic_waited() -> None:
    desk = Desk()
    assert desk.ask(AskMove("orders")) == TopicMove(topic="orders", home="root")
    assert desk.ask(StartMove("orders", "eu")).step == "quiesce"
    desk.journal()
    assert desk.ask(StartMove("orders", "eu")).step == "quiesce", "a repeat changes nothing"
    assert not desk.held
    assert "is being moved to eu" in desk.ask(StartMove("orders", "root")).refused
    assert desk.ask(StartMove("stock", "eu")).step == "waiting"
    assert desk.operator.explain() == ["stock waits to be moved to eu"]
    desk.now_s = 2.0
    desk.ask(StopMove("orders"))
    assert desk.ask(AskMove("orders")).step == "waiting", "it has ended, and the journal does not know that yet"
    desk.journal()
    ended = desk.ask(AskMove("orders"))
    assert (ended.step, ended.home, ended.to, ended.waited_ms, ended.reason) == ("", "root", "eu", 2000.0, "cancelled")
    assert desk.ask(AskMove("stock")).step == "quiesce", "it is its turn"


def test_a_topic_that_is_there_needs_no_move() -> None:
    desk = Desk()
    assert desk.ask(StartMove("prices", "eu")) == TopicMove(topic="prices", home="eu")
    assert not desk.held


@pytest.mark.parametrize("number", [10_001])
def test_ends_are_not_remembered_for_ever(number: int) -> None:
    desk = Desk()
    tell: Callable[[int], None] = lambda each: desk.operator.told(MoveEnded(f"t{each}", "eu", each, "cancelled"))  # noqa: E731
    for each in range(number):
        tell(each)
    assert len(desk.operator._ended) == 10_000


def test_there_is_room_for_as_many_moved_topics_as_fit_into_a_message() -> None:
    """The bound that is kept is never below what the description takes, and is counted anew before it refuses."""
    room, moves = Room(lambda: 2_000), Moves()
    tree = SequencingTree({"root": None, "eu": "root"}, {f"topic{n}": "root" for n in range(20)}, "root").view(moves)

    def bytes_now() -> int:
        described = ClusterDescription.of("c", tree.began, TreeOptions(), moves)
        return len(msgspec.json.encode(described.homes)) + len(msgspec.json.encode(described.moved))

    number = 0
    while not (problem := room.problem(tree, f"topic{number}", "eu")):
        tree.move(f"topic{number}", Place("eu", number + 1))
        number += 1
        assert bytes_now() <= 1_900
    assert "too long for a message of the broker (1,900 bytes)" in problem
    assert bytes_now() > 1_800 and number > 20
    assert not room.problem(tree, "topic0", "root"), "it is told anyway"
    refused = Desk(room=Room(lambda: 10)).ask(StartMove("orders", "eu")).refused
    assert "raise the broker's limit (max_payload)" in refused
