"""The journal of a station: its initial configuration, and rebuilding the station from the journal.

A station's journal is valid only with the same stations, the same roles and the same order. Starting a station with
others is refused.
"""

import secrets
from functools import partial

import msgspec
from msgspec import Struct, structs

from seriatim.live.founding import JournalFormat, Rebuilt
from seriatim.model import InputError, Node
from seriatim.protocols.atoms import AtomsOptions, Plan, SequencingGraph
from seriatim.protocols.atoms.live_messages import Input
from seriatim.protocols.atoms.station import Station, StationState
from seriatim.protocols.atoms.station_node import LinkedState, StationNode
from seriatim.protocols.node import Stepped, TookOver
from seriatim.runtime import Recovered


class Founded(Struct, frozen=True, tag="FoundedStation", kw_only=True):
    """The first record of a station's journal: the station, and the others it was founded with.

    `founding` is drawn once per journal, and is part of the id of all that the station writes to the broker: a station
    that starts with a new journal counts from 1 again, and must not mistake older items for its own.
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
        """What all stations started with."""
        return Plan(self.plan, self.hosts, self.ingresses)


FOUNDING_BYTES = 8
JOURNAL = JournalFormat("station", Founded, LinkedState, Stepped[Input] | TookOver)


def rebuild(now: Founded, options: AtomsOptions, recovered: Recovered) -> Rebuilt[StationNode, Founded]:
    """The station as its journal left it; an empty journal gives a new one.

    JournalError: this is not the journal of a station. InputError: it belongs to another station.
    """
    content = JOURNAL.read(now.node, recovered)
    then = content.founded
    if then is None:
        founded = structs.replace(now, founding=secrets.token_hex(FOUNDING_BYTES))
        return Rebuilt(StationNode(_station(now, options), options.retry_ms), 0.0, founded, founded)
    for name in ("node", "coordinator", "ingresses", "hosts", "causal"):
        was, is_now = getattr(then, name), getattr(now, name)
        if was != is_now:
            problem = f"the journal of {now.node} was written with {was!r}, not {is_now!r}"
            raise InputError(name, problem, "configure that, or start over with a new cluster name and empty journals")
    create = partial(_station, then, options)
    machine = StationNode.restore(create, options.retry_ms, content.state, content.steps)
    return Rebuilt(machine, content.at_least, then)


def _station(founded: Founded, options: AtomsOptions, state: StationState | None = None) -> Station:
    return Station(founded.start, founded.node, founded.coordinator, options, state)
