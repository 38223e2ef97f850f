"""`python -m soak.overlay --minutes 10`: 9 brokers as processes under kill -9, freezes and restarts, clients that come
and go; exit code 1 if a promise was broken.

A round starts all brokers anew, lets clients at every one of them subscribe, lets them publish under faults, lets
everything arrive, and judges the logs. The steady clients are never harmed: they must miss nothing, but for what was
published by somebody who began while a broker was down, and then they are told of a gap. What is done follows from the
seed; what the machine does in between is its own.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from seriatim.model import SeriatimError
from soak.children import Child, check_alive, free_ports, kill_all, wait_for
from soak.loop import Orders, Outcome, play, round_folder, soak, soak_parser
from soak.overlay.verify import GUARANTEES, verify_overlay
from soak.tree.rows import now

# The root has three below it; the deepest brokers are three links away from it.
TREE = {"B1": "", "B2": "B1", "B3": "B1", "B4": "B1", "B5": "B2", "B6": "B2", "B7": "B3", "B8": "B5", "B9": "B7"}
ROUND_S = 60.0
RATE = 20.0  # events per second of all steady clients together
FAULT_EVERY_S = 3.0
SUSPECT_AFTER_MS = 4_000
START_S = 120.0
DRAIN_S = 300.0
DOWN_S = 1.5 * SUSPECT_AFTER_MS / 1000.0


class OverlaySystem:
    """The processes of one round."""

    def __init__(self, folder: Path, seed: int, rate: float, tree: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.random = random.Random(f"{seed}/{folder.name}")
        folder.mkdir(parents=True)
        tree = TREE if tree is None else tree
        places = zip(tree.items(), free_ports(len(tree)), strict=True)
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
        return Child(f"{kind} clients", "soak.overlay.child", words, self.folder / f"{kind}.log")

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
        check_alive(self.children)
        return all((self.folder / f"ready-{name}").exists() for name in self.brokers)

    def _is_steady(self) -> bool:
        check_alive(self.children)
        return (self.folder / "ready-steady").exists()

    async def harm(self, seconds: float, faults: Counter[str]) -> None:
        """Kill, freeze and start again, also two at a time; at the end all run."""
        end = now() + seconds
        down: dict[str, float] = {}
        while now() < end:
            await asyncio.sleep(min(self.random.expovariate(1.0 / FAULT_EVERY_S), max(0.0, end - now())))
            check_alive(self.children)
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
        """Stop publishing, wait until every event has arrived, then let all clients leave."""
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
        check_alive(self.children)
        return (self.folder / "drained-steady").exists()

    async def stop(self) -> None:
        """Stop every process that still runs."""
        kill_all(self.children)


async def run_round(orders: Orders) -> Outcome:
    """A new set of brokers."""
    system = OverlaySystem(round_folder(orders), orders.seed, orders.rate)
    return await play(system, orders, lambda: verify_overlay(system.folder))


def main(words: Sequence[str] | None = None) -> int:
    """Run the soak and print the results. Returns the exit code."""
    arguments = soak_parser("soak.overlay", __doc__, ROUND_S, RATE, "all steady clients together").parse_args(words)
    return soak(f"{len(TREE)} brokers", "soak.overlay", arguments, GUARANTEES, run_round)
