"""Which rows are followed: never those of two runs, also after a restart."""

import msgspec
import pyarrow as pa
import pytest

from seriatim.model import InputError, LogError
from seriatim.pipeline.follow.runs import OTHERS_MAX, Runs


def rows(*runs: str | None) -> pa.Table:
    return pa.table({"event_id": [str(i) for i in range(len(runs))], "_run": pa.array(runs, pa.string())})


def ids(table: pa.Table) -> str:
    assert table.column_names == ["event_id"]
    return "".join(table["event_id"].to_pylist())


def restarted(runs: Runs, run: str | None = None) -> Runs:
    return msgspec.json.decode(msgspec.json.encode(runs), type=Runs).asked_for(run, "state")


def test_rows_of_a_second_run_end_it_whenever_they_come() -> None:
    with pytest.raises(LogError, match="rows of several runs: mon, tue; audit one at a time: --run NAME"):
        Runs().chosen(rows("mon", "tue"))
    runs = Runs()
    assert ids(runs.chosen(rows(None, None))) == "01"
    assert ids(runs.chosen(rows("mon", None))) == "01"
    with pytest.raises(LogError, match="rows of several runs: mon, tue"):
        restarted(runs).chosen(rows("tue"))
    assert ids(restarted(runs, "mon").chosen(rows("tue", "mon"))) == "1"


def test_one_run_of_several() -> None:
    runs = Runs("mon")
    assert ids(runs.chosen(rows("tue", "mon", None))) == "12"
    assert ids(restarted(runs).chosen(rows("tue", "mon"))) == "1"  # it need not be said again
    with pytest.raises(InputError, match="state: follows run mon, not tue; give another checkpoint"):
        restarted(runs, "tue")


def test_a_run_that_is_not_there() -> None:
    runs = Runs("mom")
    assert ids(runs.chosen(rows(None))) == "0" and runs.absence() is None
    assert ids(runs.chosen(rows("tue", "mon"))) == ""
    assert "no row of run mom; its runs are mon, tue" in str(restarted(runs).absence())
    runs.chosen(rows(*map(str, range(2 * OTHERS_MAX))))
    assert len(runs.others) == OTHERS_MAX
    runs.chosen(rows("mom"))
    assert runs.absence() is None
