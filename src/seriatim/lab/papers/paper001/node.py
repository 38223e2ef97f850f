"""A node of VCube-PS as printed: Algorithms 1 and 2 of paper 001. Line numbers in comments are Algorithm 2's.

Nodes do not fail in this model, so there is nothing to be ticked, journalled or suspected.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from seriatim.lab.papers.paper001.messages import Ack, Counter, Identifiers, Operation, Pub, Sub, Uns
from seriatim.model import APPLICATION, Address, InputError, Notification, RemoteError, Topic
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.vcube.cube import Cube, Id, address_of, cluster, cluster_of, id_at
from seriatim.protocols.vcube.messages import EventReceived, Publish, Subscribe, Subscribed, Unsubscribe, Unsubscribed

Broadcast = Sub | Uns | Pub


class Pending(Struct, array_like=True):
    """⟨j, nb, ⟨s, t, c, mem⟩⟩: so many children of ours have not acknowledged yet; j is told when all have."""

    parent: Id | None
    missing: int
    members: list[Operation] = field(default_factory=list)


class NodeTopic(Struct):
    """The paper's arrays, at one topic."""

    queue: list[Broadcast] = field(default_factory=list)  # br_queue
    is_sending: bool = False  # the task waits for acknowledgements
    view: dict[Id, Operation] = field(default_factory=dict)
    causal_barrier: Identifiers = field(default_factory=dict)
    not_delivered: list[Pub] = field(default_factory=list)  # not_delvs, with msgs
    last_delivered: Identifiers = field(default_factory=dict)
    first_received: Identifiers = field(default_factory=dict)
    pending: dict[Id, dict[Counter, Pending]] = field(default_factory=dict)  # acks


class CubeNodeState(Struct):
    counter: Counter = 0
    topics: dict[Topic, NodeTopic] = field(default_factory=dict)


