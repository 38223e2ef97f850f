"""Processes that must not act: with an older journal, with none, or while another one is the same node.

Each must end by itself, in time, with exit code 1 and the reason. What it did is noted (`Refusal`); the judge of a
round complains about any that ended otherwise, and the round's other checks show whether anybody else noticed.
"""

import asyncio
import contextlib
import urllib.request
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from msgspec import Struct

from seriatim.live.overlay.config import BrokerReport
from seriatim.live.peers.config import PeerReport
from seriatim.model import SeriatimError, TimedOut
from soak.children import Child, wait_for
from soak.journals import LOCK
from soak.tree.rows import now

REFUSED_CODE = 1
BEGIN_S = 240.0
ASK_S = 3.0
LOOK_S = 0.1
SAID_MAX = 4_000  # characters of what it said are quoted


class Refusal(Struct, frozen=True, kw_only=True):
    """How a process ended that must not act. `code`: None: it was still there after `limit_s`."""

    fault: str
    target: str
    expected: tuple[str, ...]  # one of these it must have said
    limit_s: float
    code: int | None
    seconds: float
    said: str

    @property
    def complaint(self) -> str:
        """What is wrong with it; nothing, if it ended as it must."""
        who = f"{self.fault} of {self.target}: the process that must not act"
        if self.code is None:
            return f"{who} was still there after {self.limit_s:g} s, saying:\n{self.said}"
        if self.code != REFUSED_CODE or not any(each in self.said for each in self.expected):
            must = f"it must end with {REFUSED_CODE} and say {' or '.join(map(repr, self.expected))}"
            return f"{who} ended with code {self.code} after {self.seconds:.1f} s ({must}), saying:\n{self.said}"
        return ""


async def must_end(
    child: Child, fault: str, target: str, expected: Iterable[str], limit_s: float, journal: Path | None = None
) -> Refusal:
    """Start this process, unless it runs, and wait until it has ended by itself. Afterwards it is gone in any case.

    `journal`: nobody has it yet. The time counts from when the process has opened it: on a busy machine Python may
    take longer to start than the process may take to end.
    """
    length = child.log.stat().st_size if child.log.exists() else 0
    if not child.running:
        child.start()
    child.wanted = False
    began = now()
    if journal is not None:
        with contextlib.suppress(TimedOut):
            is_begun = (journal / LOCK).exists
            await wait_for(lambda: is_begun() or not child.running, BEGIN_S, f"{child.name} to open its journal")
        began = now()
    try:
        await wait_for(lambda: not child.running, limit_s, f"{child.name} to be refused")
    except TimedOut:
        code = None
    else:
        code = child.code
    finally:
        child.kill()
    said = child.log.read_bytes()[length:].decode("utf-8", "replace").strip()
    return Refusal(
        fault=fault,
        target=target,
        expected=tuple(expected),
        limit_s=limit_s,
        code=code,
        seconds=now() - began,
        said=said[-SAID_MAX:],
    )


# ── who is there ──────────────────────────────────────────────────────────────────────────────────────────────────


def ask(url: str) -> str:
    """What a process says at its admin address; else why it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=ASK_S) as answer:
            text: str = answer.read().decode()
            return text
    except OSError as error:
        return f"does not answer: {error}"


async def until_connected(
    name: str, report: Callable[[], Awaitable[PeerReport | BrokerReport]], others: Iterable[object], timeout_s: float
) -> None:
    """Wait until a peer or a broker is connected to these: only who is connected keeps a second one out."""
    give_up_at, wanted = now() + timeout_s, set(others)
    missing = wanted
    while True:
        with contextlib.suppress(SeriatimError, OSError):
            missing = wanted - set((await report()).connected)
            if not missing:
                return
        if now() > give_up_at:
            raise TimedOut(f"waited {timeout_s:g} s for {name} to be connected to {', '.join(map(str, missing))}")
        await asyncio.sleep(LOOK_S)


async def until_ready(name: str, admin: str, timeout_s: float) -> None:
    """Wait until a process says that all it needs is there. TimedOut quotes what it says instead."""
    give_up_at = now() + timeout_s
    while (said := await asyncio.to_thread(ask, f"http://{admin}/ready")).startswith("does not answer"):
        if now() > give_up_at:
            explained = await asyncio.to_thread(ask, f"http://{admin}/explain")
            raise TimedOut(f"waited {timeout_s:g} s for {name} to be ready: {said}\n{explained}")
        await asyncio.sleep(LOOK_S)
