"""Logs as files: what is written is read again; what is wrong is named by file, line, field and fix."""

from pathlib import Path

import pytest

from seriatim.audit import read_deliveries, read_history, write_history
from seriatim.audit.logs import table_for_spark
from seriatim.model import Delivery, History, LogError, Message, Publication, Subscription

HISTORY = History(
    deliveries=[
        Delivery("s1", 0, "a", "A", 1, {"B": 2, "A": 1}, 1.5, 2.0),
        Delivery("s1", 1, "ü \n,\"'", "B", out_of_order=True),
        Delivery("s1", 2, "c", "B", 1, index=3),
    ],
    publications=[Publication("a", "A", "p", 0.25, 0, 0, 1), Publication("c", "B", "p", number=1, index=3)],
    subscriptions=[Subscription("s1", "A", 0, 5, 0, 1)],
    messages=[Message("run", "p", "n1", "Ticket", 12)],
)


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_history(HISTORY, tmp_path / "run")
    assert read_history(tmp_path / "run") == HISTORY
    assert read_history(str(tmp_path / "run" / "deliveries.jsonl")) == History(deliveries=HISTORY.deliveries)


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    other = [Delivery("s1", 0, "a", "A", 1, {"A": 1, "B": 2}, 1.5, 2.0), *HISTORY.deliveries[1:]]
    write_history(HISTORY, tmp_path / "one")
    write_history(History(deliveries=other), tmp_path / "other")
    first, second = (tmp_path / name / "deliveries.jsonl" for name in ("one", "other"))
    assert first.read_bytes() == second.read_bytes()


def test_writing_leaves_nothing_of_an_earlier_run(tmp_path: Path) -> None:
    write_history(HISTORY, tmp_path)
    write_history(History(deliveries=HISTORY.deliveries), tmp_path)
    assert read_history(tmp_path) == History(deliveries=HISTORY.deliveries)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match=r"file/run: Not a directory; give another folder"):
        write_history(HISTORY, tmp_path / "file" / "run")


def test_only_deliveries_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "deliveries.jsonl").write_text("")
    assert read_history(tmp_path) == History()


def test_blank_lines_and_unknown_fields_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('\n{"subscriber": "s", "position": 0, "event_id": "a", "topic": "A", "colour": 1}\n\n')
    assert read_deliveries(path) == [Delivery("s", 0, "a", "A")]


def test_the_last_line_need_not_end(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"subscriber": "s", "position": 0, "event_id": "a", "topic": "A"}')
    assert read_deliveries(path) == [Delivery("s", 0, "a", "A")]


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "\ufeffsubscriber,position,event_id,topic,number,index,stamp,notified_at,out_of_order,colour\n"
        's1,0,"a,1",A,7,2,"{""B"": 2}",2.5,true,red\n'
        "s1,1,b,B,,,,,false,\n",
        encoding="utf-8",
    )
    assert read_history(path).deliveries == [
        Delivery("s1", 0, "a,1", "A", 7, {"B": 2}, notified_at=2.5, out_of_order=True, index=2),
        Delivery("s1", 1, "b", "B"),
    ]


GOOD = '{"subscriber": "s", "position": 0, "event_id": "a", "topic": "A"}\n'
CUT_OFF = "copy the file again, or delete that line"


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        (GOOD + '{"subscriber": "s", "posi', 'line 2, the last line is cut off: {"subscriber": "s", "posi', CUT_OFF),
        (GOOD + "nonsense\n", "line 2, not a JSON object: nonsense", "write one JSON object per line"),
        (GOOD + "[1]\n" + GOOD, "line 2, not a JSON object: [1]", "write one"),
        (GOOD + GOOD[:-1] + GOOD, 'line 2, not a JSON object: {"subs', "write one"),
        (GOOD.replace("0", '"zero"'), "line 1, column position: zero is not a whole number", "correct it"),
        (GOOD.replace("0", "-1"), "line 1, column position: -1 is negative", "count from 0"),
        (GOOD.replace('"A"', '"A", "index": -1'), "line 1, column index: -1 is negative", "count from 0"),
        (GOOD.replace('"A"', '""'), "line 1, column topic: empty, and it is the topic", "fill it, or map another"),
        (GOOD + GOOD.replace('"topic"', '"title"'), "line 2, column topic: empty, and it is the topic", "fill it"),
        (GOOD.replace('"s"', '"\udcff"') + GOOD, "line 1, not a JSON object: ", "write one"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, message: str, fix: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(LogError) as error:
        read_history(path)
    rows = len(text.splitlines())
    assert error.value.problem.startswith(f"1 of {rows} rows do not fit: {tmp_path}/log.jsonl {message}")
    assert error.value.fix.startswith(fix)


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        ("s1,0,a,A\ns1,1", "line 3, the last line is cut off: s1,1", CUT_OFF),
        ("s1,0\ns1,1,a,A\n", "line 2, more or fewer cells than the first line: s1,0", "quote cells that contain"),
        ("s1,0,a,A,5\n", "line 2, more or fewer cells than the first line: s1,0,a,A,5", "quote"),
        ("s1,x,a,A\n", "line 2, column position: x is not a whole number", "correct it"),
        ("s1,,a,A\n", "line 2, column position: empty", "fill it"),
        ("s1,0,\udcff,A\n", "line 2, column event_id: not UTF-8", "write the file as UTF-8"),
        ('s1,0,"a\nb",A\n', "line 2, more or fewer cells", "quote"),
    ],
)
def test_a_bad_line_of_a_table_is_named(tmp_path: Path, text: str, message: str, fix: str) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(("subscriber,position,event_id,topic\n" + text).encode(errors="surrogateescape"))
    with pytest.raises(LogError) as error:
        read_history(path)
    assert f"rows do not fit: {tmp_path}/log.csv {message}" in error.value.problem
    assert error.value.fix.startswith(fix)


