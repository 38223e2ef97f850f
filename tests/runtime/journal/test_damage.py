"""The file journal keeps what it acknowledged, and says where it was damaged: cut, flipped, killed, full."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from seriatim.model import JournalError
from seriatim.runtime.journal.interface import Recovered
from seriatim.runtime.journal.layout import SEGMENT_HEADER_BYTES, segment_header
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

# ── cut and flipped ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_cut_at_every_byte(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was whole before the cut is there, and the journal goes on from it."""
    await write(tmp_path, APPENDS)
    whole = segment(tmp_path).read_bytes()
    for cut in range(len(whole) + 1):
        segment(tmp_path).write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends()[1:])
        caplog.clear()
        journal, recovered = await opened(tmp_path)
        assert recovered.records == flat(APPENDS[:kept]), f"cut at {cut}"
        assert ("cut off" in caplog.text) == (cut not in ends()), f"cut at {cut}"
        await journal.append([b"goes on"])
        await journal.close()
        assert (await read(tmp_path)).records == [*flat(APPENDS[:kept]), b"goes on"]


async def test_zeros_instead_of_every_end(tmp_path: Path) -> None:
    """A file system may have made a file longer before its content arrived."""
    await write(tmp_path, APPENDS)
    whole = segment(tmp_path).read_bytes()
    for cut in range(ends()[-2], len(whole)):
        for zeros in (len(whole) - cut, 5000):
            segment(tmp_path).write_bytes(whole[:cut] + bytes(zeros))
            records = (await read(tmp_path)).records
            # A record that ends in zeros anyway is whole.
            assert records in (flat(APPENDS[:-1]), flat(APPENDS)), f"zeros from {cut}"
            assert records == flat(APPENDS[:-1]) or (whole[:cut] + bytes(zeros)).startswith(whole)
            assert segment(tmp_path).stat().st_size in ends()


async def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    await write(tmp_path, APPENDS)
    whole = segment(tmp_path).read_bytes()
    last = ends()[-2]
    for position in range(len(whole)):
        for flip in (0x01, 0x80, 0xFF):
            flipped = bytearray(whole)
            flipped[position] ^= flip
            segment(tmp_path).write_bytes(flipped)
            if position < last:
                with pytest.raises(JournalError, match=r"segment-00000001\.log, byte \d+|journal format"):
                    await read(tmp_path)
                assert segment(tmp_path).read_bytes() == flipped, "nothing was changed"
            else:
                assert (await read(tmp_path)).records == flat(APPENDS[:-1])


async def test_damage_is_reported_with_its_place(tmp_path: Path) -> None:
    await write(tmp_path, APPENDS)
    data = bytearray(segment(tmp_path).read_bytes())
    data[ends()[2] + 30] ^= 1
    segment(tmp_path).write_bytes(data)
    with pytest.raises(JournalError) as raised:
        await read(tmp_path)
    assert str(segment(tmp_path)) in str(raised.value)
    assert "frame 3 does not fit its checksum" in str(raised.value)
    assert "restore the folder from a backup" in str(raised.value)


async def test_a_torn_end_before_other_segments_is_damage(tmp_path: Path) -> None:
    await with_snapshots(tmp_path, 2)
    snapshot_file(tmp_path, 3).unlink()  # so that segment 2 is needed
    segment(tmp_path, 2).write_bytes(segment(tmp_path, 2).read_bytes()[:-1])
    with pytest.raises(JournalError, match=r"segment-00000002\.log, byte \d+: .* later segments"):
        await read(tmp_path)


async def test_a_segment_that_was_just_being_made_holds_nothing(tmp_path: Path) -> None:
    await with_snapshots(tmp_path, 2)
    for content in (b"", segment_header(4, 4)[:9], bytes(SEGMENT_HEADER_BYTES), bytes(4096)):
        segment(tmp_path, 4).write_bytes(content)
        assert await read(tmp_path) == Recovered(b"2", [b"record 3"])
        assert segment(tmp_path, 4).read_bytes() == segment_header(4, 4)


