"""A node of the trees: numbers, if it is a topic's root; hands on; and in SRPT-S notifies its own application.

It assumes links that are first in, first out, and lose nothing. Order rests on that alone: there is one way from the
root to a node, so what the root numbered first arrives first, everywhere.
"""

from math import inf

from msgspec import Struct, field

from seriatim.lab.papers.srpt.messages import Join, Joined, Leave, Pub, Request
from seriatim.lab.papers.srpt.overlay import Overlay
from seriatim.model import APPLICATION, Address, InputError, Notification, Number, RemoteError, Topic
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.vcube.cube import Id, cluster_of
from seriatim.protocols.vcube.messages import Publish, Subscribe, Subscribed, Unsubscribe, Unsubscribed


class Branch(Struct):
    """One topic's tree at one node."""

    parent: Address | None  # None: this node is the root
    attached: bool = False  # the tree reaches us
    attempt: int = 0  # our last join; it is not answered while `joining`
    joining: bool = False
    number: Number = 0  # the last publication that passed here, or that the root gave
    subscribed: bool = False  # the application holds the topic, or is about to
    children: dict[Address, int] = field(default_factory=dict)  # by address, their last join; nearest cluster first
    waiting: dict[Address, int] = field(default_factory=dict)  # children we cannot answer before we are reached


class SrptNode:
    """The machine of one node. A subscriber is one whose application subscribed; all others only forward."""

    def __init__(self, overlay: Overlay, id: Id) -> None:
        if id not in overlay:
            raise InputError("id", f"{id} is not among the nodes", "add it to the overlay that all nodes are given")
        self.overlay = overlay
        self.id = id
        self.branches: dict[Topic, Branch] = {}

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        match message:
            case Pub(number, event):
                self._hand_on(source, number, message, self.branch(event.topic), effects)
            case Request(event):
                self._number(message, self.branch(event.topic), effects)
            case Join(topic, attempt):
                self._add(source, attempt, topic, self.branch(topic), effects)
            case Joined(topic, attempt, number):
                self._joined(attempt, number, topic, self.branch(topic), effects)
            case Leave(topic):
                branch = self.branch(topic)
                branch.children.pop(source, None)
                branch.waiting.pop(source, None)
                self._prune(topic, branch, effects)
            case _ if source == APPLICATION:
                self.command(message, effects)
            case _:
                raise RemoteError(f"{source} sent a node what it does not understand: {message!r}")
        return effects

    def tick(self, now: float) -> Effects:
        return Effects()

    def branch(self, topic: Topic) -> Branch:
        branch = self.branches.get(topic)
        if branch is None:
            parent = self.parent(topic)
            branch = self.branches[topic] = Branch(parent, attached=parent is None)
        return branch

    def parent(self, topic: Topic) -> Address | None:
        parent = self.overlay.parent(topic, self.id)
        return None if parent is None else self.overlay.address(parent)

    # ── the application ───────────────────────────────────────────────────────────────────────────────────────────

    def command(self, command: Payload, effects: Effects) -> None:
        match command:
            case Subscribe(topic):
                branch = self.branch(topic)
                branch.subscribed = True
                if branch.attached:
                    effects.notify.append(Subscribed(topic))
                else:
                    self._attach(topic, branch, effects)
            case Unsubscribe(topic):
                branch = self.branch(topic)
                branch.subscribed = False
                effects.notify.append(Unsubscribed(topic))
                self._prune(topic, branch, effects)
            case Publish(event):
                self.request(Request(event), effects)
            case _:
                raise InputError(
                    "command", f"a node does not take {command!r}", "give Subscribe, Unsubscribe or Publish"
                )

    def request(self, request: Request, effects: Effects) -> None:
        """Have it published: by us, if we are the root."""
        branch = self.branch(request.event.topic)
        if branch.parent is None:
            self._number(request, branch, effects)
        else:
            root = self.overlay.root(request.event.topic)
            effects.send.append((self.overlay.address(root), request))

    # ── publications ──────────────────────────────────────────────────────────────────────────────────────────────

    def _number(self, request: Request, branch: Branch, effects: Effects) -> None:
        if branch.parent is not None:
            raise RemoteError(f"node {self.id} was asked to publish on {request.event.topic!r} but is not its root")
        self._pass(Pub(branch.number + 1, request.event), branch, effects)

    def _hand_on(self, source: Address, number: Number, pub: Pub, branch: Branch, effects: Effects) -> None:
        if source != branch.parent:
            raise RemoteError(f"{source} sent node {self.id} a publication, but is not its parent")
        if not branch.attached:
            return  # it was on its way when we left
        if number != branch.number + 1:
            raise RemoteError(f"{source} sent publication {number} of {pub.event.topic!r} after {branch.number}")
        self._pass(pub, branch, effects)

    def _pass(self, pub: Pub, branch: Branch, effects: Effects) -> None:
        branch.number = pub.number
        for child in branch.children:
            effects.send.append((child, pub))
        if branch.subscribed:
            effects.notify.append(Notification(pub.event, pub.number, {}))

    # ── the tree ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _attach(self, topic: Topic, branch: Branch, effects: Effects) -> None:
        """Have the tree reach us."""
        if branch.attached or branch.joining:
            return
        assert branch.parent is not None, "the root is always attached"
        branch.joining = True
        branch.attempt += 1
        effects.send.append((branch.parent, Join(topic, branch.attempt)))

    def _add(self, child: Address, attempt: int, topic: Topic, branch: Branch, effects: Effects) -> None:
        if not self.may_be_below(child, topic):
            raise RemoteError(f"{child} wants to be below node {self.id} in the tree of {topic!r}, but is not")
        if branch.attached:
            self._accept(child, attempt, topic, branch, effects)
        else:
            branch.waiting[child] = attempt
            self._attach(topic, branch, effects)

    def may_be_below(self, child: Address, topic: Topic) -> bool:
        id = self.overlay.id_at(child)
        return id is not None and self.overlay.parent(topic, id) == self.id

    def _accept(self, child: Address, attempt: int, topic: Topic, branch: Branch, effects: Effects) -> None:
        branch.children[child] = attempt
        self.sort_children(branch)
        effects.send.append((child, Joined(topic, attempt, branch.number)))

    def sort_children(self, branch: Branch) -> None:
        """Sort children in the order in which copies leave: nearest cluster first, then clients in the order they
        came."""
        branch.children = dict(sorted(branch.children.items(), key=lambda item: self._cluster(item[0])))

    def _cluster(self, child: Address) -> float:
        id = self.overlay.id_at(child)
        return inf if id is None else cluster_of(self.id, id)

    def _joined(self, attempt: int, number: Number, topic: Topic, branch: Branch, effects: Effects) -> None:
        if not branch.joining or attempt != branch.attempt:
            return  # we left before it came
        branch.joining, branch.attached, branch.number = False, True, number
        waiting, branch.waiting = branch.waiting, {}
        for child, asked in waiting.items():
            self._accept(child, asked, topic, branch, effects)
        if branch.subscribed:
            effects.notify.append(Subscribed(topic))

    def _prune(self, topic: Topic, branch: Branch, effects: Effects) -> None:
        """Leave the tree if nobody here or below us wants the topic any more."""
        is_needed = branch.subscribed or branch.children or branch.waiting
        if branch.parent is None or is_needed or not (branch.attached or branch.joining):
            return
        branch.attached = branch.joining = False
        effects.send.append((branch.parent, Leave(topic)))
