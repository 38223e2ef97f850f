"""`python -m soak.atoms --minutes 10`: sequencing atoms as processes, killed and started again while topics are joined
and left; exit code 1 if a promise was broken.

A round starts a broker and stations anew. Steady subscribers hold their topics all the time, and publish and react;
guests come, change what they hold, and go: in an orderly way, or by kill -9. Stations are killed meanwhile, and started
again from their journals. Then everything arrives, and the logs are judged. Rounds keep causal order, and total order
only, in turn. What is done follows from the seed; what the machine does in between is its own.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, field

import seriatim
from seriatim.audit import audit, read_history
from seriatim.brokers.nats_server import NatsServer
from seriatim.model import History, RequestRefused, SeriatimError, TimedOut
from seriatim.runtime.loop import run
from soak.children import Child, free_port, wait_for
from soak.rows import now

NODES = ("one", "two", "three")
TOPICS = ("red", "green", "blue", "grey")
STEADY = 4
ROUND_S = 30.0
RATE = 20.0  # events per second of each steady subscriber
FAULT_EVERY_S = 2.0
DOWN_S = 1.5  # at most
GUEST_EVERY_S = 2.0
GUEST_S = 4.0  # at most
TIMEOUT_S = 120.0
TOTAL = ("fifo", "per-topic", "tno", "integrity", "completeness")
CAUSAL = (*TOTAL, "fifo-across-topics", "causal", "acyclic")


class AtomsRound(Struct):
    """What came of one round."""

    number: int
    folder: Path
    causal: bool
    faults: Counter[str] = field(default_factory=Counter)
    published: int = 0
    notified: int = 0
    answers: dict[str, str] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Steady:
    """Somebody who is there all the time: holds topics, publishes, and reacts to what it is notified of."""

    def __init__(self, bus: seriatim.Bus, topics: Sequence[str], dice: random.Random) -> None:
        self.bus = bus
        self.topics = topics
        self.dice = dice
        self.last: dict[str, int] = {}  # by topic: the last number it was notified of
        self.published: dict[str, int] = {}  # by topic: the last number one of its own was given
        self.refused = 0

    async def publish(self, rate: float, is_over: asyncio.Event) -> None:
        """Now and then, on any topic; nobody may hold it just now."""
        while not is_over.is_set():
            await asyncio.sleep(self.dice.expovariate(rate))
            await self._publish(self.dice.choice(TOPICS))

    async def read(self, events: seriatim.Subscription) -> None:
        """Everything; some of it is answered."""
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
    """The processes of one round: the broker, the stations, and guests."""

    def __init__(self, folder: Path, seed: int, causal: bool) -> None:
        self.folder = folder
        self.dice = random.Random(f"{seed}/{folder.name}")
        folder.mkdir(parents=True)
        self.broker = NatsServer(folder / "nats")
        self.causal = causal
        self.stations: dict[str, Child] = {}
        self.guests: list[Child] = []

    async def start(self) -> None:
        """The broker, then the stations, until each is ready."""
        await asyncio.to_thread(self.broker.launch)
        ports: set[int] = set()
        while len(ports) < len(NODES):
            ports.add(free_port())
        lines = [f'broker = "{self.broker.url}"', 'order = "atoms"', f"causal = {str(self.causal).lower()}"]
        lines += [f'nodes.{name}.address = "127.0.0.1:{port}"' for name, port in zip(NODES, sorted(ports), strict=True)]
        lines += ["[times]", "retry_ms = 200", "subscriber_lease_ms = 3000"]
        (self.folder / "cluster.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        for name in NODES:
            words = ["serve", "--config", str(self.folder / "cluster.toml"), "--node", name]
            words += ["--ready-file", str(self.folder / f"ready-{name}")]
            self.stations[name] = Child(name, "seriatim.cli", words, self.folder / f"{name}.log")
            self.stations[name].start()
        await wait_for(self._is_ready, TIMEOUT_S, "all stations to serve")

    def _is_ready(self) -> bool:
        self.check_alive()
        return all((self.folder / f"ready-{name}").exists() for name in NODES)

    def check_alive(self) -> None:
        """Nobody ends by itself."""
        for child in (*self.stations.values(), *self.guests):
            if child.died and child.code != 0:
                raise SeriatimError(f"{child.name} ended by itself with code {child.code}:\n{child.last_lines()}")

    async def harm(self, seconds: float, faults: Counter[str]) -> None:
        """Kill stations and start them again, one after another or two at a time; at the end all run."""
        end = now() + seconds
        while now() < end:
            await asyncio.sleep(min(self.dice.expovariate(1.0 / FAULT_EVERY_S), max(0.0, end - now())))
            self.check_alive()
            victims = self.dice.sample(NODES, self.dice.choice((1, 1, 1, 2)))
            for name in victims:
                self.stations[name].kill()
                faults["kill"] += 1
            await asyncio.sleep(self.dice.uniform(0.0, DOWN_S))
            for name in victims:
                self.stations[name].start()

    async def invite(self, seconds: float, faults: Counter[str]) -> None:
        """Guests, each for a while; half of them are killed."""
        end = now() + seconds
        while now() < end:
            await asyncio.sleep(min(self.dice.expovariate(1.0 / GUEST_EVERY_S), max(0.0, end - now())))
            number = len(self.guests)
            words = ["--url", self.broker.url, "--log", str(self.folder / "log"), "--seed", f"{number}"]
            stay_s = self.dice.uniform(1.0, GUEST_S)
            words += ["--seconds", f"{stay_s}"]
            guest = Child(f"guest {number}", "soak.atoms_guest", words, self.folder / f"guest-{number}.log")
            guest.start()
            self.guests.append(guest)
            faults["guest"] += 1
            if self.dice.random() < 0.5:
                asyncio.get_running_loop().call_later(stay_s, guest.kill)
                faults["killed guest"] += 1

    async def stop(self) -> None:
        """Whatever still runs."""
        for child in (*self.guests, *self.stations.values()):
            if child.running:
                child.kill()
        await self.broker.stop()


async def run_atoms_round(
    folder: Path, number: int, seconds: float, seed: int, rate: float, causal: bool
) -> AtomsRound:
    """A round from beginning to end. Whatever goes wrong in it becomes a violation."""
    began = now()
    result = AtomsRound(number, folder / f"round-{number:03}", causal)
    stage = Stage(result.folder, seed, causal)
    try:
        await stage.start()
        await _perform(stage, result, seconds, rate)
    except TimedOut as error:
        result.violations.append(f"stuck: {error}")
    except SeriatimError as error:
        result.violations.append(f"died: {error}")
    finally:
        await stage.stop()
    if (result.folder / "log").exists():
        judge(result)
    result.seconds = now() - began
    return result


async def _perform(stage: Stage, result: AtomsRound, seconds: float, rate: float) -> None:
    log = stage.folder / "log"
    async with asyncio.TaskGroup() as tasks:
        everybody, readers = [], []
        buses, subscriptions = [], []
        for index in range(STEADY):
            dice = random.Random(f"{stage.dice.random()}")
            bus = seriatim.connect(
                stage.broker.url, order="atoms", name=f"steady{index}", publication_log=log, timeout_s=TIMEOUT_S
            )
            await bus.__aenter__()
            buses.append(bus)
            topics = dice.sample(TOPICS, 3)
            events = bus.subscribe(*topics, log=log)
            await events.__aenter__()
            subscriptions.append(events)
            everybody.append(Steady(bus, topics, dice))
            readers.append(tasks.create_task(everybody[-1].read(events)))
        is_over = asyncio.Event()
        writers = [tasks.create_task(each.publish(rate, is_over)) for each in everybody]
        await asyncio.gather(stage.harm(seconds, result.faults), stage.invite(seconds, result.faults))
        is_over.set()
        await asyncio.gather(*writers)
        try:
            await wait_for(lambda: is_complete(everybody), TIMEOUT_S, "everything to arrive everywhere")
        except TimedOut as error:
            waits = [str(each.bus.explain()) for each in everybody]
            raise TimedOut(f"{error}: {'; '.join(waits)}") from None
        finally:
            for reader in readers:
                reader.cancel()
            for events in subscriptions:
                await events.close()
            for bus in buses:
                await bus.close()


def is_complete(everybody: Sequence[Steady]) -> bool:
    """Whether each has got the last event of all its topics."""
    last: dict[str, int] = {}
    for each in everybody:
        for topic, number in each.published.items():
            last[topic] = max(number, last.get(topic, 0))
    return all(each.last.get(topic, 0) >= last.get(topic, 0) for each in everybody for topic in each.topics)


def judge(result: AtomsRound) -> None:
    """What the logs show. Guests that were killed never said what they had left: only of the others is known that
    nothing is missing."""
    history = read_history(result.folder / "log")
    report = audit(history)
    steady = History(
        [row for row in history.deliveries if row.subscriber.startswith("steady")],
        history.publications,
        [row for row in history.subscriptions if row.subscriber.startswith("steady")],
    )
    if report.verdicts["completeness"].answer == "unknown":
        report.verdicts["completeness"] = audit(steady).verdicts["completeness"]
    result.published, result.notified = len(history.publications), len(history.deliveries)
    guarantees = CAUSAL if result.causal else TOTAL
    result.answers = {name: report.verdicts[name].answer for name in guarantees}
    for name, answer in result.answers.items():
        if answer != "valid":
            result.violations.append(f"{name}: {answer}: {report.verdicts[name].reason}")
    result.violations += [f"{each.name}: {each.sentence}" for each in report.anomalies_against(guarantees)]
    if result.violations:
        text = "\n".join(result.violations) + "\n"
        (result.folder / "violations.txt").write_text(text, encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """Run, print, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m soak.atoms", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--round-s", type=float, default=ROUND_S, help="seconds of faults in a round")
    parser.add_argument("--rate", type=float, default=RATE, help="events per second of each steady subscriber")
    parser.add_argument("--folder", type=Path, default=None, help="keep everything here (default: a temporary folder)")
    arguments = parser.parse_args(words)
    if arguments.minutes <= 0 or arguments.round_s <= 0 or arguments.rate <= 0:
        parser.error("give minutes, seconds and a rate above 0")
    seed = random.SystemRandom().getrandbits(31) if arguments.seed is None else arguments.seed
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="seriatim-soak-"))
    say(f"soak of atoms, {arguments.minutes:g} minutes, seed {seed}; files in {folder}")
    try:
        rounds = run(_soak(arguments, folder, seed))
    except KeyboardInterrupt:
        say(f"\ninterrupted; files kept in {folder}")
        return 130
    failed = [each for each in rounds if each.violations]
    faults: Counter[str] = Counter()
    for each in rounds:
        faults += each.faults
    say(f"\n{len(rounds)} rounds: {', '.join(f'{count} {kind}s' for kind, count in sorted(faults.items()))}")
    say(f"published {sum(each.published for each in rounds):,}, notified {sum(each.notified for each in rounds):,}")
    for name in CAUSAL:
        answers = Counter(each.answers[name] for each in rounds if name in each.answers)
        said = ", ".join(f"{answer} in {count} rounds" for answer, count in sorted(answers.items())) or "not judged"
        say(f"{name:<18} {said}")
    say(f"violations {sum(len(each.violations) for each in rounds)}")
    for each in failed:
        say(f"round {each.number}: history kept in {each.folder}; the same plan again: --seed {seed}")
    if not failed and arguments.folder is None:
        shutil.rmtree(folder)
    return 1 if failed else 0


async def _soak(arguments: argparse.Namespace, folder: Path, seed: int) -> list[AtomsRound]:
    end = now() + 60.0 * arguments.minutes
    rounds: list[AtomsRound] = []
    while not rounds or now() < end:
        seconds = min(arguments.round_s, max(5.0, end - now()))
        number = len(rounds) + 1
        result = await run_atoms_round(folder, number, seconds, seed, arguments.rate, causal=number % 2 == 1)
        rounds.append(result)
        faults = ", ".join(f"{count} {kind}s" for kind, count in sorted(result.faults.items())) or "no faults"
        say(
            f"round {number}: {'causal' if result.causal else 'total'}, {faults}, {result.published:,} published, "
            f"{result.notified:,} notified, {result.seconds:.0f} s: "
            f"{'broken' if result.violations else 'all promises kept'}"
        )
        for line in result.violations[:10]:
            say(f"  {line}")
        if not result.violations:
            shutil.rmtree(result.folder)
    return rounds


def say(line: str) -> None:
    """One line, at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
