"""The common part of the tests of the file journal."""

import os
import subprocess
import sys
from pathlib import Path

from seriatim.runtime.journal.file_journal import FileJournal
from seriatim.runtime.journal.interface import Recovered
from seriatim.runtime.journal.layout import SEGMENT_HEADER_BYTES, frame

REPOSITORY = Path(__file__).parents[3]
APPENDS = [[b"first"], [b"second", b""], [b"third" * 30], [b"x", b"y", b"z"], [b"last one"]]


async def opened(folder: Path, fsync: bool = False) -> tuple[FileJournal, Recovered]:
    journal = FileJournal(folder, fsync=fsync)
    return journal, await journal.open()


async def read(folder: Path) -> Recovered:
    journal, recovered = await opened(folder)
    await journal.close()
    return recovered


async def write(folder: Path, appends: list[list[bytes]]) -> None:
    journal, _ = await opened(folder)
    for records in appends:
        await journal.append(records)
    await journal.close()


def segment(folder: Path, index: int = 1) -> Path:
    return folder / f"segment-{index:08}.log"


def snapshot_file(folder: Path, index: int) -> Path:
    return folder / f"snapshot-{index:08}.bin"


def flat(appends: list[list[bytes]]) -> list[bytes]:
    return [record for records in appends for record in records]


def ends() -> list[int]:
    """Where each append of APPENDS ends in its segment."""
    offsets = [SEGMENT_HEADER_BYTES]
    for number, records in enumerate(APPENDS, start=1):
        offsets.append(offsets[-1] + len(frame(number, records)))
    return offsets


async def with_snapshots(folder: Path, count: int) -> None:
    """Record i, then a snapshot "i" that stands for it, and so on; one record after the last snapshot."""
    journal, _ = await opened(folder)
    for i in range(1, count + 1):
        await journal.append([b"record %d" % i])
        assert journal.bytes_since_snapshot > 0
        await journal.snapshot(b"%d" % i)
        assert journal.bytes_since_snapshot == 0
    await journal.append([b"record %d" % (count + 1)])
    await journal.close()


def start_child(folder: Path, *numbers: int) -> "subprocess.Popen[str]":
    program = [sys.executable, "-m", "tests.runtime.journal.child", str(folder), *map(str, numbers)]
    path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env=environment)
