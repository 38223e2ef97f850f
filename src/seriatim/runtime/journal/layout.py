"""The files of a file journal: their layout, byte by byte, and how to distinguish a torn end from damage.

    segment-00000001.log       header, then one frame per append
    snapshot-00000002.bin      the state that stands for everything before segment 2
    lock                       held by the process that writes; its process id

    segment header   magic, format version, index, number of the first frame, CRC-32 of the header
    frame            mark, length, frame number, CRC-32 of the payload, CRC-32 of this header; then the payload
    payload          the records of one append, as a msgpack array of byte strings

A frame is written by one call and the next one only after it is durable. So a crash can leave at most one unfinished
frame, at the very end: that one was never acknowledged, and it is cut off. Everything else that does not fit is damage,
and records that were acknowledged may be behind it: it is reported, never skipped. A frame header has its own checksum,
so that a damaged length in the middle is not taken for an unfinished end. Zeros after the last frame are room that was
reserved for the next ones.
"""

import errno
import os
import struct
import zlib
from pathlib import Path

import msgspec
from msgspec import Struct

from seriatim.model import UNREADABLE, JournalError

FORMAT_VERSION = 1
SEGMENT_MAGIC = b"seriatjn"
SNAPSHOT_MAGIC = b"seriatsn"
FRAME_MARK = b"\xffSRF"

_segment_header = struct.Struct(">8sIQQ")
_snapshot_header = struct.Struct(">8sIQQQI")
_frame_header = struct.Struct(">4sIQI")
_checksum = struct.Struct(">I")

SEGMENT_HEADER_BYTES = _segment_header.size + _checksum.size
SNAPSHOT_HEADER_BYTES = _snapshot_header.size + _checksum.size
FRAME_HEADER_BYTES = _frame_header.size + _checksum.size
PAYLOAD_BYTES_MAX = 2**31 - 1  # one write() takes no more

_encoder = msgspec.msgpack.Encoder()
_records: msgspec.msgpack.Decoder[list[bytes]] = msgspec.msgpack.Decoder(list[bytes])

RESTORE = "restore the folder from a backup, or start this node with an empty journal under a new cluster name"


class Damage(JournalError):
    """A file that is not as it was written. Another format version is not damage."""


class Scan(Struct):
    """The contents of a segment. `torn`: why it does not end with a whole frame; what is beyond `end` was never
    taken."""

    first_number: int
    next_number: int
    records: list[bytes]
    end: int
    torn: str | None = None


class SnapshotFile(Struct):
    """A whole snapshot: the state before frame `next_number`, which is the first of its segment."""

    next_number: int
    state: bytes


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def segment_header(index: int, first_number: int) -> bytes:
    return _with_checksum(_segment_header.pack(SEGMENT_MAGIC, FORMAT_VERSION, index, first_number))


def frame(number: int, records: list[bytes]) -> bytes:
    payload = _encoder.encode(records)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise JournalError(f"{len(payload)} bytes in one append; at most {PAYLOAD_BYTES_MAX} can be written at once")
    return _with_checksum(_frame_header.pack(FRAME_MARK, len(payload), number, zlib.crc32(payload))) + payload


def snapshot_header(index: int, next_number: int, state: bytes) -> bytes:
    """The beginning of a snapshot; the state follows."""
    fields = (SNAPSHOT_MAGIC, FORMAT_VERSION, index, next_number, len(state), zlib.crc32(state))
    return _with_checksum(_snapshot_header.pack(*fields))


def _with_checksum(header: bytes) -> bytes:
    return header + _checksum.pack(zlib.crc32(header))


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────


def read_snapshot(path: Path, index: int) -> SnapshotFile:
    """Read a snapshot. JournalError: it is damaged, or of another format."""
    data = path.read_bytes()
    if len(data) < SNAPSHOT_HEADER_BYTES or not _checksum_fits(data, 0, SNAPSHOT_HEADER_BYTES):
        raise damage(path, 0, "the header of the snapshot does not fit its checksum")
    magic, version, found_index, next_number, length, checksum = _snapshot_header.unpack_from(data)
    _check_kind(path, magic, SNAPSHOT_MAGIC, version, found_index, index)
    state = data[SNAPSHOT_HEADER_BYTES:]
    if len(state) != length or zlib.crc32(state) != checksum:
        raise damage(path, SNAPSHOT_HEADER_BYTES, "the snapshot does not fit its checksum")
    return SnapshotFile(next_number, state)


