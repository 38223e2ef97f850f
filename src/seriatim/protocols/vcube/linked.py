"""A peer on a network that may lose, repeat and reorder: it numbers, acknowledges and repeats messages.

`Peer` assumes that a message to a living peer arrives once. A TCP connection that breaks loses the messages under way,
so between any two *lives* there is a `Link` (protocols/link.py). Numbers begin at 1 with every new life of either side,
and a frame from or to any other life is dropped.

*Acknowledgements* travel with the frames of the other direction. One is sent alone only if there was no such frame for
`acknowledge_ms`, or after many frames: a peer answers nearly everything, so this is rare.

*Loose* frames have number 0 and are neither kept nor acknowledged: heartbeats, because the next one will do; and news
for peers presumed dead. Nothing else is sent to, or kept for, such a peer. The news is repeated as long as the peer is
presumed dead: if it lives it must hear of it, and repeated news does no harm.

*Suspicion*: heartbeats go between neighbours of the cube only. Another peer is missed when we need it:
something we sent it is not acknowledged, and nothing comes from it.

*Portions*: a connection that is given more than it can hold breaks, and so would the next one. So the messages under
way to one peer, first sent or repeated, are bounded in bytes too; the rest is kept until its turn comes.
"""

from dataclasses import dataclass, field
from math import inf

from msgspec import Struct

from seriatim.model import APPLICATION, Address, InputError, RemoteError, event_bytes
from seriatim.protocols.link import Frame, Link
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.vcube.cube import Id, Life, address_of, births_of, id_at, id_of, life_of, name_of
from seriatim.protocols.vcube.messages import Ack, Alive, Body, Cast, Entry, News, Orphan, Packet, Pub, Spare, Suspect
from seriatim.protocols.vcube.peer import Peer

LOOSE = (News, Alive)  # may be taken twice, or not at all
PORTION_BYTES_MAX = 4 * 1024 * 1024  # of events; small beside what a connection can hold


class Parcel(Struct, frozen=True, tag=True, array_like=True):
    """A message between two processes: a frame from one life (its `epoch`) to another, the `receiver`."""

    receiver: Life
    frame: Frame[Body]


class Connected(Struct, frozen=True, tag=True):
    """To a linked peer: there is a new connection to this one, which says in which life it is."""

    peer: Id
    births: int


class TurnedAway(Struct, frozen=True, tag=True):
    """To a linked peer: this one says that another process has our id, and does not connect."""

    peer: Id


class Depart(Struct, frozen=True, tag=True):
    """To a linked peer: this process ends. All are told at once, so that no peer has to suspect it."""


