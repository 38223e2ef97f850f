"""Making a backup: journals of this machine and on the broker, and everything that the broker keeps of a cluster."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct, structs

from seriatim.backup.contents import Contents, contents_of
from seriatim.backup.judging import MAY_BE_USED, Verdict, compare, kind_of, registered, runs
from seriatim.backup.manifest import STREAMS, KeptJournal, KeptPart, Manifest, System, write_manifest
from seriatim.brokers import Broker
from seriatim.brokers.capabilities import Copies, FencedJournal, Part, required
from seriatim.brokers.lives import Life
from seriatim.brokers.naming import escape, unescape
from seriatim.model import Behind, InputError, RequestRefused
from seriatim.runtime.journal.copying import FileCopy, FileWriter, building, copy_journal, read_journal, write_journal
from seriatim.runtime.journal.layout import failure, sync_folder

FOLDERS = {"tree": "node", "atoms": "node", "overlay": "broker", "durable": "durable"}
PROVES_NOTHING = frozenset({"atoms", "overlay"})  # nobody counts their records, so a copy cannot be compared later


class Source(Struct, kw_only=True):
    """A journal to be copied: in a folder of this machine, or on the broker."""

    system: System
    name: str
    folder: Path | None = None
    journal: Callable[[], FencedJournal] | None = None


class Made(Struct):
    """A backup that was made, and what each of its journals is good for now."""

    manifest: Manifest
    verdicts: list[Verdict]


async def make(
    sources: list[Source],
    to: Path,
    *,
    cluster: str,
    broker: Broker | None,
    program: str = "",
    not_asked: str = "",
    with_parts: bool = False,
) -> Made:
    """Copy all of these into a new folder, whole or not at all. `with_parts`: also what the broker keeps; then no node
    may run. `broker` None: it is not asked about lives. `program`: the version that makes it."""
    with building(to) as folder:
        before = await _stopped(broker) if with_parts and broker is not None else {}
        journals, verdicts = [], []
        for source in sources:
            kept, contents = await _copy(source, folder, broker)
            if with_parts and kept.holder:
                raise RequestRefused(f"{kept.what} runs ({kept.holder}); stop it, and all nodes, then copy the streams")
            journals.append(kept)
            verdict = await compare(kept, contents, broker, not_asked)
            verdicts.append(verdict)
            if with_parts and verdict.word not in MAY_BE_USED:
                problem = f"{kept.what}: the journal in {kept.source} is {verdict.word}: {verdict.text}"
                raise Behind(f"{problem}. A backup of everything needs the newest one")
        parts = await _copy_parts(broker, folder) if with_parts and broker is not None else []
        if with_parts and broker is not None and await _stopped(broker) != before:
            raise RequestRefused("a node was started while its streams were copied; stop all nodes, and try again")
        manifest = Manifest(
            cluster=cluster,
            program=program,
            host=socket.gethostname(),
            made_at=_now(),
            journals=journals,
            parts=parts,
            missing=sorted(before.keys() - _names_in(journals, parts, cluster)),
        )
        await asyncio.to_thread(write_manifest, folder, manifest)
    return Made(manifest, verdicts)


async def _stopped(broker: Broker) -> dict[str, Life]:
    """The registered lives of all nodes. RequestRefused: one of them answers."""
    fix = "copy journals only"
    lives = required(broker.lives, "--streams", "registers no lives, so it is not known what runs", fix)
    found = await lives.registered("node")
    for name in found:
        last = await runs(broker, "node", name)
        if last is not None:
            raise RequestRefused(
                f"node {name} runs ({last.where}); stop all nodes, then copy the streams: otherwise journals and "
                "streams would not fit each other"
            )
    return found


async def _copy(source: Source, folder: Path, broker: Broker | None) -> tuple[KeptJournal, Contents]:
    name = f"{FOLDERS[source.system]}-{escape(source.name)}"
    target, taken_at, last = folder / name, _now(), await registered(broker, source.system, source.name)
    try:
        target.mkdir()
    except OSError as error:
        raise failure("make the folder", target, error) from error
    if source.folder is not None:
        copied = await asyncio.to_thread(copy_journal, source.folder, target)
        files, holder, place = copied.files, copied.holder and f"process {copied.holder}", str(source.folder.resolve())
    else:
        files, place = await _copy_from_broker(source, target), "the broker"
        holder = await _holder(source, broker)
    if holder and source.system in PROVES_NOTHING:
        problem = f"it runs ({holder}), so nobody could tell later whether this copy is the newest"
        raise RequestRefused(f"{source.name}: {problem}; stop it first")
    recovered = await asyncio.to_thread(read_journal, target)
    contents = await asyncio.to_thread(contents_of, source.system, source.name, recovered)
    kept = KeptJournal(
        system=source.system,
        name=source.name,
        folder=name,
        source=place,
        holder=holder,
        files=files,
        epoch=contents.epoch,
        records=contents.records,
        taken_at=taken_at,
        life=last,
    )
    return kept, contents


async def _holder(source: Source, broker: Broker | None) -> str:
    """The process that has this journal, if the broker knows it."""
    found = await runs(broker, kind_of(source.system), source.name) if broker is not None else None
    return found.where if found is not None else ""


async def _copy_from_broker(source: Source, target: Path) -> list[FileCopy]:
    assert source.journal is not None, "one of both is given"
    recovered = await source.journal().read()
    if recovered is None or (recovered.snapshot is None and not recovered.records):
        raise InputError(source.name, "its journal on the broker is not there, or empty", "copy it when it has run")
    return await asyncio.to_thread(write_journal, recovered, target)


# ── what the broker keeps ─────────────────────────────────────────────────────────────────────────────────────────


async def _copy_parts(broker: Broker, folder: Path) -> list[KeptPart]:
    fix = "copy journals only, and the broker by its own means"
    copies = required(broker.copies, "--streams", "cannot be copied", fix)
    target, kept = folder / STREAMS, []
    target.mkdir()
    for number, part in enumerate(await copies.parts()):
        kept.append(await _copy_part(copies, part, target / f"{number:04}.stream"))
    sync_folder(target)
    return kept


async def _copy_part(copies: Copies, part: Part, path: Path) -> KeptPart:
    stream = copies.read(part.name)
    file = await _write_pieces(path, stream.pieces())
    found = stream.part
    return KeptPart(part=structs.replace(found, topic=part.topic), file=file)


async def _write_pieces(path: Path, pieces: AsyncIterator[bytes]) -> FileCopy:
    writer = FileWriter(path)
    try:
        async for piece in pieces:
            await asyncio.to_thread(writer.write, piece)
        return await asyncio.to_thread(writer.finish)
    finally:
        writer.close()


def _names_in(journals: list[KeptJournal], parts: list[KeptPart], cluster: str) -> set[str]:
    """The nodes whose journals are in the backup, also among the streams."""
    prefix = f"{cluster}-journal-"
    on_broker = {unescape(each.part.name.removeprefix(prefix)) for each in parts if each.part.name.startswith(prefix)}
    return on_broker | {each.name for each in journals if each.system != "durable"}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