def test_all_bad_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("subscriber,position,event_id,topic\n" + "s,x,a,A\ns,1,a,A\n" * 5)
    with pytest.raises(LogError, match="5 of 10 rows do not fit") as error:
        read_history(path)
    assert error.value.problem.count("is not a whole number") == 3


def test_text_behind_a_quote_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('subscriber,position,event_id,topic\ns1,0,"a"b,A\n')
    with pytest.raises(LogError, match=r"log\.csv: text after a closing quote; write a quote inside a cell twice"):
        read_history(path)


def test_a_bad_stamp_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("subscriber,position,event_id,topic,stamp\ns1,0,a,A,B:2\n")
    with pytest.raises(LogError, match=r"line 2, column stamp: B:2 is not a stamp; write it as JSON"):
        read_history(path)


def test_a_path_that_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no such file or folder; correct the path"):
        read_history(tmp_path / "none")
    with pytest.raises(LogError, match=r"no deliveries in this folder; give the folder that has them"):
        read_history(tmp_path)
    with pytest.raises(LogError, match="no such file or folder; correct the path"):
        read_deliveries(tmp_path / "none.csv")
    (tmp_path / "log.parquet").write_text("")
    with pytest.raises(LogError, match=r"only Spark reads Parquet; leave out --engine python"):
        read_history(tmp_path / "log.parquet")
    (tmp_path / "log.txt").write_text("")
    with pytest.raises(LogError, match=r"cannot read \.txt; give a \.jsonl, \.csv, \.tsv or \.parquet file"):
        read_history(tmp_path / "log.txt")


DELIVERIES = "subscriber,position,event_id,topic\ns1,0,a,A\n"
PUBLICATIONS = "event_id,topic,publisher,sequence,seen\na,A,p,0,\n"


def test_every_table_may_be_csv(tmp_path: Path) -> None:
    (tmp_path / "deliveries.csv").write_text(DELIVERIES)
    (tmp_path / "publications.csv").write_text(PUBLICATIONS)
    (tmp_path / "subscriptions.jsonl").write_text('{"subscriber": "s1", "topic": "A", "since": 0}\n')
    history = read_history(tmp_path)
    assert history.deliveries == [Delivery("s1", 0, "a", "A")]
    assert history.publications == [Publication("a", "A", "p", sequence=0)]
    assert history.subscriptions == [Subscription("s1", "A", 0)]


def test_a_table_is_not_passed_over(tmp_path: Path) -> None:
    """A log of which half is read would be judged as if the rest had never been written."""
    (tmp_path / "publications.csv").write_text(PUBLICATIONS)
    with pytest.raises(LogError, match="no deliveries beside publications; add deliveries"):
        read_history(tmp_path)
    (tmp_path / "deliveries.csv").write_text(DELIVERIES)
    (tmp_path / "deliveries.jsonl").write_text(GOOD)
    with pytest.raises(LogError, match=r"deliveries twice: deliveries\.csv and deliveries\.jsonl; keep one"):
        read_history(tmp_path)
    (tmp_path / "deliveries.jsonl").unlink()
    (tmp_path / "publications.csv").rename(tmp_path / "publications.tsv")
    assert table_for_spark(tmp_path) == tmp_path / "publications.tsv"
    with pytest.raises(LogError, match=r"publications\.tsv: only Spark reads this table; leave out --engine python"):
        read_history(tmp_path)


def test_other_files_may_be_beside_a_log(tmp_path: Path) -> None:
    write_history(HISTORY, tmp_path)
    for name in ("messages.log", "subscriptions.toml", "publications"):
        (tmp_path / name).write_text("not rows\n")
    assert table_for_spark(tmp_path) is None
    assert read_history(tmp_path) == HISTORY


def test_runs_in_folders_are_not_taken_for_one(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "deliveries.jsonl").write_text(GOOD)
    with pytest.raises(LogError, match=r"but in .*monday, .*tuesday; give one of these: an audit is about one run"):
        read_history(tmp_path)


def test_files_of_different_formats_are_no_log(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(DELIVERIES)
    (tmp_path / "b.jsonl").write_text(GOOD)
    with pytest.raises(LogError, match=r"files of different formats: csv \(a\.csv\) and jsonl \(b\.jsonl\)"):
        read_history(tmp_path)


def test_columns_of_another_system_need_an_option(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("host,seq,event_id,topic\ns1,0,a,A\n")
    with pytest.raises(LogError, match=r"no column subscriber; say which one it is with --subscriber .*; its columns"):
        read_history(path)
    path = tmp_path / "log.jsonl"
    path.write_text(GOOD.replace('"topic"', '"title"'))
    with pytest.raises(LogError, match=r"no column topic; say which one it is with --topic, or --topic-value; its"):
        read_history(path)