class LinkOptions(Struct, frozen=True, kw_only=True):
    """When a link repeats and acknowledges. Times are in milliseconds."""

    retry_ms: float = 300.0
    """What is not acknowledged after this long is sent again; twice as long each time, until something is."""

    retry_ms_max: float = 5_000.0
    """The longest such time."""

    acknowledge_ms: float = 40.0
    """What came is acknowledged alone if nothing else went the same way for this long."""

    acknowledge_every: int = 64
    """… or at once after this many frames."""

    knock_ms: float = 1_000.0
    """A peer that is presumed dead is told so this often."""

    kept_max: int = 100_000
    """Frames that are kept for one peer. One more, and it is declared dead: it does not keep up."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise InputError(name, f"{getattr(self, name)} is not positive", "give a number above 0")


@dataclass(slots=True, eq=False)
class _Line:
    """Our end of the link to one life of another peer."""

    life: Life
    retry_ms: float
    link: Link[Body] = field(default_factory=Link)
    owed: int = 0  # frames that came since anything went the other way
    acknowledge_due: float = inf
    lost: int = 0  # up to this number frames may have been lost, or were not sent yet: their turn comes
    repeated: int = 0  # up to this number it has come
    portion_first: int = 0  # when this number is acknowledged, a new portion begins
    portion_bytes: int = 0  # went out since the present one began
    silent_since: float = inf  # it was heard then, or the oldest frame that it does not acknowledge was sent

    @property
    def is_behind(self) -> bool:
        """Whether frames still wait to be sent: the other side takes nothing newer before it has them all."""
        return self.repeated < self.lost

    def send(self, body: Body, epoch: Life, now: float) -> Frame[Body] | None:
        """Number it and keep it. None: too much is under way, so it is sent later."""
        if not self.link.unacknowledged:
            self.silent_since = now
        if self.link.acknowledged >= self.portion_first:
            self.portion_first, self.portion_bytes = self.link.sent + 1, 0
        frame = self.link.send(body, epoch, now, self.retry_ms)
        if not self.is_behind:
            self.portion_bytes += bytes_of(body)
            if self.portion_bytes <= PORTION_BYTES_MAX or frame.number == self.portion_first:
                return frame
            self.repeated = frame.number - 1
        self.lost = frame.number
        return None

    def repeat(self, epoch: Life, now: float) -> list[Frame[Body]]:
        """The oldest that are not acknowledged: at least one, and no more than a portion."""
        self.link.resend_due = now
        portion: list[Frame[Body]] = []
        self.portion_bytes = 0
        for frame in self.link.resend(epoch, now, self.retry_ms):
            assert frame.body is not None, "what is kept has a body"
            size = bytes_of(frame.body)
            if portion and self.portion_bytes + size > PORTION_BYTES_MAX:
                break
            self.portion_bytes += size
            portion.append(frame)
        if portion:
            self.repeated = self.portion_first = portion[-1].number
        else:
            self.repeated = self.lost
            self.link.resend_due = None
        return portion

    def told(self) -> None:
        """Something goes out, and says how far we are."""
        self.owed = 0
        self.acknowledge_due = inf

    @property
    def due(self) -> float:
        resend_due = self.link.resend_due
        return min(self.acknowledge_due, inf if resend_due is None else resend_due)


class LinkedPeer:
    """A machine: a peer and its links. Takes `Parcel`s from other peers, and the commands of `Peer` and those above."""

    def __init__(self, peer: Peer, options: LinkOptions | None = None) -> None:
        self.peer = peer
        self.options = options if options is not None else LinkOptions()
        self.departed = False
        self._life = peer.life
        self._lines: dict[Id, _Line] = {}
        self._due = inf  # not later than anything that is due
        self._knock_due = inf
        self._behind: set[Id] = set()  # more is kept for them than may be

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        if self.departed:
            return Effects()
        if isinstance(message, Parcel):
            return self._parcel(source, message, now)
        if isinstance(message, Connected):
            return self._connected(message, now)
        if isinstance(message, TurnedAway):
            return self._turned_away(message.peer, now)
        if isinstance(message, Depart):
            return self._depart(now)
        return self._finish(self._carry_out(self.peer.step(source, message, now), now), now)

    def tick(self, now: float) -> Effects:
        if self.departed:
            return Effects()
        beat_due = self.peer.state.beat_due
        effects = self._carry_out(self.peer.tick(now), now)
        if beat_due is not None and now >= beat_due:
            self._suspect_silent(beat_due, now, effects)
        if now >= self._due:
            self._serve(now, effects)
        return self._finish(effects, now)

    @property
    def kept(self) -> int:
        """Frames that are not acknowledged."""
        return sum(len(line.link.unacknowledged) for line in self._lines.values())

    # ── from other peers ──────────────────────────────────────────────────────────────────────────────────────────

    def _parcel(self, source: Address, parcel: Parcel, now: float) -> Effects:
        peer, frame = self.peer, parcel.frame
        sender, body = frame.epoch, frame.body
        if sender < 0 or id_at(source) != id_of(sender):
            raise RemoteError(f"{source} sent something in the name of peer {id_of(sender)}")
        if id_of(sender) not in peer.cube or id_of(sender) == peer.id:
            raise RemoteError(f"peer {name_of(sender)} is unknown to peer {peer.id}")
        if frame.number == 0 and body is not None and not isinstance(body, LOOSE):
            raise RemoteError(f"{type(body).__name__} of peer {name_of(sender)} has no number")
        if body is not None:
            self.check(body)
        if (known := self._lines.get(id_of(sender))) is not None and known.life == sender:
            known.silent_since = now
        if peer.is_dead(sender):  # it is answered with the news of its death, whatever it says
            packet = Packet(sender, parcel.receiver, body if isinstance(body, News) else Alive())
            return self._finish(self._carry_out(peer.step(source, packet, now), now), now)
        if parcel.receiver != peer.life:  # it does not know our present life
            effects = self._hand_over(source, sender, parcel.receiver, body if isinstance(body, LOOSE) else None, now)
            self._send_loose(sender, News(dict(peer.state.statuses)), effects)
            return self._finish(effects, now)
        line = self._line(sender)
        kept = len(line.link.unacknowledged)
        taken = line.link.receive(frame)
        if len(line.link.unacknowledged) < kept:  # it gets what we send: no reason to repeat what is younger
            line.retry_ms = self.options.retry_ms
            line.link.resend_due = now + line.retry_ms if line.link.unacknowledged else None
        effects = Effects()
        if line.is_behind and line.link.acknowledged >= line.repeated:  # the next portion
            self._repeat(line, now, effects)
        if frame.number > 0:
            line.owed += 1
            line.acknowledge_due = min(line.acknowledge_due, now + self.options.acknowledge_ms)
            self._due = min(self._due, line.acknowledge_due)
        handed = self._hand_over(source, sender, parcel.receiver, body if frame.number == 0 else taken, now)
        handed.send[:0] = effects.send
        effects = handed
        if line.owed >= self.options.acknowledge_every and self._lines.get(id_of(sender)) is line:
            self._acknowledge(line, effects)
        return self._finish(effects, now)

    def _hand_over(self, source: Address, sender: Life, receiver: Life, body: Body | None, now: float) -> Effects:
        """Give the body to the peer, if there is one."""
        if body is None:
            return Effects()
        return self._carry_out(self.peer.step(source, Packet(sender, receiver, body), now), now)

    def check(self, body: Body) -> None:
        """Refuse what no peer of this system can have said. RemoteError: the sender is not one of ours."""
        lives: list[Life] = []
        match body:
            case Cast(_, height, content):
                if not 0 <= height <= self.peer.cube.height:
                    raise RemoteError(f"a tree of height {height}, but there are only {self.peer.cube.height} clusters")
                lives = [content.source] if isinstance(content, Pub) else [content.entry.life]
                if isinstance(content, Pub):
                    _check_number(content)
            case Ack(_, answer):
                lives = [entry.life for entry in answer.entries] if answer is not None else []
            case Orphan(_, pub) | Spare(pub):
                lives = [pub.source]
                _check_number(pub)
            case _:
                entry = getattr(body, "entry", None)
                lives = [entry.life] if isinstance(entry, Entry) else []
        for life in lives:
            if life < 0 or id_of(life) not in self.peer.cube:
                raise RemoteError(f"{type(body).__name__} names peer {id_of(life)}, which does not exist")

    # ── from the driver ───────────────────────────────────────────────────────────────────────────────────────────

    def _connected(self, message: Connected, now: float) -> Effects:
        """Learn in which life it is, and repeat at once what the last connection may have lost.

        A connection to a known life does not prove that it lives: connections may keep opening and carry nothing.
        """
        peer = self.peer
        if message.peer not in peer.cube or message.peer == peer.id:
            raise InputError("peer", f"there is no peer {message.peer} to connect to", "name another peer")
        life = life_of(message.peer, message.births)
        effects = Effects()
        if peer.life_now(message.peer) != life:
            effects = self._carry_out(peer.step(address_of(life), Packet(life, peer.life, Alive()), now), now)
        if peer.is_dead(life):
            self._send_loose(life, News(dict(peer.state.statuses)), effects)
        elif (line := self._lines.get(message.peer)) is not None and line.link.unacknowledged:
            line.retry_ms = self.options.retry_ms
            line.lost = line.link.sent
            self._repeat(line, now, effects)
        return self._finish(effects, now)

    def _turned_away(self, id: Id, now: float) -> Effects:
        """Note that a peer that turned us away is alive. Otherwise a peer that is turned away because of its own past
        would presume the others dead, and say so as soon as it is let in."""
        if (line := self._lines.get(id)) is not None:
            line.silent_since = now
        self.peer.state.heard[id] = now
        return self._finish(Effects(), now)

    def _depart(self, now: float) -> Effects:
        effects = self._carry_out(self.peer.tick(now), now)
        ended = News({self.peer.id: 2 * births_of(self.peer.life) + 1})
        for id in self.peer.living():
            life = self.peer.life_now(id)
            assert life is not None, "the living live"
            self._send_loose(life, ended, effects)
        self.departed = True
        return effects

    # ── to other peers ────────────────────────────────────────────────────────────────────────────────────────────

    def _carry_out(self, inner: Effects, now: float) -> Effects:
        """Number what the peer sends. Drop what an earlier life of ours still wanted to send, as if it had died just
        before."""
        peer, effects = self.peer, Effects()
        effects.persist, effects.notify = inner.persist, inner.notify
        life = peer.life
        if life != self._life:
            self._life = life
            self._lines.clear()
        for _, packet in inner.send:
            if type(packet) is not Packet or packet.sender != life:
                continue
            if isinstance(packet.body, Alive) or peer.is_dead(packet.receiver):
                if isinstance(packet.body, LOOSE):
                    self._send_loose(packet.receiver, packet.body, effects)
            else:
                self._send(packet.receiver, packet.body, now, effects)
        return effects

    def _send(self, target: Life, body: Body, now: float, effects: Effects) -> None:
        line = self._line(target)
        frame = line.send(body, self._life, now)
        if len(line.link.unacknowledged) > self.options.kept_max:
            self._behind.add(id_of(target))
        if frame is None:
            return
        line.told()
        self._due = min(self._due, line.due)
        effects.send.append((address_of(target), Parcel(target, frame)))

    def _send_loose(self, target: Life, body: Body, effects: Effects) -> None:
        line = self._lines.get(id_of(target))
        received = 0
        if line is not None and line.life == target:
            received = line.link.received
            line.told()
        effects.send.append((address_of(target), Parcel(target, Frame(self._life, 0, received, body))))

    def _acknowledge(self, line: _Line, effects: Effects) -> None:
        line.told()
        effects.send.append((address_of(line.life), Parcel(line.life, line.link.acknowledgement(self._life))))

    def _resend(self, line: _Line, now: float, effects: Effects) -> None:
        """If nothing was acknowledged for too long, everything may be lost."""
        if line.link.resend_due is not None and now >= line.link.resend_due:
            line.lost = line.link.sent
            line.retry_ms = min(2 * line.retry_ms, self.options.retry_ms_max)
            self._repeat(line, now, effects)

    def _repeat(self, line: _Line, now: float, effects: Effects) -> None:
        """The oldest that are not acknowledged; when they are, the next portion."""
        frames = line.repeat(self._life, now)
        line.told()
        effects.send.extend((address_of(line.life), Parcel(line.life, frame)) for frame in frames)
        self._due = min(self._due, line.due)

    def _line(self, life: Life) -> _Line:
        """The link to this living life of a peer. A new life gets a new link."""
        line = self._lines.get(id_of(life))
        if line is None or line.life != life:
            line = self._lines[id_of(life)] = _Line(life, self.options.retry_ms)
        return line

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _serve(self, now: float, effects: Effects) -> None:
        """Acknowledge, repeat and tell whatever is due."""
        for id, line in list(self._lines.items()):
            if self.peer.is_dead(line.life):
                self._bury(id, line, now, effects)
                continue
            if line.due > now:
                continue
            if now >= line.acknowledge_due:
                self._acknowledge(line, effects)
            self._resend(line, now, effects)
        if now >= self._knock_due:
            self._knock_due = inf
            for id in self.peer.dead_ids():
                status = self.peer.state.statuses[id]
                self._send_loose(life_of(id, status // 2), News(dict(self.peer.state.statuses)), effects)
        self._due = min((line.due for line in self._lines.values()), default=inf)

    def _suspect_silent(self, beat_due: float, now: float, effects: Effects) -> None:
        """At every heartbeat, declare each peer dead that owes us an acknowledgement and was silent for too long."""
        options = self.peer.options
        if options.heartbeat_ms is None:
            return
        stood_still = now - beat_due > options.heartbeat_ms  # what others said meanwhile may not be read yet
        for id, line in list(self._lines.items()):
            if not line.link.unacknowledged:
                continue
            if stood_still:
                line.silent_since = now
            elif now - line.silent_since > options.suspect_after_ms and self._lines.get(id) is line:
                self._suspect(id, line, now, effects)

    def _suspect(self, id: Id, line: _Line, now: float, effects: Effects) -> None:
        """Declare this life dead, if it is still the present one; the link goes with it."""
        if self.peer.life_now(id) != line.life:
            return
        del self._lines[id]
        more = self._carry_out(self.peer.step(APPLICATION, Suspect(id), now), now)
        effects.add(more)

    def _bury(self, id: Id, line: _Line, now: float, effects: Effects) -> None:
        """Drop all messages for a dead peer. If it was born again, send news that may have been lost to its new
        life."""
        del self._lines[id]
        successor = self.peer.life_now(id)
        if successor is not None and any(isinstance(body, News) for body in line.link.unacknowledged.values()):
            self._send(successor, News(dict(self.peer.state.statuses)), now, effects)

    def _finish(self, effects: Effects, now: float) -> Effects:
        """Declare dead the peers that do not keep up; then say when to wake us."""
        peer = self.peer
        while self._behind:
            id = self._behind.pop()
            line = self._lines.get(id)
            if line is not None and len(line.link.unacknowledged) > self.options.kept_max:
                self._suspect(id, line, now, effects)
        if peer.state.replaced:
            effects.wake_at = None
            return effects
        if self._knock_due == inf and len(peer.living()) < len(peer.cube.ids) - 1:
            self._knock_due = now + self.options.knock_ms
        self._due = min(self._due, self._knock_due)
        due = min(self._due, inf if peer.state.beat_due is None else peer.state.beat_due)
        effects.wake_at = None if due == inf else due
        return effects


def publication_in(body: Body | None) -> Pub | None:
    """What this carries, if it carries a publication."""
    if isinstance(body, Cast):
        return body.content if isinstance(body.content, Pub) else None
    return body.pub if isinstance(body, Orphan | Spare) else None


def bytes_of(body: Body) -> int:
    """The size of the event in a message; nothing else in it is large."""
    pub = publication_in(body)
    return 0 if pub is None else event_bytes(pub.event.payload, pub.event.headers)


def _check_number(pub: Pub) -> None:
    if pub.number < 1 or pub.stable < 0 or any(count < 0 for count in pub.barrier.values()):
        raise RemoteError(f"publication {pub.number} of peer {name_of(pub.source)} has impossible numbers")
