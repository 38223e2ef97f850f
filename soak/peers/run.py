"""`python -m soak.peers --minutes 10`: 32 peers as processes, joins, leaves, kill -9, freezes, restarts, old journals
and second processes; exit code 1 if a promise was broken.

A round starts all peers anew, waits until they hold a topic, lets them publish and react under faults, lets everything
arrive, and judges the logs. Every second peer is never harmed: it must miss nothing. What is done follows from the
seed; what the machine does in between is its own.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from seriatim.live.peers import observe
from seriatim.model import SeriatimError
from seriatim.runtime.net.security import SecurityOptions
from soak.children import Child, check_alive, free_port, free_ports, kill_all, wait_for
from soak.harm import Harm, freeze, kill
from soak.journals import copy_journal
from soak.loop import Orders, Outcome, play, round_folder, soak, soak_parser
from soak.peers.child import MAIN
from soak.peers.verify import GUARANTEES, verify_peers
from soak.refusals import Refusal, must_end, until_connected
from soak.tree.rows import now

PEERS = 32
ROUND_S = 60.0
RATE = 1.0  # events per second of each peer
REACTIONS = 0.2  # to each event, on average, by all peers together
FAULT_EVERY_S = 2.5
SUSPECT_AFTER_MS = 8_000
START_S = 240.0
DRAIN_S = 240.0
FROZEN_S = 1.5 * SUSPECT_AFTER_MS / 1000.0
FAULTS = {"kill": 0.7, "freeze": 0.16, "stale-journal": 0.07, "second-process": 0.07}
REFUSED_S = 60.0  # twice SUSPECT_AFTER_MS, and what a busy machine adds
OPEN = SecurityOptions()
TAKEN = "two processes cannot have the same id"


def journal_folder(folder: Path, id: int) -> Path:
    """Where a peer whose file is in this folder keeps its journal."""
    return folder / "journals" / f"peer-{id}"


class PeerSystem:
    """The processes of one round."""

    def __init__(
        self, folder: Path, count: int, seed: int, rate: float, weights: dict[str, float] | None = None
    ) -> None:
        self.folder = folder
        self.random = random.Random(f"{seed}/{folder.name}")
        folder.mkdir(parents=True)
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        (folder / "peers.toml").write_text(self._configuration(), encoding="utf-8")
        self.unharmed = list(range(0, count, 2))
        self.children = [self._child(id, count, seed, rate) for id in range(count)]
        self._harm = Harm()
        self._weights = FAULTS if weights is None else weights
        self._seconds = 0

    def _configuration(self, elsewhere: int | None = None, bind: str = "") -> str:
        """The file of all peers; one may listen `elsewhere`, where nobody looks for it."""
        lines = ["[options]", f"suspect_after_ms = {SUSPECT_AFTER_MS}", "", "[peers]"]
        for id, address in enumerate(self.addresses):
            more = f', bind = "{bind}"' if id == elsewhere else ""
            lines.append(f'{id} = {{ address = "{address}"{more} }}')
        return "\n".join([*lines, ""])

    def _child(self, id: int, count: int, seed: int, rate: float) -> Child:
        words = ["--folder", str(self.folder), "--id", str(id), "--seed", str(seed), "--rate", str(rate)]
        words += ["--reacts", str(REACTIONS / count), *(["--churns"] if id % 4 != 0 else [])]
        return Child(f"peer {id}", "soak.peers.child", words, self.folder / f"peer-{id}.log")

    async def start(self) -> None:
        """All of them, until each holds the topic; nothing is published before."""
        for child in self.children:
            child.start()
        await wait_for(self._all_ready, START_S, "all peers to hold the topic")
        (self.folder / "begin").touch()

    def _all_ready(self) -> bool:
        check_alive(self.children)
        return all(map(self._is_ready, range(len(self.children))))

    def _is_ready(self, id: int) -> bool:
        """Whether the running life of a peer holds the topic."""
        return (self.folder / f"ready-{id}-{self.children[id].pid}").exists()

    async def harm(self, seconds: float, faults: Counter[str]) -> None:
        """Kill, freeze and start again, one after another; at the end all run."""
        end = now() + seconds
        while now() < end:
            await asyncio.sleep(min(self.random.expovariate(1.0 / FAULT_EVERY_S), max(0.0, end - now())))
            check_alive(self.children)
            self._harm.check()
            choices = [id for id in range(1, len(self.children), 2) if str(id) not in self._harm.struck]
            if now() >= end or not choices:
                continue
            fault = self.random.choices(list(self._weights), list(self._weights.values()))[0]
            id, down_s = self.random.choice(choices), self.random.uniform(0.1, FROZEN_S)
            victims = {str(id)}
            if fault == "second-process":  # those with higher ids refuse it, so they are not harmed meanwhile
                highest = max(map(int, self._harm.struck), default=-1)
                id = self.random.randint(min(highest + 1, len(self.children) - 2), len(self.children) - 2)
                victims = {str(each) for each in range(id, len(self.children))}
            if not victims & self._harm.struck:
                faults[fault] += 1
                self._harm.strike(victims, self._fault(fault, id, down_s))
        await self._harm.over()

    def _fault(self, fault: str, id: int, down_s: float) -> Coroutine[Any, Any, None]:
        match fault:
            case "kill":
                return kill(self.children[id], down_s)
            case "freeze":
                return freeze(self.children[id], FROZEN_S)
            case "stale-journal":
                return self.age_journal(id)
            case _:
                return self.claim(id, has_copy=self.random.random() < 0.5)

    async def age_journal(self, id: int) -> None:
        """A peer comes back with the journal of an earlier life, or with none. The others tell it which it is in."""
        child, journal = self.children[id], journal_folder(self.folder, id)
        await self._until_ready(id)
        earlier = journal.with_name(f"{journal.name}-earlier")
        child.kill()
        lost = journal.with_name(f"{journal.name}-{child.lives}")
        journal.rename(lost)
        if earlier.exists():
            copy_journal(earlier, journal)
        else:
            copy_journal(lost, earlier)
        child.start()
        await self._until_ready(id)

    async def claim(self, id: int, has_copy: bool) -> None:
        """A second process of a peer that is there, elsewhere: with a copy of its journal, or with none."""
        child = self.children[id]
        for each in range(id, len(self.children)):
            await self._until_ready(each)
        higher = range(id + 1, len(self.children))
        await until_connected(child.name, partial(observe, self.addresses[id], OPEN, START_S), higher, START_S)
        self._seconds += 1
        folder = self.folder / f"second-{self._seconds}"
        folder.mkdir()
        if has_copy:
            copy_journal(journal_folder(self.folder, id), journal_folder(folder, id))
        (folder / "peers.toml").write_text(self._configuration(id, f"127.0.0.1:{free_port()}"), encoding="utf-8")
        words = ["peer", "--id", str(id), "--peers", str(folder / "peers.toml"), "--topics", MAIN, "--json"]
        second = Child(f"second {child.name}", "soak.launch", words, folder / "log")
        lives, journal = child.lives, journal_folder(folder, id)
        self.refusals.append(await must_end(second, "second-process", child.name, (TAKEN,), REFUSED_S, journal))
        check_alive([child])
        assert child.lives == lives, "the first one is not harmed meanwhile"

    async def _until_ready(self, id: int) -> None:
        child = self.children[id]
        await wait_for(lambda: self._is_ready(id) or child.died, START_S, f"{child.name} to hold the topic")
        check_alive([child])

    @property
    def refusals(self) -> list[Refusal]:
        """How the processes ended that must not act."""
        return self._harm.refusals

    async def drain(self) -> None:
        """Stop publishing, wait until every event has arrived everywhere, then let all peers leave."""
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
        check_alive(self.children)
        return sum((self.folder / f"drained-{id}").exists() for id in range(len(self.children)))

    async def stop(self) -> None:
        """Stop every process that still runs."""
        await self._harm.stop()
        kill_all(self.children)


def main(words: Sequence[str] | None = None) -> int:
    """Run the soak and print the results. Returns the exit code."""
    parser = soak_parser("soak.peers", __doc__, ROUND_S, RATE, "each peer", FAULTS)
    parser.add_argument("--peers", type=int, default=PEERS)
    arguments = parser.parse_args(words)
    if arguments.peers < 4:
        parser.error("give at least 4 peers")

    async def run_round(orders: Orders) -> Outcome:
        system = PeerSystem(round_folder(orders), arguments.peers, orders.seed, orders.rate, orders.weights(FAULTS))
        return await play(system, orders, lambda: verify_peers(system.folder, system.unharmed))

    again = f"soak.peers --peers {arguments.peers}"
    return soak(f"{arguments.peers} peers", again, arguments, GUARANTEES, run_round)
