"""The judge is judged: a right round passes, and each thing that can go wrong is found and called by its name.

A small language for rounds: `a1` is event 1 of topic a (number 1), `a1*` the same marked replayed, `|` a new life.
"""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.model import LogError
from soak.tree.rows import Acknowledged, Attempted, Began, Ended, Handed, Held, Missed, Row
from soak.tree.verify import Carried, Record, Verdict, missing, verify


def publisher(words: str, name: str = "p", numbers: dict[str, int] | None = None) -> list[Row]:
    """`a1` attempted and acknowledged, `a1?` only attempted."""
    rows: list[Row] = [Began(name, 1, 100, 0.0)]
    for sequence, word in enumerate(words.split()):
        event = word.rstrip("?")
        rows.append(Attempted(event, event[0], name, sequence, 10.0 + sequence))
        if not word.endswith("?"):
            rows.append(Acknowledged(event, (numbers or {}).get(event, int(event[1:])), 10.5 + sequence))
    return rows


def subscriber(words: str, topics: str = "ab", name: str = "s") -> list[Row]:
    rows: list[Row] = [Began(name, 1, 200, 0.0), Held(list(topics), 1.0)]
    for position, word in enumerate(words.split()):
        if word == "|":
            rows += [Began(name, 2, 201, 20.0 + position), Held(list(topics), 20.0 + position)]
        else:
            event = word.rstrip("*")
            rows.append(Handed(event, event[0], int(event[1:]), 20.0 + position, replayed=word.endswith("*")))
    return rows


def judged(published: str, *, carried: Carried | None = None, replay_max: int = 1, **handed: str) -> Verdict:
    record = Record({"p": publisher(published)}, {name: subscriber(words, name=name) for name, words in handed.items()})
    return verify(record, carried, dict.fromkeys(handed, replay_max))


def kinds(verdict: Verdict) -> set[str]:
    assert {violation.kind for violation in verdict.violations} == set(verdict.counts)
    return set(verdict.counts)


def test_a_right_round_passes() -> None:
    verdict = judged("a1 b1 a2", s="a1 b1 a2", t="a1 b1 a2")
    assert kinds(verdict) == set()
    assert set(verdict.answers.values()) == {"valid"}
    assert (verdict.attempted, verdict.acknowledged, verdict.handed) == (3, 3, {"s": 3, "t": 3})


def test_an_acknowledged_event_that_never_came_is_lost() -> None:
    verdict = judged("a1 b1 a2", s="a1 b1 a2", t="a1 b1")
    assert kinds(verdict) == {"lost"}
    assert verdict.violations[0].sentence == "t was never handed a2 of a; p was told that it is safe, as number 2"
    assert "lost" in kinds(judged("a1 b1 a2", s="a1 b1", t="a1 b1")), "lost for everybody"
    assert kinds(judged("a1", s="", t="")) == {"lost"}, "nobody was notified of anything"


def test_a_loss_in_the_middle_is_also_a_hole_and_a_gap() -> None:
    assert kinds(judged("a1 a2 a3", s="a1 a2 a3", t="a1 a3")) == {"lost", "hole", "gap"}


def test_an_unacknowledged_event_may_come_or_not_but_for_all_alike() -> None:
    assert kinds(judged("a1 a2?", s="a1 a2", t="a1 a2")) == set()
    assert kinds(judged("a1 a2?", s="a1", t="a1")) == set()
    verdict = judged("a1 a2?", s="a1 a2", t="a1")
    assert kinds(verdict) == {"lost"}
    assert "s was handed it" in verdict.violations[0].sentence


def test_the_last_hand_out_of_a_killed_life_may_come_again_if_marked() -> None:
    verdict = judged("a1 a2 a3", s="a1 a2 | a2* a3", t="a1 a2 a3")
    assert kinds(verdict) == set()
    assert (verdict.replayed, verdict.handed["s"], verdict.lives["s"]) == (1, 3, 2)
    assert kinds(judged("a1 a2 a3", s="a1 | a2* a3", t="a1 a2 a3")) == set(), (
        "handed out, but killed before it was written"
    )
    assert kinds(judged("a1 a2 a3", s="a1 a2 | a2* | a2* | a2* a3")) == set(), "killed again and again"


