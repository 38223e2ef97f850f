"""Peers that are broken on purpose, one rule each: a checker that does not catch them proves nothing.

Each variant replaces the one method that holds the rule. The names are what the rule is called in the protocol's
README, with `no-` in front.
"""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from seriatim.lab.explore.engine.plan import broken, gives
from seriatim.model import Topic
from seriatim.protocols.machine import Effects
from seriatim.protocols.vcube import Peer
from seriatim.protocols.vcube.messages import Ack, Answer, Census, Counts, News, Packet, Pub, Spare
from seriatim.protocols.vcube.state import Flow, Group, Task

VARIANTS: dict[str, tuple[str, type[Peer]]] = {}


def breaks(name: str, text: str, **methods: Callable[..., Any]) -> None:
    """Peers with these methods in place of their own."""
    VARIANTS[name] = text, broken(Peer, **methods)


breaks("no-frontier", "a joiner waits for what was published before", start=lambda self, answer, past: dict(past))


def own_frontier(self: Peer, message: Census, effects: Effects) -> Answer:
    """Something below it may depend on something above."""
    answer = Peer.answer_census(self, message, effects)
    answer.frontier = {source: count for source, count in answer.frontier.items() if source == self.life}
    return answer


breaks("no-closed-frontier", "each source says only how far it is itself", answer_census=own_frontier)
breaks("no-complete-view", "a peer that is joining relays", relays=lambda self, stage: stage != "left")


def answer_sub_with_frontier(self: Peer, message: Any) -> Answer:
    group = self.state.groups.get(message.topic)
    answer = Peer.answer_sub(self, message)
    answer.frontier = {} if group is None else self.progress(group)
    return answer


def start_when_announced(self: Peer, task: Task, now: float, effects: Effects) -> None:
    group = self.group(task.content.topic)
    group.past = Peer.start(self, task.answer, group.past)
    Peer.on_announced(self, task, now, effects)


breaks(
    "no-second-round",
    "the frontier is taken before everybody knows of the joiner",
    answer_sub=answer_sub_with_frontier,
    on_announced=start_when_announced,
    start=lambda self, answer, past: dict(past),
)
breaks("no-full-counts", "the first publication after a join has no barrier", full_counts=gives({}))


def progress_of_flows(self: Peer, group: Group) -> Counts:
    return {source: flow.delivered for source, flow in group.flows.items()}


breaks("no-memory", "a peer that leaves forgets how far it was", progress=progress_of_flows)
breaks("no-rerouting", "branches of dead peers are waited for", reach_again=gives(None))
breaks("no-custody", "publications of the dead are not handed on", entrust=gives(None))
breaks("no-census", "publications that died with their source are waited for", look_for_lost=gives(None))


def send_no_spares(self: Peer, target: int, body: Any, effects: Effects) -> None:
    if not isinstance(body, Spare):
        Peer.send(self, target, body, effects)


breaks("no-spares", "a census does not bring what the asker lacks", send=send_no_spares)


def count_anyway(self: Peer, number: int, task: Task, now: float, effects: Effects) -> None:
    self.group(task.content.topic).overtaken = False
    Peer.on_counted(self, number, task, now, effects)


breaks("no-recount", "a census counts although somebody died meanwhile", on_counted=count_anyway)


def prune_directly(self: Peer, cube: Any, id: int, options: Any, state: Any = None) -> None:
    """What another dependency implies is left out, although that one may be lost."""
    Peer.__init__(self, cube, id, structs.replace(options, pruning="direct"), state)


breaks("no-stable-pruning", "barriers are pruned as the paper does", __init__=prune_directly)
breaks("no-second-look", "two that joined while they presumed each other dead stay apart", overlooked=gives([]))
breaks(
    "no-witness",
    "a joiner takes what only joiners have of a dead source",
    witnessed=lambda self, source, numbers, answer: set(numbers),
)


def relay_at_once(self: Peer, topic: Topic, group: Group, now: float, effects: Effects) -> None:
    if group.part == "opening" and group.entry is not None and group.entry.stage == "joining":
        group.entry = structs.replace(group.entry, version=group.entry.version + 1, stage="ready")
    Peer.take_census(self, topic, group, now, effects)


breaks("no-known-start", "a joiner relays before it knows where it begins", take_census=relay_at_once)
breaks("no-arrival", "a joiner begins before all that members have of the dead has come", not_come=gives(()))
breaks("no-remains", "a peer that leaves forgets what it had, and hands on what comes after it", what_remains=gives({}))


def only_what_was_not_notified(self: Peer, group: Group) -> dict[int, dict[int, Pub]]:
    found = Peer.what_remains(self, group)
    past = self.progress(group)
    return {source: {n: pub for n, pub in pubs.items() if n > past[source]} for source, pubs in found.items()}


breaks(
    "no-full-remains",
    "a peer that leaves forgets what it has notified, though not all have it",
    what_remains=only_what_was_not_notified,
)


def kept_meanwhile(self: Peer, topic: Topic, group: Group) -> dict[int, dict[int, Pub]]:
    if not self.handed_on(topic):
        group.remains = {}
    return Peer.kept(self, topic, group)


breaks("no-lasting-remains", "a peer that has left forgets what it had once it hands nothing on", kept=kept_meanwhile)
breaks(
    "no-taking-up",
    "a peer that returns forgets what it had when it left",
    take_up=lambda self, group: setattr(group, "remains", {}),
)
breaks("no-keeping-below", "what a member hands on and began after is forgotten at once", is_wanted=gives(False))
breaks(
    "no-equal-news",
    "a census counts although a peer that answered knows of a later birth",
    known_by=lambda self, content: self.obituary(),
)
breaks(
    "no-own-answer",
    "a peer that returns does not count what it still hands on",
    with_own=lambda self, topic, group, answer: answer,
)
breaks("no-obituary", "a peer says that all have something, but not who was left out as dead", obituary=gives({}))
breaks(
    "no-new-start", "what a living source published for others before it left is waited for", never_comes=gives(False)
)


def tell_the_living(self: Peer, effects: Effects) -> None:
    for id in self.living():
        self.send(self.life_now(id) or id, News(dict(self.state.statuses)), effects)


breaks("no-birth-notice", "a new life is not told to peers that it presumes dead", spread_birth=tell_the_living)


def listen_to_the_dead(self: Peer, packet: Packet, now: float, effects: Effects) -> None:
    if self.is_dead(packet.sender) and packet.receiver == self.life:
        self._body(packet.sender, packet.body, now, effects)
    else:
        Peer._packet(self, packet, now, effects)


breaks("no-burial", "the dead are still listened to", _packet=listen_to_the_dead)


def whichever_came(self: Peer, flow: Flow) -> int:
    """Take any publication of a source that has come, while several are under way."""
    return min((number for number in flow.pubs if number > flow.delivered), default=flow.delivered + 1)


breaks("no-reception-order", "a source's publications are taken as they come", _next=whichever_came)
breaks(
    "no-reaching-past",
    "a peer that has left acknowledges for those behind it",
    decline=lambda self, source, hop, topic, effects: self.send(source, Ack(hop), effects),
)
