"""Rows at one position have no order among themselves. They never hide a violation that other rows prove."""

from random import Random

from seriatim.audit import Anomaly, Report, audit
from seriatim.model import Delivery, History, Publication
from tests.audit.oracle import judge


def rows(**notified: str) -> list[Delivery]:
    """Of each subscriber: blanks between positions, commas between events at one position. `p1` is of topic P."""
    return [
        Delivery(name, position, event, event[0].upper())
        for name, words in notified.items()
        for position, word in enumerate(words.split())
        for event in word.split(",")
    ]


def found(history: History) -> tuple[Report, Anomaly]:
    report = audit(history)
    (anomaly,) = report.anomalies
    return report, anomaly


def test_an_inversion_between_a_tied_event_and_another_one() -> None:
    """A host was notified of payments 41 and 42 at one time, then of orders 53; another one of 53, and then of 42."""
    report, anomaly = found(History(rows(a="p41,p42 o53", b="o53 p42")))
    assert anomaly.sentence == "a was notified of p42 before o53, b of o53 before p42"
    assert [(row.subscriber, row.position) for row in anomaly.witness if isinstance(row, Delivery)] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    assert report.verdicts["tno"].answer == report.verdicts["acyclic"].answer == "invalid"
    assert report.verdicts["per-topic"].reason == "a: different events at position 0, order not known"


def test_events_at_one_position_contradict_nothing_among_themselves() -> None:
    for other in ("p1 p2", "p2 p1", "p1,p2"):
        report = audit(History(rows(a="p1,p2 o1", b=f"{other} o1")))
        assert not report.anomalies and report.verdicts["tno"].answer == "unknown"


def test_two_positions_with_several_events_each() -> None:
    report, anomaly = found(History(rows(a="a1,b1 c1,d1", b="d1 a1")))
    assert anomaly.sentence == "a was notified of a1 before d1, b of d1 before a1"
    assert report.counts == {"inversion": 1}
    every = audit(History(rows(a="a1,b1 c1,d1", b="c1,d1 a1,b1")))
    assert every.counts == {"inversion": 4}


def test_a_cycle_through_a_shared_position() -> None:
    report, anomaly = found(History(rows(a="a1,x1 b1", b="b1 c1,y1", c="c1 a1")))
    assert report.counts == {"cycle": 1} and report.verdicts["tno"].answer == "unknown"
    assert anomaly.sentence == (
        "a was notified of a1 before b1, b of b1 before c1, c of c1 before a1: no single order fits them all"
    )


def test_publishers_order_and_causes() -> None:
    made = [Publication(event, "T", "p", sequence=i) for i, event in enumerate(("t1", "t2", "t3"))]
    report, anomaly = found(History(rows(a="t2,t3 t1"), made))
    assert report.counts == {"fifo-inversion": 1} and anomaly.sentence.startswith("p published t1 before t3 on topic T")
    assert not audit(History(rows(a="t1 t2,t3"), made)).anomalies
    assert not audit(History(rows(a="t3,t2,t1"), made)).anomalies
    caused = [Publication("q1", "Q", "p", sequence=0, seen=0), Publication("r1", "R", "s", sequence=0, seen=1)]
    history = History([*rows(s="q1"), *rows(a="r1,x1 q1")], [*caused, Publication("x1", "X", "x", sequence=0, seen=0)])
    assert audit(history).counts == {"causal-inversion": 1}
    history.deliveries = [*rows(s="q1"), *rows(a="r1,q1,x1")]
    assert not audit(history).anomalies


def tied_history(seed: int) -> History:
    """A few subscribers that disagree here and there, most of them with a clock that is too coarse."""
    random = Random(seed)
    events = [f"{random.choice('abc')}{i}" for i in range(random.randint(3, 9))]
    deliveries = []
    for name in range(random.randint(2, 5)):
        own = random.sample(events, random.randint(1, len(events)))
        if random.random() < 0.7:  # nearly in order: much disorder would be found whatever is left out
            own.sort(key=events.index)
            if len(own) > 1 and random.random() < 0.5:
                place = random.randrange(len(own) - 1)
                own[place], own[place + 1] = own[place + 1], own[place]
        position = 0
        for event in own:
            deliveries.append(Delivery(f"s{name}", position, event, event[0].upper()))
            position += random.random() < 0.6
    random.shuffle(deliveries)
    return History(deliveries)


def test_same_answers_as_the_oracle() -> None:
    answered = {"valid": 0, "invalid": 0, "unknown": 0}
    for seed in range(1_500):
        history = tied_history(seed)
        answers = {name: verdict.answer for name, verdict in audit(history).verdicts.items()}
        assert answers == judge(history), f"seed {seed}: {history}"
        answered[answers["tno"]] += 1
    assert min(answered.values()) > 50, answered
