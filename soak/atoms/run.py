"""`python -m soak.atoms --minutes 10`: sequencing atoms as processes, killed and started again while topics are joined
and left, with old journals and second processes; exit code 1 if a promise was broken.

A round starts a broker and stations anew. Steady subscribers hold their topics all the time, and publish and react;
guests come, change what they hold, and go: in an orderly way, or by kill -9. Stations are killed meanwhile, and started
again from their journals; with an older copy, with none, or as a second process, they must end. Then everything
arrives, and the logs are judged. Rounds keep causal order, and total order only, in turn. What is done follows from the
seed; what the machine does in between is its own.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import structs

import seriatim
from seriatim.audit import audit, read_history
from seriatim.brokers.nats.server import NatsServer
from seriatim.cli.cluster import Cluster, find_cluster
from seriatim.model import History, RequestRefused, SeriatimError, TimedOut
from soak.children import Child, free_port, free_ports, kill_all, wait_for
from soak.harm import kill
from soak.journals import copy_journal, replaced
from soak.loop import Judged, Orders, Outcome, play, round_folder, soak, soak_parser
from soak.refusals import Refusal, must_end, until_ready
from soak.tree.rows import now

NODES = ("one", "two", "three")
TOPICS = ("red", "green", "blue", "grey")
STEADY = 4
ROUND_S = 30.0
RATE = 20.0  # events per second of each steady subscriber
FAULT_EVERY_S = 2.0
FAULTS = {"kill": 0.76, "stale-journal": 0.12, "second-process": 0.12}
BEHIND = "Put the newest journal back and start again"
CLUSTER_NAME = "seriatim"
REFUSED_S = 30.0  # at once, but a process must start on a busy machine
LOOK_S = 0.2
QUIET_S = 5.0  # a station that says nothing of its journal for so long has nothing to do
DOWN_S = 1.5  # at most
GUEST_EVERY_S = 2.0
GUEST_S = 4.0  # at most
TIMEOUT_S = 120.0
TOTAL = ("fifo", "per-topic", "tno", "integrity", "completeness")
CAUSAL = (*TOTAL, "fifo-across-topics", "causal", "acyclic")


def journal_folder(folder: Path, name: str) -> Path:
    """Where the stations whose file is in this folder keep their journals."""
    return folder / f"journal-{name}"


class Steady:
    """A client that stays for the whole round: it holds topics, publishes, and reacts to notifications."""

    def __init__(self, bus: seriatim.Bus, topics: Sequence[str], dice: random.Random) -> None:
        self.bus = bus
        self.topics = topics
        self.dice = dice
        self.last: dict[str, int] = {}  # by topic: the last number it was notified of
        self.published: dict[str, int] = {}  # by topic: the last number one of its own was given
        self.refused = 0

    async def publish(self, rate: float, is_over: asyncio.Event) -> None:
        """Publish from time to time on any topic, also on topics without subscribers."""
        while not is_over.is_set():
            await asyncio.sleep(self.dice.expovariate(rate))
            await self._publish(self.dice.choice(TOPICS))

    async def read(self, events: seriatim.Subscription) -> None:
        """Read every event, and answer some of them."""
        async for event in events:
            self.last[event.topic] = event.number
            if event.data == b"first" and self.dice.random() < 0.3:
                await self._publish(self.dice.choice(TOPICS), b"answer")

    async def _publish(self, topic: str, data: bytes = b"first") -> None:
        try:
            receipt = await self.bus.publish(topic, data)
        except RequestRefused:
            self.refused += 1
        else:
            self.published[topic] = max(receipt.number, self.published.get(topic, 0))


class Stage:
    """One round: the broker, the stations, and guests as processes; those who are there all the time in this one."""

    def __init__(
        self, folder: Path, seed: int, rate: float, causal: bool, weights: dict[str, float] | None = None
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.broker = NatsServer(folder / "nats")
        self.causal = causal
        self.stations: dict[str, Child] = {}
        self.guests: list[Child] = []
        self.addresses: dict[str, str] = {}
        self.admins: dict[str, str] = {}
        self.refusals: list[Refusal] = []
        self._weights = FAULTS if weights is None else weights
        self._plan = f"{seed}/{folder.name}"
        self._rate = rate
        self._steady: list[Steady] = []
        self._subscriptions: list[seriatim.Subscription] = []
        self._readers: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.Task[None]] = []
        self._is_over = asyncio.Event()

    async def start(self) -> None:
        """The broker, then the stations, then the steady subscribers, until each is ready."""
        await asyncio.to_thread(self.broker.launch)
        ports = [f"127.0.0.1:{port}" for port in free_ports(2 * len(NODES))]
        self.addresses = dict(zip(NODES, ports, strict=False))
        self.admins = dict(zip(NODES, reversed(ports), strict=False))
        config = self._configure(self.folder, self.addresses)
        for name in NODES:
            words = ["serve", "--config", config, "--node", name, "--admin", self.admins[name]]
            words += ["--ready-file", str(self.folder / f"ready-{name}")]
            self.stations[name] = Child(name, "soak.launch", words, self.folder / f"{name}.log")
            self.stations[name].start()
        await wait_for(self._is_ready, TIMEOUT_S, "all stations to serve")
        for index in range(STEADY):
            await self._settle(index, random.Random(f"{self._plan}/steady/{index}"))

    def _configure(self, folder: Path, addresses: dict[str, str]) -> str:
        """Write the file of the cluster, with journals in the same folder."""
        lines = [f'broker = "{self.broker.url}"', 'order = "atoms"', f"causal = {str(self.causal).lower()}"]
        for name, address in addresses.items():
            lines.append(f'nodes.{name}.address = "{address}"')
            lines.append(f'nodes.{name}.journal = "file:{journal_folder(folder, name)}"')
        lines += ["[times]", "retry_ms = 200", "subscriber_lease_ms = 3000"]
        (folder / "cluster.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(folder / "cluster.toml")

    async def _settle(self, index: int, dice: random.Random) -> None:
        """Start one more steady subscriber."""
        log = self.folder / "log"
        bus = seriatim.connect(
            self.broker.url, order="atoms", name=f"steady{index}", publication_log=log, timeout_s=TIMEOUT_S
        )
        await bus.__aenter__()
        steady = Steady(bus, dice.sample(TOPICS, 3), dice)
        self._steady.append(steady)
        events = bus.subscribe(*steady.topics, log=log)
        await events.__aenter__()
        self._subscriptions.append(events)
        self._readers.append(asyncio.create_task(steady.read(events)))

    def _is_ready(self) -> bool:
        self.check_alive()
        return all((self.folder / f"ready-{name}").exists() for name in NODES)

    def check_alive(self) -> None:
        """Fail if a process has ended by itself."""
        for child in (*self.stations.values(), *self.guests):
            if child.died and child.code != 0:
                raise SeriatimError(f"{child.name} ended by itself with code {child.code}:\n{child.last_lines()}")
        for task in (*self._readers, *self._writers):
            if task.done():
                task.result()  # raises what ended it
                if not self._is_over.is_set():
                    raise SeriatimError("a steady subscriber ended by itself")

    def publish(self) -> None:
        """Let the steady subscribers publish from now on."""
        self._writers = [asyncio.create_task(each.publish(self._rate, self._is_over)) for each in self._steady]

    async def harm(self, seconds: float, faults: Counter[str]) -> None:
        """Publish, kill and invite guests. At the end all stations run."""
        self.publish()
        await asyncio.gather(
            self._kill(seconds, random.Random(f"{self._plan}/kills"), faults),
            self._invite(seconds, random.Random(f"{self._plan}/guests"), faults),
        )

    async def _kill(self, seconds: float, dice: random.Random, faults: Counter[str]) -> None:
        """Kill stations, one or two at a time, and start them again."""
        end = now() + seconds
        while now() < end:
            await asyncio.sleep(min(dice.expovariate(1.0 / FAULT_EVERY_S), max(0.0, end - now())))
            self.check_alive()
            fault = dice.choices(list(self._weights), list(self._weights.values()))[0]
            victims = dice.sample(NODES, dice.choice((1, 1, 1, 2)) if fault == "kill" else 1)
            faults[fault] += len(victims)
            match fault:
                case "kill":
                    down_s = dice.uniform(0.0, DOWN_S)
                    await asyncio.gather(*(kill(self.stations[name], down_s) for name in victims))
                case "stale-journal":
                    faults[fault] -= not await self.age_journal(victims[0])
                case _:
                    await self.claim(victims[0], has_copy=dice.random() < 0.5)

    async def age_journal(self, name: str) -> bool:
        """An older copy of a station's journal is restored while it is away, then none at all: each is refused.

        False: nothing passes this station now, so its journal does not grow older.
        """
        station, journal = self.stations[name], journal_folder(self.folder, name)
        copy = journal.with_name(f"{journal.name}-copy")
        await until_ready(name, self.admins[name], TIMEOUT_S)
        copy_journal(journal, copy)
        async with find_cluster(self.broker.url, CLUSTER_NAME, TIMEOUT_S) as cluster:
            for _ in range(2):  # what it says next it may have counted before the copy
                if not await self._says_more(cluster, name):
                    return False
        station.kill()
        for old in (copy, None):
            with replaced(journal, old):
                self.refusals.append(await must_end(station, "stale-journal", name, (BEHIND,), REFUSED_S))
        station.start()
        return True

    async def _says_more(self, cluster: Cluster, name: str) -> bool:
        """Wait until a station has told the broker that its journal has grown. False: it has not for a while."""
        lives = cluster.broker.lives
        assert lives is not None, "JetStream keeps them"
        said = (await lives.registered("node"))[name].numbers
        give_up_at = now() + QUIET_S
        while (await lives.registered("node"))[name].numbers == said:
            self.check_alive()
            if now() > give_up_at:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def claim(self, name: str, has_copy: bool) -> None:
        """A second process of a station that runs, elsewhere: with a copy of its journal, or with none."""
        station = self.stations[name]
        await until_ready(name, self.admins[name], TIMEOUT_S)
        folder = self.folder / f"second-{len(self.refusals)}"
        folder.mkdir()
        if has_copy:
            copy_journal(journal_folder(self.folder, name), journal_folder(folder, name))
        config = self._configure(folder, self.addresses | {name: f"127.0.0.1:{free_port()}"})
        second = Child(f"second {name}", "soak.launch", ["serve", "--config", config, "--node", name], folder / "log")
        taken = f"is run by another process (process {station.pid} "
        self.refusals.append(await must_end(second, "second-process", name, (taken,), REFUSED_S))
        self.check_alive()
        await until_ready(name, self.admins[name], TIMEOUT_S)

    async def _invite(self, seconds: float, dice: random.Random, faults: Counter[str]) -> None:
        """Start guests, each for a while, and kill half of them."""
        end = now() + seconds
        while now() < end:
            await asyncio.sleep(min(dice.expovariate(1.0 / GUEST_EVERY_S), max(0.0, end - now())))
            number = len(self.guests)
            words = ["--url", self.broker.url, "--log", str(self.folder / "log"), "--seed", f"{number}"]
            stay_s = dice.uniform(1.0, GUEST_S)
            words += ["--seconds", f"{stay_s}"]
            guest = Child(f"guest {number}", "soak.atoms.guest", words, self.folder / f"guest-{number}.log")
            guest.start()
            self.guests.append(guest)
            faults["guest"] += 1
            if dice.random() < 0.5:
                asyncio.get_running_loop().call_later(stay_s, guest.kill)
                faults["killed guest"] += 1

    async def drain(self) -> None:
        """Stop publishing, wait until every event has arrived, then let all clients leave."""
        self._is_over.set()
        await asyncio.gather(*self._writers)
        try:
            await wait_for(self._is_complete, TIMEOUT_S, "everything to arrive everywhere")
        except TimedOut as error:
            waits = [str(each.bus.explain()) for each in self._steady]
            raise TimedOut(f"{error}: {'; '.join(waits)}") from None
        await self._leave()

    def _is_complete(self) -> bool:
        """Whether each has got the last event of all its topics."""
        self.check_alive()
        last: dict[str, int] = {}
        for each in self._steady:
            for topic, number in each.published.items():
                last[topic] = max(number, last.get(topic, 0))
        return all(each.last.get(topic, 0) >= last.get(topic, 0) for each in self._steady for topic in each.topics)

    async def _leave(self) -> None:
        for task in (*self._readers, *self._writers):
            task.cancel()
        for events in self._subscriptions:
            await events.close()
        for each in self._steady:
            await each.bus.close()

    async def stop(self) -> None:
        """Stop every process that still runs."""
        with suppress(SeriatimError):  # it has been said already
            await self._leave()
        kill_all((*self.guests, *self.stations.values()))
        await self.broker.stop()


def judge(folder: Path, causal: bool) -> Judged:
    """What the logs show. Guests that were killed never said what they had left: only of the others is known that
    nothing is missing. Nor did they say whether their last event was taken, and under which number: subscribers know,
    and one that nobody was notified of is left out."""
    history = read_history(folder / "log")
    report = audit(history)
    numbers = {row.event_id: row.number for row in history.deliveries}
    steady = History(
        [row for row in history.deliveries if row.subscriber.startswith("steady")],
        [
            row if row.number is not None else structs.replace(row, number=numbers[row.event_id])
            for row in history.publications
            if row.number is not None or row.event_id in numbers
        ],
        [row for row in history.subscriptions if row.subscriber.startswith("steady")],
    )
    if report.verdicts["completeness"].answer == "unknown":
        report.verdicts["completeness"] = audit(steady).verdicts["completeness"]
    verdict = Judged()
    verdict.take(history, CAUSAL if causal else TOTAL, report)
    return verdict


async def run_round(orders: Orders, causal: bool) -> Outcome:
    """A new broker, new stations and new steady subscribers."""
    stage = Stage(round_folder(orders), orders.seed, orders.rate, causal, orders.weights(FAULTS))
    return await play(stage, orders, lambda: judge(stage.folder, causal), "causal" if causal else "total")


def main(words: Sequence[str] | None = None) -> int:
    """Run the soak and print the results. Returns the exit code."""
    arguments = soak_parser("soak.atoms", __doc__, ROUND_S, RATE, "each steady subscriber", FAULTS).parse_args(words)
    return soak("atoms", "soak.atoms", arguments, CAUSAL, lambda orders: run_round(orders, orders.number % 2 == 1))
