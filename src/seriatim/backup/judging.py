"""Whether a copy of a journal may be used: it is compared with what the broker has registered and keeps.

A node may continue from a copy only if nothing was written to any other copy of the journal since. That is proven if
its last life ended in an orderly way with the same number of records. Otherwise the counts that a life registers every
second or two, and the stamps on the broker, can show that a copy is older, but cannot fully prove that it is not. (It
proves nothing that no process has the folder open: the folder may be an older copy itself.)
"""

import asyncio
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from seriatim.backup.contents import Contents, contents_of
from seriatim.backup.manifest import KeptJournal, System, damage_of
from seriatim.brokers import Broker
from seriatim.brokers.lives import Life, LifeKind
from seriatim.client.tree.life import COUNT, REMOVED, why_behind
from seriatim.live.life import EPOCH, RECORDS, why_older
from seriatim.model import ConnectionFailed, RemoteError, SeriatimError
from seriatim.protocols.with_broker import Begun
from seriatim.runtime.journal.copying import read_journal

Word: TypeAlias = Literal["newest", "unknown", "running", "older", "damaged"]

GOOD: frozenset[Word] = frozenset({"newest"})
MAY_BE_USED: frozenset[Word] = frozenset({"newest", "unknown"})


class Verdict(Struct, frozen=True, kw_only=True):
    """Whether one copy may be used, in a word and in a sentence."""

    word: Word
    text: str


async def judge(folder: Path, kept: KeptJournal, broker: Broker | None, not_asked: str = "") -> Verdict:
    """Read the copy in this backup, and compare it. `broker` None: it is not asked, because of `not_asked`."""
    damage = await asyncio.to_thread(damage_of, folder / kept.folder, kept.files)
    if damage:
        return Verdict(word="damaged", text=f"{damage}. Use another backup")
    try:
        contents = await asyncio.to_thread(
            lambda: contents_of(kept.system, kept.name, read_journal(folder / kept.folder))
        )
    except SeriatimError as error:
        return Verdict(word="damaged", text=f"it cannot be read: {error}")
    return await compare(kept, contents, broker, not_asked)


async def compare(kept: KeptJournal, contents: Contents, broker: Broker | None, not_asked: str = "") -> Verdict:
    """Compare what a copy holds with what the broker knows."""
    if kept.system == "overlay":
        text = "only its neighbours know what this broker has written since; they refuse it at the start if it is older"
        return Verdict(word="unknown", text=text)
    if broker is None:
        return Verdict(word="unknown", text=f"whole, and not compared with anything: {not_asked}")
    if broker.lives is None:
        text = "this broker registers no lives, so it is not known what was written since; the node's neighbours know"
        return Verdict(word="unknown", text=text)
    claim = broker.lives.claim(kind_of(kept.system), kept.name)
    try:
        last = await claim.look()
        if last is None:
            return _never_heard(kept)
        if not last.is_ended and await claim.answers():
            text = (
                f"it runs ({last.where}, since {last.since}) and writes on. The copy is refused while it runs, and "
                "later if it has written more. To move it, stop it and copy again"
            )
            return Verdict(word="running", text=text)
        if kept.system == "durable":
            return _durable(kept, contents, last)
        return _node(kept, contents, last, await _why_behind_broker(contents, broker, kept.name))
    finally:
        await claim.close()


def _never_heard(kept: KeptJournal) -> Verdict:
    text = (
        f"the broker has never heard of {kept.what}: it is another broker, or has lost its streams. Put the "
        "streams back first, from the same backup; otherwise the node, or its topics, will be refused"
    )
    return Verdict(word="unknown", text=text)


async def _why_behind_broker(contents: Contents, broker: Broker, node: str) -> str:
    """Evidence on the broker that a node of a tree has forgotten something in this copy."""
    machine = contents.machine
    if machine is None:
        return ""
    stamped = await broker.stamped_to(node) if machine.options.mode == "log" else {}
    log, ordered = broker.order_log(), 0
    if log is not None and machine.ask_broker_again().orders:
        bounds = await log.bounds()
        ordered = bounds.end if bounds is not None else 0
    outdated = machine.compare_broker(Begun(contents.epoch, 0, stamped, ordered))
    return outdated.reason if outdated is not None else ""


def _node(kept: KeptJournal, contents: Contents, last: Life, behind_broker: str) -> Verdict:
    epoch, records = contents.epoch, contents.records
    acted, written = last.numbers.get(EPOCH, 0), last.numbers.get(RECORDS, 0)
    is_counted = kept.system == "tree"
    older = why_older(last, epoch, records if is_counted else written) or behind_broker
    if not older and is_counted and last.is_ended and epoch == acted and records > written:
        older = f"it has {records} records of epoch {epoch}, and the node ended with {written}: it is another journal"
    if older:
        return _older(last, older, "`seriatim serve --heal` where it works (docs/guarantees.md, A lost journal)")
    if not is_counted:
        text = (
            f"of epoch {epoch}, the last one; but records of stations are not counted. Use it if it was "
            f"copied after the last life ended ({last.where}, since {last.since}), from the journal of that life"
        )
        return Verdict(word="unknown", text=text)
    return _newest(kept, last.is_ended and (epoch, records) == (acted, written), "the node")


def _durable(kept: KeptJournal, contents: Contents, last: Life) -> Verdict:
    past = contents.past
    assert past is not None, "read as a durable subscription"
    problem = why_behind(past, last)
    if problem is not None:
        fix = "start over with `seriatim sub --durable … --accept`, or subscribe(accept=True)"
        return _older(last, problem, fix if REMOVED not in last.numbers else "subscribe under another name")
    is_last = bool(past.lives) and past.lives[-1].holder == last.holder
    return _newest(kept, is_last and last.is_ended and past.count == last.numbers.get(COUNT, 0), "the subscription")


def _older(last: Life, problem: str, fix: str) -> Verdict:
    text = (
        f"it cannot be continued from, and is refused at the start: {problem}. The last life was {last.where}, since "
        f"{last.since}: use the journal of that life; if it is lost, {fix}"
    )
    return Verdict(word="older", text=text)


def _newest(kept: KeptJournal, is_proven: bool, what: str) -> Verdict:
    if is_proven:
        return Verdict(word="newest", text=f"nothing was written since: {what} can continue from it, on any machine")
    limit = "second" if kept.system == "tree" else "two seconds"
    text = f"the newest as far as the broker knows, which hears every {limit}: {what} can continue from it"
    if kept.holder:
        text += ". It was copied while the process ran: if the original disk still exists, use the journal on that"
    return Verdict(word="newest", text=text)


async def registered(broker: Broker | None, system: System, name: str) -> Life | None:
    """The last life that is registered. None: there is none, or it cannot be read."""
    if broker is None or broker.lives is None or system == "overlay":
        return None
    claim = broker.lives.claim(kind_of(system), name)
    try:
        return await claim.look()
    except (ConnectionFailed, RemoteError):
        return None
    finally:
        await claim.close()


async def runs(broker: Broker, kind: LifeKind, name: str) -> Life | None:
    """The last life, if its process answers."""
    if broker.lives is None:
        return None
    claim = broker.lives.claim(kind, name)
    try:
        last = await claim.look()
        return last if last is not None and not last.is_ended and await claim.answers() else None
    finally:
        await claim.close()


def kind_of(system: System) -> LifeKind:
    """Under which kind its lives are registered."""
    return "durable" if system == "durable" else "node"
