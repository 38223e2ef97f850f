"""Every anomaly by name, with its sentence and witness; every reason for `unknown`."""

from itertools import count

import pytest

from seriatim.audit import Auditor, Report, audit, order_violations
from seriatim.audit.auditor import EMPTY
from seriatim.audit.report import STOPPED
from seriatim.model import Delivery, History, InputError, Publication, Subscription
from seriatim.order import GUARANTEES


def log(**notified: str) -> list[Delivery]:
    """s1="a1 b1" : s1 was notified of a1 on topic A, then of b1 on topic B. A trailing ! tags a row out of order."""
    return [
        Delivery(name, position, word.rstrip("!"), word[0].upper(), out_of_order=word.endswith("!"))
        for name, words in notified.items()
        for position, word in enumerate(words.split())
    ]


def published(**words: str) -> list[Publication]:
    """p="a1 b1/2": p published a1, and then b1 when it had seen two notifications."""
    rows = []
    for publisher, text in words.items():
        for sequence, word in enumerate(text.split()):
            event_id, _, seen = word.partition("/")
            rows.append(Publication(event_id, event_id[0].upper(), publisher, sequence=sequence, seen=int(seen or 0)))
    return rows


def answers(report: Report, *names: str) -> list[str]:
    return [report.verdicts[name].answer for name in names]


def sentences(report: Report, name: str) -> list[str]:
    return [anomaly.sentence for anomaly in report.anomalies if anomaly.name == name]


def test_an_empty_log_says_nothing() -> None:
    report = audit(History())
    assert {verdict.answer for verdict in report.verdicts.values()} == {"unknown"}
    assert report.verdicts["tno"].reason == EMPTY
    reused = History(publications=published(p="a1", q="a1"))
    assert {verdict.reason for verdict in audit(reused).verdicts.values()} == {EMPTY}
    owed = History(
        publications=[Publication("a1", "A", "p", number=1)], subscriptions=[Subscription("s1", "A", 0, start=0, end=1)]
    )
    verdicts = audit(owed).verdicts
    assert verdicts["completeness"].answer == "invalid"
    assert verdicts["tno"].answer == "unknown"


def test_agreement_comes_with_an_order_that_fits_everybody() -> None:
    report = audit(History(log(s1="a1 b1 a2", s2="b1 c1", s3="a1 a2 c1")))
    assert answers(report, "per-topic", "tno", "acyclic") == ["valid"] * 3
    assert report.order is not None
    assert sorted(report.order) == ["a1", "a2", "b1", "c1"]
    assert (report.deliveries, report.subscribers, report.events, report.shared) == (8, 3, 4, 4)


def test_inversion() -> None:
    report = audit(History(log(s1="a b c", s2="b a c", s3="c")))
    assert sentences(report, "inversion") == ["s1 was notified of a before b, s2 of b before a"]
    assert report.anomalies[0].witness == tuple(log(s1="a b") + log(s2="b a"))
    assert answers(report, "per-topic", "tno", "acyclic") == ["valid", "invalid", "invalid"]
    assert report.order is None


def test_inversion_that_no_two_neighbours_show() -> None:
    """a and b are far apart at s1, c comes between them at s2."""
    report = audit(History(log(s1="a c1 c2 c3 b", s2="b c4 a")))
    assert sentences(report, "inversion") == ["s1 was notified of a before b, s2 of b before a"]


def test_topic_inversion() -> None:
    report = audit(History(log(s1="a1 b1 a2", s2="a2 a1")))
    assert sentences(report, "topic-inversion") == ["on topic A, s1 was notified of a1 before a2, s2 of a2 before a1"]
    assert answers(report, "per-topic", "tno", "acyclic", "causal-total") == ["invalid"] * 4
    assert report.counts == {"topic-inversion": 1}


def test_a_cycle_is_no_inversion() -> None:
    """Holders of {A,B}, {B,C}, {C,A}: pairwise agreement, and yet no order for everybody."""
    report = audit(History(log(s1="a b", s2="b c", s3="c a")))
    assert answers(report, "tno", "acyclic") == ["valid", "invalid"]
    said = "s1 was notified of a before b, s2 of b before c, s3 of c before a: no single order fits them all"
    assert sentences(report, "cycle") == [said]


def test_the_witness_of_a_cycle_is_the_shortest() -> None:
    report = audit(History(log(s1="a b", s2="b c", s3="c d", s4="d a", s5="x1 c x2 a x3")))
    said = "s1 was notified of a before b, s2 of b before c, s5 of c before a: no single order fits them all"
    assert sentences(report, "cycle") == [said]


