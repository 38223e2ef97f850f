"""`python -m soak.peers --minutes 10`: 32 peers as processes, joins, leaves, kill -9, freezes, restarts; exit code 1 if
a promise was broken.

A round starts all peers anew, waits until they hold a topic, lets them publish and react under faults, lets everything
arrive, and judges the logs. Every second peer is never harmed: it must miss nothing. What is done follows from the
seed; what the machine does in between is its own.
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

from seriatim.model import SeriatimError, TimedOut
from seriatim.runtime.loop import run
from soak.children import Child, free_port, wait_for
from soak.peer_verify import PeerVerdict, verify_peers
from soak.rows import now

PEERS = 32
ROUND_S = 60.0
RATE = 1.0  # events per second of each peer
REACTIONS = 0.2  # to each event, on average, by all peers together
FAULT_EVERY_S = 2.5
SUSPECT_AFTER_MS = 8_000
START_S = 240.0
DRAIN_S = 240.0
FROZEN_S = 1.5 * SUSPECT_AFTER_MS / 1000.0


class PeerRound(Struct):
    """What came of one round."""

    number: int
    folder: Path
    faults: Counter[str] = field(default_factory=Counter)
    verdict: PeerVerdict = field(default_factory=PeerVerdict)
    seconds: float = 0.0


class PeerSystem:
    """The processes of one round."""

    def __init__(self, folder: Path, count: int, seed: int, rate: float) -> None:
        self.folder = folder
        self.random = random.Random(f"{seed}/{folder.name}")
        folder.mkdir(parents=True)
        ports: list[int] = []
        while len(ports) < count:
            if (port := free_port()) not in ports:
                ports.append(port)
        lines = [f'{id} = "127.0.0.1:{port}"' for id, port in enumerate(ports)]
        options = f"[options]\nsuspect_after_ms = {SUSPECT_AFTER_MS}\n"
        (folder / "peers.toml").write_text("\n".join(["[peers]", *lines, "", options]), encoding="utf-8")
        self.unharmed = list(range(0, count, 2))
        self.children = [self._child(id, count, seed, rate) for id in range(count)]
        self.frozen: set[int] = set()

    def _child(self, id: int, count: int, seed: int, rate: float) -> Child:
        words = ["--folder", str(self.folder), "--id", str(id), "--seed", str(seed), "--rate", str(rate)]
        words += ["--reacts", str(REACTIONS / count), *(["--churns"] if id % 4 != 0 else [])]
        return Child(f"peer {id}", "soak.peer_child", words, self.folder / f"peer-{id}.log")

    async def start(self) -> None:
        """All of them, until each holds the topic; nothing is published before."""
        for child in self.children:
            child.start()
        await wait_for(self._all_ready, START_S, "all peers to hold the topic")
        (self.folder / "begin").touch()

    def _all_ready(self) -> bool:
        self.check_alive()
        return all((self.folder / f"ready-{id}-{each.pid}").exists() for id, each in enumerate(self.children))

    def check_alive(self) -> None:
        """Nobody ends by itself."""
        for child in self.children:
            if child.died:
                raise SeriatimError(f"{child.name} ended by itself with code {child.code}:\n{child.last_lines()}")

    async def harm(self, seconds: float, faults: Counter[str]) -> None:
        """Kill, freeze and start again, one after another; at the end all run."""
        end = now() + seconds
        down: dict[int, float] = {}
        while now() < end:
            await asyncio.sleep(min(self.random.expovariate(1.0 / FAULT_EVERY_S), max(0.0, end - now())))
            self.check_alive()
            self._bring_back(down, now())
            choices = [id for id in range(1, len(self.children), 2) if id not in down]
            if now() >= end or not choices:
                continue
            id = self.random.choice(choices)
            if self.random.random() < 0.8:
                faults["kill"] += 1
                self.children[id].kill()
                down[id] = now() + self.random.uniform(0.1, 1.5 * SUSPECT_AFTER_MS / 1000.0)
            else:
                faults["freeze"] += 1
                self.children[id].freeze()
                self.frozen.add(id)
                down[id] = now() + FROZEN_S
        self._bring_back(down, float("inf"))

    def _bring_back(self, down: dict[int, float], until: float) -> None:
        for id in [id for id, at in down.items() if at <= until]:
            del down[id]
            if id in self.frozen:
                self.frozen.discard(id)
                self.children[id].thaw()
            else:
                self.children[id].start()

    async def drain(self) -> None:
        """No more publications; all that were made arrive everywhere; all leave."""
        await wait_for(self._all_ready, START_S, "all peers to be back")
        (self.folder / "stop").touch()
        count = len(self.children)
        await wait_for(lambda: self._drained() == count, DRAIN_S, "all publications to be received by everybody")
        (self.folder / "end").touch()
        for child in self.children:
            child.wanted = False
        await wait_for(lambda: not any(each.running for each in self.children), DRAIN_S, "all peers to end")
        for child in self.children:
            if child.code != 0:
                raise SeriatimError(f"{child.name} ended with code {child.code}:\n{child.last_lines()}")

    def _drained(self) -> int:
        self.check_alive()
        return sum((self.folder / f"drained-{id}").exists() for id in range(len(self.children)))

    def stop(self) -> None:
        """Whatever still runs."""
        for child in self.children:
            if child.running:
                child.kill()


async def run_peers_round(
    folder: Path, number: int, count: int, seconds: float, seed: int, rate: float = RATE
) -> PeerRound:
    """A round from beginning to end. Whatever goes wrong in it becomes a violation."""
    began = now()
    result = PeerRound(number, folder / f"round-{number:03}")
    system = PeerSystem(result.folder, count, seed, rate)
    trouble: list[str] = []
    try:
        await system.start()
        await system.harm(seconds, result.faults)
        await system.drain()
    except TimedOut as error:
        trouble.append(f"stuck: {error}")
    except SeriatimError as error:
        trouble.append(f"died: {error}")
    finally:
        system.stop()
    result.verdict = verify_peers(result.folder, system.unharmed)
    result.verdict.violations = trouble + result.verdict.violations
    result.seconds = now() - began
    if result.verdict.violations:
        (result.folder / "violations.txt").write_text("\n".join(result.verdict.violations) + "\n", encoding="utf-8")
    return result


def main(words: Sequence[str] | None = None) -> int:
    """Run, print, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m soak.peers", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--peers", type=int, default=PEERS)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--round-s", type=float, default=ROUND_S, help="seconds of faults in a round")
    parser.add_argument("--rate", type=float, default=RATE, help="events per second of each peer")
    parser.add_argument("--folder", type=Path, default=None, help="keep everything here (default: a temporary folder)")
    arguments = parser.parse_args(words)
    if arguments.minutes <= 0 or arguments.peers < 4 or arguments.round_s <= 0 or arguments.rate <= 0:
        parser.error("give minutes, seconds and a rate above 0, and at least 4 peers")
    seed = random.SystemRandom().getrandbits(31) if arguments.seed is None else arguments.seed
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="seriatim-soak-"))
    say(f"soak of {arguments.peers} peers, {arguments.minutes:g} minutes, seed {seed}; files in {folder}")
    try:
        rounds = run(_soak(arguments, folder, seed))
    except KeyboardInterrupt:
        say(f"\ninterrupted; files kept in {folder}")
        return 130
    failed = [each for each in rounds if each.verdict.violations]
    _show(rounds)
    for each in failed:
        again = f"python -m soak.peers --peers {arguments.peers} --seed {seed} --round-s {arguments.round_s:g}"
        say(f"round {each.number}: history kept in {each.folder}; the same plan again: {again}")
    if not failed and arguments.folder is None:
        shutil.rmtree(folder)
    return 1 if failed else 0


