"""The programs of a run: publishers, a publisher that knows only NATS, subscribers. Each notes what it was told.

    python -m soak.tree.roles publisher --folder RUN --name p1 --url nats://… --topics a,b --rate 500

SIGTERM ends a role in order, SIGUSR1 makes it write what it waits for to RUN/explain/<name>.txt. A role that cannot
connect (the server may be down when it comes back) tries again, within a bound.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import seriatim
from seriatim.client.history import Start
from seriatim.model import ConnectionFailed, SeriatimError, TimedOut
from seriatim.runtime.loop import run
from soak.launch import take_on_faults
from soak.tree.rows import Acknowledged, Attempted, Began, Ended, Failed, Handed, Held, Missed, Rested, RowFile, now

logger = logging.getLogger("soak")

SETTLE = "settle"
CONNECT_S = 60.0  # faults end before that
PAUSE_S = 0.02
THINK_S = 0.006
UNANSWERED_MAX = 2_000
UNREAD_MAX = 500  # small, so that subscriptions have to pause the broker after every fault
LAST_ANSWERS_S = 60.0


class Role:
    """What all programs share: who they are, their life, their files, their end."""

    def __init__(self, arguments: argparse.Namespace, table: str) -> None:
        self.folder: Path = arguments.folder
        self.name: str = arguments.name
        self.url: str = arguments.url
        self.cluster: str = arguments.cluster
        self.topics: list[str] = arguments.topics.split(",")
        self.weights = [float(word) for word in arguments.weights.split(",")] if arguments.weights else None
        self.life = next_life(self.folder, self.name)
        self.random = random.Random(f"{arguments.seed}/{self.name}/{self.life}")
        self.ending = asyncio.Event()
        self.explain: Callable[[], str] = lambda: "not connected"
        self.is_visitor: bool = arguments.visitor
        self.begin(self.folder / table)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.ending.set)
        loop.add_signal_handler(signal.SIGUSR1, self._write_explanation)

    def begin(self, folder: Path) -> None:
        """Open the file of this life, in the folder of the table."""
        if self.is_visitor:
            self._begin_as_somebody_new(folder)
        else:
            self.rows = RowFile(folder / f"{self.name}.jsonl")
            self.rows.write(Began(self.name, self.life, os.getpid(), now()))

    def _begin_as_somebody_new(self, folder: Path) -> None:
        """A visitor's life is a subscriber of its own. Nobody owes anything to the one before."""
        before = folder / f"{self.name}.{self.life - 1}.jsonl"
        if before.exists():
            RowFile(before).write(Held([], now()))
        self.rows = RowFile(folder / f"{self.name}.{self.life}.jsonl")
        self.rows.write(Began(self.name, 1, os.getpid(), now()))

    def _write_explanation(self) -> None:
        path = self.folder / "explain" / f"{self.name}.txt"
        path.parent.mkdir(exist_ok=True)
        whole = path.with_suffix(".part")
        whole.write_text(self.explain(), encoding="utf-8")
        whole.rename(path)

    @property
    def is_settling(self) -> bool:
        """Whether the round is over: publishers pause, nobody changes topics, so that what is owed is known."""
        return (self.folder / SETTLE).exists()

    async def think(self) -> None:
        """An application takes its time over an event, before it writes something down and after: there it dies."""
        await asyncio.sleep(self.random.uniform(0.0, THINK_S))

    async def or_end(self, work: Awaitable[None]) -> None:
        """Do it until it is done or this process is asked to end."""
        task, ending = asyncio.ensure_future(work), asyncio.ensure_future(self.ending.wait())
        done, _ = await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if task not in done:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def last_life(folder: Path, name: str) -> int:
    """How many lives a role has had, the present one included."""
    path = folder / "lives" / name
    return int(path.read_text(encoding="ascii")) if path.exists() else 0


def next_life(folder: Path, name: str) -> int:
    """Count one more life and return its number."""
    path = folder / "lives" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    life = last_life(folder, name) + 1
    whole = path.with_suffix(".part")
    whole.write_text(str(life), encoding="ascii")
    whole.rename(path)
    return life


async def connected(role: Role) -> "seriatim.Bus":
    """A bus, tried again while nobody answers."""
    deadline = now() + CONNECT_S
    while True:
        try:
            name = f"{role.name}.{role.life}"
            folder = role.folder / "journals" / "subscribers"
            limits = seriatim.Limits(unread_events=UNREAD_MAX)
            return await seriatim.connect(
                role.url, cluster=role.cluster, name=name, journals=folder, limits=limits
            ).__aenter__()
        except (ConnectionFailed, TimedOut) as error:
            if now() > deadline:
                raise
            logger.warning("not connected yet: %s", error)
            await asyncio.sleep(0.1)


# ── publishers ────────────────────────────────────────────────────────────────────────────────────────────────────


