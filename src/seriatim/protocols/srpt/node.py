"""A node of the one tree that a topic has: a subscriber or forwarder (SRPT-S), or a broker (SRPT-B).

The tree is the cube's own spanning tree, rooted at the topic's node, over all nodes. A branch is grown when somebody
below subscribes, so a node between a subscriber and the root forwards what it did not ask for.
"""

from zlib import crc32

from msgspec import Struct, field

from seriatim.model import APPLICATION, Address, Event, InputError, Notification, RemoteError, Topic
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.srpt.messages import Fall, Grow, Prune, Rise
from seriatim.protocols.vcube.cube import Cube, Id, address_of
from seriatim.protocols.vcube.messages import Publish, Subscribe, Subscribed, Unsubscribe, Unsubscribed


def root_of(cube: Cube, topic: Topic) -> Id:
    """The node that all publications of the topic pass: any fixed choice, the same for everybody."""
    return cube.ids[crc32(topic.encode()) % len(cube.ids)]


def parent_of(cube: Cube, id: Id, root: Id) -> Id | None:
    """The next node towards the root; None at the root. With ids missing, the next one that there is."""
    distance = id ^ root
    while distance:
        distance &= distance - 1  # a child differs from its parent in its lowest bit
        if root ^ distance in cube:
            return root ^ distance
    return None


class NodeTopic(Struct, array_like=True):
    holds: bool = False
    branches: list[Address] = field(default_factory=list)  # children, or clients, that want it
    published: int = 0  # at the root: how many


class NodeState(Struct):
    topics: dict[Topic, NodeTopic] = field(default_factory=dict)


class Node:
    """One node. `root`: the root of every topic; without it, each topic has its own."""

    def __init__(self, cube: Cube, id: Id, root: Id | None = None, state: NodeState | None = None) -> None:
        if id not in cube or (root is not None and root not in cube):
            raise InputError("id", f"{id} or the root {root} is not among the nodes", "name nodes of the cube")
        self.cube = cube
        self.id = id
        self.root = root
        self.state = NodeState() if state is None else state

    def tick(self, now: float) -> Effects:
        return Effects()

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Subscribe(name) if source == APPLICATION:
                topic = self._topic(name)
                self._change(name, topic, True, effects)
                effects.notify.append(Subscribed(name))
            case Unsubscribe(name) if source == APPLICATION:
                topic = self._topic(name)
                self._change(name, topic, False, effects)
                effects.notify.append(Unsubscribed(name))
            case Publish(event) if source == APPLICATION:
                self._rise(event, effects)
            case Grow(name) if source != APPLICATION:
                topic = self._topic(name)
                was_idle = self._is_idle(topic)
                if source not in topic.branches:
                    topic.branches.append(source)
                self._tell_parent(name, was_idle, topic, effects)
            case Prune(name) if source != APPLICATION:
                topic = self._topic(name)
                was_idle = self._is_idle(topic)
                if source in topic.branches:
                    topic.branches.remove(source)
                self._tell_parent(name, was_idle, topic, effects)
            case Rise(event) if source != APPLICATION:
                self._rise(event, effects)
            case Fall(event) if source != APPLICATION:
                self._fall(event, effects)
            case _:
                raise RemoteError(f"{source} sent a node what it does not understand: {message!r}")
        return effects

    def _change(self, name: Topic, topic: NodeTopic, holds: bool, effects: Effects) -> None:
        was_idle = self._is_idle(topic)
        topic.holds = holds
        self._tell_parent(name, was_idle, topic, effects)

    def _tell_parent(self, name: Topic, was_idle: bool, topic: NodeTopic, effects: Effects) -> None:
        parent = parent_of(self.cube, self.id, self._root(name))
        if parent is not None and was_idle != self._is_idle(topic):
            effects.send.append((address_of(parent), Grow(name) if was_idle else Prune(name)))

    def _rise(self, event: Event, effects: Effects) -> None:
        root = self._root(event.topic)
        if self.id == root:
            self._fall(event, effects)
        else:
            effects.send.append((address_of(root), Rise(event)))

    def _fall(self, event: Event, effects: Effects) -> None:
        topic = self._topic(event.topic)
        topic.published += 1
        if topic.holds:
            effects.notify.append(Notification(event, topic.published, {}))
        effects.send.extend((branch, Fall(event)) for branch in topic.branches)

    def _is_idle(self, topic: NodeTopic) -> bool:
        return not topic.holds and not topic.branches

    def _root(self, topic: Topic) -> Id:
        return root_of(self.cube, topic) if self.root is None else self.root

    def _topic(self, name: Topic) -> NodeTopic:
        return self.state.topics.setdefault(name, NodeTopic())
