"""`python -m soak.peers --minutes 10`: 32 peers as processes, joins, leaves, kill -9, freezes, restarts; exit code 1 if
a promise was broken.

A round starts all peers anew, waits until they hold a topic, lets them publish and react under faults, lets everything
arrive, and judges the logs. Every second peer is never harmed: it must miss nothing. What is done follows from the
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
from soak.peers.verify import GUARANTEES, verify_peers
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


class PeerSystem:
    """The processes of one round."""

    def __init__(self, folder: Path, count: int, seed: int, rate: float) -> None:
        self.folder = folder
        self.random = random.Random(f"{seed}/{folder.name}")
        folder.mkdir(parents=True)
        lines = [f'{id} = "127.0.0.1:{port}"' for id, port in enumerate(free_ports(count))]
        options = f"[options]\nsuspect_after_ms = {SUSPECT_AFTER_MS}\n"
        (folder / "peers.toml").write_text("\n".join(["[peers]", *lines, "", options]), encoding="utf-8")
        self.unharmed = list(range(0, count, 2))
        self.children = [self._child(id, count, seed, rate) for id in range(count)]
        self.frozen: set[int] = set()

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
        return all((self.folder / f"ready-{id}-{each.pid}").exists() for id, each in enumerate(self.children))

    async def harm(self, seconds: float, faults: Counter[str]) -> None:
        """Kill, freeze and start again, one after another; at the end all run."""
        end = now() + seconds
        down: dict[int, float] = {}
        while now() < end:
            await asyncio.sleep(min(self.random.expovariate(1.0 / FAULT_EVERY_S), max(0.0, end - now())))
            check_alive(self.children)
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
        kill_all(self.children)


def main(words: Sequence[str] | None = None) -> int:
    """Run the soak and print the results. Returns the exit code."""
    parser = soak_parser("soak.peers", __doc__, ROUND_S, RATE, "each peer")
    parser.add_argument("--peers", type=int, default=PEERS)
    arguments = parser.parse_args(words)
    if arguments.peers < 4:
        parser.error("give at least 4 peers")

    async def run_round(orders: Orders) -> Outcome:
        system = PeerSystem(round_folder(orders), arguments.peers, orders.seed, orders.rate)
        return await play(system, orders, lambda: verify_peers(system.folder, system.unharmed))

    again = f"soak.peers --peers {arguments.peers}"
    return soak(f"{arguments.peers} peers", again, arguments, GUARANTEES, run_round)
