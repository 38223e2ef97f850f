"""One run of the live demo: start everything, let the shop work, kill two processes in the middle, close, gather.

`tell` is called with each event of the demo when it happens. Nothing here judges: that is done from the logs,
afterwards.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, structs

import seriatim
from seriatim.audit import read_history
from seriatim.demo.children import Child, Children
from seriatim.demo.shop import (
    CLOSED,
    HOLDINGS,
    HOMES,
    HUB,
    LIST_PRICES,
    NODE_SITES,
    PUBLISHER_SITES,
    SITES,
    SUBSCRIBER_SITES,
)
from seriatim.demo.sites import Sites
from seriatim.model import Delivery, History, Publication, SeriatimError, Subscription, TimedOut, Topic

START_S = 30.0
FLOW_S = 30.0
CLOSE_S = 30.0
INTERRUPTED_S = 0.2  # who interrupts the demo does not want to wait for farewells
LOOK_S = 0.2  # how often to look whether everybody is alive, and how many events there are
AWAY_S = 0.5  # how long a killed process is away: a supervisor needs a moment to notice
BETWEEN_S = 1.0  # at least so much of ordinary life after a process has come back
BACKLOG_S = 0.5  # to work off what has gathered meanwhile
ACTS = (0.3, 0.65)  # when processes are killed, as parts of the opening hours

Tell = Callable[[str, str], None]  # who or what, and what happens to it
Progress = Callable[[str], None]
_Result = TypeVar("_Result")
_Row = TypeVar("_Row", Delivery, Subscription)


class Fault(Struct, frozen=True, kw_only=True):
    """A process that was killed. Seconds are since the kill."""

    what: str
    pid: int
    new_pid: int
    restarted_after_s: float
    topics: tuple[Topic, ...]
    flow_after_s: float  # the next event of `topics` was notified, in order
    began_ms: float  # when it was killed, milliseconds since 1970
    ended_ms: float  # when everything flowed as before


class DemoRun(Struct, frozen=True, kw_only=True):
    """The result of a run."""

    histories: Mapping[str, History]  # with, without
    books: Mapping[str, Mapping[str, int]]  # with, without → subscriber → cents
    faults: tuple[Fault, ...]
    pids: tuple[tuple[str, int], ...]  # of every process there was; at the end none of them is left
    open_s: float  # how long the shop was open


class Monitor:
    """The demo's own ordered subscription, at the hub: what goes by, as it does."""

    def __init__(self) -> None:
        self.count = 0
        self.latest = ""
        self._waiting: list[tuple[frozenset[Topic], asyncio.Future[float]]] = []

    async def watch(self, events: seriatim.Subscription) -> None:
        """Count events until it is cancelled."""
        try:
            async for event in events:
                self.count += 1
                self.latest = event.id
                for waiting in [each for each in self._waiting if event.topic in each[0]]:
                    self._waiting.remove(waiting)
                    if not waiting[1].done():
                        waiting[1].set_result(time.monotonic())
        except SeriatimError as error:  # nothing will ever come: waiting callers are told why
            for _, future in self._waiting:
                if not future.done():
                    future.set_exception(error)

    async def next_of(self, *topics: Topic) -> float:
        future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((frozenset(topics), future))
        try:
            async with asyncio.timeout(FLOW_S):
                return await future
        except TimeoutError:
            raise TimedOut(f"waited {FLOW_S:g} s for an event of {' or '.join(topics)} to be notified") from None


def _unless_interrupted(tell: Tell) -> Tell:
    """Waiting with a timeout may swallow a cancellation that comes with the answer (before 3.12). Here it shows."""
    task = asyncio.current_task()

    def checked(what: str, text: str) -> None:
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        tell(what, text)

    return checked


