"""One process of the soak of peers: holds a topic, publishes, reacts to what it is notified of, joins and leaves.

    python -m soak.peers.child --folder round --id 3 --seed 7 --rate 2 [--churns]

It is told what to do by files in the folder, which every life finds there: `begin` (publish), `stop` (publish nothing
more, and say `drained-3` when everybody has received everything), `end` (leave, when nothing waits).
"""

import argparse
import asyncio
import os
import random
from pathlib import Path

from soak.launch import take_on_faults

MAIN = "main"
SIDES = ("side-a", "side-b", "side-c")
POLL_S = 0.05
TIMEOUT_S = 240.0  # as long as the harness waits: a join on a busy machine is slow, not broken


class Child:
    """One life of a peer."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.folder: Path = arguments.folder
        self.id: int = arguments.id
        self.rate: float = arguments.rate
        self.churns: bool = arguments.churns
        self.reacts: float = arguments.reacts
        self.random = random.Random(f"{arguments.seed}/{arguments.id}/{os.getpid()}")

    async def run(self) -> None:
        """Run from the start to an orderly end."""
        import seriatim

        log = self.folder / "log"
        url = f"vcube://{(self.folder / 'peers.toml').resolve()}?id={self.id}"
        async with (
            seriatim.connect(url, publication_log=log, timeout_s=TIMEOUT_S) as bus,
            bus.subscribe(MAIN, log=log) as events,
        ):
            (self.folder / f"ready-{self.id}-{os.getpid()}").touch()
            await self._until("begin")
            taking = asyncio.create_task(self._take(bus, events))
            working = [asyncio.create_task(self._publish(bus))]
            if self.churns:
                working.append(asyncio.create_task(self._churn(bus, events)))
            await self._until("stop", taking, *working)
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
            await bus.flush()
            (self.folder / f"drained-{self.id}").touch()
            await self._until("end", taking)
            while events.unread:
                await self._look(taking)
            taking.cancel()

    async def _until(self, name: str, *tasks: "asyncio.Task[None]") -> None:
        """Wait for a file that the harness writes. The harness has a time limit."""
        while not (self.folder / name).exists():
            await self._look(*tasks)

    async def _look(self, *tasks: "asyncio.Task[None]") -> None:
        for task in tasks:
            if task.done():
                task.result()
                raise RuntimeError("a part of this process ended by itself")
        await asyncio.sleep(POLL_S)

    async def _take(self, bus: object, events: object) -> None:
        """Read the notifications, and answer some of them at once."""
        async for event in events:  # type: ignore[attr-defined]
            is_over = (self.folder / "stop").exists()
            if event.topic == MAIN and not is_over and self.random.random() < self.reacts:
                self._send(bus, MAIN, b"reaction to " + event.id.encode())

    async def _publish(self, bus: object) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(self.rate))
            await bus.ready()  # type: ignore[attr-defined]
            self._send(bus, MAIN, b"x" * self.random.randrange(200))

    async def _churn(self, bus: object, events: object) -> None:
        """Hold another topic for a while, publish there, and leave it."""
        while True:
            await asyncio.sleep(self.random.expovariate(0.3))
            topic = self.random.choice(SIDES)
            await events.add(topic)  # type: ignore[attr-defined]
            for _ in range(self.random.randrange(4)):
                self._send(bus, topic, b"aside")
                await asyncio.sleep(self.random.expovariate(4.0))
            await events.remove(topic)  # type: ignore[attr-defined]

    def _send(self, bus: object, topic: str, data: bytes) -> None:
        from seriatim.model import SeriatimError

        def settled(receipt: "asyncio.Future[object]") -> None:
            if not receipt.cancelled() and receipt.exception() is None and topic == MAIN:
                with (self.folder / f"acknowledged-{self.id}").open("a", encoding="utf-8") as file:
                    file.write(f"{receipt.result().id}\n")  # type: ignore[attr-defined]
            elif not receipt.cancelled() and not isinstance(receipt.exception(), SeriatimError):
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "publishing broke", "exception": receipt.exception()}
                )

        bus.publish_nowait(topic, data).add_done_callback(settled)  # type: ignore[attr-defined]


def main() -> None:
    """Run as the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--id", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--reacts", type=float, required=True)
    parser.add_argument("--churns", action="store_true")
    arguments = parser.parse_args()
    from seriatim.runtime.logs import configure_logging
    from seriatim.runtime.loop import run

    configure_logging(level="WARNING")
    run(Child(arguments).run())


if __name__ == "__main__":
    take_on_faults()
    main()
