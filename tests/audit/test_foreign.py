"""Logs of other systems, read without Spark. The Spark reader is held to the same cases in tests/pipeline."""

import gzip
from pathlib import Path

import pytest

from seriatim.audit import ColumnMapping, audit, read_history
from seriatim.model import Delivery, InputError, LogError
from tests.audit.foreign_logs import BAD, GOOD, HOSTS, ForeignLog, ordered


def shown(deliveries: list[Delivery]) -> dict[str, str]:
    rows: dict[str, list[str]] = {}
    for row in sorted(deliveries, key=lambda row: (row.subscriber, row.position, row.event_id)):
        rows.setdefault(row.subscriber, []).append(f"{row.position}:{row.event_id}")
    return {name: " ".join(words) for name, words in rows.items()}


@pytest.mark.parametrize("log", GOOD, ids=lambda log: log.name)
def test_what_is_read(log: ForeignLog, tmp_path: Path) -> None:
    assert shown(read_history(log.write(tmp_path), log.mapping).deliveries) == log.rows


@pytest.mark.parametrize("log", BAD, ids=lambda log: log.name)
def test_what_is_wrong_is_named(log: ForeignLog, tmp_path: Path) -> None:
    with pytest.raises(LogError) as caught:
        read_history(log.write(tmp_path), log.mapping)
    for words in log.error:
        assert words in str(caught.value)


def test_other_fields(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "host,msg_id,topic,position,number,index,late,notified_at\nh1,a,A,0,7,2,Yes,1970-01-01T00:00:01.5Z\n"
    )
    mapping = ColumnMapping.of({"subscriber": "host", "event_id": "msg_id", "out_of_order": "late"})
    (row,) = read_history(tmp_path / "log.csv", mapping).deliveries
    assert row == Delivery("h1", 0, "a", "A", 7, notified_at=1500.0, out_of_order=True, index=2)


def test_a_pattern_and_a_packed_file(tmp_path: Path) -> None:
    text = "host,msg_id,topic,position\nh1,a,A,0\n"
    (tmp_path / "one.csv.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "two.csv").write_text(text.replace("h1", "h2"))
    (tmp_path / "notes.txt").write_text("no log")
    assert shown(read_history(tmp_path / "*.csv*", HOSTS).deliveries) == {"h1": "0:a", "h2": "0:a"}
    (tmp_path / "one.csv.gz").write_bytes(gzip.compress(text.encode())[:-10])
    with pytest.raises(LogError, match="not a whole gzip file"):
        read_history(tmp_path / "one.csv.gz", HOSTS)


def test_two_subscribers_in_files_of_one_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "s1.csv").write_text("event_id,topic\na,A\n")
    with pytest.raises(LogError, match="is called s1 too"):
        read_history(tmp_path, ColumnMapping(order_by="line", subscriber_from_file=True))


def test_ties_and_backward_clocks_are_unknown_never_valid(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("host,msg_id,topic,at\nh1,a,A,1\nh1,b,A,1\nh2,a,A,1\nh2,b,A,2\n")
    report = audit(read_history(tmp_path / "log.csv", ordered("at")))
    assert report.verdicts["per-topic"].answer == "unknown"
    (tmp_path / "log.csv").write_text("host,msg_id,topic,at\nh1,a,A,1\nh1,b,A,2\nh2,a,A,2\nh2,b,A,1\n")
    report = audit(read_history(tmp_path / "log.csv", ordered("at")))
    assert report.verdicts["per-topic"].answer == "unknown"
    report = audit(read_history(tmp_path / "log.csv", ordered("at", trust_order=True)))
    assert report.verdicts["per-topic"].answer == "invalid"


def test_runs_of_our_own_logs(tmp_path: Path) -> None:
    line = '{{"run": "{}", "subscriber": "s", "position": 0, "event_id": "a", "topic": "A"}}\n'
    (tmp_path / "deliveries.jsonl").write_text(line.format("r1") + line.format("r2"))
    with pytest.raises(LogError, match=r"rows of several runs: r1, r2; audit one at a time: --run NAME"):
        read_history(tmp_path)
    assert shown(read_history(tmp_path, ColumnMapping(run="r1")).deliveries) == {"s": "0:a"}
    with pytest.raises(LogError, match="no row of run r3; its runs are r1, r2"):
        read_history(tmp_path, ColumnMapping(run="r3"))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"subscribr": "host"}, {}, "'subscribr' is not a field of a delivery; did you mean subscriber?"),
        ({"event_id": ""}, {}, "no column for event_id"),
        ({"position": "p"}, {"order_by": "at"}, "both a position and a column to order by"),
        ({"subscriber": "s"}, {"subscriber_from_file": True}, "from a column and from the file's name"),
        ({"topic": "t"}, {"topic_value": "A"}, "both a column and a value for the topic"),
        ({}, {"order_by": "line", "trust_order": True}, "no column to trust"),
    ],
)
def test_mappings_that_contradict_themselves(columns: dict[str, str], options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ColumnMapping.of(columns, **options)