async def run_shop(folder: Path, seconds: float, tell: Tell, progress: Progress) -> DemoRun:
    """The whole story. `progress` is told now and then how far it is."""
    monitor = Monitor()
    ticking = asyncio.create_task(_tick(monitor, progress))
    tell = _unless_interrupted(tell)
    try:
        async with Sites(folder) as sites, Children(folder) as children:
            tell("NATS", f"{_list((site, sites.pid(site)) for site in SITES)}: one super-cluster")
            tell("", "its servers elect a leader, which takes them 5 to 9 s")
            await sites.wait_until_elected()
            nodes = {}
            for node in NODE_SITES:
                arguments = ("serve", "--config", str(sites.config(node)), "--node", node)
                nodes[node] = await children.start(f"sequencer {node}", "seriatim.cli", *arguments)
            tell("sequencers", f"{_list((node, child.pid) for node, child in nodes.items())}: one tree")
            async with _connected(sites.url(HUB), children, monitor) as bus:
                story = Story(sites, children, nodes, monitor, folder, tell)
                await story.open_shop()
                await story.work(seconds)
                return await story.close_shop(bus)
    finally:
        ticking.cancel()


async def _tick(monitor: Monitor, progress: Progress) -> None:
    while True:
        progress(f"{monitor.count:,} events in order, the last one: {monitor.latest}" if monitor.count else "...")
        await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def _connected(url: str, children: Children, monitor: Monitor) -> AsyncIterator[seriatim.Bus]:
    """A connection of our own, as soon as the sequencers are there; the monitor sees everything go by."""
    bus = seriatim.connect(url, name="monitor", timeout_s=START_S)
    watching: asyncio.Task[None] | None = None
    farewell_s = INTERRUPTED_S
    try:
        await _while_alive(children, bus.__aenter__())
        everything = await _while_alive(children, bus.subscribe(*HOMES).__aenter__())
        watching = asyncio.create_task(monitor.watch(everything))
        yield bus
        farewell_s = CLOSE_S
    finally:
        if watching is not None:
            watching.cancel()
        with suppress(TimeoutError):  # then the others will notice by themselves that we are gone
            async with asyncio.timeout(farewell_s):
                await bus.close()