def test_separate_disagreements_are_told_one_by_one_up_to_the_limit() -> None:
    history = History(log(s1="a1 b1 c1 a2 b2 c2 a3 b3", s2="b1 a1 c1 b2 a2 c2 b3 a3"))
    assert len(audit(history).anomalies) == 3
    report = audit(history, limit=2)
    assert len(report.anomalies) == 2
    assert report.counts == {"inversion": 3}
    assert report.verdicts["tno"].reason == "inversion (3)"


def test_the_limit_is_at_least_one() -> None:
    with pytest.raises(InputError, match="limit: 0 is too small"):
        audit(History(), limit=0)


def test_tagged_rows_are_counted_and_not_judged() -> None:
    report = audit(History(log(s1="a b", s2="b a!")))
    assert report.out_of_order == 1
    assert report.verdicts["tno"].answer == "valid"
    report = audit(History(log(s1="a!")))
    assert report.verdicts["tno"].answer == "unknown"


def test_fifo_within_and_across_topics() -> None:
    history = History(log(s1="a2 b1 a1"), published(p="a1 b1 a2"))
    report = audit(history)
    assert sentences(report, "fifo-inversion") == [
        "p published a1 before a2 on topic A, but s1 was notified of a2 before a1"
    ]
    assert sentences(report, "fifo-inversion-across-topics") == [
        "p published b1 before a2, but s1 was notified of a2 before b1"
    ]
    assert answers(report, "fifo", "fifo-across-topics", "causal") == ["invalid"] * 3
    report = audit(History(log(s1="b1 a1 a2"), published(p="a1 b1 a2")))
    assert answers(report, "fifo", "fifo-across-topics", "causal") == ["valid", "invalid", "invalid"]


def test_everybody_may_agree_on_the_wrong_order() -> None:
    report = audit(History(log(s1="a2 a1", s2="a2 a1"), published(p="a1 a2")))
    assert answers(report, "acyclic", "fifo") == ["valid", "invalid"]


def test_causal_inversion() -> None:
    """s2 answers what it saw; s1 is notified of the answer first."""
    report = audit(History(log(s1="b1 a1", s2="a1"), published(p="a1", s2="b1/1")))
    said = "s1 was notified of b1 before a1, but s2 had been notified of a1 before it published b1"
    assert sentences(report, "causal-inversion") == [said]
    assert answers(report, "fifo", "causal", "causal-total", "tno") == ["valid", "invalid", "invalid", "valid"]


def test_causes_of_causes() -> None:
    """a1 → b1 → c1, and s1 never sees b1."""
    report = audit(History(log(s1="c1 a1", s2="a1", s3="b1"), published(p="a1", s2="b1/1", s3="c1/1")))
    (said,) = sentences(report, "causal-inversion")
    assert said == (
        "s1 was notified of c1 before a1, but s2 had been notified of a1 before it published b1, "
        "and s3 had been notified of b1 before it published c1"
    )


def test_a_tagged_notification_is_a_cause_all_the_same() -> None:
    report = audit(History(log(s1="b1 a1", s2="a1!"), published(p="a1", s2="b1/1")))
    assert report.verdicts["causal"].answer == "invalid"


def test_no_cause_without_having_seen() -> None:
    report = audit(History(log(s1="b1 a1", s2="a1"), published(p="a1", s2="b1/0")))
    assert report.verdicts["causal"].answer == "valid"


def full(deliveries: list[Delivery], publications: list[Publication]) -> History:
    """With subscriptions that hold every topic from the start, and numbers for all publications."""
    numbers = {topic: count(1) for topic in "ABC"}
    numbered = [
        Publication(row.event_id, row.topic, row.publisher, sequence=row.sequence, number=next(numbers[row.topic]))
        for row in publications
    ]
    names = sorted({row.subscriber for row in deliveries})
    held = [Subscription(name, topic, 0, start=0) for name in names for topic in sorted({r.topic for r in numbered})]
    return History(deliveries, numbered, held)


def test_integrity_and_completeness_of_a_full_log() -> None:
    report = audit(full(log(s1="a1 b1", s2="a1 b1"), published(p="a1 b1")))
    assert answers(report, "integrity", "completeness") == ["valid", "valid"]


def test_duplicate() -> None:
    report = audit(full(log(s1="a1 b1 a1"), published(p="a1 b1")))
    assert sentences(report, "duplicate") == ["s1 was notified of a1 twice, at positions 0 and 2"]
    assert answers(report, "integrity", "tno", "fifo") == ["invalid", "valid", "valid"]


def test_phantom_that_nobody_published() -> None:
    report = audit(full(log(s1="a1 a2"), published(p="a1")))
    assert sentences(report, "phantom") == ["s1 was notified of a2, which nobody published"]
    assert report.verdicts["fifo"].reason == "a2: notified, but its publication is not in the log"


