"""The judge that has the order log, judged: a right round passes, and each thing that can go wrong is found by name.

`a1` is event 1 of topic a. The order log is a list of such words too: the first is at position 1.
"""

from msgspec.structs import replace

from seriatim.audit.order_log import OrderLog
from seriatim.model import Placement
from soak.tree.guest import PAST_MAX
from soak.tree.order import TURNS, behind, judge_by_order
from soak.tree.rows import Began, Handed, Held, Row
from soak.tree.shapes import Shape
from soak.tree.verify import Carried, Record, Verdict, verify
from tests.faults.test_verify import kinds, publisher, subscriber

SHAPE = Shape(parents={"root": None}, homes={"a": "root", "b": "root"}, subscribers={}, in_turns={"turns": ("a", "b")})
LOG = "a1 b1 a2 b2 a3"


def order_of(words: str) -> list[Placement]:
    return [Placement(i, word[0], int(word[1:]), int(word[1:])) for i, word in enumerate(words.split(), start=1)]


def guest(words: str, start: int, *, left: bool = False, topics: str = "ab") -> list[Row]:
    """Began with the past at `start`; `|`: killed there and started again, `!`: live from here on."""
    rows: list[Row] = [Began("g", 1, 300, 0.0), Held(list(topics), 1.0, complete=False, start=start)]
    for place, word in enumerate(words.split()):
        if word == "|":
            rows.append(Began("g", 2, 301, 40.0 + place))
        elif word == "!":
            rows.append(Held(list(topics), 40.0 + place))
        else:
            event = word.rstrip("*")
            rows.append(Handed(event, event[0], int(event[1:]), 40.0 + place, replayed=word.endswith("*")))
    return [*rows, Held([], 90.0)] if left else rows


def judged(rows: list[Row], log: str = LOG, name: str = "p", carried: Carried | None = None) -> Verdict:
    """Everything of LOG is published, and handed to s in that order; `rows` are another subscriber's."""
    published, handed = ("", "") if carried is not None else (LOG, LOG)
    record = Record({name: publisher(published, name=name)}, {"s": subscriber(handed), "g.1": rows})
    verdict = verify(record, carried)
    judge_by_order(verdict, order_of(log), SHAPE, carried)
    return verdict


def test_whoever_began_with_the_past_was_handed_all_of_it() -> None:
    verdict = judged(guest("a1 b1 a2 ! b2 a3", 1))
    assert kinds(verdict) == set()
    assert verdict.answers["certificate"] == "valid"
    assert (verdict.visits, verdict.interrupted) == (1, 0)
    assert kinds(judged(guest("a2 b2 ! a3", 3))) == set(), "from a position"
    assert kinds(judged(guest("b1 b2 !", 2, topics="b"))) == set(), "of one topic"
    assert kinds(judged(guest("a2 !", 3, left=True))) == set(), "it left: nothing more is owed"


def test_a_visit_that_was_killed_in_the_past_goes_on() -> None:
    verdict = judged(guest("a1 b1 | b1* a2 b2 ! a3", 1))
    assert kinds(verdict) == set()
    assert (verdict.visits, verdict.interrupted, verdict.replayed) == (1, 1, 1)
    assert "repeated" in kinds(judged(guest("a1 b1 | a1* b1* a2 b2 ! a3", 1)))


def test_a_past_with_a_hole_a_wrong_beginning_or_no_end_is_found() -> None:
    for words, start, left in [
        ("a1 b1 b2 ! a3", 1, False),
        ("b1 a2 b2 ! a3", 1, False),
        ("b1 a2 b2 ! a3", 3, False),
        ("a1 b1 a2 !", 1, False),
        ("b1 a2 !", 1, True),
    ]:
        assert "past" in kinds(judged(guest(words, start, left=left))), words
    verdict = judged(guest("b1 a2 b2 ! a3", 1))
    said = next(each.sentence for each in verdict.violations if each.kind == "past")
    assert said == "g.1 began at position 1: hand-out 0 is b1, but the order log has a1 there"


def test_the_end_of_a_round_waits_for_whoever_reads_the_past() -> None:
    def left(words: str, start: int) -> dict[str, int]:
        record = Record({"p": publisher(LOG)}, {"s": subscriber(LOG), "g.1": guest(words, start)})
        return behind(record, None, OrderLog(order_of(LOG)))

    assert left("a1 b1 ! a2", 1) == {"g.1": 2}, "b2 and a3, though they were published before it was live"
    assert left("a3 !", 5) == {}, "it came after everything of b"
    assert left("!", 5) == {"g.1": 1}


def test_everybody_is_judged_by_the_order_log() -> None:
    assert "order-inversion" in kinds(judged(guest("a1 b1 a2 ! b2 a3", 1), log="b1 a1 a2 b2 a3"))
    holed = judged([], log=LOG.replace("b1 ", ""))
    assert "order-log-skip" not in kinds(holed) and "undecided" in kinds(holed), "b1 is not in the order log"
    assert "order-log-skip" in kinds(judged([], log="a1 b1 b2 a3"))


def test_a_subscriber_that_was_told_another_position() -> None:
    rows = [replace(row, position=3) if isinstance(row, Handed) else row for row in guest("a2 !", 3, left=True)]
    assert kinds(judged(rows)) == set()
    rows = [replace(row, position=4) if isinstance(row, Handed) else row for row in rows]
    assert kinds(judged(rows)) == {"position-mismatch"}


def test_a_publisher_in_turns_has_its_own_order_kept() -> None:
    assert judged([], name="turns").answers[TURNS] == "valid"
    handed = "b1 a1 a2 b2 a3"
    record = Record({"turns": publisher(LOG, name="turns")}, {"s": subscriber(handed), "t": subscriber(handed)})
    verdict = verify(record)
    assert kinds(verdict) == set(), "the others agree on it"
    judge_by_order(verdict, order_of(handed), SHAPE, None)
    assert kinds(verdict) == {"fifo-inversion-across-topics"}


def test_the_past_of_earlier_rounds_is_known() -> None:
    carried = judged([]).carried
    assert kinds(judged(guest("a1 b1 a2 b2 a3 !", 1), carried=carried)) == set()
    assert "past" in kinds(judged(guest("a1 b1 a2 b2 !", 1), carried=carried))
    assert "phantom" in kinds(judged(guest("a1 b1 a2 b2 a3 a4 !", 1), carried=carried))


def test_what_nobody_can_begin_with_any_more_is_forgotten() -> None:
    verdict = verify(Record({"p": publisher(LOG)}, {"s": subscriber(LOG)}))
    order = [*order_of(LOG), Placement(6, "c", 1, PAST_MAX - 2)]
    judge_by_order(verdict, order, replace(SHAPE, quiet=("b",)), None)
    assert set(verdict.carried.past) == {"b1", "b2", "a2", "a3"}