@dataclass
class Story:
    """The part with publishers and subscribers."""

    _sites: Sites
    _children: Children
    _nodes: Mapping[str, Child]
    _monitor: Monitor
    _folder: Path
    _tell: Tell
    _subscribers: dict[str, Child] = field(default_factory=dict)
    _publishers: dict[str, Child] = field(default_factory=dict)
    _faults: list[Fault] = field(default_factory=list)
    _opened_s: float = 0.0

    async def open_shop(self) -> None:
        """Start the subscribers, then the publishers."""
        for name, topics in HOLDINGS.items():
            url = self._sites.url(SUBSCRIBER_SITES[name])
            arguments = (url, name, str(self._folder), *topics)
            self._subscribers[name] = await self._children.start(name, "seriatim.demo.books", *arguments)
        cashier = await self._start_publisher("cashier", str(self._folder / "journals"))
        for child in (*self._subscribers.values(), cashier):
            await child.line(START_S, "to subscribe")
        self._tell("subscribers", _list((name, child.pid) for name, child in self._subscribers.items()))
        await self._start_publisher("pricing")
        await _while_alive(self._children, self._monitor.next_of("prices"))
        await self._start_publisher("checkout")
        self._tell("publishers", _list((name, child.pid) for name, child in self._publishers.items()))
        await _while_alive(self._children, self._monitor.next_of("orders"))
        self._opened_s = time.monotonic()
        self._tell("shop", "open")

    async def _start_publisher(self, name: str, *arguments: str) -> Child:
        url = self._sites.url(PUBLISHER_SITES[name])
        child = await self._children.start(name, f"seriatim.demo.{name}", url, *arguments)
        self._publishers[name] = child
        return child

    async def work(self, seconds: float) -> None:
        """Keep the shop open, and kill two processes meanwhile."""
        await self._until(seconds * ACTS[0])
        await self._kill("sequencer us", self._nodes["us"], [topic for topic, node in HOMES.items() if node == "us"])
        await self._until(seconds * ACTS[1])
        await self._kill("publisher cashier", self._publishers["cashier"], ["payments"])
        await self._until(seconds)

    async def _until(self, seconds: float) -> None:
        """Wait until the shop has been open for so long, and at least a little."""
        wait_s = max(BETWEEN_S, self._opened_s + seconds - time.monotonic())
        await _while_alive(self._children, asyncio.sleep(wait_s))

    async def _kill(self, what: str, child: Child, topics: list[Topic]) -> None:
        killed_s, began_ms = time.monotonic(), time.time() * 1000.0
        pid = await child.kill()
        self._tell("kill -9", f"{what} (pid {pid})")
        await asyncio.sleep(AWAY_S)  # longer than anything can be on its way: what comes now comes from the new one
        await self._children.restart(child)
        restarted_s = time.monotonic()
        flow_s = await _while_alive(self._children, self._monitor.next_of(*topics))
        fault = Fault(
            what=what,
            pid=pid,
            new_pid=child.pid,
            restarted_after_s=restarted_s - killed_s,
            topics=tuple(topics),
            flow_after_s=flow_s - killed_s,
            began_ms=began_ms,
            ended_ms=began_ms + (flow_s - killed_s + BACKLOG_S) * 1000.0,
        )
        self._faults.append(fault)
        flow = f"{topics[0]} flow again {fault.flow_after_s:.1f} s after the kill"
        self._tell("recovered", f"as pid {child.pid}; {flow}")

    async def close_shop(self, bus: seriatim.Bus) -> DemoRun:
        """Every topic ends with a last event, and whoever has seen all of them ends."""
        for name in ("checkout", "pricing"):
            self._publishers[name].terminate()
        self._tell("shop", f"closed; {LIST_PRICES:,} prices are published at once")
        open_s = time.monotonic() - self._opened_s
        books: dict[str, dict[str, int]] = {"with": {}, "without": {}}
        for name, child in self._subscribers.items():
            totals = json.loads(await child.line(CLOSE_S, "to have seen the last event of every topic"))
            for kind, cents in totals.items():
                books[kind][name] = cents
        for child in (*self._subscribers.values(), *self._publishers.values()):
            await child.ended(CLOSE_S)
        self._tell("", "everybody has seen the last event of every topic")
        publications = await read_broker(bus)
        return DemoRun(
            histories={kind: shop_history(self._folder / kind, publications) for kind in books},
            books=books,
            faults=tuple(self._faults),
            pids=(*((f"NATS {site}", self._sites.pid(site)) for site in SITES), *self._children.pids),
            open_s=open_s,
        )


async def read_broker(bus: seriatim.Bus) -> list[Publication]:
    """What was published, from the streams themselves: every number of every topic up to its last event."""
    publications = []
    numbers: dict[Topic, set[int]] = {topic: set() for topic in HOMES}
    last: dict[Topic, int] = {}
    async with bus.subscribe(*HOMES, ordered=False, start="first") as events:
        while events.unread or any(topic not in last or len(numbers[topic]) < last[topic] for topic in HOMES):
            event = await events.next(CLOSE_S)
            publisher = event.publisher.partition("~")[0] or "checkout"
            publications.append(Publication(event.id, event.topic, publisher, number=event.number, index=event.index))
            numbers[event.topic].add(event.number)
            if event.data == CLOSED:
                last[event.topic] = event.number
    return sorted(publications, key=lambda row: (row.topic, row.number, row.index))


def shop_history(folder: Path, publications: list[Publication]) -> History:
    """The log, with subscribers called what they are called in the shop instead of what their connections are."""
    raw = read_history(folder)
    return History([_named(row) for row in raw.deliveries], publications, [_named(row) for row in raw.subscriptions])


def _named(row: _Row) -> _Row:
    return structs.replace(row, subscriber=row.subscriber.partition("~")[0])


async def _while_alive(children: Children, work: Awaitable[_Result]) -> _Result:
    """Wait for something, but not after a process that is needed for it has ended."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=LOOK_S))[0]:
            children.check()
        return task.result()
    finally:
        task.cancel()


def _list(pairs: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {pid}" for name, pid in pairs)