class CubeNode:
    """One node. Takes the same commands as protocols.vcube.Peer; options are ignored, the paper has none."""

    def __init__(self, cube: Cube, id: Id, options: object = None, state: CubeNodeState | None = None) -> None:
        if cube.ids != tuple(range(1 << cube.height)):
            raise InputError("peers", f"{len(cube.ids)} ids are no hypercube", "the paper needs ids 0 … 2^d - 1")
        self.cube = cube
        self.id = id
        self.state = CubeNodeState() if state is None else state

    @classmethod
    def restart(cls, cube: Cube, id: Id, options: object, journal: Sequence[Any]) -> "CubeNode":
        """Nodes do not fail in the paper; one that does comes back knowing nothing."""
        return cls(cube, id, options)

    def tick(self, now: float) -> Effects:
        return Effects()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        if source == APPLICATION:
            self._command(message, effects)
            return effects
        sender = id_at(source)
        if sender is None or not isinstance(message, Sub | Uns | Pub | Ack):
            raise RemoteError(f"{source} sent a node what it does not understand: {message!r}")
        self._receive(sender, message, effects)
        return effects

    # ── Algorithm 1 ───────────────────────────────────────────────────────────────────────────────────────────────

    def _command(self, command: Payload, effects: Effects) -> None:
        match command:
            case Subscribe(name):
                topic, count = self._topic(name), self.state.counter
                if self.id in topic.view:
                    raise InputError("topic", f"{name!r} is held already", "subscribe to it once")
                topic.view = {self.id: Operation(self.id, True, count)}
                self._broadcast(topic, Sub(self.id, name, count), effects)
            case Unsubscribe(name):
                topic = self._topic(name)
                if topic.view.pop(self.id, None) is None:
                    raise InputError("topic", f"{name!r} is not held", "subscribe to it first")
                self._broadcast(topic, Uns(self.id, name, self.state.counter), effects)
            case Publish(event):
                topic = self._topic(event.topic)
                if self.id not in topic.view:
                    raise InputError("topic", f"{event.topic!r} is not held", "only subscribers publish")
                self._broadcast(topic, Pub(self.id, event.topic, self.state.counter, {}, event), effects)
            case _:
                raise InputError("command", f"{command!r} is not in the paper", "subscribe, unsubscribe or publish")

    # ── Algorithm 2 ───────────────────────────────────────────────────────────────────────────────────────────────

    def _broadcast(self, topic: NodeTopic, message: Broadcast, effects: Effects) -> None:
        """5-12"""
        self.state.counter += 1
        topic.queue.append(message)
        self._propagate(topic, effects)

    def _propagate(self, topic: NodeTopic, effects: Effects) -> None:
        """13-36: the next message, once all have acknowledged the one before."""
        while topic.queue and not topic.is_sending:
            message = topic.queue[0]
            if isinstance(message, Pub):
                topic.first_received.setdefault(self.id, message.counter)
                effects.notify.append(Notification(message.event, message.counter, {}))
                topic.last_delivered[self.id] = message.counter
                barrier, topic.causal_barrier = topic.causal_barrier, {self.id: message.counter}
                message = Pub(message.source, message.topic, message.counter, barrier, message.event)
            children = self._children(message, self.cube.height)
            for child in children:
                effects.send.append((address_of(child), message))
            topic.is_sending = bool(children)
            if children:
                topic.pending.setdefault(self.id, {})[message.counter] = Pending(None, len(children))
            else:
                self._acknowledged(topic, effects)

    def _acknowledged(self, topic: NodeTopic, effects: Effects) -> None:
        """31-36"""
        topic.is_sending = False
        match topic.queue.pop(0):
            case Sub(_, name):
                effects.notify.append(Subscribed(name))
            case Uns(_, name):
                topic.not_delivered, topic.first_received, topic.last_delivered = [], {}, {}
                effects.notify.append(Unsubscribed(name))
            case Pub() as pub:
                effects.notify.append(EventReceived(pub.event.id))

    def _receive(self, sender: Id, message: Broadcast | Ack, effects: Effects) -> None:
        """37-74"""
        topic = self._topic(message.topic)
        if isinstance(message, Ack):
            message = self._collect(topic, message, effects)
        else:
            children = self._children(message, cluster_of(self.id, sender) - 1)
            if children:
                topic.pending.setdefault(message.source, {})[message.counter] = Pending(sender, len(children))
                for child in children:
                    effects.send.append((address_of(child), message))
            else:
                self._send_ack(topic, sender, Ack(message.source, message.topic, message.counter, ()), effects)
        if self.id in topic.view:
            match message:
                case Pub():
                    topic.first_received.setdefault(message.source, message.counter)
                    topic.not_delivered.append(message)
                    self._check_delivery(topic, effects)
                case Ack():
                    self._update(topic, message.members)
                case Sub() | Uns():
                    is_subscription = isinstance(message, Sub)
                    self._update(topic, [Operation(message.source, is_subscription, message.counter)])
                    if not is_subscription:
                        topic.first_received.pop(message.source, None)
        if not topic.is_sending or not topic.pending.get(self.id):
            if topic.is_sending:
                self._acknowledged(topic, effects)
            self._propagate(topic, effects)

    def _collect(self, topic: NodeTopic, message: Ack, effects: Effects) -> Ack:
        """55-61"""
        pending = topic.pending[message.source][message.counter]
        pending.members.extend(message.members)
        pending.missing -= 1
        message = Ack(message.source, message.topic, message.counter, tuple(pending.members))
        if not pending.missing:
            del topic.pending[message.source][message.counter]
            if pending.parent is not None:
                self._send_ack(topic, pending.parent, message, effects)
        return message

    def _update(self, topic: NodeTopic, operations: Iterable[Operation]) -> None:
        """75-82"""
        for operation in operations:
            known = topic.view.get(operation.node)
            if known is None or operation.counter > known.counter:
                topic.view[operation.node] = operation

    def _check_delivery(self, topic: NodeTopic, effects: Effects) -> None:
        """83-89"""
        while (
            pub := next((each for each in topic.not_delivered if self._check_barrier(topic, each)), None)
        ) is not None:
            topic.not_delivered.remove(pub)
            effects.notify.append(Notification(pub.event, pub.counter, {}))
            topic.last_delivered[pub.source] = pub.counter
            for source, counter in pub.barrier.items():
                if topic.causal_barrier.get(source) == counter:
                    del topic.causal_barrier[source]
            topic.causal_barrier[pub.source] = pub.counter

    def _check_barrier(self, topic: NodeTopic, pub: Pub) -> bool:
        """90-94"""
        return all(
            topic.last_delivered.get(source, -1) >= counter or topic.first_received.get(source, -1) > counter
            for source, counter in pub.barrier.items()
        )

    def _send_ack(self, topic: NodeTopic, target: Id, message: Ack, effects: Effects) -> None:
        """95-98"""
        own = topic.view.get(self.id)
        if own is not None and message.source not in topic.first_received:
            message = Ack(message.source, message.topic, message.counter, (*message.members, own))
        effects.send.append((address_of(target), message))

    def _children(self, message: Broadcast, height: int) -> list[Id]:
        """CHILDREN(i, t, h): the first node of each cluster, or the first subscriber."""
        view = self._topic(message.topic).view
        found = []
        for s in range(1, height + 1):
            ids = cluster(self.id, s)
            if not isinstance(message, Sub):
                ids = [id for id in ids if id in view and view[id].is_subscription]
            found.extend(ids[:1])
        return found

    def _topic(self, name: Topic) -> NodeTopic:
        return self.state.topics.setdefault(name, NodeTopic())