@pytest.mark.parametrize(
    ("words", "how"),
    [
        ("a1 a2 a2 a3", "not marked replayed"),
        ("a1 a2 | a2 a3", "not marked replayed"),
        ("a1 a2 a2* a3", "it was acknowledged"),
        ("a1 a2 | a1* a2* a3", "it was acknowledged"),
        ("a1 a2 | a2* a2* a3", "it was acknowledged"),
        ("a1 a2* a3", "cannot have been handed out before"),
        ("a1 | a2* a3*", "cannot have been handed out before"),
    ],
)
def test_everything_else_that_comes_again_is_repeated(words: str, how: str) -> None:
    verdict = judged("a1 a2 a3", s=words, t="a1 a2 a3")
    assert verdict.counts["repeated"] == 1
    assert how in verdict.violations[0].sentence


def test_a_wider_window_of_unacknowledged_hand_outs() -> None:
    assert kinds(judged("a1 a2 a3", s="a1 a2 | a1* a2* a3", replay_max=2)) == set()
    assert kinds(judged("a1 a2 a3", s="a1 a2 | a2* a1* a3", replay_max=2)) == set(), "nobody else saw them come first"
    assert kinds(judged("a1 a2 a3", s="a1 a2 a3 | a1*", replay_max=2)) == {"repeated"}


def test_what_was_handed_out_and_never_written_must_come_again() -> None:
    assert kinds(judged("a1 a2 a3", s="a1 | a3", t="a1 a2 a3")) == {"lost", "hole", "gap"}


def test_two_subscribers_that_disagree_are_found_by_the_auditor() -> None:
    verdict = judged("a1 b1", s="a1 b1", t="b1 a1")
    assert kinds(verdict) == {"inversion"}
    assert verdict.answers["tno"] == "invalid"


def test_a_topic_out_of_its_own_order_is_found_even_if_all_agree() -> None:
    assert kinds(judged("a1 a2", s="a2 a1", t="a2 a1")) == {"misordered", "fifo-inversion"}


def test_an_event_that_nobody_published_is_a_phantom() -> None:
    assert kinds(judged("a1", s="a1 b1", t="a1 b1")) == {"phantom"}


def test_an_event_of_a_topic_not_held_is_a_phantom() -> None:
    assert "phantom" in kinds(judged("a1 c1", s="a1 c1", t="a1"))


def test_one_number_for_two_events_is_a_mismatch() -> None:
    record = Record({"p": publisher("a1 a2", numbers={"a2": 7})}, {"s": subscriber("a1 a2")})
    assert "number-mismatch" in kinds(verify(record))


def test_reported_gaps_and_out_of_order_tags_are_violations() -> None:
    rows = [*subscriber("a1"), Missed("b", 4, 6, "trimmed", 30.0), Handed("a2", "a", 2, 31.0, out_of_order=True)]
    verdict = verify(Record({"p": publisher("a1 a2")}, {"s": rows}))
    assert verdict.counts["gap"] == 3
    assert verdict.counts["out-of-order"] == 1


def test_events_of_one_message_are_told_apart_by_their_index() -> None:
    def rows(*places: tuple[int, int]) -> list[Row]:
        return [*subscriber(""), *(Handed(f"e{n}.{i}", "a", n, 30.0, index=i) for n, i in places)]

    published: list[Row] = [Attempted(f"e{n}.{i}", "a", "p", 10 * n + i, 5.0) for n, i in [(1, 0), (1, 1), (2, 0)]]
    assert kinds(verify(Record({"p": published}, {"s": rows((1, 0), (1, 1), (2, 0))}))) == set()
    assert "hole" in kinds(verify(Record({"p": published}, {"s": rows((1, 0), (1, 2))})))
    assert "hole" in kinds(verify(Record({"p": published}, {"s": rows((1, 0), (2, 1))})))
    assert "misordered" in kinds(verify(Record({"p": published}, {"s": rows((1, 1), (1, 0))})))


