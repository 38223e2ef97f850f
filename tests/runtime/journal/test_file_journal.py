"""The file journal: what was appended is there again, snapshots, and folders that cannot be one."""

import asyncio
import errno
import os
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from seriatim.model import Closed, JournalError
from seriatim.runtime.journal.file_journal import FileJournal
from seriatim.runtime.journal.interface import Recovered
from seriatim.runtime.journal.layout import FORMAT_VERSION, SEGMENT_HEADER_BYTES, frame, write_all
from seriatim.runtime.journal.segment import RESERVED_BYTES_MIN
from tests.runtime.journal.journals import (
    APPENDS,
    ends,
    flat,
    opened,
    read,
    segment,
    snapshot_file,
    start_child,
    with_snapshots,
    write,
)
from tests.waiting import until

# ── in the ordinary ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fsync", [True, False])
async def test_what_was_appended_is_there_again(tmp_path: Path, fsync: bool) -> None:
    folder = tmp_path / "made" / "on the way"
    for round_ in range(3):
        journal, recovered = await opened(folder, fsync)
        assert recovered == Recovered(None, flat(APPENDS[:round_]))
        await journal.append(APPENDS[round_])
        await journal.append([])
        await journal.close()
        await journal.close()
    assert (await read(folder)).records == flat(APPENDS[:3])


async def test_a_journal_can_be_opened_again(tmp_path: Path) -> None:
    journal, _ = await opened(tmp_path)
    await journal.append([b"a"])
    with pytest.raises(JournalError, match="open already"):
        await journal.open()
    await journal.close()
    with pytest.raises(Closed):
        await journal.append([b"b"])
    assert (await journal.open()).records == [b"a"]
    await journal.close()


async def test_the_event_loop_goes_on_during_an_append(tmp_path: Path) -> None:
    journal, _ = await opened(tmp_path, fsync=True)
    append = asyncio.ensure_future(journal.append([b"x" * 30_000_000]))
    turns = 0
    while not append.done():
        await asyncio.sleep(0)
        turns += 1
    await append
    assert turns > 10
    await journal.close()


async def test_a_cancelled_append_stays_in_its_place(tmp_path: Path) -> None:
    journal, _ = await opened(tmp_path)
    cancelled = asyncio.ensure_future(journal.append([b"x" * 10_000_000]))
    await asyncio.sleep(0)
    cancelled.cancel()
    await journal.append([b"next"])
    await journal.close()
    assert (await read(tmp_path)).records[-1] == b"next"


async def test_room_is_reserved_and_given_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal, _ = await opened(tmp_path / "journal", fsync=True)
    appends = [*APPENDS, [b"ends with zeros" + bytes(100)], [b"x" * (RESERVED_BYTES_MIN + 1)], [bytes(8)]]
    for records in appends:
        await journal.append(records)
        crashed = tmp_path / f"crashed after {records[0][:4].hex()}"
        shutil.copytree(tmp_path / "journal", crashed)
        assert segment(crashed).stat().st_size >= RESERVED_BYTES_MIN
    await journal.close()
    end = ends()[-1] + sum(
        len(frame(i, records)) for i, records in enumerate(appends[len(APPENDS) :], len(APPENDS) + 1)
    )
    assert segment(tmp_path / "journal").stat().st_size == end
    assert await read(tmp_path / "journal") == Recovered(None, flat(appends))
    for count, records in enumerate(appends, start=1):
        crashed = tmp_path / f"crashed after {records[0][:4].hex()}"
        journal, recovered = await opened(crashed, fsync=True)
        assert recovered.records == flat(appends[:count])
        await journal.append([b"goes on"])
        await journal.close()
        assert (await read(crashed)).records == [*flat(appends[:count]), b"goes on"]
    assert "cut off" not in caplog.text


async def test_a_segment_with_room_may_be_followed_by_others(tmp_path: Path) -> None:
    await with_snapshots(tmp_path, 2)
    for path in tmp_path.glob("segment-*.log"):
        path.write_bytes(path.read_bytes() + bytes(5_000))
    snapshot_file(tmp_path, 3).write_bytes(b"")
    assert await read(tmp_path) == Recovered(b"1", [b"record 2", b"record 3"])


async def test_without_room_to_reserve_appends_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def little_room(descriptor: int, data: bytes, place: int) -> None:
        if len(data) >= RESERVED_BYTES_MIN:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(descriptor, data, place)

    monkeypatch.setattr("seriatim.runtime.journal.segment.write_all", little_room)
    journal, _ = await opened(tmp_path, fsync=True)
    for records in APPENDS:
        await journal.append(records)
    await journal.close()
    assert caplog.text.count("no room to reserve") == 1
    assert (await read(tmp_path)).records == flat(APPENDS)


# ── snapshots ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_snapshot_stands_for_what_was_before_it(tmp_path: Path) -> None:
    await with_snapshots(tmp_path, 1)
    journal, recovered = await opened(tmp_path)
    assert recovered == Recovered(b"1", [b"record 2"])
    assert journal.bytes_since_snapshot == segment(tmp_path, 2).stat().st_size - SEGMENT_HEADER_BYTES
    await journal.close()


async def test_appends_go_on_while_a_snapshot_is_written(tmp_path: Path) -> None:
    journal, _ = await opened(tmp_path)
    await journal.append([b"before"])
    await journal.snapshot(b"s" * 20_000_000)
    await journal.append([b"after"])
    await journal.snapshot(b"t")  # waits for the one before
    await journal.close()
    assert await read(tmp_path) == Recovered(b"t", [])


