"""What happens to journals on disks: copied, torn by a crash, replaced by an older copy, on a disk that is full."""

import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from seriatim.runtime.driver import SNAPSHOT_BYTES_MIN
from seriatim.runtime.journal.layout import frame, read_segment

FULL_DISK_BYTES = 8 * 1024  # left on a disk that is about to be full
COPY_TRIES = 5
LOCK = "lock"  # belongs to the process that has the journal, not to the journal


def copy_journal(journal: Path, copy: Path) -> None:
    """As an operator copies a folder while the process runs that writes to it."""
    for tries_left in reversed(range(COPY_TRIES)):
        shutil.rmtree(copy, ignore_errors=True)
        try:
            shutil.copytree(journal, copy, ignore=shutil.ignore_patterns(LOCK))
            return
        except (shutil.Error, FileNotFoundError):  # a segment was dropped behind a snapshot meanwhile
            if not tries_left:
                raise


def appends_to(journal: Path) -> int:
    """How often a journal was appended to, those included that a snapshot stands for. 0: nothing is readable yet."""
    segments = sorted(journal.glob("segment-*.log"))
    scan = read_segment(segments[-1], int(segments[-1].stem.partition("-")[2])) if segments else None
    return scan.next_number - 1 if scan is not None else 0


@contextlib.contextmanager
def replaced(journal: Path, copy: Path | None) -> Iterator[None]:
    """Within, this copy is the journal, or an empty folder (None). Afterwards the newest is back."""
    newest = journal.with_name(f"{journal.name}-newest")
    journal.rename(newest)
    try:
        if copy is not None:
            copy_journal(copy, journal)
        else:
            journal.mkdir()
        yield
    finally:
        shutil.rmtree(journal)
        newest.rename(journal)


def nearly_full(folder: Path) -> int:
    """A file size that a journal soon reaches; at once, if it would begin a new file before that."""
    path = max(folder.glob("segment-*.log"))
    scan = read_segment(path, int(path.stem.partition("-")[2]))  # what is beyond its end is only reserved
    size = (scan.end if scan is not None else 0) + FULL_DISK_BYTES
    return size if size < SNAPSHOT_BYTES_MIN - FULL_DISK_BYTES else FULL_DISK_BYTES


def tear(folder: Path, source: random.Random) -> int:
    """Leave part of one more append at the end of a journal that nobody has open; how many bytes of it.

    A journal that is torn already stays as it is: nobody appends before he has cut that off.
    """
    path = max(folder.glob("segment-*.log"))
    scan = read_segment(path, int(path.stem.partition("-")[2]))
    if scan is None or scan.torn is not None:
        return 0
    unfinished = frame(scan.next_number, [source.randbytes(source.randrange(1, 400))])
    part = unfinished[: source.randrange(1, len(unfinished))]
    with path.open("r+b") as file:
        file.seek(scan.end)
        file.write(part)
    return len(part)
