"""Copies of file journals: of one that is being written, and back to where a process can open it.

*A copy is a prefix.* It has the newest whole snapshot and the segments after it, the last one up to a whole frame.
Records that a process appends meanwhile may or may not be in the copy; the records in it were written, in this order. A
frame may be in it that was not acknowledged yet, as after a crash. The writer may take a snapshot and remove what we
read: then the copy is made once more.

*Whole or not at all.* A folder is made under another name, made durable, and renamed (`building`).
"""

import contextlib
import errno
import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from seriatim.model import InputError, JournalError
from seriatim.runtime.journal.interface import Recovered
from seriatim.runtime.journal.layout import (
    SEGMENT_HEADER_BYTES,
    Damage,
    failure,
    frame,
    segment_header,
    snapshot_header,
    sync_folder,
)
from seriatim.runtime.journal.reading import LOCK, JournalFiles, Reading, holder_of, is_of_journal

READINGS_MAX = 20
AGAIN_S = 0.05
FRAME_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024


class FileCopy(Struct, frozen=True):
    """One file of a copy. `sha256`: of its content, in hexadecimal digits."""

    name: str
    bytes: int
    sha256: str


class JournalCopy(Struct, frozen=True):
    """The copied files. `holder`: the process that had the journal open meanwhile; empty: nobody."""

    files: list[FileCopy]
    holder: str = ""


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def has_journal(folder: Path) -> bool:
    """Whether there is a journal in this folder. JournalError: it cannot be looked into."""
    try:
        return folder.is_dir() and any(is_of_journal(path.name) for path in folder.iterdir())
    except OSError as error:
        raise failure("look into the folder", folder, error) from error


@contextlib.contextmanager
def kept_from_others(folder: Path) -> Iterator[str]:
    """Keep everybody from opening the journal inside the block. Yields the process that has it open already, or an
    empty text."""
    import fcntl

    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:  # nobody has opened it in this folder
        yield ""
        return
    except OSError as error:
        raise failure("look at the lock", folder, error) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield holder_of(lock)
        else:
            yield ""
    finally:
        os.close(lock)


def read_journal(folder: Path) -> Recovered:
    """Read a journal that no process writes. Damage: it cannot be read."""
    return _files(folder).read().recovered


def _files(folder: Path) -> JournalFiles:
    if not has_journal(folder):
        raise InputError(str(folder), "there is no journal in it", "name the folder that a node has run with")
    return JournalFiles(folder)


# ── copying ───────────────────────────────────────────────────────────────────────────────────────────────────────


def copy_journal(folder: Path, target: Path) -> JournalCopy:
    """Copy the journal into an empty folder. Damage: it cannot be read. JournalError: the disk does not take it."""
    files, had_lock = _files(folder), (folder / LOCK).exists()
    try:
        with kept_from_others(folder) as holder:
            copied = _copy_patiently(files, target) if holder else _copy(files, files.read(), target)
    except OSError as error:
        raise failure("copy the journal", folder, error) from error
    if not had_lock:  # somebody may have opened it for the first time
        with kept_from_others(folder) as later:
            holder = later
    return JournalCopy(copied, holder)


def _copy_patiently(files: JournalFiles, target: Path) -> list[FileCopy]:
    """A writer removes files, and writes what is being read. So damage counts if it is seen twice."""
    before = ""
    for _ in range(READINGS_MAX):
        try:
            return _copy(files, files.read(), target)
        except FileNotFoundError:
            pass
        except Damage as error:
            if str(error) == before:
                raise
            before = str(error)
        _remove_content(target)
        time.sleep(AGAIN_S)
    raise JournalError(f"{files.folder}: it changes faster than it can be copied; stop the process, and try again")


def _copy(files: JournalFiles, reading: Reading, target: Path) -> list[FileCopy]:
    if not any(scan.records for scan in reading.scans) and reading.snapshot is None:
        problem = "the journal is empty: nothing was written to it yet"
        raise InputError(str(files.folder), problem, "copy it when the node has run")
    copied = []
    if reading.snapshot is not None:
        path = files.path("snapshot", reading.first)
        copied.append(copy_file(path, target / path.name))
    for index, scan in enumerate(reading.scans, reading.first):
        if scan.end >= SEGMENT_HEADER_BYTES:
            path = files.path("segment", index)
            copied.append(copy_file(path, target / path.name, scan.end))
    return copied


