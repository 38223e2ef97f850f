"""The lives of nodes and durable subscriptions, registered where everybody can see which process has a name.

A journal alone cannot tell that it is an old copy, or that another process runs with another journal. So every life
registers, *before it acts*, under the name of what it runs, with a later epoch than the last life had. Registering is a
compare-and-set: of two processes that try, one succeeds, and the other is `Fenced`. The process that had the name
before is told (`Claim.lost`), and is refused at its next write. Nothing here is a lock or a lease: a life has the name
until somebody registers a later one.

    claim = lives.claim("node", "eu")
    before = await claim.look()            the last life, with the numbers it has said; None: nobody ever had the name
    await claim.register(life)             behind what was just looked at
    await claim.say({"orders": 17})        later lives compare these with their journals
    await claim.close()
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct, field

from seriatim.model import UNREADABLE, Fenced, RemoteError, Taken

LifeKind: TypeAlias = Literal["node", "durable"]

ANSWER_S = 1.0  # a process that is asked whether it lives has this long to answer

logger = logging.getLogger(__name__)


class Life(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One life of whoever has a name.

    `epoch`: later than that of every life before. `holder`: random; no other life has it. `where`: for people, which
    process it is and which journal it has. `numbers`: the last numbers that it registered. `is_ended`: it ended in an
    orderly way, after it had registered everything.
    """

    epoch: int
    holder: str
    where: str = ""
    since: str = ""
    numbers: dict[str, int] = field(default_factory=dict)
    is_ended: bool = False


def new_life(epoch: int, where: str, numbers: Mapping[str, int] | None = None) -> Life:
    """A life of this process. `where`: what to add about it, for example its journal."""
    process = f"process {os.getpid()} on {socket.gethostname()}"
    since = datetime.now(UTC).isoformat(timespec="seconds")
    where = f"{process}, {where}" if where else process
    return Life(epoch=epoch, holder=secrets.token_hex(8), where=where, since=since, numbers=dict(numbers or {}))


_decoder = msgspec.json.Decoder(Life)

encode_life = msgspec.json.Encoder().encode


def decode_life(data: bytes, name: str) -> Life:
    """What was registered. RemoteError: no version of this program that is known here wrote it."""
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise RemoteError(f"the registered life of {name} cannot be read: {error}") from None


class Claim(Protocol):
    """One process's claim to a name. `lost` is done, with the reason, when somebody has registered a later life."""

    kind: LifeKind
    name: str
    last: Life | None  # as last looked at or registered
    lost: "asyncio.Future[Fenced]"

    async def look(self) -> Life | None:
        """The last life that was registered. None: there is none. ConnectionFailed: the broker does not answer."""

    async def answers(self, timeout_s: float = ANSWER_S) -> bool:
        """Whether the process of the last life answers. False proves nothing: it may be slow, or cut off."""

    async def register(self, life: Life) -> None:
        """Have the name from now on. Fenced: somebody has registered since the last look, or has a later epoch."""

    async def say(self, numbers: Mapping[str, int], *, is_ended: bool = False) -> None:
        """Register these numbers, replacing the earlier ones. Fenced: another life has the name; nothing was kept."""

    async def check(self) -> None:
        """Look whether this life still has the name. Fenced: it has not. Looked at by itself now and then."""

    async def close(self) -> None:
        """Watch no more. The life stays registered. May be called twice."""


class Lives(Protocol):
    """The lives of one cluster."""

    def claim(self, kind: LifeKind, name: str) -> Claim:
        """A claim to this name; nothing is registered yet."""

    async def registered(self, kind: LifeKind) -> dict[str, Life]:
        """The last life of every name. ConnectionFailed: the broker does not answer."""


async def refuse_if_taken(claim: Claim, what: str, fix: str) -> None:
    """Taken: the process of the last life still answers. To be asked before `register`, where nobody takes over.

    `what`: for example "node eu". A process that does not answer is fenced by the life that registers after it.
    """
    last = claim.last
    if last is not None and not last.is_ended and await claim.answers():
        raise Taken(f"{what} is run by another process ({last.where}, since {last.since}), which answers; {fix}")


def fenced_by(claim: Claim, later: Life | None) -> Fenced:
    """The reason for a life that has lost its name."""
    who = f"{later.where}, epoch {later.epoch}, since {later.since}" if later is not None else "nobody"
    return Fenced(f"another process has taken over {claim.kind} {claim.name}: {who}")
