"""Rules of healing (protocols/tree/healing.py), switched off one by one. See variants.py."""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from seriatim.lab.explore.engine.plan import cast_with, gives
from seriatim.lab.explore.tree.cast import PROPER, Cast
from seriatim.model import Number, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import Sequencer
from seriatim.protocols.tree.core import SequencerCore
from seriatim.protocols.tree.estate import Range
from seriatim.protocols.tree.messages import Heal

HEALING: dict[str, tuple[str, Cast]] = {}  # they are looked for in worlds in which nodes lose their journals


def breaks(name: str, text: str, role: str = "sequencer", **methods: Callable[..., Any]) -> None:
    """The machine of this role, with these methods in place of its own."""
    HEALING[name] = text, cast_with(PROPER, role, **methods)


def wait_not(self: Sequencer, topic: Topic) -> bool:
    """Homes issue on while the tree is swept."""
    if self.state.healing.is_blank:
        return True
    drained, self.state.healing.is_drained = self.state.healing.is_drained, False
    rests = Sequencer._rests(self, topic)
    self.state.healing.is_drained = drained
    return rests


def know_at_once(self: Sequencer, message: Heal) -> Any:
    """The answer to the second sweep already counts: finished stamps may still be on their way back."""
    self._known_early = Sequencer._known(self, message, 0.0, Effects())  # type: ignore[attr-defined]
    return Sequencer._moves_known(self, message)


def known_early(self: Sequencer, message: Heal, now: float, effects: Effects) -> Any:
    if self.state.healing.is_blank:
        return Sequencer._known(self, message, now, effects)
    return structs.replace(self._known_early, phase=message.phase)  # type: ignore[attr-defined]


def certain_without_stages(self: Sequencer, topic: Topic, home: Any) -> Number:
    """What was told in stages and is not finished is issued anew."""
    for range_ in self.state.ranges.get(topic, {}).values():
        range_.is_told = False
    return Sequencer._certain(self, topic, home)


def stamp_at_once(self: Sequencer, topic: Topic, range_: Range, now: float, effects: Effects) -> None:
    """A stamp goes out as soon as it is finished, also before that of an earlier range."""
    self._chase(topic, range_, now, effects)


def map_as_known(self: Sequencer, report: Any, lost: Any) -> Any:
    return Sequencer._map(self, structs.replace(report, moving=frozenset()), lost)


breaks("no-drain", "homes issue on while a node is healed", _rests=wait_not)
breaks("no-barrier", "counts are told before stamps are back", _moves_known=know_at_once, _known=known_early)
breaks("no-era-base", "the first stamp of an era names nothing from before it", _base=gives({}))
breaks("no-named-known", "what finished stamps and floors name is issued anew", _remember_named=gives(None))
breaks("no-told-known", "what was told in stages is issued anew", _certain=certain_without_stages)
breaks("no-ahead", "what stamps say of stages is not believed, and issued anew", _told_to=gives(0))
breaks("no-stamps-in-order", "stamps do not wait for those before them", _stamp_in_order=stamp_at_once)
breaks("no-doubt", "a subscriber does not ask whether it is still known", "subscriber", _doubt=gives(None))
breaks("no-break", "a subscriber goes on although it was unknown", "subscriber", _is_still_known=gives(True))
breaks(
    "no-blank",
    "a node without its journal hands on what it gets",
    _is_passed_over=gives(False),
    _on_routed=SequencerCore._on_routed,
)
breaks("no-hole", "what never came into the order log leaves no hole", _begin_order=gives(None))
breaks("no-joins-again", "joins wait for answers that are lost", _restart_joins=gives(None))
breaks("no-later-place", "clients believe in a move that a lost root began", _map=map_as_known)
breaks(
    "no-proof-of-links",
    "who was replaced may say how far a link is",
    "node",
    _prove=lambda self, source, frame, effects: effects,
)
