"""`python -m soak.overlay --minutes 10`: 9 brokers as processes under kill -9, freezes and restarts, clients that come
and go; exit code 1 if a promise was broken.

A round starts all brokers anew, lets clients at every one of them subscribe, lets them publish under faults, lets
everything arrive, and judges the logs. The steady clients are never harmed: they must miss nothing, but for what was
published by somebody who began while a broker was down, and then they are told of a gap. What is done follows from the
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
from soak.overlay_verify import GUARANTEES, OverlayVerdict, verify_overlay
from soak.rows import now

# The root has three below it; the deepest brokers are three links away from it.
TREE = {"B1": "", "B2": "B1", "B3": "B1", "B4": "B1", "B5": "B2", "B6": "B2", "B7": "B3", "B8": "B5", "B9": "B7"}
ROUND_S = 60.0
RATE = 20.0  # events per second of all steady clients together
FAULT_EVERY_S = 3.0
SUSPECT_AFTER_MS = 4_000
START_S = 120.0
DRAIN_S = 300.0
DOWN_S = 1.5 * SUSPECT_AFTER_MS / 1000.0


class OverlayRound(Struct):
    """What came of one round."""

    number: int
    folder: Path
    faults: Counter[str] = field(default_factory=Counter)
    verdict: OverlayVerdict = field(default_factory=OverlayVerdict)
    seconds: float = 0.0


class OverlaySystem:
    """The processes of one round."""

    def __init__(self, folder: Path, seed: int, rate: float, tree: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.random = random.Random(f"{seed}/{folder.name}")
        folder.mkdir(parents=True)
        tree = TREE if tree is None else tree
        ports: list[int] = []
        while len(ports) < len(tree):
            if (port := free_port()) not in ports:
                ports.append(port)
        places = zip(tree.items(), ports, strict=True)
        lines = [f'{name} = {{ address = "127.0.0.1:{port}", parent = "{above}" }}' for (name, above), port in places]
        text = f"[options]\nsuspect_after_ms = {SUSPECT_AFTER_MS}\n\n[brokers]\n" + "\n".join(lines) + "\n"
        (folder / "overlay.toml").write_text(text, encoding="utf-8")
        self.brokers = {name: self._broker(name) for name in tree}
        self.steady = self._clients("steady", seed, rate)
        self.fleeting = self._clients("fleeting", seed, rate)
        self.frozen: set[str] = set()

    @property
    def children(self) -> list[Child]:
        """All processes."""
        return [*self.brokers.values(), self.steady, self.fleeting]

    def _broker(self, name: str) -> Child:
        config, ready = str(self.folder / "overlay.toml"), str(self.folder / f"ready-{name}")
        words = ["broker", "--config", config, "--id", name, "--ready-file", ready]
        return Child(f"broker {name}", "soak.launch", words, self.folder / f"broker-{name}.log")

    def _clients(self, kind: str, seed: int, rate: float) -> Child:
        words = ["--folder", str(self.folder), "--kind", kind, "--seed", str(seed), "--rate", str(rate)]
        return Child(f"{kind} clients", "soak.overlay_child", words, self.folder / f"{kind}.log")

    async def start(self) -> None:
        """All of them, until the steady clients have subscribed; nothing is published before."""
        for broker in self.brokers.values():
            broker.start()
        await wait_for(self._brokers_ready, START_S, "all brokers to listen")
        self.steady.start()
        await wait_for(self._is_steady, START_S, "the steady clients to subscribe")
        (self.folder / "begin").touch()
        self.fleeting.start()

    def _brokers_ready(self) -> bool:
        self.check_alive()
        return all((self.folder / f"ready-{name}").exists() for name in self.brokers)

    def _is_steady(self) -> bool:
        self.check_alive()
        return (self.folder / "ready-steady").exists()

    def check_alive(self) -> None:
        """Nobody ends by itself."""
        for child in self.children:
            if child.died:
                raise SeriatimError(f"{child.name} ended by itself with code {child.code}:\n{child.last_lines()}")

    async def harm(self, seconds: float, faults: Counter[str]) -> None:
        """Kill, freeze and start again, also two at a time; at the end all run."""
        end = now() + seconds
        down: dict[str, float] = {}
        while now() < end:
            await asyncio.sleep(min(self.random.expovariate(1.0 / FAULT_EVERY_S), max(0.0, end - now())))
            self.check_alive()
            self._bring_back(down, now())
            choices = [name for name in self.brokers if name not in down]
            if now() >= end or not choices:
                continue
            dice = self.random.random()
            if dice < 0.2:
                faults["killed client"] += 1
                self.fleeting.kill()
                self.fleeting.start()
                continue
            name = self.random.choice(choices)
            if dice < 0.85:
                faults["kill"] += 1
                self.brokers[name].kill()
            else:
                faults["freeze"] += 1
                self.brokers[name].freeze()
                self.frozen.add(name)
            down[name] = now() + self.random.uniform(0.1, DOWN_S)
        self._bring_back(down, float("inf"))

    def _bring_back(self, down: dict[str, float], until: float) -> None:
        for name in [name for name, at in down.items() if at <= until]:
            del down[name]
            if name in self.frozen:
                self.frozen.discard(name)
                self.brokers[name].thaw()
            else:
                self.brokers[name].start()

    async def drain(self) -> None:
        """No more publications; all that were made arrive; all leave."""
        (self.folder / "stop").touch()
        self.fleeting.wanted = False
        await wait_for(lambda: not self.fleeting.running, DRAIN_S, "the fleeting clients to end")
        (self.folder / "fleeting-over").touch()
        await wait_for(self._drained, DRAIN_S, "everything that is owed to come")
        (self.folder / "end").touch()
        self.steady.wanted = False
        await wait_for(lambda: not self.steady.running, DRAIN_S, "the steady clients to end")
        for child in (self.steady, self.fleeting):
            if child.code != 0:
                raise SeriatimError(f"{child.name} ended with code {child.code}:\n{child.last_lines()}")
        for broker in self.brokers.values():
            await broker.end()
            if broker.code != 0:
                raise SeriatimError(f"{broker.name} ended with code {broker.code}:\n{broker.last_lines()}")

    def _drained(self) -> bool:
        self.check_alive()
        return (self.folder / "drained-steady").exists()

    def stop(self) -> None:
        """Whatever still runs."""
        for child in self.children:
            if child.running:
                child.kill()


async def run_overlay_round(folder: Path, number: int, seconds: float, seed: int, rate: float = RATE) -> OverlayRound:
    """A round from beginning to end. Whatever goes wrong in it becomes a violation."""
    began = now()
    result = OverlayRound(number, folder / f"round-{number:03}")
    system = OverlaySystem(result.folder, seed, rate)
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
    result.verdict = verify_overlay(result.folder)
    result.verdict.violations = trouble + result.verdict.violations
    result.seconds = now() - began
    if result.verdict.violations:
        (result.folder / "violations.txt").write_text("\n".join(result.verdict.violations) + "\n", encoding="utf-8")
    return result


def main(words: Sequence[str] | None = None) -> int:
    """Run, print, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m soak.overlay", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--round-s", type=float, default=ROUND_S, help="seconds of faults in a round")
    parser.add_argument("--rate", type=float, default=RATE, help="events per second of the steady clients")
    parser.add_argument("--folder", type=Path, default=None, help="keep everything here (default: a temporary folder)")
    arguments = parser.parse_args(words)
    if arguments.minutes <= 0 or arguments.round_s <= 0 or arguments.rate <= 0:
        parser.error("give minutes, seconds and a rate above 0")
    seed = random.SystemRandom().getrandbits(31) if arguments.seed is None else arguments.seed
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="seriatim-soak-"))
    say(f"soak of {len(TREE)} brokers, {arguments.minutes:g} minutes, seed {seed}; files in {folder}")
    try:
        rounds = run(_soak(arguments, folder, seed))
    except KeyboardInterrupt:
        say(f"\ninterrupted; files kept in {folder}")
        return 130
    failed = [each for each in rounds if each.verdict.violations]
    _show(rounds)
    for each in failed:
        again = f"python -m soak.overlay --seed {seed} --round-s {arguments.round_s:g}"
        say(f"round {each.number}: history kept in {each.folder}; the same plan again: {again}")
    if not failed and arguments.folder is None:
        shutil.rmtree(folder)
    return 1 if failed else 0


