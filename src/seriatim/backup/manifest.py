"""The description of a backup: the file `manifest.json`, which is written last.

manifest.json            what is below, with a digest of each file, and one of the manifest
node-eu/                 the files of a journal, as in runtime/journal/layout.py
durable-billing/
streams/0003.stream      one part of what the broker keeps, in the broker's own format
"""

import hashlib
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from seriatim.brokers.capabilities import Part
from seriatim.brokers.lives import Life
from seriatim.model import UNREADABLE, InputError, JournalError
from seriatim.runtime.journal.copying import FileCopy, digest_of, write_file

MANIFEST = "manifest.json"
STREAMS = "streams"
FORMAT = 1
PLACE = "DIR"

System: TypeAlias = Literal["tree", "atoms", "overlay", "durable"]


class KeptJournal(Struct, frozen=True, kw_only=True):
    """One journal of a backup.

    `system`: what runs with it. `source`: where it was. `holder`: the process that had it open while it was copied;
    empty: nobody. `epoch`, `records`: how far it is (of a durable subscription: its last life, and what it has
    acknowledged). `life`: the last one that was registered when it was copied; None: none, or nobody was asked.
    """

    system: System
    name: str
    folder: str
    source: str
    holder: str
    files: list[FileCopy]
    epoch: int
    records: int
    taken_at: str
    life: Life | None = None

    @property
    def what(self) -> str:
        """The name of the copied process, for people."""
        words = {"tree": "node", "atoms": "station", "overlay": "broker", "durable": "durable subscription"}
        return f"{words[self.system]} {self.name}"

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.files)


class KeptPart(Struct, frozen=True, kw_only=True):
    """One part of what the broker keeps, in a file."""

    part: Part
    file: FileCopy


class Manifest(Struct, frozen=True, kw_only=True):
    """A whole backup. `parts`: everything that the broker keeps of the cluster, or nothing. `missing`: nodes whose
    journals would belong to it, and were not on that machine."""

    cluster: str
    program: str
    host: str
    made_at: str
    journals: list[KeptJournal] = field(default_factory=list)
    parts: list[KeptPart] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


class _Envelope(Struct):
    """The file: the manifest itself is read when version and digest are known to fit."""

    seriatim_backup: int
    sha256: str
    manifest: msgspec.Raw


class _Format(Struct):
    seriatim_backup: int


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """The last file of a backup."""
    content = msgspec.json.encode(manifest)
    envelope = _Envelope(FORMAT, hashlib.sha256(content).hexdigest(), msgspec.Raw(content))
    write_file(folder / MANIFEST, [msgspec.json.encode(envelope)])


def read_manifest(folder: Path) -> Manifest:
    """InputError: this is not a backup. JournalError: it is damaged, or of a later version."""
    path = folder / MANIFEST
    try:
        if not folder.is_dir():
            raise InputError(PLACE, f"there is no folder {folder}", "name the folder that `seriatim backup` has made")
        data = path.read_bytes()
    except FileNotFoundError:
        problem = f"{folder} has no {MANIFEST}, so it is not a backup"
        raise InputError(PLACE, problem, "name the folder that `seriatim backup` has made") from None
    except OSError as error:
        raise InputError(PLACE, f"{path} cannot be read: {error.strerror}", "let this user read it") from None
    try:
        version = msgspec.json.decode(data, type=_Format).seriatim_backup
        if version != FORMAT:
            problem = f"{path}: backup format {version}, this program reads format {FORMAT}"
            raise JournalError(f"{problem}; use the version of the program that made it")
        envelope = msgspec.json.decode(data, type=_Envelope)
        if hashlib.sha256(envelope.manifest).hexdigest() != envelope.sha256:
            raise JournalError(f"{path} is damaged: it does not fit its digest; use another backup")
        return msgspec.json.decode(envelope.manifest, type=Manifest)
    except UNREADABLE as error:
        raise JournalError(f"{path} is damaged: {error}; use another backup") from None


def damage_of(folder: Path, files: list[FileCopy]) -> str:
    """The problem of these files; empty: they are as they were written."""
    for each in files:
        path = folder / each.name
        try:
            found = digest_of(path)
        except FileNotFoundError:
            return f"{path} is missing"
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        if found.bytes != each.bytes:
            return f"{path} has {found.bytes:,} bytes, and had {each.bytes:,}"
        if found != each:
            return f"{path} does not fit its digest: some of its bytes have changed"
    return ""
