"""Which process is which peer, as far as this one knows: two processes must not have one id.

*The one that is alive wins*, because the others count on what it has acknowledged; a second one is refused. *A later
life wins over it*, because that is what a restart looks like: the journal of births gives a process that takes another
one's place the higher life, and the connection of the dead one may not have noticed yet. Should the older one live
after all, it hears that it was replaced, and stops. A process that lost its journal is refused until its earlier life
is held for dead; then it is told how often it was born, and goes on as the next life.
"""

from collections.abc import Callable

from msgspec import Struct

from seriatim.protocols.vcube.cube import Id, life_of, name_of
from seriatim.runtime.door import Problem


class Presence(Struct, frozen=True):
    """One process that is a peer."""

    process: str
    births: int


class Roster:
    """`status`: what the peer of this process knows of another one (twice its births, one more if it is dead)."""

    def __init__(self, status: Callable[[Id], int]) -> None:
        self._status = status
        self._present: dict[Id, Presence] = {}

    def admit(self, id: Id, births: int, process: str) -> Problem | None:
        """Somebody says that it is this peer. None: then it is."""
        known = self._present.get(id)
        status = self._status(id)
        if known is not None and known.process != process:
            latest = max(known.births, status // 2)
            if births <= latest and not status % 2:
                life = name_of(life_of(id, latest))
                reason = f"another process is peer {id}, in its life {life}; two processes cannot have one id"
                return Problem("id", reason, retry=True)
        self._present[id] = Presence(process, max(births, known.births if known is not None else 0))
        return None

    def is_present(self, id: Id, process: str) -> bool:
        """Whether this process is still the one."""
        known = self._present.get(id)
        return known is not None and known.process == process
