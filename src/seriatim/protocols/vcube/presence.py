"""The state that all parts of a peer share, and which peers live: news of the dead spread over the cube, heartbeats,
suspicion.

The status of a peer only ever rises: alive, dead, born again, dead again. Every peer tells the nearest living peer of
each of its clusters all it knows. These neighbours connect all peers, so everybody hears. A suspicion is news like any
other and never taken back: a peer that was declared dead and lives begins a new life.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from seriatim.model import InputError, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.vcube.cube import Cube, Id, Life, address_of, births_of, cluster_of, id_of, life_of, nearest
from seriatim.protocols.vcube.messages import Alive, Body, News, Packet, Replaced, Statuses
from seriatim.protocols.vcube.options import VCubeOptions
from seriatim.protocols.vcube.state import Group, PeerState


class Core:
    """The state that the parts of a peer share. `state` is everything; the rest is computed from it."""

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
        """The peers we presume dead. Sent with every statement that all have received something, because these may not
        have. If one of them lives, it learns so before it takes anything that builds on that statement."""
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


class Presence(Core, ABC):
    """The part of a peer that knows who lives."""

    def learn(self, statuses: Statuses, now: float, effects: Effects) -> None:
        """Take in news; spread what was new to us."""
        known = self.state.statuses
        news = {id: status for id, status in statuses.items() if status > known.get(id, 0) and id in self.cube}
        own = news.pop(self.id, 0)
        if news:
            known.update(news)
            self.state.heard.update(dict.fromkeys(news, now))
            self._living = None
            self._members.clear()
        if own > 2 * births_of(self.life):
            if own % 2 == 0:
                known[self.id] = own  # that life must end first: what is said of earlier ones is old
                self.state.replaced, self.state.may_go_on = True, self.holds_nothing()
                effects.notify.append(Replaced(own // 2, self.state.may_go_on))
                return
            self.begin_anew(own // 2 + 1, now, effects)
            return
        if news and not self.state.replaced:
            self.spread(news, effects)
            self.mourn(now, effects)

    @abstractmethod
    def holds_nothing(self) -> bool:
        """Whether no topic is held: others rely on nothing that this life has done."""

    @abstractmethod
    def mourn(self, now: float, effects: Effects) -> None:
        """A peer died or is new. Other parts of the peer override this to react."""

    @abstractmethod
    def begin_anew(self, births: int, now: float, effects: Effects) -> None:
        """Called when others presume us dead."""

    def spread(self, news: Statuses, effects: Effects) -> None:
        """Our neighbours hear the news; a neighbour that is new hears everything."""
        told = self.state.told
        for s, id in self._neighbours():
            life = self.life_now(id)
            assert life is not None, "the living live"
            if told.get(s, id) == life:  # at first everybody knows that nobody died
                if news:
                    self.send(life, News(news), effects)
            else:
                self.send(life, News(dict(self.state.statuses)), effects)
            told[s] = life

    def spread_birth(self, effects: Effects) -> None:
        """Tell everybody of our new life, also peers that we presume dead: one that lives and presumes us dead would
        otherwise never talk to us, nor we to it."""
        for id in self.cube.ids:
            if id != self.id:
                status = self.state.statuses.get(id, 0)
                self.send(life_of(id, status // 2), News(dict(self.state.statuses)), effects)
        self.state.told = {s: life_of(id, self.state.statuses.get(id, 0) // 2) for s, id in self._neighbours()}

    def _neighbours(self) -> Iterator[tuple[int, Id]]:
        return self.cube.neighbours(self.living(), self.id)

    def suspect(self, id: Id, now: float, effects: Effects) -> None:
        """Declare a peer dead."""
        life = self.life_now(id)
        if life is not None and id != self.id:
            status = {id: 2 * births_of(life) + 1}
            self.learn(status, now, effects)
            self.send(life, News(status), effects)  # should it live, it must know

    # ── heartbeats ────────────────────────────────────────────────────────────────────────────────────────────────

    def watched(self) -> list[Id]:
        """The peers that have us as a neighbour: they send us heartbeats."""
        living = self.living()
        everybody = sorted((*living, self.id))
        return [id for id in living if nearest(everybody, id, cluster_of(id, self.id)) == self.id]

    def beat(self, now: float, effects: Effects) -> None:
        """When it is time, tell our neighbours that we live, and suspect those that were silent for too long."""
        state, every_ms = self.state, self.options.heartbeat_ms
        if every_ms is None or (state.beat_due is not None and now < state.beat_due):
            return
        if state.beat_due is not None and now - state.beat_due > every_ms:
            state.heard.clear()  # we stood still ourselves, and what others said meanwhile may not be read yet
        state.beat_due = now + every_ms
        for _, id in self._neighbours():
            life = self.life_now(id)
            assert life is not None, "the living live"
            self.send(life, Alive(), effects)
        watched = self.watched()
        heard = state.heard
        state.heard = {id: heard.get(id, now) for id in watched}
        for id in watched:
            if now - state.heard[id] > self.options.suspect_after_ms:
                self.suspect(id, now, effects)

    def hear(self, life: int, now: float, effects: Effects) -> None:
        """Something came from this life: it is alive, and its earlier lives are over."""
        id, births = id_of(life), births_of(life)
        if self.options.heartbeat_ms is not None:
            self.state.heard[id] = now
        if self.state.statuses.get(id, 0) < 2 * births:
            self.learn({id: 2 * births}, now, effects)
