"""Journals and snapshots from before all protocols had one kind of node are read, and give the same machines.

The files under journals/ were written by the nodes of that time. Each holds a journal, a snapshot taken after the
record `snapshot_at`, the states that taking over gave from the whole journal and from the snapshot with the rest, and
what the machine sent at its first tick.
"""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct, structs

from seriatim.protocols.atoms import AtomsOptions, Plan, SequencingGraph
from seriatim.protocols.atoms import live_messages as atoms
from seriatim.protocols.atoms.station import Station
from seriatim.protocols.atoms.station_node import LinkedState, StationNode
from seriatim.protocols.link import Frame
from seriatim.protocols.node import LinkedNode, Stepped, TookOver
from seriatim.protocols.overlay import Broker, Overlay, OverlayOptions, running
from seriatim.protocols.overlay import messages as overlay
from seriatim.protocols.tree import SequencerNode, SequencerNodeState
from seriatim.protocols.tree import messages as tree
from seriatim.protocols.with_broker import Stamped, Watch, Write
from tests.protocols.tree.net import options_for
from tests.protocols.tree.test_take_over import TREES

STATIONS = ("one", "two", "three")


class Kept(Struct):
    """One file."""

    journal: list[bytes]
    snapshot: bytes
    snapshot_at: int
    whole: bytes
    rest: bytes
    epoch: int
    sent: list[tuple[str, bytes]]


class Kind(Struct):
    """How the journal of one kind of node is read."""

    record: Any
    state: Any
    sent: Any
    take_over: Callable[[list[Any], Any], LinkedNode]
    now: float = 1000.0


def tree_kind(mode: str) -> Kind:
    take_over = partial(SequencerNode.take_over, TREES["chain"], "n2", options_for(mode=mode, order="pairwise"))
    sent = Frame[tree.BetweenNodes] | tree.Granted | tree.Joined | tree.Updated | Watch | Stamped | Write
    return Kind(
        Stepped[tree.Input] | TookOver, SequencerNodeState, sent, take_over, now=130.0 if mode == "log" else 20.0
    )


def atoms_station(records: list[Any], snapshot: Any) -> LinkedNode:
    options = AtomsOptions(retry_ms=10.0)
    create = partial(Station, Plan(SequencingGraph(), STATIONS, STATIONS), "one", STATIONS[0], options)
    return StationNode.restore(create, 10.0, snapshot, records)


def overlay_broker(records: list[Any], snapshot: Any) -> LinkedNode:
    place, options = Overlay({"root": None, "left": "root", "right": "root"}).places["left"], OverlayOptions()
    return running.BrokerNode.take_over(
        lambda state=None: Broker(place, options, state), options.retry_ms, records, snapshot
    )


KINDS = {
    "tree_log": tree_kind("log"),
    "tree_ticket": tree_kind("ticket"),
    "atoms": Kind(Stepped[atoms.Input] | TookOver, LinkedState, Frame[atoms.Sent], atoms_station),
    "overlay": Kind(
        Stepped[overlay.Input] | TookOver,
        running.LinkedState,
        Frame[overlay.ToClient | overlay.Between],
        overlay_broker,
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_journal_of_before_gives_the_machine_it_gave(name: str) -> None:
    kind, data = KINDS[name], (Path(__file__).parent / "journals" / f"{name}.msgpack").read_bytes()
    kept = msgspec.msgpack.decode(data, type=Kept)
    records = [msgspec.msgpack.decode(record, type=kind.record) for record in kept.journal]
    snapshot = msgspec.msgpack.decode(kept.snapshot, type=kind.state)
    rest = kind.take_over(records[kept.snapshot_at :], snapshot)
    then = msgspec.msgpack.decode(kept.rest, type=kind.state)
    assert rest.state == counted(then, records[kept.snapshot_at :], rest.state)
    whole = kind.take_over(records, None)
    assert whole.state == counted(msgspec.msgpack.decode(kept.whole, type=kind.state), records, whole.state)
    assert whole.epoch == kept.epoch
    effects = whole.tick(kind.now)
    assert effects.persist[0] == TookOver(kept.epoch)
    sent = [(target, msgspec.msgpack.decode(message, type=kind.sent)) for target, message in kept.sent]
    assert by_target(effects.send) == by_target(sent)


def counted(state: Any, records: list[Any], now: Any) -> Any:
    """The state of that time; now a node also counts: that of a tree what it has read, the others only inputs. And that
    of a tree remembers what its stamps name: all of it, if it has read all of its journal."""
    if isinstance(state, SequencerNodeState):
        names = now.sequencer.named, now.sequencer.names_all
        sequencer = structs.replace(state.sequencer, named=names[0], names_all=names[1])
        return structs.replace(state, sequencer=sequencer, inputs=len(records))
    return structs.replace(state, inputs=sum(isinstance(record, Stepped) for record in records))


def by_target(sent: list[Any]) -> list[Any]:
    """Messages have an order for each target only."""
    return sorted(sent, key=itemgetter(0))


@pytest.mark.parametrize("name", KINDS)
def test_records_are_written_as_before(name: str) -> None:
    """Except that a record no longer says that it did not come on a link, nor a message what it has not."""
    kind, data = KINDS[name], (Path(__file__).parent / "journals" / f"{name}.msgpack").read_bytes()
    for record in msgspec.msgpack.decode(data, type=Kept).journal:
        then = msgspec.msgpack.decode(record)
        now = msgspec.msgpack.decode(msgspec.msgpack.encode(msgspec.msgpack.decode(record, type=kind.record)))
        if then.get("framed") is False:
            del then["framed"]
        if then["type"] == "Stepped" and then["message"]["type"] in ("Pass", "Subscribe", "Update"):
            for each in (then, now):
                said = each["message"].items()
                each["message"] = {field: value for field, value in said if value != [] and value is not False}
        assert sets_sorted(now) == sets_sorted(then)


def sets_sorted(value: Any) -> Any:
    """Sets are written in any order."""
    if isinstance(value, dict):
        return {key: sets_sorted(each) for key, each in value.items()}
    return sorted(map(sets_sorted, value), key=repr) if isinstance(value, list) else value
