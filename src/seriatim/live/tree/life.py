"""The registered life of a node: of two processes that run it one acts, and a journal that is behind does not.

A node's life is registered on the broker before the node acts (brokers/lives.py), with what the last life that acted
has said: its epoch, and how many records its journal had. Whoever starts compares its own journal with that. While it
runs, a node says anew how far its journal is, at most once in `SAY_S`; only what is durable is said.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from seriatim.brokers import Broker
from seriatim.brokers.lives import Claim, Life, new_life, refuse_if_taken
from seriatim.model import Behind, Fenced, Node, SeriatimError, Taken
from seriatim.protocols.tree import SequencerNode
from seriatim.protocols.tree.confirming import Outdated
from seriatim.runtime import Driver

logger = logging.getLogger(__name__)

SAY_S = 1.0
LAST_WORD_S = 2.0
EPOCH, RECORDS = "epoch", "records"  # what a life says
ASK_STATUS_S = 1.0


class NodeLife:
    """`where`: the journal, for people. `on_lost`: told when another process has taken over."""

    def __init__(self, node: Node, broker: Broker, where: str, cluster: str) -> None:
        self.node = node
        self._where = where
        self._cluster = cluster
        self._broker = broker
        self._claim: Claim | None = broker.lives.claim("node", node) if broker.lives is not None else None
        self._task: asyncio.Task[None] | None = None
        self._said = 0
        self._driver: Driver | None = None

    @property
    def last(self) -> Life | None:
        """The life that was registered before this one."""
        return self._claim.last if self._claim is not None else None

    async def look(self, *, takes_over: bool) -> Life | None:
        """The last life. Taken: its process answers, and this one is not to take over."""
        fix = "stop that one first; nothing was changed"
        if self._claim is None:
            await self._ask_status(fix)
            return None
        last = await self._claim.look()
        if not takes_over:
            await refuse_if_taken(self._claim, f"node {self.node}", fix)
        return last

    async def _ask_status(self, fix: str) -> None:
        """Where nothing can be registered, ask whether somebody runs the node. Two that start together are not told."""
        requests = self._broker.requests
        if requests is None or not self._cluster:
            return
        said = await requests.request(f"_{self._cluster}.status.{self.node}", b"", ASK_STATUS_S)
        if said is not None:
            raise Taken(f"node {self.node} is run by another process, which answers; {fix}")

    def check(self, machine: SequencerNode, journal_epoch: int) -> None:
        """Behind: the journal belongs to an earlier life than the last one that acted, or is an older copy of it."""
        last = self.last
        if last is None or EPOCH not in last.numbers:
            return
        acted, records = last.numbers[EPOCH], last.numbers.get(RECORDS, 0)
        if journal_epoch < acted:
            problem = f"it ends in epoch {journal_epoch}, and the node has run in epoch {acted} since"
        elif journal_epoch == acted and machine.state.inputs < records:
            problem = f"it has {machine.state.inputs} records of epoch {acted}, and the node has written {records}"
        else:
            return
        raise self.behind(f"the journal of {self.node} ({self._where}) is an older copy: {problem}")

    def behind(self, what: str) -> Behind:
        """The error for a journal that must not be used, with what helps."""
        last = self.last
        where = f" The last life was {last.where}, since {last.since}." if last is not None else ""
        return Behind(f"{what}. Nothing was changed.{where} {self._help()}")

    def _help(self) -> str:
        start = f"seriatim serve --node {self.node}"
        return (
            f"Put the newest journal back and start again ({start}); if it is lost: remove this one and heal the node "
            f"({start} --heal)"
        )

    async def register(self, machine: SequencerNode) -> None:
        """Have the node from now on, in the machine's epoch, which becomes later than that of every life before."""
        if self._claim is None:
            return
        last = self.last
        machine.begin_epoch(last.epoch + 1 if last is not None else 0)
        life = new_life(machine.epoch, self._where, last.numbers if last is not None else None)
        await self._claim.register(life)

    def watch(self, driver: Driver, machine: SequencerNode, on_lost: Callable[[BaseException], None]) -> None:
        """Say how far the journal is, from when the node acts on, and notice a later life."""
        self._driver = driver
        if self._claim is not None:
            self._claim.lost.add_done_callback(lambda lost: on_lost(lost.result()) if not lost.cancelled() else None)
            self._task = asyncio.get_running_loop().create_task(self._say_forever(driver, machine))

    async def _say_forever(self, driver: Driver, machine: SequencerNode) -> None:
        while not driver.failed.done():
            try:
                await self._say(driver, machine)
            except Fenced:
                return  # told by `lost`
            except SeriatimError as error:  # it says so again
                logger.debug("could not say how far the journal is: node=%s reason=%s", self.node, error)
            await asyncio.sleep(SAY_S)

    async def _say(self, driver: Driver, machine: SequencerNode, *, is_ended: bool = False) -> None:
        records = machine.state.inputs
        if self._claim is None or not machine.is_acting or (records == self._said and not is_ended):
            return
        await driver.settled()
        await self._claim.say({EPOCH: machine.epoch, RECORDS: records}, is_ended=is_ended)
        self._said = records

    async def end(self) -> None:
        """The driver has stopped in good order: say the last word."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        driver = self._driver
        if driver is not None and not driver.failed.done() and self._claim is not None:
            with contextlib.suppress(SeriatimError, TimeoutError):
                async with asyncio.timeout(LAST_WORD_S):
                    await self._say(driver, driver.machine, is_ended=True)  # type: ignore[arg-type]
        self._driver = None
        if self._claim is not None:
            await self._claim.close()


def reason_of(life: NodeLife, found: Outdated) -> SeriatimError:
    """Why a node must not act, as an error."""
    if found.later:
        later = f"another process runs node {life.node} in epoch {found.later}: {found.source} has heard of it"
        return Fenced(f"{later}; this one stops, and no event is lost by that")
    return life.behind(f"the journal of {life.node} is behind what {found.source} has seen: {found.reason}")
