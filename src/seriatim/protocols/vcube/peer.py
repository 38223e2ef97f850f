"""A peer: publishes, relays and notifies, without any broker. The machine that a driver steps.

It is written in parts, each of which can be read alone: who lives (presence.py), trees (casting.py), publications
(flowing.py), publications of the dead (orphans.py), coming and going (joining.py).
"""

from collections.abc import Iterable, Mapping

from seriatim.model import APPLICATION, Address, InputError, RemoteError, Topic
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.queue import Queue
from seriatim.protocols.vcube import messages as say
from seriatim.protocols.vcube.cube import Cube, Id, Life, births_of, id_at, id_of, life_of, name_of
from seriatim.protocols.vcube.joining import JOINING, Joining
from seriatim.protocols.vcube.options import VCubeOptions
from seriatim.protocols.vcube.state import Flow, Group, PeerState, Task


class Peer(Joining):
    """The machine of one peer. It assumes that messages to a living peer arrive, once, in any order."""

    @classmethod
    def restart(cls, cube: Cube, id: Id, options: VCubeOptions, journal: Iterable[Payload]) -> "Peer":
        """A new process replaces one that died: a new life without any memory. The first tick announces it."""
        births = max((record.births for record in journal if isinstance(record, say.Born)), default=0) + 1
        peer = cls(cube, id, options, PeerState(life=life_of(id, births), statuses={id: 2 * births}))
        peer.state.forgot = True
        return peer

    @classmethod
    def founder(cls, cube: Cube, id: Id, options: VCubeOptions, members: Mapping[Topic, Iterable[Id]]) -> "Peer":
        """A peer that holds its topics from the beginning, among members that all do: nobody has to join.

        Every peer of the system must begin so, with the same members.
        """
        peer = cls(cube, id, options)
        for topic, ids in members.items():
            entries = {other: say.Entry(other, 1, "ready") for other in ids}
            if (own := entries.pop(id, None)) is not None:
                peer.state.groups[topic] = Group(part="in", entry=own, view=entries)
        return peer

    @property
    def topics(self) -> list[Topic]:
        """What is held now."""
        return sorted(topic for topic, group in self.state.groups.items() if group.part == "in")

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        if self.state.replaced:
            self._step_replaced(source, message, now, effects)
        else:
            self._announce(now, effects)
            if source == APPLICATION:
                self._command(message, now, effects)
            elif isinstance(message, say.Packet) and id_at(source) == id_of(message.sender):
                self._packet(message, now, effects)
            else:
                raise RemoteError(f"{source} sent a peer an unknown message: {message!r}")
            self._look_for_lost(now, effects)
        effects.wake_at = None if self.state.replaced else self.state.beat_due
        return effects

    def tick(self, now: float) -> Effects:
        effects = Effects()
        if not self.state.replaced:
            self._announce(now, effects)
            self.beat(now, effects)
            self._look_for_lost(now, effects)
        effects.wake_at = None if self.state.replaced else self.state.beat_due
        return effects

    # ── from the application ──────────────────────────────────────────────────────────────────────────────────────

    def _command(self, command: Payload, now: float, effects: Effects) -> None:
        match command:
            case say.Subscribe(topic) | say.Unsubscribe(topic):
                self.group(topic).queue.append(command)
            case say.Publish(event):
                topic = event.topic
                if not command.join and not self._will_hold(topic):
                    raise InputError(
                        f"topic {topic!r}",
                        f"peer {self.id} does not hold it, and only a peer that holds a topic can publish on it",
                        "subscribe first, or publish with join=True",
                    )
                self.group(topic).queue.append(command)
            case say.Suspect(peer):
                if peer not in self.cube:
                    raise InputError("peer", f"there is no peer {peer}", "name one of the peers of this system")
                self.suspect(peer, now, effects)
                return
            case _:
                raise InputError("command", f"unknown command {command!r}", "see protocols/vcube/messages.py")
        if not self.state.replaced:
            self.pump(topic, now, effects)

    def _will_hold(self, topic: Topic) -> bool:
        group = self.state.groups.get(topic)
        if group is None:
            return False
        for command in reversed(list(group.queue)):
            if not isinstance(command, say.Publish) or command.join:
                return not isinstance(command, say.Unsubscribe)
        return group.part in (*JOINING, "in")

    # ── from other peers ──────────────────────────────────────────────────────────────────────────────────────────

    def _packet(self, packet: say.Packet, now: float, effects: Effects) -> None:
        sender = packet.sender
        if id_of(sender) not in self.cube or id_of(sender) == self.id:
            raise RemoteError(f"peer {name_of(sender)} is unknown to peer {self.id}")
        if isinstance(packet.body, say.News):  # taken from any sender, for any life: two may suspect each other
            self.learn(packet.body.statuses, now, effects)
        elif self.is_dead(sender):
            if births_of(sender) * 2 + 1 == self.state.statuses[id_of(sender)]:  # it lives, and does not know
                self.send(sender, say.News({id_of(sender): self.state.statuses[id_of(sender)]}), effects)
        else:
            self.hear(sender, now, effects)
            if packet.receiver == self.life:
                self._body(sender, packet.body, now, effects)

    def _body(self, sender: Life, body: say.Body, now: float, effects: Effects) -> None:
        if (dead := _dead_by(body)) and not self._survives(dead, now, effects):
            return
        match body:
            case say.Cast():
                self._cast(sender, body, now, effects)
            case say.Ack(hop, answer):
                if hop in self.state.submissions:
                    self.on_submission(hop, None, True, now, effects)
                else:
                    self.acknowledged(hop, answer, now, effects)
            case say.Past(hop, entry):
                if hop in self.state.submissions:
                    self.on_submission(hop, entry, False, now, effects)
                else:
                    self.reach_past(hop, entry, now, effects)
            case say.Orphan():
                self.on_orphan(sender, body, now, effects)
            case say.Spare(pub):
                self.receive(pub, now, effects)
            case say.Greet():
                self.on_greet(sender, body, effects)
            case say.Stranger():
                self.on_stranger(body, now, effects)
            case say.Alive() | say.News():
                pass

    def _survives(self, dead: say.Statuses, now: float, effects: Effects) -> bool:
        """Take in which peers the sender presumes dead. False: we are one of them."""
        life = self.life
        self.learn(dead, now, effects)
        return self.life == life and not self.state.replaced

    def _cast(self, sender: Life, message: say.Cast, now: float, effects: Effects) -> None:
        content, life = message.content, self.life
        if isinstance(content, say.Sub | say.Census):
            self.learn(content.statuses, now, effects)
        if not isinstance(content, say.Pub):
            self.hear(content.entry.life, now, effects)
        if self.life != life or self.state.replaced:
            return
        match content:
            case say.Sub():
                answer = self.answer_sub(content)
            case say.Census():
                answer = self.answer_census(content, effects)
            case _:
                self._cast_to_members(sender, message, now, effects)
                return
        number, task = self.cast(content, effects, message.height, sender, message.hop)
        task.answer.add(answer)
        self.close_if_done(number, now, effects)

    def _cast_to_members(self, sender: Life, message: say.Cast, now: float, effects: Effects) -> None:
        """Take it, and hand it on if we may."""
        content = message.content
        group = self.group(content.topic)
        if isinstance(content, say.Ready | say.Uns):
            if group.part not in ("out", "leaving"):
                self.note(content.topic, content.entry)
        elif isinstance(content, say.Pub):
            self.receive(content, now, effects)
        is_leaf = message.height == 0
        if group.part in ("out", "leaving") or (not is_leaf and not self.may_relay(group)):
            self.decline(sender, message.hop, content.topic, effects)
            return
        number, _ = self.cast(content, effects, message.height, sender, message.hop)
        self.close_if_done(number, now, effects)

    def finish(self, number: int, task: Task, now: float, effects: Effects) -> None:
        match task.content:
            case say.Sub():
                self.on_announced(task, now, effects)
            case say.Census():
                self.on_counted(number, task, now, effects)
            case say.Uns():
                self.on_left(task, now, effects)
            case say.Ready():
                pass
            case say.Pub() as pub if pub.source == self.life:
                self.published(pub, now, effects)
            case say.Pub():
                self.relinquish(number, task, now, effects)

    def _look_for_lost(self, now: float, effects: Effects) -> None:
        if self.state.statuses and not self.state.replaced:
            for topic, group in list(self.state.groups.items()):
                self.look_for_lost(topic, group, now, effects)

    # ── another process has our id ────────────────────────────────────────────────────────────────────────────────

    def holds_nothing(self) -> bool:
        return all(group.part in ("out", *JOINING) for group in self.state.groups.values())

    def _step_replaced(self, source: Address, message: Payload, now: float, effects: Effects) -> None:
        """Do nothing, until the other process is known to be dead: then go on after it, with what was asked for.

        A process whose journal was lost begins in a life that was there before. Somebody who has not heard of it lets
        this one in; and then others say that a later life is there.
        """
        if not self.state.may_go_on:
            return
        if source == APPLICATION:
            if not isinstance(message, say.Suspect):
                self._command(message, now, effects)
        elif isinstance(message, say.Packet) and isinstance(message.body, say.News):
            self.learn(message.body.statuses, now, effects)

    # ── a new life ────────────────────────────────────────────────────────────────────────────────────────────────

    def begin_anew(self, births: int, now: float, effects: Effects) -> None:
        """Others presume us dead: begin a new life, with the commands that were not begun and what we were told."""
        old = self.state
        state = self.state = PeerState(life=life_of(self.id, births), statuses=old.statuses, count=old.count)
        state.statuses[self.id] = 2 * births
        state.beat_due = old.beat_due
        self._living = None
        self._members.clear()
        rejoining = []
        for topic, group in old.groups.items():
            past = self.progress(group)
            state.groups[topic] = Group(past=past, queue=Queue(list(group.queue)))
            if group.part in (*JOINING, "in"):
                rejoining.append(topic)
            flow = group.flows.get(old.life, Flow())
            for number in range(flow.stable + 1, flow.delivered + 1):
                effects.notify.append(say.Unsettled(flow.pubs[number].event.id))
            if group.part == "leaving":
                effects.notify.append(say.Unsubscribed(topic))
        state.rejoining = tuple(rejoining)
        self._announce(now, effects)

    def _announce(self, now: float, effects: Effects) -> None:
        """The first thing of a new life: it is journalled, told to the application and to the neighbours."""
        state = self.state
        if state.announced:
            return
        state.announced = True
        births = births_of(state.life)
        if not births:
            return
        record = say.Born(births, state.rejoining, state.forgot)
        effects.persist.append(record)
        effects.notify.append(record)
        self.spread_birth(effects)
        for topic in state.rejoining:
            group = self.group(topic)
            group.rejoining = True
            self.join(topic, group, now, effects)
        for topic in list(state.groups):
            self.pump(topic, now, effects)

    # ── what people ask ───────────────────────────────────────────────────────────────────────────────────────────

    def explain(self) -> Iterable[str]:
        """What waits for what."""
        for topic, group in sorted(self.state.groups.items()):
            if group.part not in ("out", "in"):
                yield f"{topic}: {group.part}"
            if group.counted is not None:
                for source, number in self.not_come(group, group.counted):
                    yield f"{topic}: joining waits for publication {number} of {name_of(source)}"
            for missing, sources in sorted(group.waiting.items()):
                names = ", ".join(name_of(source) for source in sources)
                yield f"{topic}: the next publication of {names} waits for one of {name_of(missing)}"
        for task in self.state.tasks.values():
            doors = ", ".join(name_of(self.state.hops[hop].target) for hop in sorted(task.hops))
            kind = type(task.content).__name__
            yield f"{task.content.topic}: {kind} is not acknowledged by {doors}"


def _dead_by(body: say.Body) -> say.Statuses:
    """The peers that may lack what this says all have received."""
    match body:
        case say.Cast(content=say.Pub() as pub) | say.Orphan(pub=pub) | say.Spare(pub=pub):
            return pub.dead
        case say.Ack(answer=say.Answer(dead=dead)):
            return dead
        case _:
            return {}
