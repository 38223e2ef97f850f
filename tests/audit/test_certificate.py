"""The certificate: what it says of an order log and of deliveries, and that it agrees with the auditor.

`SERIATIM_SEED=17 python -m pytest tests/audit/test_certificate.py` replays the logs of seed 17 alone.
"""

import os
from collections import Counter
from pathlib import Path

import pytest
from msgspec import structs

from seriatim.audit import CERTIFICATE, CERTIFIED, audit, certify, read_order_log
from seriatim.audit.report import AGAINST_ORDER
from seriatim.model import Delivery, History, LogError, Placement
from tests.audit.order_worlds import certified_runs

SEEDS = [int(os.environ["SERIATIM_SEED"])] if "SERIATIM_SEED" in os.environ else list(range(600))

ORDER = [Placement(1, "A", 1, 2), Placement(3, "B", 1, 1), Placement(4, "A", 3, 3)]


def replay(seed: int) -> str:
    return f"SERIATIM_SEED={seed} python -m pytest {__name__.replace('.', '/')}.py"


def log(**notified: str) -> list[Delivery]:
    """`s1="a1 b1"`: s1 was notified of number 1 of topic A, then of number 1 of topic B."""
    return [
        Delivery(name, position, word, word[0].upper(), int(word[1:]))
        for name, words in notified.items()
        for position, word in enumerate(words.split())
    ]


def test_all_rise() -> None:
    certificate = certify(log(s1="a1 a2 b1 a3", s2="a2 a3"), ORDER)
    assert certificate.verdict.answer == "valid"
    assert certificate.verdict.reason == (
        "6 deliveries of 2 subscribers against positions 1…4 of the order log: all rise"
    )
    report = certificate.alone()
    assert {name: report.verdicts[name].answer for name in CERTIFIED} == dict.fromkeys(CERTIFIED, "valid")
    assert report.verdicts["tno"].reason.startswith("by certificate: 6 deliveries")
    assert report.answer([CERTIFICATE, *CERTIFIED]) == "valid"


def test_what_contradicts_the_order_log_is_named_with_its_rows() -> None:
    certificate = certify(log(s1="a1 b1 a2 a3"), ORDER)
    (anomaly,) = certificate.anomalies
    assert anomaly.sentence == (
        "s1 was notified of b1 before a2, but the order log has a2 at position 2 and b1 at position 3"
    )
    assert anomaly.witness[2:] == (ORDER[0], ORDER[1])
    assert certificate.verdict.reason == (
        "order-inversion (1) in 4 deliveries of 1 subscriber against positions 1…4 of the order log"
    )
    # one subscriber alone breaks no guarantee: the order log may be what is wrong
    assert certificate.alone().verdicts["acyclic"].answer == "unknown"
    assert certificate.added_to(audit(History(log(s1="a1 b1 a2 a3")))).verdicts["acyclic"].answer == "valid"


def test_every_late_row_is_counted_and_a_repeat_is_called_one() -> None:
    certificate = certify(log(s1="a3 a1 a2 a3 a1"), ORDER)
    assert certificate.counts == {"order-inversion": 2, "order-repeat": 2}
    assert [anomaly.sentence for anomaly in certificate.anomalies[2:]] == [
        "s1 was notified of a3 twice, at positions 0 and 3; the order log has it once",
        "s1 was notified of a1 twice, at positions 1 and 4; the order log has it once",
    ]


def test_events_of_one_message_share_a_position_and_have_an_index() -> None:
    rows = [Delivery("s1", i, f"e{i}", "A", 1, index=i) for i in range(3)]
    assert certify(rows, ORDER).verdict.answer == "valid"
    rows[1], rows[2] = structs.replace(rows[1], position=2), structs.replace(rows[2], position=1)
    assert certify(rows, ORDER).anomalies[0].sentence == (
        "s1 was notified of e2 before e1, but the order log has e1 at position 1 index 1 and e2 at position 1 index 2"
    )


@pytest.mark.parametrize(
    ("rows", "names", "sentence"),
    [
        (ORDER[::2], {"order-log-gap"}, "continues at position 4 after position 2: the rows between are missing"),
        (ORDER[1:], set(), ""),
        (
            [*ORDER, Placement(4, "C", 1, 1)],
            {"order-log-overlap"},
            "stands for number 3 of topic A and for number 1 of topic C",
        ),
        ([*ORDER, Placement(5, "A", 5, 5)], {"order-log-skip"}, "number 5 of topic A comes right after number 3"),
        ([*ORDER, Placement(5, "A", 2, 2)], {"order-log-back"}, "number 2 of topic A comes again or too late"),
        ([*ORDER, ORDER[0]], {"order-log-overlap", "order-log-back"}, "position 1 of the order log stands for"),
    ],
)
def test_a_broken_order_log_certifies_nothing(rows: list[Placement], names: set[str], sentence: str) -> None:
    certificate = certify(log(s1="a3"), rows)
    assert set(certificate.counts) == names
    assert certificate.verdict.answer == ("invalid" if names else "valid")
    if names:
        assert sentence in certificate.anomalies[0].sentence and len(certificate.anomalies[0].witness) == 2
        assert certificate.verdict.reason.endswith(": the order log itself is broken")
        assert certificate.deliveries == 0  # looked at