async def _soak(arguments: argparse.Namespace, folder: Path, seed: int) -> list[OverlayRound]:
    end = now() + 60.0 * arguments.minutes
    rounds: list[OverlayRound] = []
    while not rounds or now() < end:
        seconds = min(arguments.round_s, max(10.0, end - now()))
        result = await run_overlay_round(folder, len(rounds) + 1, seconds, seed, rate=arguments.rate)
        rounds.append(result)
        verdict = result.verdict
        faults = ", ".join(f"{count} {kind}s" for kind, count in sorted(result.faults.items())) or "no faults"
        say(
            f"round {result.number}: {faults}, {verdict.published:,} published, {verdict.notified:,} notified to "
            f"{verdict.subscriptions} subscriptions, {verdict.owed:,} owed, {verdict.gaps} told as gaps, "
            f"{result.seconds:.0f} s: {'broken' if verdict.violations else 'all promises kept'}"
        )
        for line in verdict.violations[:10]:
            say(f"  {line}")
        if not verdict.violations:
            shutil.rmtree(result.folder)
    return rounds


def _show(rounds: Sequence[OverlayRound]) -> None:
    faults: Counter[str] = Counter()
    for each in rounds:
        faults += each.faults
    verdicts = [each.verdict for each in rounds]
    say(f"\n{len(rounds)} rounds: {', '.join(f'{count} {kind}s' for kind, count in sorted(faults.items()))}")
    say(f"published {sum(each.published for each in verdicts):,}, notified {sum(each.notified for each in verdicts):,}")
    say(f"owed {sum(each.owed for each in verdicts):,}, told as gaps {sum(each.gaps for each in verdicts)}")
    for name in GUARANTEES:
        answers = Counter(each.answers.get(name, "not judged") for each in verdicts)
        say(f"{name:<10} {', '.join(f'{answer} in {count} rounds' for answer, count in sorted(answers.items()))}")
    say(f"violations {sum(len(each.violations) for each in verdicts)}")


def say(line: str) -> None:
    """One line, at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