def test_phantom_on_a_topic_not_held() -> None:
    history = full(log(s1="a1 b1 a2"), published(p="a1 b1 a2"))
    history.subscriptions = [Subscription("s1", "A", 0, until=2, start=0), Subscription("s1", "B", 0, start=0)]
    report = audit(history)
    said = "s1 was notified of a2 on topic A, which it did not hold then"
    assert sentences(report, "phantom") == [said]
    assert report.anomalies[0].witness == (history.deliveries[2], history.subscriptions[0])


def test_reused_id() -> None:
    history = full(log(s1="a1"), published(p="a1", q="a1"))
    report = audit(history)
    said = "the id a1 stands for an event that p published on topic A and for an event that q published on topic A"
    assert sentences(report, "reused-id") == [said]
    assert answers(report, "integrity", "tno") == ["invalid", "unknown"]
    report = audit(History([Delivery("s1", 0, "x", "A"), Delivery("s2", 0, "x", "B")]))
    assert len(sentences(report, "reused-id")) == 1


def test_number_mismatch() -> None:
    rows = [Delivery("s1", 0, "a1", "A", 1), Delivery("s2", 0, "a1", "A", 2), Delivery("s3", 0, "a3", "A", 1)]
    assert sentences(audit(History(rows[:2])), "number-mismatch") == ["a1 has the numbers 1 and 2 of topic A"]
    both = "number 1 of topic A stands for a1 and for a3"
    assert sentences(audit(History([rows[0], rows[2]])), "number-mismatch") == [both]
    assert audit(History(rows)).verdicts["tno"].answer == "valid"


def test_events_of_one_message_share_its_number() -> None:
    rows = [Delivery("s1", 0, "a1", "A", 1), Delivery("s1", 1, "a2", "A", 1, index=1), Delivery("s1", 2, "a3", "A", 2)]
    published = [Publication(row.event_id, "A", "p", None, i, 0, row.number, row.index) for i, row in enumerate(rows)]
    history = History(rows, published, [Subscription("s1", "A", 0, start=0)])
    assert answers(audit(history), "integrity", "completeness") == ["valid", "valid"]
    history.deliveries.append(Delivery("s2", 0, "a1", "A", 1, index=1))
    assert sentences(audit(history), "number-mismatch") == ["number 1 index 1 of topic A stands for a2 and for a1"]
    again = [Delivery("s1", 0, "a1", "A", 1), Delivery("s2", 0, "a1", "A", 1, index=1)]
    assert sentences(audit(History(again)), "number-mismatch") == ["a1 has the numbers 1 and 1 index 1 of topic A"]


def test_a_gap_within_a_message() -> None:
    published = [Publication(f"a{i}", "A", "p", sequence=i, number=1, index=i) for i in range(4)]
    rows = [Delivery("s1", 0, "a0", "A", 1), Delivery("s1", 1, "a2", "A", 1, index=2)]
    history = History(rows, published[:3], [Subscription("s1", "A", 0, start=0)])
    said = "never notified of a1 (number 1 index 1 of topic A), though owed up to number 1 index 2"
    assert sentences(audit(history), "gap") == [f"s1 held the topic but was {said}"]
    assert audit(History(rows, [], history.subscriptions)).verdicts["completeness"].answer == "unknown"
    rows.insert(1, Delivery("s1", 2, "a1", "A", 1, index=1))
    history.publications = published
    reason = "s1, topic A: number 1 index 3 not notified yet, late or lost"
    assert audit(history).verdicts["completeness"].reason == reason
    history.subscriptions = [Subscription("s1", "A", 0, until=3, start=0, end=1)]
    assert audit(history).verdicts["completeness"].answer == "valid", "it left in the middle of the message"


def test_gap() -> None:
    history = full(log(s1="a1 a3", s2="a1 a2 a3"), published(p="a1 a2 a3"))
    report = audit(history)
    said = "s1 held the topic but was never notified of a2 (number 2 of topic A), though owed up to number 3"
    assert sentences(report, "gap") == [said]
    assert report.anomalies[0].witness == (
        history.subscriptions[0],
        history.publications[1],
        history.deliveries[1],
    )
    assert answers(report, "completeness", "tno") == ["invalid", "valid"]


def test_a_number_that_never_became_an_event_is_no_gap() -> None:
    history = full(log(s1="a1 a3"), published(p="a1 a2 a3"))
    del history.publications[1]
    assert audit(history).verdicts["completeness"].answer == "valid"


def test_what_was_owed_without_a_subscription_is_unknown() -> None:
    history = full(log(s1="a1 a2", s2="a1"), published(p="a1 a2"))
    history.subscriptions = [row for row in history.subscriptions if row.subscriber == "s1"]
    assert audit(history).verdicts["completeness"].reason == "s2, topic A: no subscription says which events were owed"


def test_an_event_without_a_number_may_be_missing() -> None:
    history = full(log(s1="a1"), published(p="a1"))
    history.publications.append(Publication("a2", "A", "q"))
    reason = "s1, topic A: publications without a number, so a gap may not be noticed"
    assert audit(history).verdicts["completeness"].reason == reason


