"""The contents of a copied journal: every record is decoded, and its machine is rebuilt from them."""

from typing import Any, TypeVar

from msgspec import Struct

from seriatim.backup.manifest import System
from seriatim.client.tree.durable import Past, read_past
from seriatim.model import InputError
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.runtime import Recovered

_Founded = TypeVar("_Founded")


class Contents(Struct):
    """How far a journal is. `machine`: of a node of a tree. `past`: of a durable subscription."""

    epoch: int
    records: int
    machine: SequencerNode | None = None
    past: Past | None = None


def contents_of(system: System, name: str, recovered: Recovered) -> Contents:
    """JournalError: it cannot be read. InputError: it is the journal of another one."""
    return _READERS[system](name, recovered)


def _node(name: str, recovered: Recovered) -> Contents:
    from seriatim.live.tree.founding import JOURNAL, Founded, rebuild

    content = JOURNAL.read(name, recovered)
    then = _founded(name, content.founded)
    last = next((each for each in reversed(content.records) if isinstance(each, Founded)), then)
    _check_name(name, last.node)
    machine = rebuild(last.tree, last.node, last.options_now(TreeOptions()), recovered).machine
    return Contents(machine.epoch - 1, machine.state.inputs, machine=machine)


def _station(name: str, recovered: Recovered) -> Contents:
    from seriatim.live.atoms.founding import JOURNAL, rebuild
    from seriatim.protocols.atoms import AtomsOptions

    content = JOURNAL.read(name, recovered)
    then = _founded(name, content.founded)
    _check_name(name, then.node)
    machine = rebuild(then, AtomsOptions(), recovered).machine
    return Contents(machine.epoch - 1, len(content.records))


def _broker(name: str, recovered: Recovered) -> Contents:
    from seriatim.live.overlay.founding import JOURNAL, rebuild
    from seriatim.protocols.overlay import OverlayOptions

    content = JOURNAL.read(name, recovered)
    then = _founded(name, content.founded)
    _check_name(name, then.place.name)
    names = ("held_max", "subscriptions_max", "advertisements_max", "turned_max")
    options: Any = {"order": then.order, "early": then.early, **dict(zip(names, then.bounds, strict=False))}
    machine = rebuild(then.place, OverlayOptions(**options), recovered).machine
    return Contents(machine.state.epoch - 1, len(content.records))


def _durable(name: str, recovered: Recovered) -> Contents:
    past = read_past(name, recovered)
    epoch = max((each.epoch for each in past.lives), default=0)
    return Contents(epoch, past.count, past=past)


_READERS = {"tree": _node, "atoms": _station, "overlay": _broker, "durable": _durable}


def _founded(name: str, founded: _Founded | None) -> _Founded:
    if founded is None:
        raise InputError(name, "its journal is empty", "copy it when it has run")
    return founded


def _check_name(name: str, found: str) -> None:
    if found != name:
        raise InputError(name, f"the journal is that of {found}", "check which folder belongs to which node")
