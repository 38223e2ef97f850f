"""Copies of file journals: a prefix, also while somebody writes; folders that are made whole or not at all."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seriatim.model import InputError, JournalError
from seriatim.runtime.journal import copying
from seriatim.runtime.journal.copying import (
    building,
    copy_journal,
    has_journal,
    kept_from_others,
    read_journal,
    write_journal,
)
from seriatim.runtime.journal.interface import Recovered
from seriatim.runtime.journal.layout import SEGMENT_HEADER_BYTES, Damage
from tests.disk import full_disk
from tests.runtime.journal.journals import (
    APPENDS,
    REPOSITORY,
    ends,
    flat,
    opened,
    read,
    segment,
    snapshot_file,
    with_snapshots,
    write,
)
from tests.waiting import wait


def copied(folder: Path, target: Path) -> str:
    """Copy, and return who had it open."""
    target.mkdir()
    return copy_journal(folder, target).holder


@pytest.mark.parametrize("count", [0, 1, 2, 3])
async def test_a_copy_is_the_same_journal_and_goes_on(tmp_path: Path, count: int) -> None:
    folder, target = tmp_path / "journal", tmp_path / "copy"
    await with_snapshots(folder, count)
    assert copied(folder, target) == ""
    assert read_journal(target) == read_journal(folder)
    journal, recovered = await opened(target)
    assert recovered == await read(folder)
    await journal.append([b"more"])
    await journal.close()
    assert (await read(target)).records[-1] == b"more"
    twice = tmp_path / "copy of the copy"
    assert copied(target, twice) == ""
    assert read_journal(twice) == read_journal(target)


async def test_a_copy_of_what_is_open_is_a_beginning_and_names_the_process(tmp_path: Path) -> None:
    folder, target = tmp_path / "journal", tmp_path / "copy"
    journal, _ = await opened(folder, fsync=True)
    for records in APPENDS[:3]:
        await journal.append(records)
    assert copied(folder, target) == str(os.getpid())
    await journal.append(APPENDS[3])
    assert read_journal(target) == Recovered(None, flat(APPENDS[:3])), "without the room that is reserved"
    assert segment(target).stat().st_size == ends()[3]
    await journal.close()


@pytest.mark.parametrize("cut", range(1, 60, 7))
async def test_an_unfinished_end_is_not_copied(tmp_path: Path, cut: int) -> None:
    folder = tmp_path / "journal"
    await write(folder, APPENDS)
    size = segment(folder).stat().st_size
    os.truncate(segment(folder), size - cut)
    copied(folder, tmp_path / "copy")
    whole = max(index for index, end in enumerate(ends()) if end <= size - cut)
    assert read_journal(tmp_path / "copy").records == flat(APPENDS[:whole])
    assert segment(folder).stat().st_size == size - cut, "nothing is changed"


async def test_whatever_is_copied_while_somebody_writes_is_a_beginning(tmp_path: Path) -> None:
    """Appends and snapshots go on as fast as they can: each copy holds the first records, and a later one no fewer."""
    seed = random.randrange(2**32)
    print(f"seed={seed}: test_whatever_is_copied_while_somebody_writes_is_a_beginning")
    chance = random.Random(seed)
    folder = tmp_path / "journal"
    journal, _ = await opened(folder, fsync=False)
    written = 0

    async def write_on() -> None:
        nonlocal written
        while True:
            count = chance.randrange(1, 4)
            await journal.append([b"%d" % (written + n) + b"." * chance.randrange(5_000) for n in range(count)])
            written += count
            if chance.random() < 0.05:
                await journal.snapshot(b"%d" % written)

    await journal.append([b"0."])
    written = 1
    writing = asyncio.create_task(write_on())
    reached = 0
    for n in range(40):
        least = written
        target = tmp_path / f"copy-{n}"
        target.mkdir()
        await asyncio.to_thread(copy_journal, folder, target)
        found = read_journal(target)
        numbers = [int(record.rstrip(b".")) for record in found.records]
        first = int(found.snapshot) if found.snapshot is not None else 0
        assert numbers == list(range(first, first + len(numbers)))
        assert first + len(numbers) >= max(least, reached)
        reached = first + len(numbers)
        assert not writing.done()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await journal.close()


async def test_damage_is_no_writer_that_is_faster(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    await write(folder, APPENDS)
    data = bytearray(segment(folder).read_bytes())
    data[SEGMENT_HEADER_BYTES + 3] ^= 1
    segment(folder).write_bytes(bytes(data))
    with pytest.raises(Damage, match="byte"):
        copied(folder, tmp_path / "copy")
    with kept_from_others(folder) as holder:  # so that the next one takes it for open
        assert holder == ""
        with pytest.raises(Damage, match="byte"):
            copied(folder, tmp_path / "copy of what is open")


async def test_a_writer_that_is_always_faster_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "journal"
    await write(folder, APPENDS)
    errors = iter(range(1_000))

    def moved(*_: object) -> None:
        raise Damage(f"file {next(errors)} is missing")

    monkeypatch.setattr(copying, "_copy", moved)
    monkeypatch.setattr(copying, "AGAIN_S", 0.0)
    with kept_from_others(folder), pytest.raises(JournalError, match="changes faster than it can be copied"):
        copied(folder, tmp_path / "copy")


async def test_a_damaged_snapshot_that_is_not_needed_is_not_copied(tmp_path: Path) -> None:
    folder, target = tmp_path / "journal", tmp_path / "copy"
    await with_snapshots(folder, 3)
    newest = snapshot_file(folder, 4)
    newest.write_bytes(newest.read_bytes()[:-1])
    copied(folder, target)
    assert read_journal(target).snapshot == b"2"
    assert not snapshot_file(target, 4).exists()


async def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name in ("none", "file", "empty"):
        assert not has_journal(tmp_path / name)
        with pytest.raises(InputError, match="there is no journal in it"):
            copied(tmp_path / name, tmp_path / f"copy of {name}")
    await write(tmp_path / "new", [])
    with pytest.raises(InputError, match="nothing was written to it yet"):
        copied(tmp_path / "new", tmp_path / "copy of new")


@pytest.mark.parametrize(
    "recovered",
    [Recovered(None, [b"a", b""]), Recovered(b"state", []), Recovered(b"", [b"x" * 30] * 5)],
    ids=["records", "state", "both"],
)
async def test_a_journal_from_elsewhere_becomes_files(
    tmp_path: Path, recovered: Recovered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "FRAME_BYTES", 64)
    write_journal(recovered, tmp_path)
    assert read_journal(tmp_path) == recovered
    journal, found = await opened(tmp_path)
    assert found == recovered
    await journal.append([b"more"])
    await journal.close()
    assert (await read(tmp_path)).records == [*recovered.records, b"more"]


async def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    folder, target = tmp_path / "journal", tmp_path / "copy"
    await write(folder, [[os.urandom(100_000)]])
    with (
        full_disk(50_000),
        pytest.raises(JournalError, match="cannot write"),
        building(target) as part,
    ):
        copy_journal(folder, part)
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


# ── folders ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "made on the way" / "target"
    with pytest.raises(ZeroDivisionError), building(target) as part:
        (part / "file").write_text("x")
        raise ZeroDivisionError
    assert list(target.parent.iterdir()) == []
    with building(target) as part:
        (part / "inner").mkdir()
        (part / "inner" / "file").write_text("x")
        assert not target.exists()
    assert (target / "inner" / "file").read_text() == "x"
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_an_empty_folder_is_taken_and_anything_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with building(tmp_path / "empty") as part:
        (part / "file").write_text("x")
    assert (tmp_path / "empty" / "file").exists()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    for name, said in (("empty", "it is not empty"), ("link", "is not a folder"), ("file", "is not a folder")):
        with pytest.raises(InputError, match=said), building(tmp_path / name):
            raise AssertionError("nothing begins")


async def test_a_folder_with_a_journal_is_refused_and_its_process_named(tmp_path: Path) -> None:
    journal, _ = await opened(tmp_path / "journal")
    with pytest.raises(InputError, match=f"in use by process {os.getpid()}"), building(tmp_path / "journal"):
        raise AssertionError("nothing begins")
    await journal.append([b"a record"])
    await journal.close()
    with pytest.raises(InputError, match="there is a journal in it"), building(tmp_path / "journal"):
        raise AssertionError("nothing begins")


async def test_a_journal_that_was_begun_in_vain_is_in_nobodys_way(tmp_path: Path) -> None:
    """A node that finds its journal lost has made the folder, and is perhaps started again and again."""
    target = tmp_path / "journal"
    await write(target, [])
    with building(target) as part:
        (part / "segment-00000001.log").write_text("ours")
        journal, _ = await opened(target)
        await journal.close()
    assert [path.read_text() for path in target.iterdir()] == ["ours"]
    other = tmp_path / "other"
    journal, _ = await opened(other)
    with pytest.raises(InputError, match="in use by process"), building(other):
        raise AssertionError("nothing begins")
    await journal.close()
    with pytest.raises(InputError, match="somebody has just put something into it"), building(other):
        journal, _ = await opened(other)
    await journal.append([b"a record"])
    await journal.close()
    assert (await read(other)).records == [b"a record"]
    (tmp_path / "strange").mkdir()
    await write(tmp_path / "strange", [])
    (tmp_path / "strange" / "letter").write_text("x")
    with pytest.raises(InputError, match="there is a journal in it"), building(tmp_path / "strange"):
        raise AssertionError("nothing begins")


def test_two_that_make_one_folder(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with building(target) as part:
        (part / "file").write_text("first")
        with pytest.raises(InputError, match="another process is making it"), building(target):
            raise AssertionError("nothing begins")
    assert (target / "file").read_text() == "first"


def test_somebody_was_faster(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(InputError, match="somebody has just put something into it"), building(target) as part:
        (part / "file").write_text("ours")
        target.mkdir()
        (target / "lock").write_text("theirs")
    assert (target / "lock").read_text() == "theirs"


KILLED = """
import sys
from pathlib import Path
from seriatim.runtime.journal.copying import building
with building(Path(sys.argv[1])) as part:
    (part / "half").write_text("half")
    print("there", flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    target = tmp_path / "target"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(target)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        child.send_signal(signal.SIGKILL)
    wait(lambda: child.poll() is not None, "the child to be gone")
    assert not target.exists()
    with building(target) as part:
        assert list(part.iterdir()) == []
        (part / "whole").write_text("whole")
    assert [path.name for path in tmp_path.rglob("*")] == ["target", "whole"]
