"""What is behind a bus and behind a subscription: the two seams that tree, atoms, peers and overlay implement.

`Bus` and `Subscription` check arguments and hand out results; they do not know which kind they have. What a kind cannot
do is None here, and a line in refusals.py says why.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from seriatim.client.explain import Explanation
from seriatim.client.inbox import Inbox, Item
from seriatim.client.metrics import SubscriptionMetrics
from seriatim.client.options import GapPolicy, Limits
from seriatim.client.outbox import Outbox
from seriatim.client.refusals import Substrate
from seriatim.client.settings import Settings
from seriatim.filters import Filter
from seriatim.model import Address, Topic


class Wishes(Struct, frozen=True, kw_only=True):
    """What the application asked of one subscription, checked."""

    topics: frozenset[Topic]
    durable: str | None = None
    ordered: bool = True
    gaps: GapPolicy = GapPolicy()
    show_gaps: bool = False
    acknowledge: Literal["next", "manual"] = "next"
    log: Path | str | None = None
    start: Literal["now", "first"] = "now"
    where: Filter | None = None
    limits: Limits = Limits()
    timeout_s: float = 10.0

    @property
    def stops_at_gaps(self) -> bool:
        """Whether a gap has a place among the events."""
        return self.show_gaps or self.gaps.kind == "raise"


class Changing(Protocol):
    """A source whose topics change."""

    async def add(self, names: frozenset[Topic]) -> None:
        """Returns when they have begun."""

    async def remove(self, names: frozenset[Topic]) -> None:
        """Returns when everybody concerned knows."""


class Acknowledging(Protocol):
    """What a durable subscription writes down."""

    async def take(self, count: int) -> list[Item]:
        """Take from the inbox, and write down what that acknowledges and what was taken."""
        ...

    async def acknowledge(self) -> None:
        """Returns when it is written down that everything handed out is dealt with."""


class Source(Protocol):
    """Where the events of one subscription come from. It fills the inbox and sets `arrived`."""

    name: Address
    log_name: str  # of the subscriber, in its delivery log
    wishes: Wishes
    inbox: Inbox
    arrived: asyncio.Event

    @property
    def substrate(self) -> Substrate:
        """For refusals.py."""
        ...

    @property
    def failure(self) -> BaseException | None:
        """Why no more events come."""
        ...

    @property
    def topics(self) -> frozenset[Topic]:
        """What is held, by the names the application uses."""
        ...

    @property
    def where(self) -> Filter | None:
        """The filter."""
        ...

    @property
    def changing(self) -> Changing | None:
        """None: its topics do not change."""
        ...

    @property
    def acknowledging(self) -> Acknowledging | None:
        """None: it is not durable."""
        ...

    @property
    def is_quick(self) -> bool:
        """Whether the application may take events from the inbox without telling anybody."""
        ...

    async def open(self) -> None:
        """Join the topics."""

    async def leave(self) -> None:
        """Leave the topics for good, also a durable subscription's. `close` comes next."""

    async def close(self) -> None:
        """Leave, unless it is durable, and stop. Also what failed to open is closed."""

    def before_taking(self) -> None:
        """Raise what ends the subscription at once, before the inbox is empty."""

    def after_taking(self) -> None:
        """There is room again in the inbox."""

    def explain(self) -> Explanation:
        """What is held back, and why."""
        ...

    def metrics(self) -> SubscriptionMetrics:
        """What is counted of it."""
        ...


class Advertisement(Protocol):
    """What a publisher said it would publish. `unreachable`: brokers that did not answer, and will hear of it later."""

    where: str
    unreachable: tuple[Address, ...]

    async def withdraw(self) -> None:
        """Everything under it is published."""

    async def __aenter__(self) -> "Advertisement": ...

    async def __aexit__(self, *reason: object) -> None: ...


class Session(Protocol):
    """One connection of an application."""

    settings: Settings
    name: Address

    @property
    def substrate(self) -> Substrate:
        """For refusals.py."""
        ...

    @property
    def outbox(self) -> Outbox | None:
        """None: it is not open."""
        ...

    @property
    def advertise(self) -> Callable[[Filter], Awaitable[Advertisement]] | None:
        """None: nobody has to know beforehand what will be published."""
        ...

    async def open(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Disconnect, when all subscriptions are closed. Also what failed to open is closed."""

    def source(self, wishes: Wishes) -> Source:
        """For a new subscription."""
        ...

    def explain(self) -> Explanation:
        """What waits, beside the subscriptions and the outbox."""
        ...
