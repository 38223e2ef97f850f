"""The client without an event loop: the same methods, which wait."""

import threading
from pathlib import Path
from typing import Any

import pytest

from seriatim.client.sync import connect
from seriatim.model import Closed, InputError, TimedOut
from tests.waiting import wait


def test_publish_and_subscribe() -> None:
    with connect("memory://", name="script") as bus, bus.subscribe("a", "b") as events:
        assert bus.publish("a", b"1", headers={"x": "y"}).number == 1
        future = bus.publish_nowait("a", b"2")
        assert future.result(timeout=60).number == 2
        assert [each.topic for each in bus.publish_many([("b", b"3"), ("b", b"4")])] == ["b", "b"]
        assert bus.name.startswith("script~")
        assert events.topics == {"a", "b"}
        assert events.next(timeout_s=60).headers == {"x": "y"}
        wait(lambda: events.unread == 3, "three events wait")
        assert [event.data for event in events.within(0.1)] == [b"2", b"3", b"4"]
        assert not bus.explain()


@pytest.mark.parametrize("options", [{}, {"own_order": True}, {"confirm": "stored"}])
def test_events_that_were_awaited_keep_their_order(options: dict[str, Any]) -> None:
    with connect("memory://", **options) as bus, bus.subscribe("a", "b") as one, bus.subscribe("a", "b") as other:
        for n in range(20):
            bus.publish("ab"[n % 2], b"%d" % n)
        seen = [[events.next(timeout_s=60).data for _ in range(20)] for events in (one, other)]
        assert seen[0] == seen[1]
        if options != {"confirm": "stored"}:
            assert seen[0] == [b"%d" % n for n in range(20)]


def test_iterating_changes_and_batches() -> None:
    with connect("memory://") as bus, bus.subscribe("a") as events:
        bus.publish("a", b"1")
        for event in events:
            if event.data == b"1":
                events.add("b")
                bus.publish_many("b", [b"2", b"3"])
            elif event.data == b"3":
                break
        bus.publish_many("a", [b"4", b"5", b"6"])
        for batch in events.batches(2):
            assert [event.data for event in batch] == [b"4", b"5"]
            break
        events.remove("a")
        assert events.topics == {"b"}


def test_errors_are_the_same() -> None:
    with pytest.raises(InputError):
        connect("nonsense")
    bus = connect("memory://")
    with pytest.raises(Closed, match="enter the bus first"):
        bus.publish("a", b"1")
    with bus:
        with pytest.raises(InputError):
            bus.publish("", b"1")
        with bus.subscribe("a") as events:
            with pytest.raises(TimedOut):
                events.next(0.01)
            with pytest.raises(AttributeError):
                events.nonsense  # noqa: B018
    with pytest.raises(Closed):
        bus.publish("a", b"1")


def test_closing_in_another_thread_ends_the_loop() -> None:
    with connect("memory://") as bus, bus.subscribe("a") as events:
        bus.publish("a", b"1")
        read = threading.Event()

        def close_when_read() -> None:
            assert read.wait(60)
            events.close()

        closing = threading.Thread(target=close_when_read)
        closing.start()
        for event in events:
            assert event.data == b"1" and not read.is_set()
            read.set()
        closing.join()


def test_programs_share_a_named_cluster_and_leave_no_thread(tmp_path: Path) -> None:
    with (
        connect("memory://shop") as one,
        connect("memory://shop", publication_log=tmp_path) as two,
        two.subscribe("a", log=tmp_path) as events,
    ):
        one.publish("a", b"1")
        assert events.next().data == b"1"
    assert not [thread for thread in threading.enumerate() if thread.name == "seriatim"]