class Source:
    """Publish numbered events on random topics, at this rate per second.

    Behind an event that failed no order is promised: whoever awaits each event goes on as a publisher of its own.
    """

    def __init__(self, role: Role, rate: float) -> None:
        self._role = role
        self._rate = rate
        self._began = now()
        self.count = 0
        self.failures = 0

    def next(self, topic: str | None = None) -> Attempted | None:
        """The next event, of this topic or of a random one, noted as attempted; None: it is not time yet."""
        if self.count >= (now() - self._began) * self._rate:
            return None
        role = self._role
        attempt = Attempted(
            f"{role.name}.{role.life}.{self.count}",
            topic or role.random.choices(role.topics, role.weights)[0],
            f"{role.name}/{role.life}"
            + (
                f".{self.failures}" if self.failures else ""
            ),  # a life is a publisher of its own: its order is kept within it
            self.count,
            now(),
        )
        self.count += 1
        role.rows.write(attempt)
        return attempt

    async def rest(self) -> None:
        """Pause between rounds, and do not make up for it afterwards."""
        began = now()
        self._role.rows.write(Rested(began))
        while self._role.is_settling and not self._role.ending.is_set():  # noqa: ASYNC110 - a file says so
            await asyncio.sleep(PAUSE_S)
        self._began += now() - began


async def publish(role: Role, rate: float) -> None:
    """Publish until asked to end, then wait for what is unanswered."""
    bus = await connected(role)
    role.explain = lambda: str(bus.explain())
    source = Source(role, rate)
    unanswered: set[asyncio.Future[seriatim.Published]] = set()

    def answered(id: str, future: "asyncio.Future[seriatim.Published]") -> None:
        unanswered.discard(future)
        error = future.exception()
        if error is None:
            published = future.result()
            role.rows.write(Acknowledged(id, published.number, now(), published.index))
        elif isinstance(error, SeriatimError):
            role.rows.write(Failed(id, str(error), now()))
        else:
            raise error

    async def all_answered() -> None:
        if unanswered:
            await asyncio.wait(unanswered, timeout=LAST_ANSWERS_S)
        if unanswered:
            logger.error("%d events are still unanswered after %g s", len(unanswered), LAST_ANSWERS_S)
            sys.exit(3)

    while not role.ending.is_set():
        if role.is_settling:
            await all_answered()
            await source.rest()
        while len(unanswered) < UNANSWERED_MAX and (attempt := source.next()) is not None:
            data = attempt.id.encode()
            future = bus.publish_nowait(attempt.topic, data, id=attempt.id)
            unanswered.add(future)
            future.add_done_callback(partial(answered, attempt.id))
        await asyncio.sleep(PAUSE_S)
    await all_answered()
    await bus.__aexit__(None, None, None)


async def publish_in_turns(role: Role, rate: float) -> None:
    """One event of each topic in turn, each awaited before the next one is published: their order is promised."""
    bus = await connected(role)
    role.explain = lambda: str(bus.explain())
    source = Source(role, rate)
    while not role.ending.is_set():
        if role.is_settling:
            await source.rest()
        attempt = source.next(role.topics[source.count % len(role.topics)])
        if attempt is None:
            await asyncio.sleep(PAUSE_S)
            continue
        try:
            published = await bus.publish(attempt.topic, attempt.id.encode(), id=attempt.id)
        except SeriatimError as error:
            role.rows.write(Failed(attempt.id, str(error), now()))
            source.failures += 1
        else:
            role.rows.write(Acknowledged(attempt.id, published.number, now(), published.index))
    await bus.__aexit__(None, None, None)


async def publish_plainly(role: Role, rate: float) -> None:
    """A NATS client that has never heard of Seriatim, one event at a time."""
    import nats
    import nats.errors
    import nats.js.errors

    async def on_error(error: Exception) -> None:
        logger.warning("nats: %s", error)

    client = await nats.connect(
        role.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, connect_timeout=30, error_cb=on_error
    )
    stream = client.jetstream(timeout=2.0)
    source = Source(role, rate)
    while not role.ending.is_set():
        if role.is_settling:
            await source.rest()
        attempt = source.next()
        if attempt is None:
            await asyncio.sleep(PAUSE_S)
            continue
        try:
            receipt = await stream.publish(attempt.topic, attempt.id.encode(), headers={"Nats-Msg-Id": attempt.id})
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            role.rows.write(Failed(attempt.id, repr(error), now()))
        else:
            role.rows.write(Acknowledged(attempt.id, receipt.seq, now()))
    await client.close()


# ── subscribers ───────────────────────────────────────────────────────────────────────────────────────────────────


async def subscribe(role: Role, batch: int, wander_s: float) -> None:
    """A durable subscription. What is handed out is written down before more is asked for."""
    bus = await connected(role)
    wishes = Wishes(role)
    events = await joined(role, bus, wishes.topics, None if role.is_visitor else role.name)
    role.explain = lambda: f"{events.explain()}\n{bus.explain()}"
    role.rows.write(Held(wishes.topics, now()))

    async with asyncio.TaskGroup() as group:
        taking = group.create_task(role.or_end(take(role, events, batch)))
        if wander_s:
            wandering = group.create_task(role.or_end(wander(role, wishes, events, wander_s)))
            await taking
            wandering.cancel()
    await events.close()
    await bus.__aexit__(None, None, None)


