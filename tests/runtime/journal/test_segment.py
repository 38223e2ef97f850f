"""The thread that appends: what is told is in the file, whole and in order, however the system lets it be written."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seriatim.model import JournalError
from seriatim.runtime.journal import segment as module
from seriatim.runtime.journal.interface import Recovered
from seriatim.runtime.journal.layout import write_all
from seriatim.runtime.journal.segment import NO_ROOM, RESERVED_BYTES_MIN, Feed, Segment
from tests.runtime.journal.journals import opened, read


def segment_in(folder: Path, *, reserves: bool = False) -> Segment:
    path = folder / "file"
    return Segment(path, os.open(path, os.O_RDWR | os.O_CREAT), 0, reserves=reserves)


def cannot(*arguments: Any, **more: Any) -> int:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.fixture(params=["splice", "a file system that cannot", "a system that cannot"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every way in which bytes get from the pipe to the file."""
    if request.param == "splice" and not hasattr(os, "splice"):
        pytest.skip("not on this system")
    if request.param == "a file system that cannot":
        monkeypatch.setattr(os, "splice", cannot, raising=False)
    elif request.param == "a system that cannot":
        monkeypatch.delattr(os, "splice", raising=False)
    yield request.param


async def test_what_is_told_is_in_the_file(way: str, tmp_path: Path) -> None:
    segment = segment_in(tmp_path)
    feed = Feed(segment)
    written = b""
    for size in (1, 100, 4_095, 4_096, 4_097, 16_000, 7):
        data = os.urandom(size)
        assert feed.takes(data)
        await feed.append(data)
        written += data
        assert segment.path.read_bytes() == written
    await asyncio.to_thread(feed.close)
    assert not feed._thread.is_alive()
    assert segment.end == len(written)
    segment.close()


async def test_what_is_under_way_is_finished_at_the_end(way: str, tmp_path: Path) -> None:
    segment = segment_in(tmp_path)
    feed = Feed(segment)
    under_way = feed.append(b"x" * 10_000)
    await asyncio.to_thread(feed.close)
    assert segment.path.read_bytes() == b"x" * 10_000
    await under_way
    segment.close()


async def test_room_is_reserved_when_a_segment_begins_and_given_back(tmp_path: Path) -> None:
    segment = segment_in(tmp_path, reserves=True)
    segment.reserve()
    assert segment.path.stat().st_size == segment.reserved == RESERVED_BYTES_MIN
    feed = Feed(segment)
    await feed.append(b"x")
    await asyncio.to_thread(feed.close)
    assert segment.path.stat().st_size == segment.reserved == 2 * RESERVED_BYTES_MIN, "less than that was left"
    segment.reserve()
    assert segment.reserved == 2 * RESERVED_BYTES_MIN, "there is enough"
    segment.close()
    assert segment.path.read_bytes() == b"x"


async def test_nothing_is_reserved_where_it_is_not_wanted(tmp_path: Path) -> None:
    segment = segment_in(tmp_path)
    segment.reserve()
    assert (segment.reserved, segment.path.stat().st_size) == (NO_ROOM, 0)
    segment.close()


async def test_an_error_of_the_disk_is_told_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **more: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "splice", full, raising=False)
    segment = segment_in(tmp_path)
    feed = Feed(segment)
    with pytest.raises(JournalError, match="file: cannot append: No space left on device; free space"):
        await feed.append(b"x")
    with pytest.raises(JournalError, match="cannot append"):
        segment.write(b"y")
    await asyncio.to_thread(feed.close)
    segment.close()


def test_a_loop_that_is_gone_ends_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(module, "write_all", lambda *arguments: gate.wait(60))
    monkeypatch.delattr(os, "splice", raising=False)
    feeds = []

    async def leave() -> None:
        feeds.append(Feed(segment_in(tmp_path)))
        feeds[0].append(b"x")

    asyncio.run(leave())
    gate.set()
    feeds[0]._thread.join(60)
    assert not feeds[0]._thread.is_alive()
    feeds[0].close()


# ── in a journal ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_appends_of_any_size_keep_their_order(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that do not fit into the pipe go another way, which must not overtake or be overtaken."""
    monkeypatch.setattr(module, "_widened", lambda pipe: 4_096)
    journal, _ = await opened(tmp_path, fsync=True)
    records = [bytes([number]) * size for number, size in enumerate((10, 5_000, 10, 4_000, 9_000, 200_000, 1))]
    for record in records:
        await journal.append([record])
    await journal.snapshot(b"state")
    for record in records:
        await journal.append([record])
    await journal.close()
    assert await read(tmp_path) == Recovered(b"state", records)


async def test_who_comes_after_a_cancelled_caller_comes_after_its_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two frames in one write could be torn apart by a crash, the first one lost and the second one whole."""
    gate = threading.Event()
    writes: list[int] = []

    def slow(descriptor: int, data: bytes, place: int) -> None:
        assert gate.wait(60)
        writes.append(len(data))
        write_all(descriptor, data, place)

    monkeypatch.delattr(os, "splice", raising=False)
    journal, _ = await opened(tmp_path)
    monkeypatch.setattr(module, "write_all", slow)
    cancelled = asyncio.ensure_future(journal.append([b"first"]))
    await asyncio.sleep(0)
    cancelled.cancel()
    following = asyncio.ensure_future(journal.append([b"second"]))
    await asyncio.wait([cancelled])
    assert cancelled.cancelled() and not following.done()
    gate.set()
    await following
    await journal.close()
    assert len(writes) == 2
    assert (await read(tmp_path)).records == [b"first", b"second"]


async def test_a_failure_whose_caller_was_cancelled_shows_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def broken(*arguments: Any) -> None:
        assert gate.wait(60)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.delattr(os, "splice", raising=False)
    journal, _ = await opened(tmp_path)
    monkeypatch.setattr(module, "write_all", broken)
    cancelled = asyncio.ensure_future(journal.append([b"lost"]))
    await asyncio.sleep(0)
    cancelled.cancel()
    gate.set()
    for act in (journal.append([b"next"]), journal.snapshot(b"state")):
        with pytest.raises(JournalError, match=r"accepts nothing more after an earlier failure: .*Input/output error"):
            await act
    await journal.close()
    assert await read(tmp_path) == Recovered(None, [])