def test_a_subscriber_that_changes_its_topics_is_owed_what_it_held() -> None:
    """t holds a alone, then b as well from b2 on, then leaves a."""
    rows: list[Row] = [
        Began("t", 1, 7, 0.0),
        Held(["a"], 1.0),
        Handed("a1", "a", 1, 11.0),
        Held(["a", "b"], 12.5),
        Handed("b2", "b", 2, 14.0),
        Handed("a2", "a", 2, 15.0),
        Held(["b"], 16.0),
        Handed("b3", "b", 3, 17.0),
    ]
    published = publisher("a1 b1 a2 b2 b3 a3")  # attempted at 10, 11, 12, …
    assert kinds(verify(Record({"p": published}, {"s": subscriber("a1 b1 b2 a2 b3 a3"), "t": rows}))) == set()
    lost = verify(Record({"p": published}, {"s": subscriber("a1 b1 b2 a2 b3 a3"), "t": rows[:-1]}))
    assert kinds(lost) == {"lost"}
    asked = [*rows[:3], Held(["a", "b"], 11.5, complete=False), *rows[3:]]
    asked[7:7] = [Held(["b"], 15.5, complete=False), Handed("a3", "a", 3, 15.7)]
    changing = verify(Record({"p": published}, {"s": subscriber("a1 b1 b2 a2 a3 b3"), "t": asked}))
    assert kinds(changing) == set(), "while it leaves, a3 may still come"
    leaving = [*rows[:6], Held(["b"], 15.5, complete=False), Handed("b3", "b", 3, 17.0)]
    unfinished = Record({"p": published}, {"s": subscriber("a1 b1 b2 a2 b3 a3"), "t": leaving})
    assert kinds(verify(unfinished)) == set(), "nothing of a is owed any more"
    assert missing(unfinished) == {"t, a change of topics": 1}
    assert missing(Record({"p": published}, {"s": subscriber("a1"), "t": rows})) == {"s": 5}
    again = [*rows[:6], Held(["b"], 15.1, complete=False), Held(["a", "b"], 15.9, complete=False)]
    again += [Handed("b3", "b", 3, 17.0), Held(["a", "b"], 17.5), Handed("a4", "a", 4, 18.0)]
    more = Record({"p": publisher("a1 b1 a2 b2 b3 a3 a4")}, {"s": subscriber("a1 b1 b2 a2 b3 a3 a4"), "t": again})
    assert kinds(verify(more)) == set(), "a was left, and begins anew behind a3"
    late = [*rows, Handed("a3", "a", 3, 18.0)]
    assert "phantom" in kinds(verify(Record({"p": published}, {"s": subscriber("a1 b1 b2 a2 b3 a3"), "t": late})))


# ── rounds ────────────────────────────────────────────────────────────────────────────────────────────────────────


def second_round(words: str, published: str = "a3 a4", first: str = "a1 a2") -> Verdict:
    before = judged(first, s=first.replace("?", ""), t=first.replace("?", ""))
    assert kinds(before) == set()
    rows: list[Row] = []
    for position, word in enumerate(words.split()):
        if word == "|":
            rows.append(Began("s", 2, 9, 50.0 + position))
        else:
            event = word.rstrip("*")
            rows.append(Handed(event, event[0], int(event[1:]), 50.0 + position, replayed=word.endswith("*")))
    whole: list[Row] = [Handed(f"a{n}", "a", n, 60.0 + n) for n in (3, 4)]
    return verify(Record({"p": publisher(published)}, {"s": rows, "t": whole}), before.carried)


def test_a_second_round_goes_on_where_the_first_one_ended() -> None:
    assert kinds(second_round("a3 a4")) == set()
    assert kinds(second_round("| a2* a3 a4")) == set(), "the first round's last hand-out may come again"
    assert "lost" in kinds(second_round("a3"))
    assert "hole" in kinds(second_round("a4"))
    assert "misordered" in kinds(second_round("a1 a3 a4"))
    assert "repeated" in kinds(second_round("a2 a3 a4"))
    assert "repeated" in kinds(second_round("a2* a3 a4")), "its life never ended"


