"""What all parts of a peer share: its state, its view of who lives, and how it sends."""

from seriatim.model import InputError, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.vcube.cube import Cube, Id, Life, address_of, births_of, id_of, life_of
from seriatim.protocols.vcube.messages import Body, Packet, Statuses
from seriatim.protocols.vcube.options import VCubeOptions
from seriatim.protocols.vcube.state import Group, PeerState


class Core:
    """The ground the parts of a peer stand on. `state` is everything; the rest is computed from it."""

    def __init__(self, cube: Cube, id: Id, options: VCubeOptions, state: PeerState | None = None) -> None:
        if id not in cube:
            raise InputError("id", f"{id} is not among the peers", "add it to the list that all peers are given")
        self.cube = cube
        self.id = id
        self.options = options
        self.state = PeerState(life=id) if state is None else state
        self._living: tuple[Id, ...] | None = None
        self._members: dict[Topic, tuple[list[Id], list[Id]]] = {}

    @property
    def life(self) -> Life:
        return self.state.life

    def is_dead(self, life: Life) -> bool:
        return self.state.statuses.get(id_of(life), 0) > 2 * births_of(life)

    def life_now(self, id: Id) -> Life | None:
        """The present life of a peer, as far as we know; None: it is dead."""
        births, is_dead = divmod(self.state.statuses.get(id, 0), 2)
        return None if is_dead else life_of(id, births)

    def living(self) -> tuple[Id, ...]:
        """All other peers that are not known to be dead."""
        if self._living is None:
            statuses = self.state.statuses
            self._living = tuple(id for id in self.cube.ids if id != self.id and not statuses.get(id, 0) % 2)
        return self._living

    def dead_ids(self) -> list[Id]:
        return [id for id, status in self.state.statuses.items() if status % 2]

    def obituary(self) -> Statuses:
        """The peers we presume dead. Goes with every word that all have received something: these may not have. If one
        of them lives, it learns so before it takes anything that builds on that word."""
        return {id: status for id, status in self.state.statuses.items() if status % 2}

    def group(self, topic: Topic) -> Group:
        group = self.state.groups.get(topic)
        if group is None:
            group = self.state.groups[topic] = Group()
        return group

    def members(self, topic: Topic) -> tuple[list[Id], list[Id]]:
        """The other members that relay, and those that only receive. Sorted."""
        found = self._members.get(topic)
        if found is None:
            found = ([], [])
            group = self.state.groups.get(topic)
            for id, entry in sorted(group.view.items()) if group is not None else ():
                if entry.stage != "left" and entry.life == self.life_now(id):
                    found[0 if self.relays(entry.stage) else 1].append(id)
            self._members[topic] = found
        return found

    def relays(self, stage: str) -> bool:
        """Relay only with a complete view: a joining peer may not know all members."""
        return stage == "ready"

    def may_relay(self, group: Group) -> bool:
        return group.entry is not None and self.relays(group.entry.stage)

    def next_count(self) -> int:
        self.state.count += 1
        return self.state.count

    def send(self, target: Life, body: Body, effects: Effects) -> None:
        effects.send.append((address_of(target), Packet(self.life, target, body)))