async def take(role: Role, events: "seriatim.Subscription", batch: int) -> None:
    """Record the events that are handed out, in lists or individually."""
    if batch > 1:
        async for several in events.batches(batch):
            await role.think()
            role.rows.write(*written(role, several))
            await role.think()
    else:
        async for event in events:
            await role.think()
            role.rows.write(*written(role, [event]))
            await role.think()


async def joined(
    role: Role, bus: "seriatim.Bus", topics: list[str], durable: str | None, start: Start = "now"
) -> "seriatim.Subscription":
    """The subscription, tried again while a sequencer is away."""
    deadline = now() + CONNECT_S
    while True:
        try:
            return await bus.subscribe(*topics, durable=durable, show_gaps=True, start=start).__aenter__()
        except (ConnectionFailed, TimedOut) as error:
            if now() > deadline:
                raise
            logger.warning("not joined yet: %s", error)


LOSE = "SOAK_LOSE"


def written(role: Role, items: Iterable["seriatim.Event | seriatim.Gap"]) -> list[Handed | Missed]:
    """The rows of what was handed out. SOAK_LOSE in the environment loses some: to test the judge, not Seriatim."""
    loss = float(os.environ.get(LOSE, 0))
    return [row_of(item) for item in items if role.random.random() >= loss]


def row_of(item: "seriatim.Event | seriatim.Gap") -> Handed | Missed:
    """The row of an event that the application was handed."""
    if isinstance(item, seriatim.Gap):
        return Missed(item.topic, item.first, item.last, item.reason, now())
    marks = item.replayed, item.out_of_order, item.position
    return Handed(item.id, item.topic, item.number, now(), item.index, *marks)


class Wishes:
    """The topics a subscriber wants to hold, over all its lives: a change that was cut short is asked for again."""

    def __init__(self, role: Role) -> None:
        self._path = role.folder / "wishes" / role.name
        self._path.parent.mkdir(exist_ok=True)
        saved = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        self.topics = saved.split(",") if saved else list(role.topics)

    def wish(self, topics: list[str]) -> None:
        """Write a wish down before asking for it."""
        self.topics = topics
        whole = self._path.with_suffix(".part")
        whole.write_text(",".join(topics), encoding="utf-8")
        whole.rename(self._path)


async def wander(role: Role, wishes: Wishes, events: "seriatim.Subscription", pause_s: float) -> None:
    """Leave a topic and come back to it, again and again, while events flow. At least one topic stays.

    The file SETTLE makes it pause: then what is owed is known.
    """
    is_unfinished = False
    while True:
        await asyncio.sleep(pause_s * role.random.uniform(0.5, 1.5))
        if role.is_settling and not is_unfinished:
            continue
        topic = role.random.choice(role.topics[1:])
        adds = topic not in wishes.topics
        wishes.wish([*wishes.topics, topic] if adds else [each for each in wishes.topics if each != topic])
        role.rows.write(Held(wishes.topics, now(), complete=False))
        try:
            await (events.add(topic) if adds else events.remove(topic))
        except TimedOut as error:  # a node is away: the change goes on, and the next one waits for it
            logger.warning("not changed yet: %s", error)
            is_unfinished = True
        else:
            is_unfinished = False
            role.rows.write(Held(wishes.topics, now()))


# ── command line ──────────────────────────────────────────────────────────────────────────────────────────────────


def parsed() -> argparse.Namespace:
    """The options of all roles."""
    parser = argparse.ArgumentParser(prog="python -m soak.tree.roles", description=__doc__.partition("\n")[0])
    parser.add_argument("role", choices=["publisher", "in-turns", "plain", "subscriber", "guest"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--cluster", default="seriatim")
    parser.add_argument("--topics", required=True)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--rate", type=float, default=100.0, help="events per second")
    parser.add_argument("--weights", default="", help="how often each topic, compared with the others")
    parser.add_argument("--batch", type=int, default=1, help="number of events to take at a time")
    parser.add_argument("--visitor", action="store_true", help="subscribe again after a restart")
    parser.add_argument("--wander-s", type=float, default=0.0, help="average seconds between changes of the topics")
    parser.add_argument("--far-back", action="store_true", help="a guest may begin with the first event at any time")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {arguments.name} %(levelname)s %(message)s")
    return arguments


async def main() -> None:
    """Run one role to its end."""
    arguments = parsed()
    role = Role(arguments, "subscribers" if arguments.role == "subscriber" else "publishers")
    match arguments.role:
        case "publisher":
            await publish(role, arguments.rate)
        case "in-turns":
            await publish_in_turns(role, arguments.rate)
        case "plain":
            await publish_plainly(role, arguments.rate)
        case _:
            await subscribe(role, arguments.batch, arguments.wander_s)
    role.rows.write(Ended(now()))


if __name__ == "__main__":
    take_on_faults()
    run(main())
