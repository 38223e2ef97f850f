"""The files of a run survive kill -9: whole rows are read, a torn line is cut off, an emptied file continues."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seriatim.model import LogError
from soak.tree.rows import Ended, Handed, Held, Row, RowFile, Tail, last_row, read_rows

REPOSITORY = Path(__file__).parent.parent.parent


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows: list[Row] = [
        Held(["a", "b"], 1.0),
        Handed("e1", "a", 1, 2.0, replayed=True),
        Handed("e2", "a", 1, 2.5, index=1),
        Ended(3.0),
    ]
    file = RowFile(tmp_path / "sub" / "s.jsonl")
    file.write(*rows[:1])
    file.write(*rows[1:])
    file.close()
    assert read_rows(tmp_path / "sub" / "s.jsonl") == rows


def test_no_file_has_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "nobody.jsonl") == []
    assert Tail(tmp_path / "nobody.jsonl").new() == []


def test_a_torn_last_line_is_passed_over_and_cut_off_by_the_next_life(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    RowFile(path).write(Ended(1.0), Ended(2.0))
    whole = path.read_bytes()
    for cut in range(len(whole) // 2 + 1, len(whole)):
        path.write_bytes(whole[:cut])
        assert read_rows(path) == [Ended(1.0)]
    RowFile(path).write(Ended(3.0))
    assert read_rows(path) == [Ended(1.0), Ended(3.0)]


def test_the_last_whole_row(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    assert last_row(path) is None
    path.write_bytes(b'{"type":"ended","a')
    assert last_row(path) is None
    RowFile(path).write(*[Ended(float(count)) for count in range(1_000)])
    assert last_row(path) == Ended(999.0)
    path.write_bytes(path.read_bytes() + b'{"type":"ended","a')
    assert last_row(path) == Ended(999.0)


def test_damage_elsewhere_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    RowFile(path).write(Ended(1.0), Ended(2.0))
    path.write_bytes(path.read_bytes().replace(b"ended", b"ebbed", 1))
    with pytest.raises(LogError, match=r"s.jsonl line 1: not a row"):
        read_rows(path)


def test_the_tail_reads_on_and_notices_an_emptied_file(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    file, tail = RowFile(path), Tail(path)
    file.write(Ended(1.0), Ended(2.0))
    assert tail.new() == [Ended(1.0), Ended(2.0)]
    assert tail.new() == []
    os.truncate(path, 0)
    file.write(Ended(3.0))
    assert tail.new() == [Ended(3.0)]
    assert read_rows(path) == [Ended(3.0)]


def test_what_was_written_survives_kill_minus_nine(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from soak.tree.rows import Ended, RowFile\n"
        "file, count = RowFile(Path(sys.argv[1])), 0\n"
        "while True:\n"
        "    file.write(Ended(float(count)))\n"
        "    print(count, flush=True)\n"
        "    count += 1\n"
    )
    path = tmp_path / "s.jsonl"
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, cwd=REPOSITORY, env=environment()
    )
    assert writer.stdout is not None
    told = [writer.stdout.readline() for _ in range(100)][-1]
    writer.send_signal(signal.SIGKILL)
    told = (writer.stdout.read().splitlines() or [told])[-1]
    writer.wait(10)
    writer.stdout.close()
    rows = read_rows(path)
    assert len(rows) >= int(told) + 1
    assert rows == [Ended(float(count)) for count in range(len(rows))]


def environment() -> dict[str, str]:
    """Where a child process finds the code."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])}
