"""Peers that are broken on purpose, one rule each: a checker that does not catch them is no checker.

Each variant replaces the one method that holds the rule. The names are what the rule is called in the protocol's
README, with `no-` in front.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import structs

from seriatim.model import InputError, Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.vcube import Peer
from seriatim.protocols.vcube.cube import Life
from seriatim.protocols.vcube.messages import Ack, Answer, Census, Content, Counts, News, Packet, Pub, Spare, Statuses
from seriatim.protocols.vcube.state import Flow, Group, Hop, Task


class FrontierlessPeer(Peer):
    """Who joins knows nothing of what was published before, and waits for it."""

    def start(self, answer: Answer, past: Counts) -> Counts:
        return dict(past)


class OpenFrontierPeer(Peer):
    """The frontier is made of what each source says of itself, so something below it may depend on something above."""

    def answer_census(self, message: Census, effects: Effects) -> Answer:
        answer = super().answer_census(message, effects)
        answer.frontier = {source: count for source, count in answer.frontier.items() if source == self.life}
        return answer


class HastyRelayPeer(Peer):
    """Who is joining is used to hand on, and does."""

    def relays(self, stage: str) -> bool:
        return stage != "left"


class OneRoundPeer(Peer):
    """The frontier is taken from the answers to the announcement, when not everybody has heard it yet."""

    def answer_sub(self, message: Any) -> Answer:
        group = self.state.groups.get(message.topic)
        answer = super().answer_sub(message)
        answer.frontier = {} if group is None else self.progress(group)
        return answer

    def on_announced(self, task: Task, now: float, effects: Effects) -> None:
        group = self.group(task.content.topic)
        group.past = super().start(task.answer, group.past)
        super().on_announced(task, now, effects)

    def start(self, answer: Answer, past: Counts) -> Counts:
        return dict(past)


class CountlessPeer(Peer):
    """The first publication after a join comes after nothing."""

    def full_counts(self, frontier: Counts, answer: Answer) -> Counts:
        return {}


class ForgetfulPeer(Peer):
    """Who has left does not remember how far it was."""

    def progress(self, group: Group) -> Counts:
        return {source: flow.delivered for source, flow in group.flows.items()}


class PatientPeer(Peer):
    """A branch whose peer died is waited for."""

    def reach_again(self, lost: list[tuple[int, Hop]], now: float, effects: Effects) -> None:
        return


class CarelessPeer(Peer):
    """A publication of a dead source is kept, and nobody else is given it."""

    def entrust(self, topic: Topic, pub: Pub, now: float, effects: Effects) -> None:
        return


class TrustingPeer(Peer):
    """What a dead source published is waited for, whoever still has it."""

    def look_for_lost(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        return


class MiserlyPeer(Peer):
    """Who asks for publications of the dead is told of them, and not given them."""

    def send(self, target: int, body: Any, effects: Effects) -> None:
        if not isinstance(body, Spare):
            super().send(target, body, effects)


class HurriedPeer(Peer):
    """A census counts although somebody died while it was taken."""

    def on_counted(self, number: int, task: Task, now: float, effects: Effects) -> None:
        self.group(task.content.topic).overtaken = False
        super().on_counted(number, task, now, effects)


class PruningPeer(Peer):
    """A barrier leaves out what another dependency implies, although that one may be lost."""

    def __init__(self, cube: Any, id: int, options: Any, state: Any = None) -> None:
        super().__init__(cube, id, structs.replace(options, pruning="direct"), state)


class OverlookedPeer(Peer):
    """Two that held each other for dead when they joined leave it at that."""

    def overlooked(self, group: Group) -> list[int]:
        return []


class GullibleJoiner(Peer):
    """A joiner takes a dead source's publication although no member has it."""

    def witnessed(self, source: int, numbers: Iterable[int], answer: Answer) -> set[int]:
        return set(numbers)


class EagerPeer(Peer):
    """Who joins relays as soon as it knows the members, and does not know yet where it begins itself."""

    def take_census(self, topic: Topic, group: Group, now: float, effects: Effects) -> None:
        if group.part == "opening" and group.entry is not None and group.entry.stage == "joining":
            group.entry = structs.replace(group.entry, version=group.entry.version + 1, stage="ready")
        super().take_census(topic, group, now, effects)


class ImpatientJoiner(Peer):
    """Who joins begins although something that members have of the dead is still on its way."""

    def not_come(self, group: Group, answer: Answer) -> Iterator[tuple[int, int]]:
        return iter(())


class TracelessPeer(Peer):
    """Who leaves forgets at once what it had, and still hands on what comes after it."""

    def what_remains(self, group: Group) -> dict[int, dict[int, Pub]]:
        return {}


class SkimpyPeer(Peer):
    """Who leaves keeps only what it has not notified."""

    def what_remains(self, group: Group) -> dict[int, dict[int, Pub]]:
        found = super().what_remains(group)
        past = self.progress(group)
        return {source: {n: pub for n, pub in pubs.items() if n > past[source]} for source, pubs in found.items()}


class FleetingPeer(Peer):
    """Who has left keeps what it had only as long as it hands something on."""

    def kept(self, topic: Topic, group: Group) -> dict[int, dict[int, Pub]]:
        if not self.handed_on(topic):
            group.remains = {}
        return super().kept(topic, group)


