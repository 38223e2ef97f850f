"""The interface of the machines that outbox and feed run, for every protocol.

All machines take the commands of the tree (`Publish`, `Withdraw`, `Change`) and answer with its notices. The
differences are behind `PublisherView` and `SubscriberView`, which tree/ and atoms/ implement.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from msgspec import Struct

from seriatim.client.events import Event
from seriatim.client.options import Limits
from seriatim.model import Node, Notification, Number, Position, Topic
from seriatim.order import Lane
from seriatim.protocols.machine import Machine, Payload
from seriatim.protocols.tree import Waiting


class PublisherView(Struct, frozen=True):
    """A machine that publishes.

    `given_up`: how many messages it still holds although no caller waits for them. `why_not`: why a topic's events are
    not accepted; empty: no reason is known. `reserve_bytes`: what it adds to each message. `places`: an event is
    confirmed when it has its place in the order (`EventPlaced`), not when it is stored; `why_unplaced`: what that of a
    topic waits for. `own_order`: events keep their order across topics. `home_of`: where it believes that topics live.
    """

    machine: Machine
    explain: Callable[[], list[str]]
    given_up: Callable[[], int] | None = None
    why_not: Callable[[Topic], str] | None = None
    reserve_bytes: int = 0
    places: bool = False
    why_unplaced: Callable[[Topic], str] | None = None
    own_order: bool = False
    home_of: Callable[[Topic], Node] | None = None


class SubscriberView(ABC):
    """A machine that subscribes, and queries about it. The defaults fit a machine that holds nothing back.

    `lanes`: how far each topic is, where that is known. `farewell`: the command that ends the machine when its
    subscription closes; None: it leaves its topics instead. `recall`: drops the events of a message that were
    acknowledged before a restart, and marks those handed out. `encode`: a snapshot for the journal.
    """

    knows_ages: ClassVar[bool] = True
    farewell: ClassVar[Payload | None] = None
    recall: Callable[[Topic, Number, list[Event]], list[Event]] | None = None
    encode: Callable[[], bytes | None] | None = None

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @property
    @abstractmethod
    def topics(self) -> frozenset[Topic]:
        """The ordered topics that are held or being joined."""

    @property
    def wanted(self) -> frozenset[Topic]:
        """The topics that will be held when the waiting changes are made, too."""
        return self.topics

    @abstractmethod
    def unanswered(self) -> list[str]:
        """The answers that a change of topics waits for."""

    @property
    def lanes(self) -> Mapping[Topic, Lane]:
        """How far each topic is; empty where this is not known."""
        return {}

    @property
    def early(self) -> Mapping[Topic, Number]:
        """Of each topic the last event that was notified early and is not known to be final."""
        return {}

    @property
    def waiting(self) -> int:
        """Messages that are here and wait for others."""
        return 0

    def share(self, limits: Limits) -> float:
        """The used share of the limits; above 1: too much waits."""
        return self.waiting / limits.unread_events

    def blocked_topics(self) -> frozenset[Topic]:
        """Topics whose further events could only wait."""
        return frozenset()

    def waits(self) -> list[Waiting]:
        """The waiting messages, individually, if they are known."""
        return []

    def oldest_since(self) -> float | None:
        """When the oldest of them came, in milliseconds. None: none waits."""
        return None

    @property
    def past(self) -> tuple[Position, Position] | None:
        """The last notified position of the past, and its end, if that is known. None: it is live."""
        return None

    def explain(self) -> list[str]:
        """What else to know about this machine, in sentences."""
        return []

    @property
    def is_changing(self) -> bool:
        """Whether a change of topics that a restart interrupted is still under way."""
        return False

    def slot_of(self, notification: Notification) -> Number:
        """The number under which the broker delivered it."""
        return notification.number

    @property
    def is_heard(self) -> bool:
        """Whether the farewell has arrived."""
        return True
