"""A journal belongs to one machine. Its first record says what the machine was founded with; snapshots repeat it.

Replaying a journal gives the same machine only with the shape and options it was written with. Each product defines
these (its `Founded`), and the changes it accepts, in its own founding.py. This file writes and reads them for all
products.
"""

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from seriatim.model import UNREADABLE, JournalError
from seriatim.protocols.machine import Machine
from seriatim.runtime import Recovered

AnyFounded = TypeVar("AnyFounded")
AnyMachine = TypeVar("AnyMachine", bound=Machine)
AnyState = TypeVar("AnyState")

# A tree and atoms keep journals of different kinds in folders of the same name.
FIX = "use the order that the cluster had before, or start over with a new cluster name and empty journals"

encode_founded = msgspec.msgpack.Encoder().encode


class Snapshot(Struct, Generic[AnyFounded, AnyState]):
    """A machine's state, its initial configuration, and the time of the last input that it includes."""

    founded: AnyFounded
    state: AnyState
    now: float


def encode_snapshot(founded: object, state: object, now: float) -> bytes:
    return encode_founded(Snapshot(founded, state, now))


class Rebuilt(Struct, Generic[AnyMachine, AnyFounded]):
    """A machine as its journal left it. `at_least`: the time of its last input.

    `current`: the founding that holds now. `to_append`: the same, if the journal lacks it.
    """

    machine: AnyMachine
    at_least: float
    current: AnyFounded
    to_append: AnyFounded | None = None


class Content(Struct, Generic[AnyFounded, AnyState]):
    """The contents of a journal. `founded`: its first record; None: the journal is new."""

    founded: AnyFounded | None
    state: AnyState | None
    records: list[Any]
    steps: list[Any]  # the records that are inputs of the machine
    at_least: float


class JournalFormat(Generic[AnyFounded, AnyState]):
    """How the journal of one kind of machine is read. `steps`: the types of its records, besides `founded`."""

    def __init__(self, kind: str, founded: type[AnyFounded], state: type[AnyState], steps: Any) -> None:
        self._kind = kind
        self._founded = founded
        self._record: Any = msgspec.msgpack.Decoder(founded | steps)
        self._snapshot: Any = msgspec.msgpack.Decoder(Snapshot[founded, state])  # type: ignore[valid-type]

    def read(self, name: str, recovered: Recovered) -> Content[AnyFounded, AnyState]:
        """The content of the journal of `name`. JournalError: it is not the journal of such a machine."""
        try:
            snapshot = self._snapshot.decode(recovered.snapshot) if recovered.snapshot is not None else None
            records = [self._record.decode(record) for record in recovered.records]
        except UNREADABLE as error:
            problem = f"the journal of {name} does not hold the records of a {self._kind}: {error}"
            raise JournalError(f"{problem}; {FIX}") from None
        if snapshot is None and not records:
            return Content(None, None, [], [], 0.0)
        founded = snapshot.founded if snapshot is not None else records[0]
        if not isinstance(founded, self._founded):
            raise JournalError(f"the journal of {name} does not begin as a {self._kind}'s does; {FIX}")
        times = [getattr(record, "now", 0.0) for record in records]
        at_least = max([snapshot.now if snapshot is not None else 0.0, *times])
        steps = [record for record in records if not isinstance(record, self._founded)]
        return Content(founded, snapshot.state if snapshot is not None else None, records, steps, at_least)
