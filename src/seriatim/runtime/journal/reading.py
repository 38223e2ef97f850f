"""Reading the files of a file journal, without changing any: when it is opened, and when it is copied."""

import os
import re
from pathlib import Path

from msgspec import Struct

from seriatim.runtime.journal.interface import Recovered
from seriatim.runtime.journal.layout import (
    Damage,
    Scan,
    SnapshotFile,
    damage,
    read_segment,
    read_snapshot,
)

LOCK = "lock"
_NAME = re.compile(r"(segment|snapshot)-(\d{8,})\.(log|bin)")
_SUFFIXES = {"segment": "log", "snapshot": "bin"}
HOLDER_BYTES = 32


def is_of_journal(name: str) -> bool:
    """Whether a file of this name is part of a journal."""
    return _NAME.fullmatch(name) is not None


def holder_of(lock: int) -> str:
    """The process that holds a lock, which is open, as the file says."""
    return os.read(lock, HOLDER_BYTES).decode(errors="replace").strip() or "unknown"


class Reading(Struct):
    """The valid files of a journal: the newest whole snapshot, if there is one, and the segments from `first` on.

    `damaged`: newer snapshots, which are not needed.
    """

    first: int
    snapshot: SnapshotFile | None
    scans: list[Scan]
    damaged: list[tuple[Path, Damage]]

    @property
    def last(self) -> int:
        """The index of the last segment."""
        return self.first + len(self.scans) - 1

    @property
    def recovered(self) -> Recovered:
        records = [record for scan in self.scans for record in scan.records]
        return Recovered(self.snapshot.state if self.snapshot is not None else None, records)


class JournalFiles:
    """The files of the journal in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, kind: str, index: int) -> Path:
        return self.folder / f"{kind}-{index:08}.{_SUFFIXES[kind]}"

    def numbered(self, kind: str) -> list[int]:
        """The indexes of all segments or snapshots."""
        matches = [_NAME.fullmatch(path.name) for path in self.folder.iterdir()]
        return sorted(int(match[2]) for match in matches if match is not None and match[1] == kind)

    def read(self) -> Reading:
        """Everything that counts. Damage: something was acknowledged, and cannot be read. Nothing is changed."""
        segments = self.numbered("segment")
        first, snapshot, damaged = self._latest_snapshot(segments)
        scans = self._read_segments(first, segments[-1], snapshot) if segments else []
        return Reading(first, snapshot, scans, damaged)

    def _latest_snapshot(self, segments: list[int]) -> tuple[int, SnapshotFile | None, list[tuple[Path, Damage]]]:
        """The newest one that is whole, the segment it stands before, and damaged ones that are not needed."""
        first, snapshot = 1, None
        damaged: list[tuple[Path, Damage]] = []
        for index in reversed(self.numbered("snapshot")):
            path = self.path("snapshot", index)
            try:
                first, snapshot = index, read_snapshot(path, index)
                break
            except Damage as error:
                damaged.append((path, error))
        if not segments and not damaged and snapshot is None:
            return first, None, []
        missing = sorted(set(range(first, max([first, *segments]) + 1)).difference(segments))
        if missing and damaged:
            raise damaged[0][1]
        if missing:
            raise damage(self.path("segment", missing[0]), 0, "the file is missing")
        return first, snapshot, damaged

    def _read_segments(self, first: int, last: int, snapshot: SnapshotFile | None) -> list[Scan]:
        number = snapshot.next_number if snapshot is not None else 1
        scans: list[Scan] = []
        for index in range(first, last + 1):
            path = self.path("segment", index)
            # None: it was just being made, so nothing can have been acknowledged in it.
            scan = read_segment(path, index) or Scan(number, number, [], 0, torn="an unfinished header")
            if scan.torn is not None and index < last:
                raise damage(path, scan.end, f"{scan.torn}, and there are later segments")
            if scan.first_number != number:
                raise damage(path, 0, f"begins with frame {scan.first_number} where frame {number} belongs")
            number = scan.next_number
            scans.append(scan)
        return scans