def read_segment(path: Path, index: int) -> Scan | None:
    """All records of a segment. None: it was just being made, and nothing can have been acknowledged in it."""
    data = path.read_bytes()
    if len(data) < SEGMENT_HEADER_BYTES or not _checksum_fits(data, 0, SEGMENT_HEADER_BYTES):
        if len(data) <= SEGMENT_HEADER_BYTES or not any(data):
            return None
        raise damage(path, 0, "the header of the segment does not fit its checksum")
    magic, version, found_index, first_number = _segment_header.unpack_from(data)
    _check_kind(path, magic, SEGMENT_MAGIC, version, found_index, index)
    scan = Scan(first_number, first_number, [], SEGMENT_HEADER_BYTES)
    written = len(data.rstrip(b"\0"))
    while scan.end < written and scan.torn is None:
        _read_frame(path, data, scan)
    return scan


def _read_frame(path: Path, data: bytes, scan: Scan) -> None:
    start = scan.end
    body = start + FRAME_HEADER_BYTES
    if body > len(data):
        scan.torn = "half a frame header"
        return
    if not data.startswith(FRAME_MARK, start) or not _checksum_fits(data, start, FRAME_HEADER_BYTES):
        if _frame_after(data, start + 1):
            raise damage(path, start, f"frame {scan.next_number} is damaged, and there are frames after it")
        scan.torn = "a frame header that does not fit its checksum"
        return
    _, length, number, checksum = _frame_header.unpack_from(data, start)
    if number != scan.next_number:
        raise damage(path, start, f"frame {number} where frame {scan.next_number} belongs")
    payload = data[body : body + length]
    if len(payload) < length:
        scan.torn = f"{len(payload)} of {length} bytes of a frame"
    elif zlib.crc32(payload) != checksum:
        if any(data[body + length :]):
            raise damage(path, body, f"frame {number} does not fit its checksum, and there is more after it")
        scan.torn = "a frame that does not fit its checksum"
    else:
        try:
            scan.records.extend(_records.decode(payload))
        except UNREADABLE as error:
            raise damage(path, body, f"frame {number} is not a list of records ({error})") from None
        scan.next_number += 1
        scan.end = body + length


def _frame_after(data: bytes, start: int) -> bool:
    """Whether a frame header is anywhere in the rest."""
    while (start := data.find(FRAME_MARK, start)) >= 0:
        if start + FRAME_HEADER_BYTES <= len(data) and _checksum_fits(data, start, FRAME_HEADER_BYTES):
            return True
        start += 1
    return False


def _checksum_fits(data: bytes, start: int, header_bytes: int) -> bool:
    end = start + header_bytes - _checksum.size
    (checksum,) = _checksum.unpack_from(data, end)
    return bool(zlib.crc32(data[start:end]) == checksum)


def _check_kind(path: Path, magic: bytes, expected_magic: bytes, version: int, index: int, expected_index: int) -> None:
    if magic != expected_magic:
        raise damage(path, 0, "it is another kind of file than its name says")
    if version != FORMAT_VERSION:
        raise JournalError(
            f"{path}: journal format {version}, this program reads and writes format {FORMAT_VERSION}; "
            "start the version of the program that wrote it"
        )
    if index != expected_index:
        raise damage(path, 0, f"it was written as number {index}: files were renamed or mixed up")


def damage(path: Path, offset: int, what: str) -> Damage:
    """An error that names the damaged place and says what to do."""
    return Damage(f"{path}, byte {offset}: {what}; nothing was changed. Find out what damaged it, then {RESTORE}")


# ── the file system ───────────────────────────────────────────────────────────────────────────────────────────────


def write_all(descriptor: int, data: bytes, place: int) -> None:
    """Write all bytes, also if the system takes fewer at once."""
    written = os.pwrite(descriptor, data, place)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], place + written)


def sync_folder(folder: Path) -> None:
    """Make created, renamed and removed names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def failure(what: str, path: Path, error: OSError) -> JournalError:
    """The operating system's answer as a JournalError that says what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "free space on the disk, then start again: nothing that was acknowledged is lost"
    elif error.errno == errno.EFBIG:
        advice = "raise the limit on file sizes (ulimit -f), then start again: nothing that was acknowledged is lost"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = f"let user {os.getuid()} read and write it, or name another folder"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        advice = "name a folder"
    else:
        advice = "check the disk, then start again"
    return JournalError(f"{path}: cannot {what}: {error.strerror or error}; {advice}")
