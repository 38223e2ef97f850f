"""`Opened`: what `async with` opens and closes, also if opening fails halfway."""

from abc import ABC, abstractmethod
from typing import Self


class Opened(ABC):
    """Opened by `async with`, closed at its end. If `_open` fails, `close` runs before the error is raised."""

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Close it, whatever stage `_open` has reached."""
