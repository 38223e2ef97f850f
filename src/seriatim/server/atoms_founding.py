"""The journal of a station: what it was founded with, and rebuilding the station from it.

As founding.py does for nodes of a tree. A station's journal means something only among the same stations with the same
parts, and under the same order; so these are its first record, and others are refused.
"""

import secrets
from functools import partial

import msgspec
from msgspec import Struct, structs

from seriatim.model import UNREADABLE, InputError, JournalError, Node
from seriatim.protocols.atoms import AtomsOptions, Plan, SequencingGraph
from seriatim.protocols.atoms.messages import TookOver
from seriatim.protocols.atoms.station import Station, StationState
from seriatim.protocols.atoms.station_node import LinkedState, StationNode, Step
from seriatim.runtime import Recovered


class Founded(Struct, frozen=True, tag="FoundedStation", kw_only=True):
    """From here on the journal is of this station, among these.

    `founding` is drawn once per journal, and is in the id of all that the station writes to the broker: a station that
    begins anew counts from 1 again, and must not take what is there for its own.
    """

    node: Node
    coordinator: Node
    ingresses: tuple[Node, ...]
    hosts: tuple[Node, ...]
    causal: bool
    founding: str = ""
    plan: SequencingGraph = msgspec.field(default_factory=SequencingGraph)

    @property
    def start(self) -> Plan:
        """What all stations began with."""
        return Plan(self.plan, self.hosts, self.ingresses)


class StationSnapshot(Struct):
    """A station's state, what it was founded with, and the time of the last input it stands for."""

    founded: Founded
    state: LinkedState
    now: float


class Rebuilt(Struct):
    """A station as its journal left it. `is_new`: what it was founded with is to be appended before anything else."""

    machine: StationNode
    at_least: float
    founded: Founded
    is_new: bool


FOUNDING_BYTES = 8
_record: msgspec.msgpack.Decoder[Step | TookOver | Founded] = msgspec.msgpack.Decoder(Step | TookOver | Founded)
_snapshot = msgspec.msgpack.Decoder(StationSnapshot)
_encode = msgspec.msgpack.Encoder().encode


def encode_founded(founded: Founded) -> bytes:
    """As a record of the journal."""
    return _encode(founded)


def encode_snapshot(founded: Founded, machine: StationNode, now: float) -> bytes:
    """The state of a station, for its journal."""
    return _encode(StationSnapshot(founded, machine.linked_state, now))


def rebuild(now: Founded, options: AtomsOptions, recovered: Recovered) -> Rebuilt:
    """The station as its journal left it; a journal nobody wrote gives a new one.

    JournalError: this is not the journal of a station. InputError: it is, but of another one than is to be started.
    """

    try:
        snapshot = _snapshot.decode(recovered.snapshot) if recovered.snapshot is not None else None
        records = [_record.decode(record) for record in recovered.records]
    except UNREADABLE as error:
        raise JournalError(
            f"the journal of {now.node} holds something else than a station's records: {error}"
        ) from None
    then = snapshot.founded if snapshot is not None else next(iter(records), now)
    if not isinstance(then, Founded):
        raise JournalError(f"the journal of {now.node} does not begin with what it was founded with")
    create = partial(_station, then, options)
    if snapshot is None and not records:
        founded = structs.replace(now, founding=secrets.token_hex(FOUNDING_BYTES))
        return Rebuilt(StationNode(create(), options.retry_ms), 0.0, founded, True)
    _check(then, now)
    steps = [record for record in records if not isinstance(record, Founded)]
    machine = StationNode.restore(create, options.retry_ms, snapshot.state if snapshot is not None else None, steps)
    times = [record.now for record in steps if isinstance(record, Step)]
    return Rebuilt(machine, max([snapshot.now if snapshot is not None else 0.0, *times]), then, False)


def _station(founded: Founded, options: AtomsOptions, state: StationState | None = None) -> Station:
    return Station(founded.start, founded.node, founded.coordinator, options, state)


def _check(then: Founded, now: Founded) -> None:
    for name in ("node", "coordinator", "ingresses", "hosts", "causal"):
        was, is_now = getattr(then, name), getattr(now, name)
        if was != is_now:
            problem = f"the journal of {now.node} was written with {was!r}, not {is_now!r}"
            raise InputError(name, problem, "configure that, or start anew: a new cluster name and empty journals")
