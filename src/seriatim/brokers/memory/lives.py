"""Lives in this process."""

import asyncio
from collections.abc import Mapping

from msgspec import structs

from seriatim.brokers.lives import ANSWER_S, Life, LifeKind, fenced_by
from seriatim.model import Closed, Fenced


class MemoryLives:
    """See `Lives`. The connections of one broker share it."""

    def __init__(self) -> None:
        self.lasts: dict[tuple[LifeKind, str], Life] = {}
        self.holders: dict[tuple[LifeKind, str], MemoryClaim] = {}

    def claim(self, kind: LifeKind, name: str) -> "MemoryClaim":
        return MemoryClaim(self, kind, name)

    async def registered(self, kind: LifeKind) -> dict[str, Life]:
        return {name: life for (each, name), life in self.lasts.items() if each == kind}


class MemoryClaim:
    """See `Claim`."""

    def __init__(self, lives: MemoryLives, kind: LifeKind, name: str) -> None:
        self.kind = kind
        self.name = name
        self.last: Life | None = None
        self.lost: asyncio.Future[Fenced] = asyncio.get_running_loop().create_future()
        self._lives = lives
        self._life: Life | None = None

    async def look(self) -> Life | None:
        self.last = self._lives.lasts.get((self.kind, self.name))
        return self.last

    async def answers(self, timeout_s: float = ANSWER_S) -> bool:
        holder = self._lives.holders.get((self.kind, self.name))
        return holder is not None and self.last is not None and holder._life is not None

    async def register(self, life: Life) -> None:
        key = (self.kind, self.name)
        found = self._lives.lasts.get(key)
        if found is not None and (found.epoch >= life.epoch or self.last is None or found.holder != self.last.holder):
            raise fenced_by(self, found)
        before = self._lives.holders.get(key)
        self._lives.lasts[key], self._lives.holders[key] = life, self
        self.last = self._life = life
        if before is not None and not before.lost.done():
            before.lost.set_result(fenced_by(before, life))

    async def say(self, numbers: Mapping[str, int], *, is_ended: bool = False) -> None:
        await self.check()
        assert self._life is not None, "just checked"
        self._life = self.last = structs.replace(self._life, numbers=dict(numbers), is_ended=is_ended)
        self._lives.lasts[self.kind, self.name] = self._life

    async def check(self) -> None:
        if self.lost.done():
            raise self.lost.result()
        if self._life is None:
            raise Closed(f"{self.kind} {self.name}: no life is registered; register it first")

    async def close(self) -> None:
        key = (self.kind, self.name)
        if self._lives.holders.get(key) is self:
            del self._lives.holders[key]