def test_what_may_still_come_is_unknown() -> None:
    report = audit(full(log(s1="a1"), published(p="a1 a2")))
    assert report.verdicts["completeness"].answer == "unknown"
    assert report.verdicts["completeness"].reason == "s1, topic A: number 2 not notified yet, late or lost"


def test_who_left_is_owed_up_to_the_end_only() -> None:
    history = full(log(s1="a1"), published(p="a1 a2 a3"))
    history.subscriptions = [Subscription("s1", "A", 0, until=1, start=0, end=1)]
    assert audit(history).verdicts["completeness"].answer == "valid"
    history.subscriptions = [Subscription("s1", "A", 0, until=1, start=0, end=2)]
    assert audit(history).counts == {"gap": 1}


def test_forged_numbers_cost_no_time() -> None:
    history = full([Delivery("s1", 0, "a1", "A", 10**15)], [])
    history.subscriptions = [Subscription("s1", "A", 0, start=0)]
    assert audit(history).verdicts["completeness"].answer == "unknown"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([Delivery("s1", 0, "a", "A"), Delivery("s1", 2, "b", "B")], "s1: no row for position 1, so rows are missing"),
        ([Delivery("s1", 1, "a", "A")], "s1: no row for position 0, so rows are missing"),
        (
            [Delivery("s1", 0, "a", "A"), Delivery("s1", 0, "b", "B"), Delivery("s1", 1, "c", "B")],
            "s1: different events at position 0, order not known",
        ),
    ],
)
def test_unclear_positions_make_no_valid_order(rows: list[Delivery], reason: str) -> None:
    verdict = audit(History(rows)).verdicts["tno"]
    assert (verdict.answer, verdict.reason) == ("unknown", reason)


def test_a_violation_stands_whatever_else_is_missing() -> None:
    rows = [*log(s1="a b", s2="b a"), Delivery("s3", 5, "c", "C")]
    assert audit(History(rows)).verdicts["tno"].answer == "invalid"


@pytest.mark.parametrize(
    ("publications", "guarantee", "reason"),
    [
        ([], "fifo", "no publications in the log: who published what, and when, is not known"),
        ([Publication("a1", "A", "p"), Publication("a2", "A", "p")], "fifo", "p: publications without a sequence of"),
        ([Publication("a1", "A", "p", sequence=0), Publication("a2", "A", "p", sequence=0)], "fifo", "p: publications"),
        (
            [Publication("a1", "A", "p"), Publication("a2", "A", "q")],
            "causal",
            "no publication says what its publisher",
        ),
        ([Publication("a1", "A", "p", seen=0), Publication("a2", "A", "s1")], "causal", "a2: what s1 had seen is not"),
        ([Publication("a1", "A", "p", seen=0), Publication("a2", "A", "s1", seen=9)], "causal", "a2: s1 had seen 9 "),
        ([Publication("a1", "A", "p", seen=0), Publication("a2", "A", "s1", seen=2)], "causal", "a2: its causes are c"),
    ],
)
def test_unknown_causes(publications: list[Publication], guarantee: str, reason: str) -> None:
    verdict = audit(History(log(s1="a1 a2"), publications)).verdicts[guarantee]
    assert verdict.answer == "unknown"
    assert verdict.reason.startswith(reason)


def test_a_stopped_audit_tells_what_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("seriatim.audit.auditor.check_causes", stop)
    auditor = Auditor(History(log(s1="a b", s2="b a"), published(p="a", q="b")))
    with pytest.raises(KeyboardInterrupt):
        auditor.run()
    report = auditor.report()
    assert answers(report, "tno", "per-topic", "fifo", "causal") == ["invalid", "valid", "valid", "unknown"]
    assert report.verdicts["causal"].reason == STOPPED
    assert {verdict.answer for verdict in Auditor(History()).report().verdicts.values()} == {"unknown"}


def test_anomalies_against_a_guarantee_include_those_of_weaker_ones() -> None:
    report = audit(History(log(s1="a1 a2 b", s2="b a2 a1"), published(p="a1", q="a2 b")))
    assert {anomaly.name for anomaly in report.anomalies_against(["tno"])} == {"topic-inversion", "inversion"}
    assert {anomaly.name for anomaly in report.anomalies_against(["per-topic"])} == {"topic-inversion"}
    assert report.anomalies_against(GUARANTEES) == report.anomalies


def test_the_light_call_answers_with_the_same_anomalies() -> None:
    deliveries = log(s1="a1 a2 b", s2="b a2 a1")
    assert tuple(order_violations(deliveries)) == audit(History(deliveries)).anomalies
    assert order_violations(log(s1="a b", s2="a b")) == []
