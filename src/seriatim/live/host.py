"""One machine, running in this process: opened from its journal, driven, and stopped.

A product says how its machine is rebuilt (`rebuild`), what it is connected to (`serve`) and how its messages leave
(`send`). This file keeps the order of these steps, and says why a machine ended.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic

from seriatim.live.founding import AnyFounded, AnyMachine, Rebuilt, encode_founded, encode_snapshot
from seriatim.model import Address
from seriatim.protocols.machine import Payload
from seriatim.runtime import Clock, Driver, Journal, Recovered, Switchboard

logger = logging.getLogger(__name__)


class MachineHost(ABC, Generic[AnyMachine, AnyFounded]):
    """Starts, runs and stops one machine. `failed` is done when it ends by itself: fenced, or a broken journal."""

    kind: ClassVar[str]  # what such a machine is called in the log

    def __init__(self, node: Address, *, switchboard: Switchboard, journal: Journal) -> None:
        self.node = node
        self.switchboard = switchboard
        self.failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._journal = journal
        self._driver: Driver | None = None
        self._machine: AnyMachine | None = None

    @property
    def driver(self) -> Driver:
        assert self._driver is not None, "start it first"
        return self._driver

    @property
    def machine(self) -> AnyMachine:
        assert self._machine is not None, "start it first"
        return self._machine

    @property
    @abstractmethod
    def epoch(self) -> int:
        """How many processes have run this machine, with this journal."""

    async def prepare(self) -> None:
        """Called before the journal is opened. Raises the reason if this process must not open it."""

    @abstractmethod
    async def rebuild(self, recovered: Recovered) -> Rebuilt[AnyMachine, AnyFounded]:
        """Rebuild the machine from its journal. Raises the reason if it cannot run."""

    @abstractmethod
    async def serve(self, driver: Driver) -> None:
        """Connect the machine, and start the driver."""

    @abstractmethod
    def send(self, source: Address, target: Address, message: Payload) -> None:
        """Carry a message of the machine to its target."""

    def state(self, machine: AnyMachine) -> object:
        return machine.state  # type: ignore[attr-defined]  # a machine without it says another one

    def told(self, notices: Sequence[Payload]) -> None:
        """Handle what the machine reports to its host."""

    async def start(self) -> None:
        """Open the journal (which fences or refuses any other process), rebuild the machine, and serve.

        If it cannot run, closes the journal again and raises the reason.
        """
        await self.prepare()
        try:
            rebuilt = await self.rebuild(await self._journal.open())
            if rebuilt.to_append is not None:
                await self._journal.append([encode_founded(rebuilt.to_append)])
        except BaseException:
            await self._journal.close()
            raise
        machine, current, clock = rebuilt.machine, rebuilt.current, self.make_clock(rebuilt.at_least)

        def snapshot() -> bytes:
            return encode_snapshot(current, self.state(machine), clock.now_ms())

        self._driver = driver = Driver(
            self.node,
            machine,
            clock,
            send=self.send,
            notify=self.told,
            journal=self._journal,
            encode_state=snapshot if current is not None else None,
        )
        self._machine = machine
        driver.failed.add_done_callback(self._on_failed)
        await self.serve(driver)

    def make_clock(self, at_least: float) -> Clock:
        """The clock of the machine: never earlier than its last input."""
        return Clock(at_least)

    async def stop(self) -> None:
        """Send the journaled effects, then close the journal. May be called twice."""
        self.switchboard.unplug(self.node)
        if self._driver is not None:
            await self._driver.stop()
        await self.leave()
        await self.disconnect()
        await self._journal.close()

    async def leave(self) -> None:
        """The driver has stopped; the broker and the journal are still open."""

    async def disconnect(self) -> None:
        """Close what `serve` has opened."""

    def _on_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        self.switchboard.unplug(self.node)
        if not failed.cancelled():
            self.fail(failed.result())

    def fail(self, error: BaseException) -> None:
        if not self.failed.done():
            logger.error("%s stopped: node=%s reason=%s", self.kind, self.node, error)
            self.failed.set_result(error)