async def test_repeated_and_exchanged_pieces_are_noticed(tmp_path: Path) -> None:
    await write(tmp_path, APPENDS)
    whole = segment(tmp_path).read_bytes()
    pieces = [whole[start:end] for start, end in zip([0, *ends()], ends(), strict=False)]
    header, first, second, *rest = pieces
    for wrong in ([header, first, first, second, *rest], [header, second, first, *rest], [header, second, *rest]):
        segment(tmp_path).write_bytes(b"".join(wrong))
        with pytest.raises(JournalError, match="belongs"):
            await read(tmp_path)
    segment(tmp_path, 2).write_bytes(whole)
    segment(tmp_path).write_bytes(whole)
    with pytest.raises(JournalError, match="renamed or mixed up"):
        await read(tmp_path)


# ── killed and full ───────────────────────────────────────────────────────────────────────────────────────────────


def check(recovered: Recovered, acknowledged: int) -> int:
    """Nothing acknowledged is missing, nothing is there twice. The count of all records ever."""
    before = int(recovered.snapshot or b"0")
    numbers = [int(record.split()[0]) for record in recovered.records]
    assert numbers == list(range(before, before + len(numbers)))
    assert before + len(numbers) > acknowledged, f"acknowledged {acknowledged}, found {before + len(numbers)} records"
    return before + len(numbers)


@pytest.mark.parametrize("snapshot_every", [0, 3])
async def test_killed_at_any_moment(tmp_path: Path, snapshot_every: int) -> None:
    """Ten lives one after the other in one folder, each ended by kill -9 after so many acknowledgements."""
    random = Random(snapshot_every)
    acknowledged = -1
    for life in range(10):
        child = start_child(tmp_path, life, snapshot_every)
        assert child.stdout is not None
        for _ in range(random.randint(1, 25)):
            acknowledged = int(child.stdout.readline().removeprefix("ack "))
        await asyncio.sleep(random.random() * 0.002)  # anywhere within an append or a snapshot
        child.kill()
        rest, _ = child.communicate()
        acknowledged = max(
            [acknowledged, *(int(line[4:]) for line in rest.splitlines(keepends=True) if line[-1] == "\n")]
        )
        check(await read(tmp_path), acknowledged)


async def test_a_full_disk(tmp_path: Path) -> None:
    """The limit on file sizes makes a write fail in the middle, as a full disk does."""
    output, _ = start_child(tmp_path, 7, 0, 50_000).communicate(timeout=60)
    *acks, error, refused = output.splitlines()
    assert "segment-00000001.log: cannot append: File too large; raise the limit on file sizes" in error
    assert "accepts nothing more after an earlier failure" in refused
    assert 45_000 < segment(tmp_path).stat().st_size <= 50_000
    last = int(acks[-1].removeprefix("ack "))
    assert check(await read(tmp_path), last) == last + 1
    journal, _ = await opened(tmp_path)
    await journal.append([b"there is space again"])
    await journal.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB, where this is allowed."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_really_full_disk(small_disk: Path) -> None:
    journal, _ = await opened(small_disk, fsync=True)
    records: list[bytes] = []
    with pytest.raises(JournalError, match="No space left on device; free space on the disk"):
        for i in range(1000):
            await journal.append([b"%d" % i * 500])
            records.append(b"%d" % i * 500)
    with pytest.raises(JournalError, match="accepts nothing more"):
        await journal.append([b""])
    with pytest.raises(JournalError, match="accepts nothing more"):
        await journal.snapshot(b"")
    await journal.close()
    assert (await read(small_disk)).records == records


async def test_no_space_for_a_snapshot(small_disk: Path) -> None:
    journal, _ = await opened(small_disk)
    await journal.append([b"x" * 100_000])
    await journal.snapshot(b"y" * 200_000)
    await journal._until_snapshot_is_written()
    with pytest.raises(JournalError, match=r"cannot write a snapshot: No space left on device; free space"):
        await journal.append([b"z"])
    await journal.close()
    assert (await read(small_disk)).records == [b"x" * 100_000]