def test_an_attempt_without_an_answer_may_come_a_round_later() -> None:
    first = judged("a1 a2?", s="a1", t="a1")
    assert set(first.carried.maybes) == {"a2"}
    rows: list[Row] = [Handed("a2", "a", 2, 50.0), Handed("a3", "a", 3, 51.0)]
    second = verify(Record({"p": publisher("a3", name="p/2")}, {"s": rows, "t": rows}), first.carried)
    assert kinds(second) == set()
    assert second.carried.maybes == {}


def test_a_topic_left_and_joined_again_begins_anew_also_over_rounds() -> None:
    rows: list[Row] = [
        *subscriber("a1", topics="a", name="t"),
        Held(["b"], 30.0),
        Held(["a", "b"], 31.0),
    ]
    first = verify(Record({"p": publisher("a1 a2 a3")}, {"s": subscriber("a1 a2 a3"), "t": rows}))
    assert kinds(first) == set()
    assert first.carried.places["t"] == {"a": None, "b": None}
    later: list[Row] = [Handed("a4", "a", 4, 50.0)]
    assert kinds(verify(Record({"p": publisher("a4", name="p/2")}, {"s": later, "t": later}), first.carried)) == set()


def test_rows_in_the_wrong_file_are_refused() -> None:
    with pytest.raises(LogError, match="not a publisher's row"):
        verify(Record({"p": subscriber("a1")}, {}))
    with pytest.raises(LogError, match="not a subscriber's row"):
        verify(Record({}, {"s": publisher("a1")}))
    with pytest.raises(LogError, match="twice"):
        verify(Record({"p": publisher("a1"), "q": publisher("a1", name="q")}, {}))
    with pytest.raises(LogError, match="never attempted"):
        verify(Record({"p": [Acknowledged("a1", 1, 0.0)]}, {}))


# ── a right history, broken at random ─────────────────────────────────────────────────────────────────────────────

Rows = list[Handed]


def drop(rows: Rows, random: random.Random) -> Rows:
    at = random.randrange(len(rows))
    return rows[:at] + rows[at + 1 :]


def repeat(rows: Rows, random: random.Random) -> Rows:
    at = random.randrange(len(rows))
    again = random.randrange(at + 1, len(rows) + 1)
    return [*rows[:again], rows[at], *rows[again:]]


def swap(rows: Rows, random: random.Random) -> Rows:
    """Two events that the others saw too change places."""
    at, other = sorted(random.sample(range(len(rows)), 2))
    return [*rows[:at], rows[other], *rows[at + 1 : other], rows[at], *rows[other + 1 :]]


BREAKS: dict[Callable[[Rows, random.Random], Rows], set[str]] = {
    drop: {"lost"},
    repeat: {"repeated"},
    swap: {"inversion", "misordered"},
}


@given(st.integers(0, 2**32), st.sampled_from(sorted(BREAKS, key=lambda each: each.__name__)))
def test_any_single_loss_repetition_or_swap_is_found(
    seed: int, break_it: Callable[[Rows, random.Random], Rows]
) -> None:
    source = random.Random(seed)
    counts = {"a": 0, "b": 0}
    order = []
    for _ in range(source.randrange(2, 30)):
        topic = source.choice("ab")
        counts[topic] += 1
        order.append(f"{topic}{counts[topic]}")
    published = publisher(" ".join(order))
    right = [Handed(event, event[0], int(event[1:]), 50.0) for event in order]
    head: list[Row] = [Began("s", 1, 1, 0.0), Held(["a", "b"], 1.0)]
    fine = verify(Record({"p": published}, {name: [*head, *right] for name in "stu"}))
    assert kinds(fine) == set()
    broken = break_it(right, source)
    verdict = verify(
        Record({"p": published}, {"s": [*head, *right], "t": [*head, *broken], "u": [*head, *right, Ended(99.0)]})
    )
    assert kinds(verdict) & BREAKS[break_it], f"{break_it.__name__}, seed {seed}: {verdict.violations}"
