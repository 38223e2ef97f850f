"""Messages between the sequencers of paper 004."""

from msgspec import Struct

from seriatim.protocols.atoms.overlaps import AtomId, Group


class Skip(Struct, frozen=True, tag=True):
    """From a sequencer that retires to the one before it: send this group to the one after me. None: it leaves."""

    group: Group
    after: AtomId | None


class Terminate(Struct, frozen=True, tag=True):
    """To the first sequencer of a group: its termination message, much like a FIN."""

    group: Group
