"""The checkers on histories written by hand, and against the auditor on runs that went wrong."""

from itertools import combinations

import pytest

from seriatim.audit import audit
from seriatim.lab.sim import Options, check_integrity, check_owed, draw, run
from seriatim.lab.sim.checkers import Violation
from seriatim.model import Delivery, Gap, History, Publication, Subscription


def check_order(history: History) -> list[Violation]:
    """Any two subscribers see their common events in the same order (TNO). Events tagged out of order do not count."""
    sequences: dict[str, list[str]] = {}
    for row in history.deliveries:
        if not row.out_of_order:
            sequences.setdefault(row.subscriber, []).append(row.event_id)
    violations = []
    for (one, left), (other, right) in combinations(sorted(sequences.items()), 2):
        common = set(left) & set(right)
        mine = [event_id for event_id in left if event_id in common]
        theirs = [event_id for event_id in right if event_id in common]
        differing = next(((a, b) for a, b in zip(mine, theirs, strict=False) if a != b), None)
        if differing is not None:
            a, b = differing
            sentence = f"{one} was notified of {a} before {b}, {other} of {b} before {a}"
            violations.append(Violation("inversion", one, sentence))
    return violations


def history(notified: dict[str, str], events: str = "a1 a2 a3 b1", stays: list[Subscription] | None = None) -> History:
    """Subscribers and the event ids they were notified of; `a2` is the second event of topic a."""
    deliveries = [
        Delivery(subscriber, position, event_id, event_id[0], int(event_id[1:]))
        for subscriber, ids in notified.items()
        for position, event_id in enumerate(ids.split())
    ]
    publications = [Publication(each, each[0], "p", number=int(each[1:])) for each in events.split()]
    default = [Subscription(subscriber, topic, 0, start=0) for subscriber in notified for topic in "ab"]
    return History(deliveries, publications, default if stays is None else stays)


def test_a_complete_history_has_no_violation() -> None:
    complete = history({"s": "a1 b1 a2 a3", "t": "a1 b1 a2 a3"})
    assert check_integrity(complete) == check_owed(complete) == check_order(complete) == []


def test_what_is_owed_and_missing_is_named() -> None:
    (violation,) = check_owed(history({"s": "a1 a3 b1"}))
    assert violation.sentence == "s was not notified of a 2 (a2)"
    assert check_owed(history({"s": "a1 a3 b1"}), {"s": [Gap("a", 2, 2, "lost")]}) == [], "a reported gap is no loss"


def test_only_what_lies_between_start_and_end_is_owed() -> None:
    stays = [Subscription("s", "a", 0, until=1, start=1, end=2), Subscription("s", "b", 0)]
    assert check_owed(history({"s": "a2"}, stays=stays)) == []
    (violation,) = check_owed(history({"s": "a3"}, stays=[Subscription("s", "a", 0, until=1, start=1, end=3)]))
    assert "a 2" in violation.sentence


@pytest.mark.parametrize(
    ("notified", "kind"),
    [("a1 a1", "duplicate"), ("a1 a9", "phantom"), ("c1", "phantom")],
)
def test_repeats_and_inventions_are_named(notified: str, kind: str) -> None:
    assert [violation.kind for violation in check_integrity(history({"s": notified}))] == [kind]


def test_an_event_outside_of_every_stay_is_a_phantom() -> None:
    stays = [Subscription("s", "a", 0, until=1, start=0, end=1)]
    kinds = [violation.kind for violation in check_integrity(history({"s": "a1 a2"}, stays=stays))]
    assert kinds == ["phantom"]


def test_a_wrong_number_is_named() -> None:
    wrong = history({"s": "a1"})
    wrong.deliveries[0] = Delivery("s", 0, "a1", "a", 2)
    assert [violation.kind for violation in check_integrity(wrong)] == ["misnumbered"]


def test_two_subscribers_that_disagree_are_named() -> None:
    (violation,) = check_order(history({"s": "a1 b1", "t": "b1 a1", "u": "a1"}))
    assert violation.sentence == "s was notified of a1 before b1, t of b1 before a1"


@pytest.mark.parametrize("seed", range(40))
def test_the_plain_definition_and_the_auditor_agree_on_order(seed: int) -> None:
    """On runs of the printed algorithm, some of which break their order.

    Replay: seriatim simulate --protocol paper000 --changes 12 --seed N
    """
    outcome = run(draw(seed, Options(protocol="paper000", changes=12)))
    assert bool(check_order(outcome.history)) == (audit(outcome.history).verdicts["tno"].answer == "invalid")
