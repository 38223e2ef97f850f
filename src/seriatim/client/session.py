"""`Session` and `Source`: base classes of what tree, atoms, peers and overlay run behind a `Bus` and a `Subscription`.

`Bus` and `Subscription` check arguments and hand out results; they do not know which kind they use. refusals.py says
what a kind cannot do, and why.
"""

import asyncio
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar, Literal, Self
from weakref import WeakSet

from msgspec import Struct

from seriatim.client.explain import Explanation
from seriatim.client.history import LIVE, Progress, Start
from seriatim.client.inbox import Inbox, Item, Place, TellLog
from seriatim.client.metrics import SubscriptionMetrics
from seriatim.client.options import GapPolicy, Limits
from seriatim.client.outbox import Outbox
from seriatim.client.refusals import METHODS, Substrate, refusal
from seriatim.client.settings import Settings
from seriatim.filters import Filter
from seriatim.model import Address, Closed, InputError, Topic
from seriatim.runtime import Clock
from seriatim.runtime.opened import Opened


class Wishes(Struct, frozen=True, kw_only=True):
    """The checked options of one subscription."""

    topics: frozenset[Topic]
    durable: str | None = None
    accept: bool = False
    ordered: bool = True
    gaps: GapPolicy = GapPolicy()
    show_gaps: bool = False
    acknowledge: Literal["next", "manual"] = "next"
    log: Path | str | None = None
    start: Start = "now"
    where: Filter | None = None
    limits: Limits = Limits()
    timeout_s: float = 10.0

    @property
    def stops_at_gaps(self) -> bool:
        """Whether gaps are handed out in order with the events."""
        return self.show_gaps or self.gaps.kind == "raise"


class Source(ABC):
    """Where the events of one subscription come from. It fills the inbox and sets `arrived`.

    `log_name`: the subscriber's name in its delivery log. `where`: the filter. `is_quick`: whether the application may
    take events from the inbox without telling the source.
    """

    substrate: ClassVar[Substrate]  # for refusals.py
    can_change: ClassVar[bool] = True  # its topics
    is_durable: ClassVar[bool] = False
    is_quick = False

    def __init__(self, name: Address, wishes: Wishes, log_name: str, log: TellLog | None = None) -> None:
        self.name = name
        self.log_name = log_name
        self.wishes = wishes
        self.where: Filter | None = wishes.where
        self.inbox = Inbox(wishes.limits, show_gaps=wishes.stops_at_gaps, log=log)
        self.arrived = asyncio.Event()
        self._names: set[Topic] = set(wishes.topics)
        self._changes = asyncio.Lock()

    @property
    def topics(self) -> frozenset[Topic]:
        """The topics held, by the names the application uses."""
        return frozenset(self._names)

    @property
    @abstractmethod
    def failure(self) -> BaseException | None:
        """The error that ended the source; None while events come."""

    @abstractmethod
    async def open(self) -> None:
        """Join the topics."""

    async def leave(self) -> None:  # noqa: B027 - closing may be enough
        """Leave the topics for good, even if the subscription is durable. `close` is called next."""

    @abstractmethod
    async def close(self) -> None:
        """Leave the topics unless durable, and stop. Also called if `open` failed."""

    async def add(self, names: frozenset[Topic]) -> None:
        """Join more topics. Returns when they have begun."""
        raise refusal("add", self.substrate)

    async def remove(self, names: frozenset[Topic]) -> None:
        """Leave topics. Returns when all nodes concerned know."""
        raise refusal("remove", self.substrate)

    async def take(self, count: int) -> list[Item]:
        """Take from the inbox. A durable subscription records what this acknowledges and what it takes."""
        return self.inbox.take(count)

    @property
    def handed_out(self) -> Place:
        """The place up to which events were handed out."""
        return self.inbox.handed

    async def acknowledge(self, place: Place | None = None) -> None:
        """Acknowledge everything handed out so far, or up to that place. Returns when that is recorded."""
        if self.substrate in METHODS["acknowledge"]:
            raise refusal("acknowledge", self.substrate)
        raise InputError("acknowledge", "the subscription is not durable", 'subscribe with durable="name"')

    async def seek(self, start: Start) -> None:
        """Begin again at another place of the past. Returns when everything before is dropped."""
        raise refusal("seek", self.substrate)

    async def caught_up(self) -> None:  # noqa: B027 - there may be no past
        """Wait until the application has taken everything of the past."""

    def progress(self) -> Progress:
        """How far the past is read."""
        return LIVE

    def before_taking(self) -> None:  # noqa: B027 - nothing may end it at once
        """Raise an error that ends the subscription at once, even if the inbox is not empty."""

    def after_taking(self) -> None:  # noqa: B027 - nobody may wait for room
        """Called when the inbox has room again."""

    def explain(self) -> Explanation:
        """The events that are held back, and why."""
        return Explanation()

    def metrics(self) -> SubscriptionMetrics:
        return SubscriptionMetrics(
            subscriber=self.name,
            notified=self.inbox.notified,
            unread=self.inbox.room.events,
            gaps=self.inbox.gap_count,
        )


