"""Which process is which peer, as far as this one knows: two processes must not have one id.

*The one that is alive wins*, because the others rely on what it has acknowledged; a second one is refused. *A later
life wins over it*, because that is what a restart looks like: the journal gives the new process the next life, while
the connection of the old one may still look open. If the old one is alive after all, it hears that it was replaced, and
stops. A process that lost its journal is refused until its earlier life is presumed dead; then it is told how often it
was born, and goes on as the next life.
"""

from collections.abc import Callable

from msgspec import Struct

from seriatim.protocols.vcube.cube import Id, life_of, name_of
from seriatim.runtime.net.door import Problem


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
        """A process claims to be this peer. None: it is accepted."""
        known = self._present.get(id)
        if known is not None and known.process != process and births <= known.births and not self._status(id) % 2:
            life = name_of(life_of(id, known.births))
            reason = f"another process is peer {id}, in its life {life}; two processes cannot have one id"
            return Problem("id", reason, retry=True)
        if known is None or known.process != process or known.births < births:
            self._present[id] = Presence(process, births)
        return None

    def heard(self, id: Id, births: int) -> None:
        """The process that is this peer has sent something in this life. (What others report of a later life does not
        count: that may be another process.)"""
        known = self._present.get(id)
        if known is not None and known.births < births:
            self._present[id] = Presence(known.process, births)
