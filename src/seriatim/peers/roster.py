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
        if known is not None and known.process != process and births <= known.births and not self._status(id) % 2:
            life = name_of(life_of(id, known.births))
            reason = f"another process is peer {id}, in its life {life}; two processes cannot have one id"
            return Problem("id", reason, retry=True)
        if known is None or known.process != process or known.births < births:
            self._present[id] = Presence(process, births)
        return None

    def heard(self, id: Id, births: int) -> None:
        """The process that is this peer has sent something in this life. (What others tell of a later life does not
        count: it may be another process that has it.)"""
        known = self._present.get(id)
        if known is not None and known.births < births:
            self._present[id] = Presence(known.process, births)
