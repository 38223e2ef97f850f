"""What a replay onto live topics remembers between two runs, and how rows become events. Needs no Spark."""

from pathlib import Path

import pytest
from pyspark.sql import Row

from seriatim.brokers.capabilities import Reached, ReplayedEvent, ReplayPlace
from seriatim.model import InputError
from seriatim.pipeline.replay.republish import RECORD_EVERY, ProgressFile, Publishing, digest_of, event_of


def publishing(path: Path | None, digest: str = "abc", prefix: str | None = None) -> Publishing:
    return Publishing(url="nats://127.0.0.1", digest=digest, prefix=prefix, progress=path)


def at(order_key: int) -> ReplayPlace:
    return ReplayPlace(order_key, "orders", 1, 0)


def test_progress_is_written_now_and_then_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    told: list[int] = []
    progress = ProgressFile(publishing(path), told.append)
    assert progress.reached() is None
    progress.stored(at(1), RECORD_EVERY - 1)
    assert not path.exists()
    progress.stored(at(2), RECORD_EVERY)
    assert ProgressFile(publishing(path), told.append).reached() == Reached(at(2), RECORD_EVERY)
    progress.stored(at(3), RECORD_EVERY + 1)
    progress.write()
    later = ProgressFile(publishing(path), told.append)
    assert later.reached() == Reached(at(3), RECORD_EVERY + 1)
    later.before = RECORD_EVERY + 1
    later.stored(at(4), 1)
    later.write()
    assert ProgressFile(publishing(path), told.append).reached() == Reached(at(4), RECORD_EVERY + 2)
    assert told == [RECORD_EVERY - 1, RECORD_EVERY, RECORD_EVERY + 1, RECORD_EVERY + 2]
    assert [each.name for each in tmp_path.iterdir()] == ["progress.json"]


def test_a_run_that_stores_nothing_forgets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    first = ProgressFile(publishing(path), lambda count: None)
    first.stored(at(1), 5)
    first.write()
    second = ProgressFile(publishing(path), lambda count: None)
    reached = second.reached()
    assert reached is not None
    second.before = reached.count
    second.write()
    assert ProgressFile(publishing(path), lambda count: None).reached() == Reached(at(1), 5)


def test_progress_of_another_replay_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    earlier = '{"digest": "abc", "order_key": "0000000000000046 orders 0000000000000001 00000000", "count": 1}'
    for text in ("{}", "[]", '{"digest": "abc", "place": 7, "count": 1}', earlier):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="it is not a record of a replay; name another file"):
            ProgressFile(publishing(path), lambda count: None).reached()
    path.unlink()
    other = ProgressFile(publishing(path, "other"), lambda count: None)
    other.stored(at(1), 1)
    other.write()
    with pytest.raises(InputError, match="it is the record of another replay"):
        ProgressFile(publishing(path), lambda count: None).reached()
    assert ProgressFile(publishing(path, prefix="replay"), lambda count: None).reached() is None  # its stream knows


def test_the_same_replay_has_the_same_digest() -> None:
    assert digest_of("lake", None, ["a", "b"]) == digest_of("lake", None, ["a", "b"])
    assert len({digest_of("lake", topics, since) for topics in (["a"], ["a", "b"]) for since in (None, "a=1")}) == 4


def test_rows_as_events() -> None:
    row = Row(
        order_key=7,
        log="orders",
        number=3,
        index=1,
        topic="orders",
        event_id="e",
        publisher=None,
        headers={"a": "b"},
        data=bytearray(b"data"),
        received_at=1.0,
        notified_at=None,
    )
    assert event_of(row) == ReplayedEvent(ReplayPlace(7, "orders", 3, 1), "orders", "e", None, {"a": "b"}, b"data", 1.0)


def test_places_compare_as_events_follow_each_other() -> None:
    places = [
        ReplayPlace(-5, "b", 9, 0),
        ReplayPlace(9, "a", 1, 0),
        ReplayPlace(9, "a", 1, 1),
        ReplayPlace(10, "a", 2, 0),
    ]
    assert sorted(reversed(places)) == places
    assert [ReplayPlace.parse(str(each)) for each in places] == places
    with pytest.raises(ValueError, match="unpack"):
        ReplayPlace.parse("")
