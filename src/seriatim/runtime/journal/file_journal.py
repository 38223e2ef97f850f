"""A journal in a folder of the local disk. layout.py describes the files.

*Appending* writes one frame to a file that is opened for synchronous writes, in a thread: the event loop continues
meanwhile, and the driver gathers the next append. How, and how room is reserved ahead, is in segment.py.

*Snapshots.* A new segment is begun first, so that appends continue there while the snapshot is written beside them: to
a temporary file, which is synced and then renamed. It stands for all segments before its own. The previous snapshot is
kept together with its segments, so that a damaged snapshot loses nothing; older files are removed.

*After a failed write* the content of the disk is unknown, so this journal takes nothing more. Opening it again reads
what is on the disk.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar
from weakref import WeakSet

from seriatim.model import Closed, JournalError
from seriatim.runtime.journal.interface import Recovered
from seriatim.runtime.journal.layout import (
    SEGMENT_HEADER_BYTES,
    Scan,
    SnapshotFile,
    failure,
    frame,
    segment_header,
    snapshot_header,
    sync_folder,
    write_all,
)
from seriatim.runtime.journal.reading import LOCK, JournalFiles, holder_of, is_of_journal
from seriatim.runtime.journal.segment import Feed, Segment

logger = logging.getLogger(__name__)

_NOT_OURS = {"lost+found"}  # what may be in a folder before a journal begins there

Result = TypeVar("Result")


_locked: "WeakSet[FileJournal]" = WeakSet()


class FileJournal:
    """One journal in one folder, made if it is not there. `fsync` False: survives a crash of the process only."""

    def __init__(self, folder: Path, fsync: bool = True) -> None:
        self.folder = Path(folder)
        self._files = JournalFiles(self.folder)
        self._fsync = fsync
        self._sync_flag = os.O_DSYNC if fsync else 0
        self._writer: ThreadPoolExecutor | None = None  # one thread: blocking work in order
        self._lock: int | None = None
        self._segment: Segment | None = None
        self._feed: Feed | None = None  # of that segment, once something is appended
        self._index = 0
        self._next_number = 1
        self._bytes = 0
        self._under_way: asyncio.Future[None] | None = None  # what has its place, whether or not somebody waits
        self._broken: JournalError | None = None
        self._snapshotting: asyncio.Task[None] | None = None

    @property
    def bytes_since_snapshot(self) -> int:
        return self._bytes

    async def open(self) -> Recovered:
        if self._writer is not None:
            raise JournalError(f"{self.folder}: this journal is open already; close it first")
        self._broken = None
        self._writer = ThreadPoolExecutor(1, f"journal {self.folder}")
        try:
            return await asyncio.shield(self._submit(self._open))
        except JournalError:
            await self.close()
            raise

    async def append(self, records: Sequence[bytes]) -> None:
        await self._until_nothing_is_under_way()
        self._check_usable()
        if not records:
            return
        feed = self._feed or self._begin_feed()
        data = frame(self._next_number, list(records))
        self._next_number += 1
        self._bytes += len(data)
        if feed.takes(data):
            self._under_way = feed.append(data)
        else:
            self._under_way = self._submit(lambda: self._append(data))
        await asyncio.shield(self._under_way)

    async def snapshot(self, state: bytes) -> None:
        self._check_usable()
        await self._until_snapshot_is_written()
        await self._until_nothing_is_under_way()
        self._check_usable()
        self._under_way = self._submit(self._begin_segment)
        await asyncio.shield(self._under_way)
        self._bytes = 0
        snapshot = SnapshotFile(self._next_number, state)
        self._snapshotting = asyncio.get_running_loop().create_task(self._write_beside(self._index, snapshot))

    async def close(self) -> None:
        await self._until_snapshot_is_written()
        if self._writer is not None:
            released = self._submit(self._release)  # after what it still writes
            self._writer.shutdown(wait=False)
            self._writer = None
            await asyncio.shield(released)

    # ── on the event loop ─────────────────────────────────────────────────────────────────────────────────────────

    def _check_usable(self) -> None:
        broken = self._broken or (self._segment.broken if self._segment is not None else None)
        if broken is not None:
            raise JournalError(f"{self.folder}: accepts nothing more after an earlier failure: {broken}")
        if self._writer is None:
            raise Closed(f"{self.folder}: the journal is not open")

    def _submit(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Do this in the writer's thread. Shield what waits for it: work that has its place is done."""
        assert self._writer is not None, "opened first"
        return asyncio.get_running_loop().run_in_executor(self._writer, work)

    async def _until_nothing_is_under_way(self) -> None:
        """Cancelling a caller does not stop the work; the next caller waits for it."""
        while self._under_way is not None and not self._under_way.done():
            await asyncio.wait([self._under_way])

    def _begin_feed(self) -> Feed:
        assert self._segment is not None, "opened first"
        try:
            self._feed = Feed(self._segment)
        except OSError as error:  # no more files may be open
            raise self._segment.failed(error) from error
        return self._feed

    async def _until_snapshot_is_written(self) -> None:
        if self._snapshotting is not None:
            await asyncio.wait([self._snapshotting])

    async def _write_beside(self, index: int, snapshot: SnapshotFile) -> None:
        """Runs in its own thread: the writer thread is for appends."""
        try:
            await asyncio.to_thread(self._write_snapshot, index, snapshot)
        except JournalError as error:
            self._broken = self._broken or error
            logger.error("snapshot failed: folder=%s reason=%s", self.folder, error)

    # ── in the writer's thread ────────────────────────────────────────────────────────────────────────────────────

    def _append(self, data: bytes) -> None:
        """Write an append that is too large for the feed."""
        assert self._segment is not None, "opened first"
        self._end_feed()
        self._segment.write(data)

    def _end_feed(self) -> None:
        """Close the feed after its last append is written. The next append opens another one."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _begin_segment(self) -> None:
        """Begin a segment. The file and its name are durable before anything depends on them."""
        path = self._files.path("segment", self._index + 1)
        self._end_feed()
        if self._segment is not None and self._segment.broken is not None:  # its caller did not wait
            raise self._segment.broken
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | self._sync_flag, 0o640)
            try:
                write_all(descriptor, segment_header(self._index + 1, self._next_number), 0)
                self._sync_folder()
            except OSError:
                os.close(descriptor)
                raise
        except OSError as error:
            self._broken = failure("begin a segment", path, error)
            raise self._broken from error
        if self._segment is not None:
            self._segment.close()
        self._segment = Segment(path, descriptor, SEGMENT_HEADER_BYTES, reserves=self._fsync)
        self._segment.reserve()
        self._index += 1

    def _sync_folder(self) -> None:
        if self._fsync:
            sync_folder(self.folder)

    def _write_snapshot(self, index: int, snapshot: SnapshotFile) -> None:
        path = self._files.path("snapshot", index)
        temporary = path.with_suffix(".tmp")
        try:
            with temporary.open("wb") as file:
                file.write(snapshot_header(index, snapshot.next_number, snapshot.state))
                file.write(snapshot.state)
                file.flush()
                if self._fsync:
                    os.fsync(file.fileno())
            temporary.rename(path)
            self._sync_folder()
            self._remove_old()
        except OSError as error:
            raise failure("write a snapshot", path, error) from error

    def _remove_old(self) -> None:
        """Remove everything before the last snapshot but one. In order, so that the remaining files have no hole."""
        snapshots = self._files.numbered("snapshot")
        if len(snapshots) < 2:
            return
        for kind in ("snapshot", "segment"):
            for index in self._files.numbered(kind):
                if index < snapshots[-2]:
                    self._files.path(kind, index).unlink()

    def _release(self) -> None:
        self._end_feed()
        if self._segment is not None:
            self._segment.close()
        if self._lock is not None:
            os.close(self._lock)  # the lock goes with it
            _locked.discard(self)
        self._segment = self._lock = None

    # ── opening, in the writer's thread ───────────────────────────────────────────────────────────────────────────

    def _open(self) -> Recovered:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            return self._recover()
        except OSError as error:
            raise failure("open the journal", self.folder, error) from error

    def _take_lock(self) -> None:
        import fcntl  # not on every platform; the rest of the package is

        self._check_folder_is_ours()
        path = self.folder / LOCK
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder, fix = holder_of(self._lock), "stop that process, or give this node a folder of its own"
            raise JournalError(f"{self.folder}: in use by process {holder}; {fix}") from None
        _locked.add(self)
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())

    def _check_folder_is_ours(self) -> None:
        names = {path.name for path in self.folder.iterdir()} - _NOT_OURS
        if names and LOCK not in names and not any(is_of_journal(name) for name in names):
            examples = ", ".join(sorted(names)[:3])
            raise JournalError(
                f"{self.folder}: holds files that are not a journal ({examples}); name an empty folder or a new one"
            )

    def _recover(self) -> Recovered:
        reading = self._files.read()
        if not reading.scans:
            self._begin_segment()
            return Recovered(None, [])
        for path, error in reading.damaged:
            logger.warning("damaged snapshot put aside: path=%s reason=%s", path, error)
            path.rename(path.with_suffix(".damaged"))
        self._continue(reading.last, reading.scans[-1])
        self._bytes = sum(scan.end - SEGMENT_HEADER_BYTES for scan in reading.scans)
        for leftover in self.folder.glob("snapshot-*.tmp"):  # a crash came before its rename
            leftover.unlink()
        self._remove_old()
        return reading.recovered

    def _continue(self, index: int, scan: Scan) -> None:
        """Append to the last segment from now on; cut off an unfinished frame."""
        path = self._files.path("segment", index)
        self._next_number = scan.next_number
        if scan.torn is not None:
            text = "unfinished end of the journal cut off: path=%s offset=%s bytes=%s found=%s"
            logger.warning(text, path, scan.end, path.stat().st_size - scan.end, scan.torn)
        if scan.end < SEGMENT_HEADER_BYTES:
            self._index = index - 1
            self._begin_segment()
            scan.end = SEGMENT_HEADER_BYTES
            return
        self._index = index
        descriptor = os.open(path, os.O_WRONLY | self._sync_flag)
        if scan.torn is not None:
            os.ftruncate(descriptor, scan.end)
        self._segment = Segment(path, descriptor, scan.end, reserves=self._fsync)
        if self._fsync:  # what was read may be acted on: a crash can have left it in memory only
            os.fsync(descriptor)
        self._segment.reserve()


def _leave_locks_to_parent() -> None:
    """Close the locks in a forked child: its copies would hold them after the parent has ended."""
    for journal in list(_locked):
        if journal._lock is not None:
            os.close(journal._lock)
            journal._lock = None
    _locked.clear()


os.register_at_fork(after_in_child=_leave_locks_to_parent)