class CarefreePeer(Peer):
    """Who returns forgets what remained of its last stay, because it begins after it."""

    def take_up(self, group: Group) -> None:
        group.remains = {}


class DismissivePeer(Peer):
    """What lies below where a member begins is handed on, and forgotten at once."""

    def is_wanted(self, flow: Flow, number: int) -> bool:
        return False


class ReticentPeer(Peer):
    """Who answers a census says who is dead, and not who was born again."""

    def known_by(self, content: Content) -> Statuses:
        return self.obituary()


class SelflessJoiner(Peer):
    """Who returns asks everybody but itself, although it still hands on what it had when it left."""

    def with_own(self, topic: Topic, group: Group, answer: Answer) -> Answer:
        return answer


class LoyalPeer(Peer):
    """What a living source published for others, before it left, is waited for."""

    def never_comes(self, group: Group, source: Life) -> bool:
        return False


class DiscreetPeer(Peer):
    """That all have received something is said without saying who was held for dead and left out."""

    def obituary(self) -> dict[int, int]:
        return {}


class ShyPeer(Peer):
    """A new life is told only to those who are not held for dead."""

    def spread_birth(self, effects: Effects) -> None:
        for id in self.living():
            self.send(self.life_now(id) or id, News(dict(self.state.statuses)), effects)


class CredulousPeer(Peer):
    """What comes from a peer that is held for dead is taken all the same."""

    def _packet(self, packet: Packet, now: float, effects: Effects) -> None:
        if self.is_dead(packet.sender) and packet.receiver == self.life:
            self._body(packet.sender, packet.body, now, effects)
        else:
            super()._packet(packet, now, effects)


class DisorderlyPeer(Peer):
    """With several publications of a source under way, they are taken as they come."""

    def _next(self, flow: Flow) -> int:
        return min((number for number in flow.pubs if number > flow.delivered), default=flow.delivered + 1)


class ObligingPeer(Peer):
    """Who has left acknowledges what it is given, and hands nothing on."""

    def decline(self, source: int, hop: int, topic: str, effects: Effects) -> None:
        self.send(source, Ack(hop), effects)


VCUBE_VARIANTS: dict[str, tuple[str, type[Peer]]] = {
    "no-frontier": ("a joiner waits for what was published before", FrontierlessPeer),
    "no-closed-frontier": ("each source says only how far it is itself", OpenFrontierPeer),
    "no-complete-view": ("who is joining relays", HastyRelayPeer),
    "no-second-round": ("the frontier is taken before everybody knows of the joiner", OneRoundPeer),
    "no-full-counts": ("the first publication after a join has no barrier", CountlessPeer),
    "no-memory": ("who leaves forgets how far it was", ForgetfulPeer),
    "no-rerouting": ("branches of dead peers are waited for", PatientPeer),
    "no-custody": ("publications of the dead are not handed on", CarelessPeer),
    "no-census": ("publications that died with their source are waited for", TrustingPeer),
    "no-spares": ("a census does not bring what the asker lacks", MiserlyPeer),
    "no-recount": ("a census counts although somebody died meanwhile", HurriedPeer),
    "no-stable-pruning": ("barriers are pruned as the paper does", PruningPeer),
    "no-second-look": ("two that joined while they held each other for dead stay apart", OverlookedPeer),
    "no-witness": ("a joiner takes what only joiners have of a dead source", GullibleJoiner),
    "no-known-start": ("who joins relays before it knows where it begins", EagerPeer),
    "no-arrival": ("a joiner begins before all that members have of the dead has come", ImpatientJoiner),
    "no-remains": ("who leaves forgets what it had, and hands on what comes after it", TracelessPeer),
    "no-full-remains": ("who leaves forgets what it has notified, though not all have it", SkimpyPeer),
    "no-lasting-remains": ("who has left forgets what it had when it hands nothing on any more", FleetingPeer),
    "no-taking-up": ("who returns forgets what it had when it left", CarefreePeer),
    "no-keeping-below": ("what a member hands on and began after is forgotten at once", DismissivePeer),
    "no-equal-news": ("a census counts although who answered knows of a birth that the asker does not", ReticentPeer),
    "no-own-answer": ("who returns does not count what it still hands on", SelflessJoiner),
    "no-obituary": ("that all have something is said without saying who was left out as dead", DiscreetPeer),
    "no-new-start": ("what a living source published for others before it left is waited for", LoyalPeer),
    "no-birth-notice": ("a new life is not told to those it holds for dead", ShyPeer),
    "no-burial": ("the dead are still listened to", CredulousPeer),
    "no-reception-order": ("a source's publications are taken as they come", DisorderlyPeer),
    "no-reaching-past": ("who has left acknowledges for those behind it", ObligingPeer),
}


def peer_of(variant: str | None) -> type[Peer]:
    """The peer of this variant; without a name, the proper one."""
    if variant is None:
        return Peer
    if variant not in VCUBE_VARIANTS:
        raise InputError("variant", f"there is none called {variant!r}", f"use one of {', '.join(VCUBE_VARIANTS)}")
    return VCUBE_VARIANTS[variant][1]
