"""Offsets and ranges: pure, so without Spark and without a server."""

import pytest

from seriatim.brokers.bulk import Stream
from seriatim.model import InputError
from seriatim.pipeline.source.options import read_options
from seriatim.pipeline.source.planning import Range, deal_out, latest, ranges_between


def stream(name: str, first: int, next_: int, created: str = "then", mean_bytes: float = 700.0) -> Stream:
    return Stream(name, "log", name, created, first, next_, True, mean_bytes)


def test_everything_without_a_limit() -> None:
    streams = [stream("a", 1, 11), stream("b", 5, 8), stream("c", 1, 1)]
    assert latest({}, streams, "kept", None) == {
        "a": {"next": 11, "created": "then"},
        "b": {"next": 8, "created": "then"},
    }


def test_a_limit_is_dealt_out_and_no_stream_waits_for_another() -> None:
    streams = [stream("a", 1, 1_001), stream("b", 1, 4), stream("c", 1, 1_001)]
    end = latest({}, streams, "kept", 103)
    assert {name: each["next"] - 1 for name, each in end.items()} == {"a": 50, "b": 3, "c": 50}
    assert all(each["next"] == 2 for each in latest({}, streams, "kept", 1).values()), "everybody gets something"


def test_repeating_it_reaches_the_end_and_then_stays_there() -> None:
    streams = [stream("a", 1, 1_001), stream("b", 1, 4), stream("c", 1, 77)]
    offset: dict[str, object] = {}
    seen: list[Range] = []
    for _ in range(100):
        end = latest(offset, streams, "kept", 50)
        seen += ranges_between(offset, end, streams, "kept")
        if end == offset:
            break
        offset = end
    assert latest(offset, streams, "kept", 50) == offset
    for each in streams:
        mine = [part for part in seen if part.stream == each]
        assert [number for part in mine for number in range(part.first, part.last + 1)] == list(range(1, each.next))


def test_what_is_gone_is_a_range_of_its_own() -> None:
    kept = stream("a", 11, 21)
    end = {"a": {"next": 21, "created": "then"}}
    assert ranges_between({}, end, [kept], "all") == [Range(kept, 1, 10, gone=True), Range(kept, 11, 20)]
    assert ranges_between({}, end, [kept], "kept") == [Range(kept, 11, 20)]
    start = {"a": {"next": 4, "created": "then"}}
    assert ranges_between(start, end, [kept], "kept")[0] == Range(kept, 4, 10, gone=True), "it was read up to 3 before"


def test_a_stream_made_anew_and_one_that_is_gone() -> None:
    start = {"a": {"next": 4, "created": "then"}}
    with pytest.raises(InputError, match="deleted and created again"):
        latest(start, [stream("a", 1, 100, created="now")], "kept", None)
    with pytest.raises(InputError, match="no longer on the server"):
        latest(start, [], "kept", None)


def test_tasks_get_about_the_same_and_every_position_once() -> None:
    streams = [stream(f"s{place}", 1, 1 + 37 * place**2) for place in range(12)]
    ranges = [Range(each, 1, each.next - 1) for each in streams if each.next > 1]
    parts = deal_out(ranges, 4, 10**9)
    assert 4 <= len(parts) <= 17
    dealt = [(part.stream.name, at) for task in parts for part in task for at in range(part.first, part.last + 1)]
    assert sorted(dealt) == sorted((each.stream.name, at) for each in ranges for at in range(1, each.last + 1))
    assert len(deal_out(ranges, 4, 100_000)) > len(parts), "no task gets more bytes than it may"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "url"),
        ({"url": "redis://x"}, "not a broker that can be read in bulk"),
        ({"url": "nats://x", "table": "messages"}, "not on the broker"),
        ({"url": "nats://x", "maxrows": "1"}, "no such option"),
        ({"url": "nats://x", "gaps": "skip"}, "unknown value 'skip'"),
        ({"url": "nats://x", "max_messages": "0"}, "not a count"),
        ({"url": "nats://x", "connect_timeout_s": "soon"}, "not a time"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_options(options)
