"""Delivery and publication logs: whatever happens, `seriatim audit` gives a verdict on them."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seriatim.audit import audit
from seriatim.audit.logs import read_history
from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.client.tables import RowFile, padded
from seriatim.client.tree.session import TreeSession
from seriatim.client.tree.source import TreeSource
from seriatim.model import LogError, Subscription
from seriatim.order import SequencingTree
from tests.client.crashes import Store, kill
from tests.client.world import data, hurry, take, until, world
from tests.disk import full_disk
from tests.waiting import LIMIT_S

REPOSITORY = Path(__file__).parent.parent.parent


def verdicts(folder: Path, *names: str) -> dict[str, str]:
    """What an audit says of what the tree promises, or of these guarantees; reasons where it is not valid."""
    report = audit(read_history(folder))
    found = {name: report.verdicts[name] for name in names or PROMISED}
    return {name: each.answer if each.answer == "valid" else each.reason for name, each in found.items()}


PROMISED = ("fifo", "per-topic", "tno", "acyclic", "integrity", "completeness")
ALL_VALID = dict.fromkeys(PROMISED, "valid")


@pytest.mark.parametrize("mode", ["log", "ticket"])
async def test_a_run_with_changes_is_audited_valid(tmp_path: Path, mode: str) -> None:
    broker = MemoryBroker(seed=3, reordering=0.4, delay_ms=0.5)
    tree = SequencingTree.star({"a": 1, "b": 2, "c": 1}, 2)
    async with (
        world(broker, mode=mode, tree=tree) as w,
        w.bus(publication_log=tmp_path) as one,
        w.bus(publication_log=tmp_path) as two,
        one.subscribe("a", "b", log=tmp_path) as first,
        two.subscribe("a", "b", "c", log=tmp_path) as second,
    ):
        for i in range(40):
            await asyncio.gather(
                one.publish_many("abc"[i % 3], [b"one"] * (1 + i % 4)), two.publish("ab"[i % 2], b"two")
            )
            if i == 10:
                await first.add("c")
            if i == 20:
                await second.remove("a")
            if i == 30:
                await second.add("a")
            await take(first, min(first.unread, 3))
            await take(second, min(second.unread, 5))
        await two.publish("a", b"last")
        for each in (first, second):  # also what a busy machine brings late
            while (await each.next(LIMIT_S)).data != b"last":
                pass
    assert verdicts(tmp_path) == ALL_VALID
    history = read_history(tmp_path)
    assert len(history.subscriptions) == 7
    assert all(row.until is not None for row in history.subscriptions), "closing ends every holding"
    assert all(row.received_at and row.notified_at and row.received_at <= row.notified_at for row in history.deliveries)


async def test_an_unordered_subscription_can_be_audited_too(tmp_path: Path) -> None:
    async with (
        world() as w,
        w.bus(publication_log=tmp_path) as bus,
        bus.subscribe("a", ordered=False, log=tmp_path / "deliveries.jsonl") as events,
    ):
        await bus.publish_many("a", [b"x"] * 5)
        await take(events, 5)
    assert verdicts(tmp_path, "fifo", "integrity") == {"fifo": "valid", "integrity": "valid"}


async def test_causal_runs_say_what_the_publisher_had_seen(tmp_path: Path) -> None:
    async with (
        world(causal=True) as w,
        w.bus(publication_log=tmp_path) as one,
        w.bus(publication_log=tmp_path) as two,
        one.subscribe("questions", "answers", log=tmp_path) as first,
        two.subscribe("questions", "answers", log=tmp_path) as second,
    ):
        for _ in range(10):
            await one.publish("questions", b"?")
            await take(second, 1)
            await two.publish("answers", b"!")
            await take(second, 1)
        await take(first, 20)
    assert verdicts(tmp_path, "causal-total", "completeness") == {"causal-total": "valid", "completeness": "valid"}
    seen = [row.seen for row in read_history(tmp_path).publications if row.topic == "answers"]
    assert seen == list(range(1, 21, 2))


async def test_what_a_publication_says_was_seen_is_in_the_log_before_it(tmp_path: Path) -> None:
    """Deliveries are gathered for a second; a process that is killed in it must not leave a publication that came after
    deliveries nobody finds."""

    async with (
        world(causal=True) as w,
        w.bus(publication_log=tmp_path) as bus,
        bus.subscribe("a", log=tmp_path) as events,
    ):
        await bus.publish("a", b"first")
        await take(events, 1)
        assert not read_history(tmp_path).deliveries, "it is not written yet"
        await bus.publish("a", b"second")
        history = read_history(tmp_path)  # as a kill would leave it
        assert [row.seen for row in history.publications] == [0, 1] and len(history.deliveries) == 1
        with full_disk(0):
            await take(events, 1)
            with pytest.raises(LogError, match="make room on the disk"):
                await bus.publish("a", b"third")
        await bus.publish("a", b"fourth")
    assert verdicts(tmp_path, "causal-total") == {"causal-total": "valid"}


async def test_bucketed_names_are_audited_by_name(tmp_path: Path) -> None:
    async with (
        world(MemoryBroker(buckets=1)) as w,
        w.bus(publication_log=tmp_path) as bus,
        bus.subscribe("x", log=tmp_path) as events,
        bus.subscribe("x", "y", log=tmp_path) as all_events,
    ):
        await bus.publish_many([("x", b"1"), ("y", b"2"), ("x", b"3")])
        await take(events, 2)
        await events.add("y")
        await bus.publish_many([("y", b"4"), ("x", b"5")])
        await take(events, 2)
        await take(all_events, 5)
    assert verdicts(tmp_path) == ALL_VALID


async def test_half_a_pack_taken_is_no_gap(tmp_path: Path) -> None:
    async with world() as w, w.bus(publication_log=tmp_path) as bus:
        async with bus.subscribe("a", "b", log=tmp_path) as events:
            await bus.publish("a", b"0")
            await bus.publish_many("a", [b"x"] * 10)
            await take(events, 4)
            await events.remove("a")
            await bus.publish_many("b", [b"y"] * 10)
            await take(events, 3)
        async with bus.subscribe("a", log=tmp_path) as events:
            await bus.publish_many("a", [b"x"] * 10)
            await take(events, 10)
    assert verdicts(tmp_path) == ALL_VALID


async def test_what_fails_is_not_published_and_what_is_unknown_has_no_number(tmp_path: Path) -> None:
    from seriatim.model import RequestRefused, TimedOut
    from tests.client.test_publishing import Gate

    broker = Gate()
    async with world(broker) as w, w.bus(publication_log=tmp_path) as bus:
        await bus.publish("a", b"known")
        broker.refused = {"b"}
        with pytest.raises(RequestRefused):
            await bus.publish("b", b"refused")
        broker.is_shut = True
        hurry(bus, timeout_s=0.2)
        with pytest.raises(TimedOut):
            await bus.publish("a", b"unknown")
    (tmp_path / "deliveries.jsonl").touch()
    rows = read_history(tmp_path).publications
    assert [(row.topic, row.number, row.sequence) for row in rows] == [("a", 1, 0), ("a", None, 2)]


async def test_a_durable_subscription_continues_its_log(tmp_path: Path) -> None:
    store = Store()
    async with world() as w, w.bus(publication_log=tmp_path) as bus, w.bus(journals=store.open_journal) as reader:
        for life in range(3):
            async with reader.subscribe("a", "b", durable="d", log=tmp_path) as events:
                await bus.publish_many([("a", b"1"), ("b", b"2"), ("a", b"3")])
                await take(events, 3)
                if life == 1:
                    await events.remove("b")
                    await events.add("b")
                await kill(events)
        async with reader.subscribe("a", "b", durable="d", log=tmp_path) as events:
            await bus.publish_many([("a", b"4"), ("b", b"5")])
            seen: set[bytes] = set()
            while not {b"4", b"5"} <= seen:  # behind what was handed out before, and not acknowledged
                seen |= {event.data for event in await take(events, 1)}
    assert verdicts(tmp_path) == ALL_VALID
    positions = [row.position for row in read_history(tmp_path).deliveries]
    assert positions == list(range(len(positions)))


async def test_a_durable_subscription_begins_a_new_log_where_it_is(tmp_path: Path) -> None:
    store = Store()
    async with world() as w, w.bus() as bus, w.bus(journals=store.open_journal) as reader:
        async with reader.subscribe("a", durable="d") as events:
            for _ in range(3):
                await bus.publish("a", b"x")
            await take(events, 3)
            await events.acknowledge()
        async with reader.subscribe("a", durable="d", log=tmp_path) as events:
            await bus.publish("a", b"x")
            await take(events, 1)
    [row] = read_history(tmp_path).subscriptions
    assert (row.start, row.since, row.until) == (3, 0, None)


CHILD = """
import asyncio, sys
from seriatim import connect

