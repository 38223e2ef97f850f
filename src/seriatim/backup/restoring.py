"""Putting a backup back: journals into folders or onto the broker, and everything that the broker kept.

Everything is checked before anything is changed. The streams of the broker are restored first, lives before the rest,
and journals last: so a node that is started in between finds itself registered and without a journal, and does not act.
If the command is interrupted, run it again: it continues with whatever is still missing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from msgspec import Struct

from seriatim.backup.judging import MAY_BE_USED, Verdict, judge
from seriatim.backup.manifest import STREAMS, KeptJournal, KeptPart, Manifest, damage_of
from seriatim.brokers import Broker
from seriatim.brokers.capabilities import Copies, FencedJournal, required
from seriatim.model import Behind, JournalError, RequestRefused
from seriatim.runtime.journal.copying import building, check_free, copy_file, pieces_of, read_journal


class Target(Struct, kw_only=True):
    """Where a journal goes: a folder of this machine, or the broker."""

    kept: KeptJournal
    folder: Path | None = None
    journal: Callable[[], FencedJournal] | None = None


class PutBack(Struct):
    """The restored parts: journals with their verdicts, and names of streams. `there`: the parts that existed
    already."""

    journals: list[tuple[KeptJournal, Verdict]]
    parts: list[str]
    there: list[str]


async def judged(folder: Path, manifest: Manifest, broker: Broker | None, not_asked: str) -> list[Verdict]:
    """The verdict for each journal of a backup. JournalError: a file of what the broker kept is damaged."""
    await asyncio.to_thread(_check_parts, folder, manifest)
    return [await judge(folder, kept, broker, not_asked) for kept in manifest.journals]


async def put_back(
    folder: Path,
    manifest: Manifest,
    targets: list[Target],
    broker: Broker | None,
    *,
    not_asked: str = "",
    with_parts: bool = False,
) -> PutBack:
    """Put these journals back, and with `with_parts` what the broker kept. Behind: a copy must not be used."""
    there = [each.kept.what for each in targets if await _is_there(folder, each)]
    left = [each for each in targets if each.kept.what not in there]
    for target in left:
        if target.folder is not None:
            check_free(target.folder)
    parts: list[str] = []
    if with_parts and broker is not None:
        await asyncio.to_thread(_check_parts, folder, manifest)
        await _usable(folder, left, None, "its streams are put back first")
        parts, parts_there = await _put_parts(broker, folder, manifest.parts)
        there += parts_there
        left = [each for each in left if each.folder is not None or not await _is_there(folder, each)]
    journals = await _usable(folder, left, broker, not_asked)
    for target in left:
        await _put_journal(folder, target)
    return PutBack(journals, parts, there)


async def _usable(
    folder: Path, targets: list[Target], broker: Broker | None, not_asked: str
) -> list[tuple[KeptJournal, Verdict]]:
    verdicts = [(each.kept, await judge(folder, each.kept, broker, not_asked)) for each in targets]
    for kept, verdict in verdicts:
        if verdict.word not in MAY_BE_USED:
            raise Behind(f"{kept.what}: the copy is {verdict.word}: {verdict.text}. No journal was put back")
    return verdicts


# ── journals ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _is_there(folder: Path, target: Target) -> bool:
    """Whether this very copy is in its place: the command was ended behind it."""
    if target.folder is not None:
        return await asyncio.to_thread(_is_same, target.folder, target.kept)
    assert target.journal is not None, "one of both is given"
    found = await target.journal().read()
    return found is not None and found == await asyncio.to_thread(read_journal, folder / target.kept.folder)


def _is_same(folder: Path, kept: KeptJournal) -> bool:
    """Whether the journal in this folder is the copy, and nobody has opened it since."""
    try:
        names = {path.name for path in folder.iterdir()}
        return names == {each.name for each in kept.files} and not damage_of(folder, kept.files)
    except OSError:
        return False


async def _put_journal(folder: Path, target: Target) -> None:
    source = folder / target.kept.folder
    if target.folder is not None:
        await asyncio.to_thread(_put_folder, source, target.kept, target.folder)
        return
    assert target.journal is not None, "one of both is given"
    await target.journal().fill(await asyncio.to_thread(read_journal, source))


def _put_folder(source: Path, kept: KeptJournal, folder: Path) -> None:
    with building(folder) as part:
        for each in kept.files:
            if copy_file(source / each.name, part / each.name) != each:
                raise JournalError(f"{source / each.name} has changed since a moment ago; nothing was put back")


# ── what the broker kept ──────────────────────────────────────────────────────────────────────────────────────────


def _check_parts(folder: Path, manifest: Manifest) -> None:
    damage = damage_of(folder / STREAMS, [each.file for each in manifest.parts])
    if damage:
        raise JournalError(f"{damage}. Use another backup")


async def _put_parts(broker: Broker, folder: Path, kept: list[KeptPart]) -> tuple[list[str], list[str]]:
    """Put the parts back in the order of the backup. Returns the names of those put back, and of those already
    there."""
    copies = required(broker.copies, "--streams", "takes no copies", "restore journals only")
    there = [each.part.name for each in kept if await _is_part_there(copies, each)]
    put = [each for each in kept if each.part.name not in there]
    for each in put:
        await copies.write(each.part, _pieces(folder / STREAMS / each.file.name))
    return [each.part.name for each in put], there


async def _is_part_there(copies: Copies, kept: KeptPart) -> bool:
    """RequestRefused: another one of this name is there."""
    part, found = kept.part, await copies.look(kept.part.name)
    if found is None:
        return False
    if (found.first, found.last, found.messages) == (part.first, part.last, part.messages):
        return True
    raise RequestRefused(
        f"stream {part.name} is there already, with {found.messages:,} messages up to {found.last}; the copy has "
        f"{part.messages:,} up to {part.last}. A backup is put back as a whole: if what is on the broker is not "
        "needed, delete its streams first. Nothing was changed"
    )


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    for piece in pieces_of(path):
        yield piece