async def test_only_two_snapshots_and_their_segments_are_kept(tmp_path: Path) -> None:
    await with_snapshots(tmp_path, 5)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "lock",
        *(segment(tmp_path, i).name for i in (5, 6)),
        *(snapshot_file(tmp_path, i).name for i in (5, 6)),
    ]
    assert await read(tmp_path) == Recovered(b"5", [b"record 6"])


async def test_a_damaged_snapshot_gives_way_to_the_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await with_snapshots(tmp_path, 3)
    content = snapshot_file(tmp_path, 4).read_bytes()
    for damaged in (content[:-1], b"", content[:10] + b"\xff" + content[11:], content[:-1] + b"X"):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy"))
        snapshot_file(copy, 4).write_bytes(damaged)
        assert await read(copy) == Recovered(b"2", [b"record 3", b"record 4"])
        assert await read(copy) == Recovered(b"2", [b"record 3", b"record 4"])
        assert "damaged snapshot put aside" in caplog.text
        shutil.rmtree(copy)


async def test_a_damaged_snapshot_whose_segments_are_gone_is_an_error(tmp_path: Path) -> None:
    await with_snapshots(tmp_path, 3)
    snapshot_file(tmp_path, 4).write_bytes(b"")
    segment(tmp_path, 3).unlink()
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(JournalError, match=r"snapshot-00000004\.bin, byte 0: .*restore"):
        await read(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


async def test_a_damaged_first_snapshot_needs_all_segments(tmp_path: Path) -> None:
    await with_snapshots(tmp_path, 1)
    snapshot_file(tmp_path, 2).write_bytes(b"junk")
    assert await read(tmp_path) == Recovered(None, [b"record 1", b"record 2"])


async def test_a_snapshot_whose_rename_never_came_does_not_count(tmp_path: Path) -> None:
    await with_snapshots(tmp_path, 2)
    left = snapshot_file(tmp_path, 3).with_suffix(".tmp")
    left.write_bytes(snapshot_file(tmp_path, 3).read_bytes()[:20])
    snapshot_file(tmp_path, 3).unlink()
    assert await read(tmp_path) == Recovered(b"1", [b"record 2", b"record 3"])
    assert not left.exists()


@pytest.mark.parametrize("gone", [3, 4])
async def test_a_missing_segment_is_an_error(tmp_path: Path, gone: int) -> None:
    await with_snapshots(tmp_path, 3)
    segment(tmp_path, gone).unlink()
    if gone == 4:
        with pytest.raises(JournalError, match=r"segment-00000004\.log, byte 0: the file is missing"):
            await read(tmp_path)
    else:  # not needed: the newest snapshot stands for it
        assert await read(tmp_path) == Recovered(b"3", [b"record 4"])


async def test_a_failed_snapshot_shows_at_a_later_append(tmp_path: Path) -> None:
    journal, _ = await opened(tmp_path)
    await journal.append([b"a"])
    snapshot_file(tmp_path, 2).with_suffix(".tmp").mkdir()
    await journal.snapshot(b"state")
    with pytest.raises(JournalError, match="cannot write a snapshot"):
        await until(lambda: journal.append([b"b"]), "the error shows")
    await journal.close()
    snapshot_file(tmp_path, 2).with_suffix(".tmp").rmdir()
    assert (await read(tmp_path)).records[0] == b"a"


# ── wrong folders ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    journal, _ = await opened(tmp_path)
    for _ in range(2):
        with pytest.raises(JournalError, match=f"in use by process {os.getpid()}; stop that process"):
            await read(tmp_path)
    await journal.append([b"still the writer"])
    await journal.close()
    assert (await read(tmp_path)).records == [b"still the writer"]


async def test_another_process_is_refused(tmp_path: Path) -> None:
    child = start_child(tmp_path, 1)
    assert child.stdout is not None
    child.stdout.readline()
    with pytest.raises(JournalError, match=f"in use by process {child.pid}"):
        await read(tmp_path)
    child.kill()
    child.communicate()
    assert (await read(tmp_path)).records


async def test_another_format_version_is_refused(tmp_path: Path) -> None:
    await write(tmp_path, APPENDS)
    header = struct.pack(">8sIQQ", b"seriatjn", FORMAT_VERSION + 1, 1, 1)
    segment(tmp_path).write_bytes(header + zlib.crc32(header).to_bytes(4, "big"))
    with pytest.raises(
        JournalError, match="journal format 2, this program reads and writes format 1; start the version"
    ):
        await read(tmp_path)


async def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(JournalError, match=r"holds files that are not a journal \(thesis\.txt\); name an empty folder"):
        await read(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


async def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(JournalError, match="name a folder"):
            await read(path)


@pytest.fixture
def forbidden() -> Iterator[Path]:
    """A folder that user 65534 can look into but not write to."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_a_folder_without_permission(forbidden: Path) -> None:
    if os.getuid() == 0:  # nothing is forbidden to root
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            os.write(write_end, error_of_opening(forbidden / "journal").encode())
            os._exit(0)
        os.close(write_end)
        message = os.read(read_end, 10_000).decode()
        os.close(read_end)
        os.waitpid(child, 0)
    else:
        forbidden.chmod(0o500)
        message = error_of_opening(forbidden / "journal")
    assert "cannot open the journal: Permission denied; let user" in message


def error_of_opening(folder: Path) -> str:
    try:
        FileJournal(folder)._open()
    except JournalError as error:
        return str(error)
    return "no error"
