"""Folders whose files are not simply their rows: tables of other systems, and output that is not finished."""

from pathlib import Path

import pytest

from seriatim.audit import ColumnMapping, audit, read_history
from seriatim.audit.report import NOTHING_SHARED
from seriatim.model import Delivery, History, LogError

ROWS = "subscriber,position,event_id,topic\ns1,0,a,A\n"
FOREIGN = ColumnMapping.of({"subscriber": "subscriber"}, topic_value="A")


def write(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ROWS if name.endswith(".csv") else "")
    return folder


REFUSED = [
    (("_temporary/0/part-0.csv",), "", "not finished: it has _temporary and no _SUCCESS"),
    (("deliveries/_temporary/0/part-0.csv",), "", "not finished"),
    (("part-0.csv", "_temporary/0/part-1.csv"), "", "not finished"),
    (("part-0.csv", "_temporary/0/part-1.csv"), "part-0.csv", "not finished"),
    (("_delta_log/0.json", "part-0.csv"), "part-0.csv", "a part of a Delta table"),
    (("_delta_log/0.json", "day=1/part-0.csv"), "day=1", "a part of a Delta table"),
    (("lake/_delta_log/0.json", "lake/part-0.csv"), "", "a part of a Delta table"),
    (("metadata/v1.metadata.json", "data/part-0.csv"), "", "an Iceberg table"),
    (("metadata/v1.metadata.json", "data/day=1/part-0.csv"), "data", "an Iceberg table"),
    ((".hoodie/hoodie.properties", "part-0.csv"), "", "a Hudi table"),
]


@pytest.mark.parametrize(("names", "given", "problem"), REFUSED)
def test_what_is_refused(tmp_path: Path, names: tuple[str, ...], given: str, problem: str) -> None:
    path = write(tmp_path / "log", *names) / given
    for mapping in (ColumnMapping(), FOREIGN):
        with pytest.raises(LogError, match=problem):
            read_history(path, mapping)


def test_what_is_read(tmp_path: Path) -> None:
    finished = write(tmp_path / "finished", "_SUCCESS", "_temporary/0/part-1.csv", "deliveries/part-0.csv")
    other = write(tmp_path / "other", "metadata/about.json", "deliveries.csv")
    for folder in (finished, other):
        assert len(read_history(folder).deliveries) == 1


def test_a_log_in_which_nothing_is_shared_says_so() -> None:
    """Most often the ids are those of notifications, and not of events."""
    report = audit(History([Delivery("s1", 0, "a", "A"), Delivery("s2", 0, "b", "A")]))
    for name in ("per-topic", "tno", "acyclic"):
        assert report.verdicts[name].answer == "valid"
        assert report.verdicts[name].reason == f"no violation in 2 deliveries to 2 subscribers; {NOTHING_SHARED}"
    shared = audit(History([Delivery("s1", 0, "a", "A"), Delivery("s2", 0, "a", "A")]))
    assert shared.verdicts["tno"].reason == "no violation in 2 deliveries to 2 subscribers"