def write_journal(recovered: Recovered, target: Path) -> list[FileCopy]:
    """The files of a journal that holds this, in an empty folder: for a journal that is kept elsewhere."""
    files, written = JournalFiles(target), []
    if recovered.snapshot is not None:
        header = snapshot_header(1, 1, recovered.snapshot)
        written.append(write_file(files.path("snapshot", 1), [header, recovered.snapshot]))
    parts, gathered, size, number = [segment_header(1, 1)], list[bytes](), 0, 1
    for record in recovered.records:
        if gathered and size + len(record) > FRAME_BYTES:
            parts.append(frame(number, gathered))
            gathered, size, number = [], 0, number + 1
        gathered.append(record)
        size += len(record)
    if gathered:
        parts.append(frame(number, gathered))
    written.append(write_file(files.path("segment", 1), parts))
    return written


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class FileWriter:
    """A new file, which is durable once it is finished."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = hashlib.sha256()
        self._bytes = 0
        try:
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb")
        except OSError as error:
            raise failure("write", path, error) from error

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._bytes += len(data)
        try:
            self._file.write(data)
        except OSError as error:
            raise failure("write", self._path, error) from error

    def finish(self) -> FileCopy:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise failure("write", self._path, error) from error
        return FileCopy(self._path.name, self._bytes, self._digest.hexdigest())

    def close(self) -> None:
        with contextlib.suppress(OSError):  # what it cannot write is lost already
            self._file.close()


def write_file(path: Path, parts: Iterable[bytes]) -> FileCopy:
    """A new file of these parts, durable."""
    writer = FileWriter(path)
    try:
        for part in parts:
            writer.write(part)
        return writer.finish()
    finally:
        writer.close()


def copy_file(path: Path, target: Path, length: int | None = None) -> FileCopy:
    """Copy the first bytes of a file, or all, to a new one, and make that durable."""
    left = length if length is not None else path.stat().st_size
    copied = write_file(target, pieces_of(path, left))
    if copied.bytes < left:
        raise Damage(f"{path}: it ends {left - copied.bytes} bytes earlier than a moment ago")
    return copied


def pieces_of(path: Path, length: int | None = None) -> Iterator[bytes]:
    """The content of a file, or its first bytes."""
    left = length if length is not None else path.stat().st_size
    with path.open("rb") as file:
        while left > 0 and (data := file.read(min(left, CHUNK_BYTES))):
            left -= len(data)
            yield data


def digest_of(path: Path) -> FileCopy:
    """The size and digest of a file."""
    digest, size = hashlib.sha256(), 0
    for piece in pieces_of(path):
        digest.update(piece)
        size += len(piece)
    return FileCopy(path.name, size, digest.hexdigest())


# ── whole folders ─────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `folder` if nothing is raised. InputError: there is something in `folder`.

    Whoever kills this process in between leaves the unfinished folder, which the next one empties, and nothing else.
    """
    import fcntl

    folder = folder.absolute()
    check_free(folder)
    part = folder.with_name(f".{folder.name}.unfinished")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir(exist_ok=True)
        lock = os.open(part, os.O_RDONLY)
    except OSError as error:
        raise failure("make the folder", part, error) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(str(folder), "another process is making it", "wait for it, or name another one") from None
        try:
            if not os.path.samestat(part.stat(), os.fstat(lock)):
                raise FileNotFoundError(errno.ENOENT, "another process has just made it")
            _remove_content(part)
        except OSError as error:
            raise failure("begin the folder", part, error) from error
        try:
            yield part
            _finish(part, folder)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove_content(part)
                part.rmdir()
            raise
    finally:
        os.close(lock)


def check_free(folder: Path) -> None:
    """InputError: this is not a free place for a folder. A journal without records is free."""
    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise InputError(str(folder), "it is not a folder", "name a new folder")
        if not folder.exists():
            return
        if has_journal(folder):
            with kept_from_others(folder) as holder:
                if holder:
                    raise InputError(str(folder), f"its journal is in use by process {holder}", "stop that first")
                if _is_unused(folder):
                    return
            fix = "move it away if it is older or damaged; nothing was changed"
            raise InputError(str(folder), "there is a journal in it", fix)
        if any(folder.iterdir()):
            raise InputError(str(folder), "it is not empty", "name a new folder")
        if folder.is_mount():
            raise InputError(str(folder), "it is a mounted disk by itself", "name a folder on it")
    except OSError as error:
        raise failure("look into the folder", folder, error) from error


def _is_unused(folder: Path) -> bool:
    """Whether a process has begun a journal here, and has never written to it: it has found that it lost its own."""
    if any(path.name != LOCK and not is_of_journal(path.name) for path in folder.iterdir()):
        return False
    try:
        recovered = JournalFiles(folder).read().recovered
    except JournalError:
        return False
    return recovered.snapshot is None and not recovered.records


def _clear_unused(folder: Path) -> None:
    """Remove such a journal. A process that is starting finds it in use, or makes another one, which is in the way."""
    if folder.exists() and has_journal(folder):
        with kept_from_others(folder) as holder:
            if not holder and _is_unused(folder):
                _remove_content(folder)


def _remove_content(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _finish(part: Path, folder: Path) -> None:
    try:
        for inner in [path for path in part.rglob("*") if path.is_dir()]:
            sync_folder(inner)
        sync_folder(part)
        _clear_unused(folder)
        part.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        if folder.exists() and any(folder.iterdir()):
            raise InputError(str(folder), "somebody has just put something into it", "name a new folder") from None
        raise failure("put the folder in its place", folder, error) from error
