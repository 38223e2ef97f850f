"""`python -m soak.overlay --minutes 10`: 9 brokers as processes under kill -9, freezes and restarts, clients that come
and go, old journals and second processes; exit code 1 if a promise was broken.

A round starts all brokers anew, lets clients at every one of them subscribe, lets them publish under faults, lets
everything arrive, and judges the logs. The steady clients are never harmed: they must miss nothing, but for what was
published by somebody who began while a broker was down, and then they are told of a gap. What is done follows from the
seed; what the machine does in between is its own.

A broker that must not act (an older journal, none, a second process) is refused by what its neighbours know. So those
are not harmed while that is tried.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from seriatim.live.overlay.config import observe_broker
from seriatim.model import SeriatimError
from seriatim.runtime.net.security import SecurityOptions
from soak.children import Child, check_alive, free_port, free_ports, kill_all, wait_for
from soak.harm import Harm, freeze, kill
from soak.journals import appends_to, copy_journal, replaced
from soak.loop import Orders, Outcome, play, round_folder, soak, soak_parser
from soak.overlay.verify import GUARANTEES, verify_overlay
from soak.refusals import Refusal, must_end, until_connected
from soak.tree.rows import now

# The root has three below it; the deepest brokers are three links away from it.
TREE = {"B1": "", "B2": "B1", "B3": "B1", "B4": "B1", "B5": "B2", "B6": "B2", "B7": "B3", "B8": "B5", "B9": "B7"}
ROUND_S = 60.0
RATE = 20.0  # events per second of all steady clients together
FAULT_EVERY_S = 3.0
SUSPECT_AFTER_MS = 4_000
START_S = 240.0  # eleven Python processes at once, on a machine that does other things
DRAIN_S = 300.0
DOWN_S = 1.5 * SUSPECT_AFTER_MS / 1000.0
FAULTS = {"killed client": 0.2, "kill": 0.5, "freeze": 0.12, "stale-journal": 0.1, "second-process": 0.1}
AGED_S, AGED_APPENDS = 3.0, 20  # how much older a copy of a journal is than the journal
REFUSED_S = 40.0  # twice SUSPECT_AFTER_MS, and what a busy machine adds
BEHIND = "Start it with its latest journal"
TAKEN = "two processes cannot have the same id"
IN_USE = "another process uses it"


def journal_folder(folder: Path, name: str) -> Path:
    """Where a broker whose file is in this folder keeps its journal."""
    return folder / "journals" / f"broker-{name}"


class OverlaySystem:
    """The processes of one round."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        rate: float,
        tree: dict[str, str] | None = None,
        weights: dict[str, float] | None = None,
    ) -> None:
        self.folder = folder
        self.random = random.Random(f"{seed}/{folder.name}")
        folder.mkdir(parents=True)
        self.tree = TREE if tree is None else tree
        ports = free_ports(len(self.tree))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(self.tree, ports, strict=True)}
        (folder / "overlay.toml").write_text(self._configuration({}), encoding="utf-8")
        self.brokers = {name: self._broker(name) for name in self.tree}
        self.steady = self._clients("steady", seed, rate)
        self.fleeting = self._clients("fleeting", seed, rate)
        self._harm = Harm()
        self._weights = FAULTS if weights is None else weights
        self._seconds = 0

    @property
    def children(self) -> list[Child]:
        """All processes."""
        return [*self.brokers.values(), self.steady, self.fleeting]

    def _configuration(self, bind: dict[str, str]) -> str:
        """The file of all brokers; `bind`: where one listens that is not to be found."""
        lines = ["[options]", f"suspect_after_ms = {SUSPECT_AFTER_MS}", "", "[brokers]"]
        for name, above in self.tree.items():
            more = f', bind = "{bind[name]}"' if bind.get(name) else ""
            lines.append(f'{name} = {{ address = "{self.addresses[name]}", parent = "{above}"{more} }}')
        return "\n".join([*lines, ""])

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
        while now() < end:
            await asyncio.sleep(min(self.random.expovariate(1.0 / FAULT_EVERY_S), max(0.0, end - now())))
            check_alive(self.children)
            self._harm.check()
            fault = self.random.choices(list(self._weights), list(self._weights.values()))[0]
            choices = [name for name in self.brokers if not self._struck_by(fault, name) & self._harm.struck]
            if now() >= end or not choices:
                continue
            faults[fault] += 1
            self._strike(fault, self.random.choice(choices), self.random.uniform(0.1, DOWN_S))
        await self._harm.over()

    def _struck_by(self, fault: str, name: str) -> set[str]:
        """The processes that suffer a fault, or must not be harmed meanwhile."""
        return {name, *self._neighbours(name)} if fault in ("stale-journal", "second-process") else {name}

    def _strike(self, fault: str, name: str, for_s: float) -> None:
        broker, struck = self.brokers[name], self._struck_by(fault, name)
        match fault:
            case "killed client":
                self.fleeting.kill()
                self.fleeting.start()
            case "kill":
                self._harm.strike(struck, kill(broker, for_s))
            case "freeze":
                self._harm.strike(struck, freeze(broker, for_s))
            case "stale-journal":
                self._harm.strike(struck, self.age_journal(name))
            case _:
                self._harm.strike(struck, self.claim(name, has_copy=self.random.random() < 0.5))

    def _neighbours(self, name: str) -> list[str]:
        below = [each for each, above in self.tree.items() if above == name]
        return [self.tree[name], *below] if self.tree[name] else below

    async def _until_connected(self, name: str) -> None:
        """Only a neighbour that is connected knows better than an old journal, and keeps a second process out."""
        report = partial(observe_broker, self.addresses[name], SecurityOptions(), START_S)
        await until_connected(self.brokers[name].name, report, self._neighbours(name), START_S)

    async def age_journal(self, name: str) -> None:
        """An older copy of a broker's journal is restored while it is away, then none at all: each is refused."""
        broker, journal = self.brokers[name], journal_folder(self.folder, name)
        copy = journal.with_name(f"{journal.name}-copy")
        await self._until_connected(name)
        copy_journal(journal, copy)
        appends = appends_to(journal) + AGED_APPENDS
        await asyncio.sleep(AGED_S)  # what its neighbours are sent meanwhile is lost with the copy
        await wait_for(lambda: appends_to(journal) >= appends, START_S, f"{broker.name} to go on")
        broker.kill()
        for old in (copy, None):
            with replaced(journal, old):
                refusal = await must_end(broker, "stale-journal", name, (BEHIND,), REFUSED_S, journal)
                self._harm.refusals.append(refusal)
        broker.start()

    async def claim(self, name: str, has_copy: bool) -> None:
        """A second process of a broker that runs, with a folder of its own: a copy of its journal there, or nothing.

        Where it listens, nobody looks for it: as on another machine. Brokers look for the root at its address only,
        and nobody above could tell it anything; so a second root tries to listen there.
        """
        broker = self.brokers[name]
        await self._until_connected(name)
        self._seconds += 1
        folder = self.folder / f"second-{self._seconds}"
        folder.mkdir()
        if has_copy:
            copy_journal(journal_folder(self.folder, name), journal_folder(folder, name))
        bind = f"127.0.0.1:{free_port()}" if self.tree[name] else ""
        (folder / "overlay.toml").write_text(self._configuration({name: bind}), encoding="utf-8")
        words = ["broker", "--config", str(folder / "overlay.toml"), "--id", name]
        second = Child(f"second {broker.name}", "soak.launch", words, folder / "broker.log")
        lives, said, journal = broker.lives, (TAKEN, BEHIND, IN_USE), journal_folder(folder, name)
        self._harm.refusals.append(await must_end(second, "second-process", name, said, REFUSED_S, journal))
        check_alive([broker])
        assert broker.lives == lives, "the first one is not harmed meanwhile"
        await self._until_connected(name)

    @property
    def refusals(self) -> list[Refusal]:
        """How the processes ended that must not act."""
        return self._harm.refusals

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
        await self._harm.stop()
        kill_all(self.children)


async def run_round(orders: Orders) -> Outcome:
    """A new set of brokers."""
    system = OverlaySystem(round_folder(orders), orders.seed, orders.rate, weights=orders.weights(FAULTS))
    return await play(system, orders, lambda: verify_overlay(system.folder))


def main(words: Sequence[str] | None = None) -> int:
    """Run the soak and print the results. Returns the exit code."""
    whose = "all steady clients together"
    arguments = soak_parser("soak.overlay", __doc__, ROUND_S, RATE, whose, FAULTS).parse_args(words)
    return soak(f"{len(TREE)} brokers", "soak.overlay", arguments, GUARANTEES, run_round)
