"""Entered once, closed once: the life that a bus and a subscription have in common."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Self

from seriatim.model import Closed


class UsedOnce(ABC):
    """Opened by `async with`, closed at its end or by `close`, and never opened again.

    What fails to open is closed before the error is raised, so `_close` meets it at any stage.
    """

    _kind: ClassVar[str]  # in messages
    _made_by: ClassVar[str]  # the call that makes one
    _entered_as: ClassVar[str]  # the variable in the example that a message shows

    def __init__(self) -> None:
        self._state: Literal["new", "open", "closed"] = "new"

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise Closed(f"a {self._kind} is used once; call {self._made_by}() again")
        self._state = "open"
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """What the end of `async with` does. May be called twice."""
        if self._state != "closed":
            self._state = "closed"
            await self._close()

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    def _check_open(self) -> None:
        if self._state == "new":
            example = f"async with {self._made_by}(...) as {self._entered_as}"
            raise Closed(f"enter the {self._kind} first: {example}")
        if self._state == "closed":
            raise Closed(f"the {self._kind} is closed")