async def _soak(arguments: argparse.Namespace, folder: Path, seed: int) -> list[PeerRound]:
    end = now() + 60.0 * arguments.minutes
    rounds: list[PeerRound] = []
    while not rounds or now() < end:
        seconds = min(arguments.round_s, max(10.0, end - now()))
        result = await run_peers_round(folder, len(rounds) + 1, arguments.peers, seconds, seed, rate=arguments.rate)
        rounds.append(result)
        verdict = result.verdict
        faults = ", ".join(f"{count} {kind}s" for kind, count in sorted(result.faults.items())) or "no faults"
        say(
            f"round {result.number}: {faults}, {verdict.lives} lives, {verdict.published:,} published, "
            f"{verdict.notified:,} notified, {verdict.stable} peers were there all the time, "
            f"{result.seconds:.0f} s: {'broken' if verdict.violations else 'all promises kept'}"
        )
        for line in verdict.violations[:10]:
            say(f"  {line}")
        if not verdict.violations:
            shutil.rmtree(result.folder)
    return rounds


def _show(rounds: Sequence[PeerRound]) -> None:
    faults: Counter[str] = Counter()
    for each in rounds:
        faults += each.faults
    verdicts = [each.verdict for each in rounds]
    say(f"\n{len(rounds)} rounds: {', '.join(f'{count} {kind}s' for kind, count in sorted(faults.items()))}")
    say(f"published {sum(each.published for each in verdicts):,}, notified {sum(each.notified for each in verdicts):,}")
    say(f"unharmed peers that were suspected: {sum(len(each.suspected) for each in verdicts)}")
    for name in ("causal", "fifo", "integrity"):
        answers = Counter(each.answers.get(name, "not judged") for each in verdicts)
        say(f"{name:<10} {', '.join(f'{answer} in {count} rounds' for answer, count in sorted(answers.items()))}")
    say(f"violations {sum(len(each.violations) for each in verdicts)}")


def say(line: str) -> None:
    """One line, at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
