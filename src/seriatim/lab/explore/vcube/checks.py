"""The promises of VCube-PS about its logs, and about a world that has come to rest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from seriatim.audit import audit
from seriatim.lab.explore.engine.checks import Checks, Issued, Stopped, Violation, first_duplicate, ids_of, stuck
from seriatim.model import Address, Delivery, Event, History, Notification, Publication, Topic
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube import messages as say


class Stay(NamedTuple):
    """A peer held a topic, in one life: from one place of its log up to another."""

    topic: Topic
    since: int
    until: int


class VCubeChecks(Checks):
    """Causal order by topic, nothing twice, nothing lost to a peer that stays, nobody waits forever.

    `accurate`: no living peer is presumed dead. Otherwise a publisher may say that all have received something when
    it was already, without knowing it, dead to the others; it then learns that it is, and its word does not count.
    """

    def __init__(self, accurate: bool = True, founders: Iterable[tuple[Address, Topic]] = ()) -> None:
        self.accurate = accurate
        self.founders = frozenset(founders)

    def log(self, address: Address, log: Sequence[Payload]) -> Violation | None:
        for life in lives(log):
            id = first_duplicate(ids_of(life))
            if id is not None:
                return Violation("duplicate", f"{address} was notified of {id} twice")
        return None

    def stopped(self, world: Stopped) -> list[Violation]:
        found = []
        for address in world.addresses:
            machine = world.machine(address)
            if machine is None:
                continue
            if (waiting := world.waiting(address)) > 0:
                found.append(stuck(address, f"waits for {waiting} answers", machine.explain()))
            elif (held := held_back(machine)) is not None:
                found.append(stuck(address, f"keeps back {held}", machine.explain()))
        if found:
            return found
        found.extend(losses(world, self.accurate))
        if self.accurate:
            found.extend(losses_of_founders(world, self.founders))
        return [*found, *disorder(world)]


def lives(log: Sequence[Payload]) -> list[list[Payload]]:
    """A log cut where a process died and forgot. A process that was only presumed dead goes on in the same life."""
    found: list[list[Payload]] = [[]]
    for payload in log:
        if type(payload) is say.Born and payload.forgot:
            found.append([])
        found[-1].append(payload)
    return found


def held_back(machine: Any) -> str | None:
    """The id of an event that has arrived and is not notified, or None."""
    for _, group in sorted(machine.state.groups.items()):
        for flow in group.flows.values():
            for number, pub in flow.pubs.items():
                if number > flow.delivered:
                    return str(pub.event.id)
        if group.part not in ("in", "out"):
            return f"that it is {group.part}"
    return None


def stays(log: Sequence[Payload], leaves: Mapping[Topic, int]) -> Iterator[Stay]:
    """The times when everything published was owed. `leaves`: when the application last asked to leave a topic."""
    held: dict[Topic, int] = {}
    for place, payload in enumerate(log):
        match payload:
            case say.Subscribed(topic) | say.Rejoined(topic):
                held.setdefault(topic, place)
            case say.Unsubscribed(topic):
                held.pop(topic, None)
            case say.Born():
                held.clear()
    for topic, since in held.items():
        if leaves.get(topic, -1) < since:
            yield Stay(topic, since, len(log))


def losses(world: Stopped, accurate: bool) -> list[Violation]:
    """What was published while a peer held the topic, and it never left, reaches it.

    If the publisher died, or was presumed dead, before all had it: it reaches all that stayed, or none of them.
    """
    leaves: dict[Address, dict[Topic, int]] = {}
    for address, command, notified in world.issued:
        if isinstance(command, say.Unsubscribe):
            leaves.setdefault(address, {})[command.topic] = notified[address]
    staying: dict[Topic, list[tuple[Address, int, set[str]]]] = {}
    published = set()
    for address in world.addresses:
        log = world.log(address)
        last_birth = max((place for place, payload in enumerate(log) if type(payload) is say.Born), default=0)
        if accurate or world.machine(address) is not None:
            trusted = log if accurate else log[last_birth:]
            published |= {payload.event_id for payload in trusted if type(payload) is say.EventReceived}
        if world.machine(address) is None:
            continue
        seen = set(ids_of(log))
        for stay in stays(log, leaves.get(address, {})):
            staying.setdefault(stay.topic, []).append((address, stay.since, seen))
    found: list[Violation] = []
    for issued in world.issued:
        if isinstance(issued.command, say.Publish):
            found.extend(_lost(issued.command.event, issued, staying, published))
    return found


def _lost(
    event: Event, issued: Issued, staying: dict[Topic, list[tuple[Address, int, set[str]]]], published: set[str]
) -> Iterator[Violation]:
    there = staying.get(event.topic, [])
    owed = [(address, seen) for address, since, seen in there if since < issued.notified[address]]
    has = [address for address, seen in owed if event.id in seen]
    if event.id in published or has:
        who = "all" if event.id in published else has[0]
        for address, seen in owed:
            if event.id not in seen:
                yield Violation("loss", f"{address} was not notified of {event.id}, as {who} should be or was")


def losses_of_founders(world: Stopped, founders: Iterable[tuple[Address, Topic]]) -> Iterator[Violation]:
    """Losses at peers that held a topic from the beginning. This needs no knowledge of who was told what when."""
    published = {
        payload.event_id: address
        for address in world.addresses
        for payload in world.log(address)
        if type(payload) is say.EventReceived
    }
    topics = {
        payload.event.id: payload.event.topic
        for address in world.addresses
        for payload in world.log(address)
        if type(payload) is Notification
    }
    for address, topic in sorted(founders):
        log = world.log(address)
        if world.machine(address) is None or any(isinstance(payload, say.Born | say.Unsubscribed) for payload in log):
            continue
        seen = set(ids_of(log))
        for event_id, publisher in published.items():
            if topics[event_id] == topic and event_id not in seen:
                yield Violation("loss", f"{address} was not notified of {event_id}, which {publisher} says all have")


def disorder(world: Stopped) -> list[Violation]:
    """What the reference auditor finds in the logs of each topic."""
    topics: set[Topic] = set()
    for address in world.addresses:
        topics |= {payload.event.topic for payload in world.log(address) if type(payload) is Notification}
    found: list[Violation] = []
    for topic in sorted(topics):
        against = audit(history_of(world, topic), limit=1).anomalies_against(["causal"])
        found.extend(Violation(anomaly.name, anomaly.sentence) for anomaly in against)
    return found


def history_of(world: Stopped, topic: Topic) -> History:
    """One topic's log rows. A peer that publishes is the subscriber of the same name, in all its lives.

    It is notified of its own publication when it publishes it, so its log tells what it had seen. What a process is
    notified of that has forgotten it, is left out the second time: it is not a matter of order.
    """
    history = History()
    for address in world.addresses:
        known: set[str] = set()
        sequence = 0
        for payload in world.log(address):
            if type(payload) is not Notification or payload.event.topic != topic or payload.event.id in known:
                continue
            event, position = payload.event, len(known)
            if event.publisher == address:
                sequence += 1
                history.publications.append(Publication(event.id, topic, address, None, sequence, position))
            known.add(event.id)
            history.deliveries.append(Delivery(address, position, event.id, topic))
    return history