def test_what_the_order_log_does_not_have_is_not_covered() -> None:
    certificate = certify(log(s1="a2 b1 a3 a4", s2="a1 a2 b1 a3 c1"), ORDER[:1] + ORDER[1:])
    assert certificate.uncovered == 2
    assert certificate.verdict.answer == "unknown"
    assert certificate.verdict.reason == (
        "2 of 9 deliveries are not in positions 1…4 of the order log: the first is a4 of s1, number 4 of topic A"
    )
    assert "2 of 2 deliveries are not in an empty order log" in certify(log(s1="a1 a2"), []).verdict.reason


def test_a_position_that_was_told_must_be_the_order_logs() -> None:
    right = structs.replace(log(s1="b1")[0], order_position=3)
    assert certify([right], ORDER).verdict.answer == "valid"
    certificate = certify([structs.replace(right, order_position=2)], ORDER)
    assert certificate.anomalies[0].sentence == "s1 was told position 2 for b1, which the order log has at position 3"


def test_numbers_that_hide_an_inversion_are_found() -> None:
    """By their numbers both rise; by their ids they contradict each other, as an audit says."""
    rows = [
        Delivery("s1", 0, "x", "A", 1),
        Delivery("s1", 1, "y", "A", 2),
        Delivery("s2", 0, "y", "A", 1),
        Delivery("s2", 1, "x", "A", 2),
    ]
    assert audit(History(rows)).verdicts["per-topic"].answer == "invalid"
    certificate = certify(rows, ORDER)
    assert certificate.counts == {"place-mismatch": 4}
    assert [anomaly.sentence for anomaly in certificate.anomalies] == [
        "by their numbers, deliveries of x are at position 1 and at position 2 of the order log",
        "by their numbers, deliveries of y are at position 1 and at position 2 of the order log",
        "by their numbers, deliveries of x and y are both at position 1 of the order log",
        "by their numbers, deliveries of x and y are both at position 2 of the order log",
    ]


def test_rows_that_cannot_be_judged_make_it_unknown() -> None:
    rows = log(s1="a1 a2 b1", s2="a1")
    for changed, reason in (
        (rows[:1] + rows[2:], "s1: no row for position 1, so rows are missing"),
        ([structs.replace(rows[0], number=None), *rows[1:]], "1 of 4 deliveries have no number"),
        ([structs.replace(rows[1], position=0), rows[0], rows[3]], "s1: different events at position 0"),
        ([structs.replace(row, out_of_order=True) for row in rows], "no delivery can be used"),
        ([], "the log has no deliveries"),
    ):
        certificate = certify(changed, ORDER)
        assert certificate.verdict.answer == "unknown" and reason in certificate.verdict.reason
    assert "lacks 2 messages" in certify(rows, ORDER, lost={"deliveries": 2}).verdict.reason


def test_a_log_without_any_number_is_refused() -> None:
    certificate = certify([structs.replace(row, number=None) for row in log(s1="a1")], ORDER)
    with pytest.raises(LogError, match="--map number=COLUMN"):
        certificate.check_numbered("run")
    certify(log(s1="a1"), ORDER).check_numbered("run")


def test_agrees_with_the_auditor_on_random_and_on_broken_runs() -> None:
    """Valid by certificate, valid by an audit. What an audit finds violated is not certified. And never by chance."""
    met: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for seed in SEEDS:
        for name, (history, order) in certified_runs(seed).items():
            if not history.deliveries:
                continue
            shown = f"{name}: {replay(seed)}\n{history}\n{order}"
            certificate = certify(history.deliveries, order)
            answer = certificate.verdict.answer
            assert answer == "valid" or name not in ("sound", "otherwise sound"), f"{certificate} {shown}"
            alone, whole = audit(History(history.deliveries)), audit(history)
            for guarantee in CERTIFIED if answer == "valid" else ():
                assert alone.verdicts[guarantee].answer == "valid", shown
                assert whole.verdicts[guarantee].answer != "invalid", shown
            assert (answer == "invalid") == bool(certificate.counts)
            met[answer] += 1
            named.update(certificate.counts)
    if len(SEEDS) > 1:
        assert min(met[answer] for answer in ("valid", "invalid", "unknown")) > 100, met
        assert set(named) == set(AGAINST_ORDER), named


def test_an_order_log_is_read_from_json_lines_csv_and_folders(tmp_path: Path) -> None:
    lines = '{"position": 1, "topic": "A", "first": 1, "last": 2, "at": "2026-01-01"}\n'
    (tmp_path / "order.jsonl").write_text(lines)
    assert read_order_log(tmp_path / "order.jsonl") == ORDER[:1]
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.csv").write_text("position,topic,first,last\n1,A,1,2\n")
    (tmp_path / "parts" / "b.csv").write_text("position,topic,first,last\n3,B,1,1\n4,A,3,3\n")
    assert read_order_log(tmp_path / "parts") == ORDER


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("position,topic,first\n1,A,1\n", "no column last"),
        ("position,topic,first,last\n1,A,x,2\n", "line 2, column first: x is not a whole number"),
        ("position,topic,first,last\n1,,1,2\n", "line 2, column topic: empty"),
        ("position,topic,first,last\n1,A,3,2\n", "position 1, topic A, first 3, last 2 ends before it begins"),
        ("position,topic,first,last\n0,A,1,1\n", "count positions and numbers from 1"),
    ],
)
def test_an_order_log_that_does_not_fit_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "order.csv"
    path.write_text(text)
    with pytest.raises(LogError, match=r"order\.csv") as error:
        read_order_log(path)
    assert told in str(error.value)
    for missing in (tmp_path / "nothing", tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(LogError):
            read_order_log(missing)