class Advertisement(Struct, frozen=True):
    """A publisher's announcement that it will publish events that match the filter `where`.

    `unreachable`: brokers that did not answer; they are told later. Call `withdraw`, or leave the `async with` block,
    when everything it covers is published.
    """

    where: str
    unreachable: tuple[Address, ...]
    withdraw: Callable[[], Coroutine[Any, Any, None]]

    async def __aenter__(self) -> "Advertisement":
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.withdraw()


class Session(ABC):
    """One connection of an application. `name`: unique to this session.

    `outbox` is None until it is open. `advertise` is None where publications need no advertisement.
    """

    substrate: ClassVar[Substrate]  # for refusals.py
    outbox: Outbox | None = None
    advertise: Callable[[Filter], Awaitable[Advertisement]] | None = None

    def __init__(self, settings: Settings, given_name: str) -> None:
        self.settings = settings
        self.name: Address = f"{given_name}~{secrets.token_hex(5)}"
        self._clock = Clock()
        self._count = 0  # subscriptions so far

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect. All subscriptions are closed by now. Also called if `open` failed."""

    @abstractmethod
    def source(self, wishes: Wishes) -> Source:
        """Make the source of a new subscription."""

    @abstractmethod
    def explain(self) -> Explanation:
        """What waits, apart from the subscriptions and the outbox."""


AFTER_FORK = (
    "was opened before this process was forked, and belongs to its parent; connect in the child "
    "(gunicorn: in post_fork; Celery: in worker_process_init; multiprocessing: in the function that it runs)"
)


class UsedOnce(Opened):
    """A bus or a subscription: opened by `async with`, closed at its end or by `close`, and never opened again.

    `_close` must cope with any stage of opening: it runs also if `_open` fails.

    Objects that are open when the process forks belong to the parent. In the child it hands out nothing, refuses every
    call, and does nothing when it is closed: its connections, its journal and its event loop are those of the parent.
    """

    _kind: ClassVar[str]  # in messages
    _made_by: ClassVar[str]  # the call that makes one
    _entered_as: ClassVar[str]  # the variable in the example that a message shows

    def __init__(self) -> None:
        self._state: Literal["new", "open", "closed", "forked"] = "new"

    async def __aenter__(self) -> Self:
        if self._state == "forked":
            self._check_open()
        if self._state != "new":
            raise Closed(f"a {self._kind} is used once; call {self._made_by}() again")
        self._state = "open"
        _opened.add(self)
        return await super().__aenter__()

    async def close(self) -> None:
        """Close it, like the end of `async with`. May be called twice."""
        if self._state not in ("closed", "forked"):
            self._state = "closed"
            _opened.discard(self)
            await self._close()

    @abstractmethod
    async def _close(self) -> None: ...

    @property
    def is_forked(self) -> bool:
        """Whether this is the copy that a forked process has of its parent's."""
        return self._state == "forked"

    def _forked(self) -> None:
        """Called in a child process that has just been forked."""
        self._state = "forked"

    def _check_open(self) -> None:
        if self._state == "forked":
            raise Closed(f"the {self._kind} {AFTER_FORK}")
        if self._state == "new":
            example = f"async with {self._made_by}(...) as {self._entered_as}"
            raise Closed(f"enter the {self._kind} first: {example}")
        if self._state == "closed":
            raise Closed(f"the {self._kind} is closed")


_opened: WeakSet[UsedOnce] = WeakSet()


def _leave_to_parent() -> None:
    """Called in a forked child: leave what is open to the parent."""
    for each in list(_opened):
        each._forked()
    _opened.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