async def main():
    folder = sys.argv[1]
    async with connect("memory://", publication_log=folder) as bus, bus.subscribe("a", "b", log=folder) as events:
        while True:
            await bus.publish_many([("a", b"x"), ("b", b"y"), ("a", b"z")] * 20)
            async for batch in events.batches(500):
                if not events.unread:
                    break
            print("round", flush=True)

asyncio.run(main())
"""


def test_a_killed_process_leaves_a_log_that_can_be_read(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
    )
    assert child.stdout is not None
    for _ in range(60):
        assert child.stdout.readline() == b"round\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    history = read_history(tmp_path)
    assert len(history.deliveries) >= 3000, "every 1,000 rows are written"
    assert {row.until for row in history.subscriptions} == {None}
    found = verdicts(tmp_path, "fifo", "tno", "integrity")
    assert found == {"fifo": "valid", "tno": "valid", "integrity": "valid"}
    # What the broker has and no row tells of (yet) is a doubt, not an anomaly.
    assert audit(history).verdicts["completeness"].answer == "unknown"


async def test_rows_are_written_every_second(tmp_path: Path) -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a", log=tmp_path) as events:
        await bus.publish("a", b"x")
        await take(events, 1)
        path = tmp_path / "deliveries.jsonl"
        await until("the row is written", lambda: bool(path.read_bytes()))


# ── the file itself ───────────────────────────────────────────────────────────────────────────────────────────────


def test_lines_with_room_are_changed_in_place(tmp_path: Path) -> None:
    file, other = RowFile(tmp_path / "s.jsonl"), RowFile(tmp_path / "s.jsonl")
    first = padded(Subscription("s", "a", 0))
    offset = file.append(first)
    other.append(padded(Subscription("other", "b", 0)))
    file.change(offset, [Subscription("s", "a", 0, 10**12, 10**12, 10**12)], [len(first)])
    rows = [row for _, _, row in file.rows(Subscription)]
    assert rows == [Subscription("s", "a", 0, 10**12, 10**12, 10**12), Subscription("other", "b", 0)]
    file.close()
    file.close()
    other.close()


def test_half_a_line_is_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    whole = padded(Subscription("s", "a", 0))
    path.write_bytes(whole + whole[:20])
    RowFile(path).close()
    assert path.read_bytes() == whole


def test_half_a_line_stays_while_somebody_else_writes(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    writer = RowFile(path)
    path.write_bytes(b"half a li")
    RowFile(path).close()
    assert path.read_bytes() == b"half a li"
    writer.close()


def test_errors_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogError, match="check the path and its permissions"):
        RowFile(tmp_path / "file" / "s.jsonl")
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"{}\n")
    file = RowFile(path)
    with pytest.raises(LogError, match=r"s\.jsonl line 1: not a row"):
        list(file.rows(Subscription))
    file.close()


async def test_a_log_that_cannot_be_written_ends_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    async with world() as w, w.bus() as bus:
        with pytest.raises(LogError):
            async with bus.subscribe("a", log=tmp_path / "taken"):
                pass
        async with bus.subscribe("a") as events:
            await bus.publish("a", b"1")
            assert data(await take(events, 1)) == ["1"]


async def test_what_cannot_be_logged_is_not_published(tmp_path: Path) -> None:
    async with world() as w, w.bus(publication_log=tmp_path) as bus:
        await bus.publish("a", b"1")
        session = bus.session
        assert isinstance(session, TreeSession) and session._publications is not None
        file = session._publications._table
        assert isinstance(file, RowFile)
        append, change = file._append, file._change
        file._append = file._change = -1
        with pytest.raises(LogError, match="make room on the disk"):
            await bus.publish("a", b"2")
        file._append = append
        assert (await bus.publish("a", b"3")).number == 2, "and its row stays without a number"
        file._change = change
    (tmp_path / "deliveries.jsonl").touch()
    assert [row.number for row in read_history(tmp_path).publications] == [1, None]


async def test_deliveries_that_cannot_be_written_are_kept_until_they_can(tmp_path: Path) -> None:
    async with world() as w, w.bus() as bus, bus.subscribe("a", log=tmp_path) as events:
        await bus.publish_many("a", [b"x"] * 1500)
        await until("all are ready", lambda: events.unread == 1500)
        source = events._source
        assert isinstance(source, TreeSource) and source._log is not None
        file = source._log._deliveries
        assert isinstance(file, RowFile)
        append, file._append = file._append, -1
        with pytest.raises(LogError):
            await take(events, 1500)
        file._append = append
        await take(events, events.unread)
    assert [row.position for row in read_history(tmp_path).deliveries] == list(range(1500))


def test_rows_that_do_not_fit_leave_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    ours, theirs = RowFile(path), RowFile(path)
    first, second, third = (Subscription("s", topic, 0) for topic in ("a", "b", "c"))
    lines = padded(first) + padded(second)
    with full_disk(len(lines) - 10), pytest.raises(LogError, match=r"takes only .*; make room on the disk"):
        ours.append(lines)
    assert list(ours.rows(Subscription)) == []
    theirs.append(padded(third))
    offset = ours.append(lines)
    assert [row for _, _, row in ours.rows(Subscription)] == [third, first, second]
    ended = Subscription("s", "a", 0, 7)
    ours.change(offset, [ended], [len(padded(first))])
    assert [row for _, _, row in theirs.rows(Subscription)] == [third, ended, second]
    ours.close()
    theirs.close()


def test_what_could_not_be_blanked_is_before_anything_else_is_written(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    file, row = RowFile(path), Subscription("s", "a", 0)
    change, file._change = file._change, -1
    with full_disk(20):
        for _ in range(2):
            with pytest.raises(LogError, match="make room on the disk"):
                file.append(padded(row))
    file._change = change
    assert path.stat().st_size == 20 and not path.read_bytes().isspace()
    file.append(padded(row))
    assert [row for _, _, row in file.rows(Subscription)] == [row]
    file.close()


async def test_no_event_is_lost_while_the_disk_is_full(tmp_path: Path) -> None:
    """Taken in lists that cross the borders of messages: what the log has accepted is given out before the error."""

    taken: list[str] = []
    errors = 0
    async with world() as w, w.bus() as bus, bus.subscribe("a", log=tmp_path) as events:
        for number in range(2500):
            bus.publish_nowait("a", str(number).encode())
        await bus.flush()
        await until("all are ready", lambda: events.unread == 2500)
        with full_disk(30_000):
            while not errors:
                try:
                    taken += data(await anext(events.batches(300)))
                except LogError:
                    errors += 1
            assert 0 < len(taken) < 2500
            assert events.unread == 2500 - len(taken)
            with pytest.raises(LogError):
                await events.next()
        taken += data(await take(events, 2500 - len(taken)))
    assert taken == [str(number) for number in range(2500)]
    rows = read_history(tmp_path).deliveries
    assert [row.position for row in rows] == list(range(2500))
    assert [row.number for row in rows] == sorted(row.number for row in rows if row.number is not None)


async def test_a_topic_that_cannot_be_said_to_begin_begins_later(tmp_path: Path) -> None:
    async with world() as w, w.bus(publication_log=tmp_path) as bus, bus.subscribe("a", log=tmp_path) as events:
        await bus.publish("a", b"1")
        await until("it is ready", lambda: events.unread == 1)
        with full_disk(10), pytest.raises(LogError):
            await events.next()
        assert data(await take(events, 1)) == ["1"]
        await events.add("b")
        await bus.publish("b", b"2")
        await until("it is ready", lambda: events.unread == 1)
        with full_disk(10), pytest.raises(LogError):
            await events.next()
        assert data(await take(events, 1)) == ["2"]
    history = read_history(tmp_path)
    assert [(row.topic, row.since, row.until) for row in history.subscriptions] == [("a", 0, 2), ("b", 1, 2)]
    assert [(row.topic, row.position) for row in history.deliveries] == [("a", 0), ("b", 1)]
    assert verdicts(tmp_path) == ALL_VALID


async def test_a_subscription_that_closes_on_a_full_disk_is_closed(tmp_path: Path) -> None:
    async with world() as w, w.bus() as bus:
        events = bus.subscribe("a", log=tmp_path)
        await events.__aenter__()
        await bus.publish("a", b"1")
        assert data(await take(events, 1)) == ["1"]
        with full_disk(10), pytest.raises(LogError):
            await events.close()
        assert bus._subscriptions == []
        async with bus.subscribe("a") as others:
            await bus.publish("a", b"2")
            assert data(await take(others, 1)) == ["2"]
