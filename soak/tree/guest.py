"""The subscriber that begins with the past: it reads history, becomes live, stays a little, leaves, and comes again.

    python -m soak.tree.guest guest --folder RUN --name ledger --url nats://… --topics a,b --batch 100

Each visit is a subscriber of its own, with a file of its own. Half of the visits are durable: a guest that is killed
then goes on with the same visit, also in the middle of the past. Any other visit ends with its process.
"""

import argparse
import asyncio
import logging
import os
from pathlib import Path

import msgspec
from msgspec import Struct

import seriatim
from seriatim.cli.order import found_log
from seriatim.client.history import Start
from seriatim.model import ConnectionFailed, InputError, Position, TimedOut
from seriatim.runtime.loop import run
from soak.launch import take_on_faults
from soak.tree.roles import CONNECT_S, PAUSE_S, Role, connected, joined, parsed, take
from soak.tree.rows import Began, Held, RowFile, now

logger = logging.getLogger("soak")

PAST_MAX = 20_000  # how many positions back a guest begins, unless its topics have few events
STAY_S = (0.2, 4.0)  # how long it is live
ASK_S = 5.0


class Visit(Struct):
    """One visit, as it is remembered over the lives of the process."""

    number: int = 0
    start: Position = 1
    is_durable: bool = False
    has_left: bool = True
    lives: int = 0


def last_visit(folder: Path, guest: str) -> int:
    """The number of its latest visit; 0: it has not come yet."""
    path = folder / "visits" / guest
    return msgspec.json.decode(path.read_bytes(), type=Visit).number if path.exists() else 0


class Guest(Role):
    """A role whose rows go to one file per visit."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.is_far_back: bool = arguments.far_back
        self.visit = Visit()
        super().__init__(arguments, "subscribers")

    def begin(self, folder: Path) -> None:
        """Take up the visit that was cut short, or end it."""
        self._remembered = self.folder / "visits" / self.name
        self._remembered.parent.mkdir(exist_ok=True)
        if self._remembered.exists():
            self.visit = msgspec.json.decode(self._remembered.read_bytes(), type=Visit)
        if not self.visit.has_left and not self.visit.is_durable:
            self.open_rows()
            self.leave()

    def open_rows(self) -> None:
        """Open the file of the present visit."""
        self.rows = RowFile(self.folder / "subscribers" / f"{self.name}.{self.visit.number}.jsonl")

    def remember(self) -> None:
        """Write the visit down before anything is done about it."""
        whole = self._remembered.with_suffix(".part")
        whole.write_bytes(msgspec.json.encode(self.visit))
        whole.rename(self._remembered)

    def leave(self) -> None:
        """From now on nothing is owed to this visit."""
        self.rows.write(Held([], now()))
        self.visit.has_left = True
        self.remember()

    def come(self, end: Position) -> None:
        """Choose where to begin the next visit, in an order log that ends here."""
        is_first = (self.is_far_back or end <= PAST_MAX) and self.random.random() < 0.5
        start = 1 if is_first else self.random.randint(max(1, end - PAST_MAX), end)
        self.visit = Visit(self.visit.number + 1, start, self.random.random() < 0.5, has_left=False)

    def live_again(self) -> None:
        """Note a life of the visit; the first one says where it begins."""
        self.visit.lives += 1
        self.remember()
        self.open_rows()
        began = Began(self.name, self.visit.lives, os.getpid(), now())
        asked = Held(self.topics, now(), complete=False, start=self.visit.start)
        self.rows.write(*([began, asked] if self.visit.lives == 1 else [began]))


async def come_and_go(guest: Guest, batch: int) -> None:
    """Visit after visit. While the round settles, nobody comes and nobody leaves."""
    bus = await connected(guest)
    guest.explain = lambda: str(bus.explain())
    while True:
        if guest.visit.has_left:
            guest.come(await end_of_the_past(guest))
        await stay(guest, bus, batch)


async def end_of_the_past(guest: Guest) -> Position:
    """The last position of the order log, as soon as there is one and somebody may come."""
    deadline = now() + CONNECT_S
    while True:
        try:
            async with found_log(guest.url, guest.cluster, ASK_S) as log:
                while guest.is_settling or (bounds := await log.bounds()) is None:
                    await asyncio.sleep(PAUSE_S)
                    deadline = now() + CONNECT_S
                return bounds.end
        except (ConnectionFailed, TimedOut, InputError) as error:  # InputError: no log yet, and no sequencer answers
            if now() > deadline:
                raise
            logger.warning("no end of the past yet: %s", error)
            await asyncio.sleep(PAUSE_S)


async def stay(guest: Guest, bus: "seriatim.Bus", batch: int) -> None:
    """One visit, or what is left of it."""
    guest.live_again()
    visit = guest.visit
    name = f"{guest.name}.{visit.number}" if visit.is_durable else None
    start: Start = "first" if visit.start == 1 else visit.start
    events = await joined(guest, bus, guest.topics, name, start)
    guest.explain = lambda: f"{events.explain()}\n{events.progress()}\n{bus.explain()}"
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(take(guest, events, batch))
        await events.caught_up()
        guest.rows.write(Held(guest.topics, now()))
        await asyncio.sleep(guest.random.uniform(*STAY_S))
        while guest.is_settling:  # noqa: ASYNC110 - a file says so
            await asyncio.sleep(PAUSE_S)
        taking.cancel()
    guest.leave()
    try:
        await events.unsubscribe()
    except TimedOut as error:  # a node is away, and is told when it is back
        logger.warning("not left yet: %s", error)


async def main() -> None:
    """Run until the process is asked to end."""
    arguments = parsed()
    guest = Guest(arguments)
    await guest.or_end(come_and_go(guest, arguments.batch))


if __name__ == "__main__":
    take_on_faults()
    run(main())
