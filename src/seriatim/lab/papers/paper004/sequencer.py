"""One sequencing atom as section 3.1 of the paper has it, with a forwarding table entry per group, and as section 3.2
has it retire.

Messages and receivers are those of `protocols.atoms`: this file has only what the paper's atoms do differently.
"""

from collections.abc import Mapping

from msgspec import Struct, field, structs

from seriatim.model import Address
from seriatim.protocols.atoms.messages import Item, Notice, Publish
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members, group_of
from seriatim.protocols.machine import Effects, Payload


class Skip(Struct, frozen=True, tag=True):
    """From a sequencer that retires to the one before it: send this group to the one after me. None: it leaves."""

    group: Group
    after: AtomId | None


class Terminate(Struct, frozen=True, tag=True):
    """To the first sequencer of a group: its termination message, much like a FIN."""

    group: Group


class SequencerState(Struct):
    """The state that section 3.1 lists; buffers and acknowledgements are left to the links."""

    count: int = 0
    group_counts: dict[Group, int] = field(default_factory=dict)
    forwarding: dict[Group, AtomId | None] = field(default_factory=dict)
    reverse_path: dict[Group, AtomId | None] = field(default_factory=dict)


class Sequencer:
    """An atom on a machine of its own. `paths`: the path of each group, in the direction it is walked."""

    def __init__(
        self,
        name: AtomId,
        pair: tuple[Group, Group],
        paths: Mapping[Group, list[AtomId]],
        members: Mapping[Group, Members],
    ) -> None:
        self.name = name
        self.pair = pair
        self.members = members
        self.state = SequencerState()
        for group, path in paths.items():
            if name in path:
                place = path.index(name)
                self.state.forwarding[group] = path[place + 1] if place + 1 < len(path) else None
                self.state.reverse_path[group] = path[place - 1] if place else None

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        if isinstance(message, Skip):
            self.state.forwarding[message.group] = message.after
        elif isinstance(message, Publish):
            self._sequence(self._ingress(group_of(message.event.topic, 1), message), effects)
        elif isinstance(message, Terminate):
            self._sequence(self._ingress(message.group, None), effects)
        elif isinstance(message, Item):
            self._sequence(message, effects)
        return effects

    def _ingress(self, group: Group, message: Publish | None) -> Item:
        """A message from outside gets its number in its group; without one, the group ends."""
        counts = self.state.group_counts
        counts[group] = counts.get(group, 0) + 1
        if message is None:
            return Item(group, counts[group], {}, notice=Notice(closes=True))
        return Item(group, counts[group], {}, message.event)

    def _sequence(self, item: Item, effects: Effects) -> None:
        if item.group in self.pair:
            self.state.count += 1
            item = structs.replace(item, stamp={**item.stamp, self.name: self.state.count})
        after = self.state.forwarding[item.group]
        if after is not None:
            effects.send.append((after, item))
        else:
            effects.send.extend((member, item) for member in sorted(self.members[item.group]))
        if item.notice is not None and item.notice.closes and item.group in self.pair:
            self._retire(effects)

    def _retire(self, effects: Effects) -> None:
        """The overlap is gone: the parent is to forward to the child, for each group. What still comes is handed on."""
        self.pair = ("", "")
        for group, before in self.state.reverse_path.items():
            if before is not None:
                effects.send.append((before, Skip(group, self.state.forwarding[group])))
