"""The registered life of a node, of a tree or of atoms: of two processes one acts, and none with an older journal.

A node's life is registered on the broker before the node acts (brokers/lives.py), with the epoch of the last life that
acted, and how many records its journal had. A process that starts compares its own journal with that. While it runs, a
node reports how far its journal is, at most once in `SAY_S`; it reports only durable records.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from seriatim.brokers import Broker
from seriatim.brokers.lives import Claim, Life, new_life, refuse_if_taken
from seriatim.model import Behind, Fenced, Node, SeriatimError, Taken
from seriatim.protocols.node import LinkedNode
from seriatim.runtime import Driver

logger = logging.getLogger(__name__)

SAY_S = 1.0
LAST_WORD_S = 2.0
EPOCH, RECORDS = "epoch", "records"  # what a life says
ASK_STATUS_S = 1.0
HEAL = (
    "remove this one and heal the node ({start} --heal); what was under way through it, and not confirmed, is then "
    "a gap"
)
UNHEALED = (
    "in ticket mode a node cannot be healed, because nobody else knows which numbers it has granted: restore a "
    "backup of everything, or start anew (a new cluster name); a journal on the broker, with a standby, is not lost "
    "with a disk"
)
RESHAPED = (
    "nodes have joined or left this tree, and such a tree cannot be healed yet: restore a backup of everything, or "
    "start over (a new cluster name); a journal on the broker, with a standby, is not lost with a disk"
)


def why_older(last: Life | None, journal_epoch: int, records: int) -> str:
    """Why this journal is older than the one that the last life registered, by epoch and number of records. Empty: it
    is not older."""
    if last is None or EPOCH not in last.numbers:
        return ""
    acted, written = last.numbers[EPOCH], last.numbers.get(RECORDS, 0)
    if journal_epoch < acted:
        return f"it ends in epoch {journal_epoch}, and the node has run in epoch {acted} since"
    if journal_epoch == acted and records < written:
        return f"it has {records} records of epoch {acted}, and the node has written {written}"
    return ""


class NodeLife:
    """`where`: the journal, for people. `lost`: what to do if it is lost; {start} is how the node is started."""

    def __init__(self, node: Node, broker: Broker, where: str, cluster: str, lost: str = HEAL) -> None:
        self.node = node
        self._where = where
        self._lost = lost
        self._cluster = cluster
        self._broker = broker
        self._claim: Claim | None = broker.lives.claim("node", node) if broker.lives is not None else None
        self._task: asyncio.Task[None] | None = None
        self._said = -1
        self._records: Callable[[], int | None] = lambda: None
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

    def check(self, journal_epoch: int, records: int = 0) -> None:
        """Behind: the journal belongs to an earlier life than the last one that acted, or is an older copy of it.

        Epoch 0: it is empty. That is fine if the journals before it had no records either.
        """
        last = self.last
        if not journal_epoch and last is not None and EPOCH in last.numbers:
            if written := last.numbers.get(RECORDS, 0):
                was = f"it is empty, and the node has run in epoch {last.numbers[EPOCH]} and written {written} records"
                raise self.behind(f"the journal of {self.node} ({self._where}) was lost: {was}")
            return
        if problem := why_older(last, journal_epoch, records):
            raise self.behind(f"the journal of {self.node} ({self._where}) is an older copy: {problem}")

    def behind(self, what: str) -> Behind:
        """The error for a journal that must not be used, with what helps."""
        last = self.last
        where = f" The last life was {last.where}, since {last.since}." if last is not None else ""
        return Behind(f"{what}. Nothing was changed.{where} {self.help}")

    @property
    def help(self) -> str:
        """What to do about an older journal."""
        start = f"seriatim serve --node {self.node}"
        return f"Put the newest journal back and start again ({start}); if it is lost: {self._lost.format(start=start)}"

    async def register(self, machine: LinkedNode) -> None:
        """Have the node from now on, in the machine's epoch, which becomes later than that of every life before."""
        if self._claim is None:
            return
        last = self.last
        machine.begin_epoch(last.epoch + 1 if last is not None else 0)
        life = new_life(machine.epoch, self._where, last.numbers if last is not None else None)
        await self._claim.register(life)

    def watch(
        self, driver: Driver, records: Callable[[], int | None], on_lost: Callable[[BaseException], None]
    ) -> None:
        """Say how far the journal is, and notice a later life. `records`: None before the node acts. `on_lost`: told
        when another process has taken over."""
        self._driver, self._records = driver, records
        if self._claim is not None:
            self._claim.lost.add_done_callback(lambda lost: on_lost(lost.result()) if not lost.cancelled() else None)
            self._task = asyncio.get_running_loop().create_task(self._say_forever(driver))

    async def _say_forever(self, driver: Driver) -> None:
        while not driver.failed.done():
            try:
                await self._say(driver)
            except Fenced:
                return  # told by `lost`
            except SeriatimError as error:  # it says so again
                logger.debug("progress of the journal not registered: node=%s reason=%s", self.node, error)
            await asyncio.sleep(SAY_S)

    async def _say(self, driver: Driver, *, is_ended: bool = False) -> None:
        records, machine = self._records(), driver.machine
        if self._claim is None or records is None or (records == self._said and not is_ended):
            return
        assert isinstance(machine, LinkedNode), "nodes and stations are"
        await driver.settled()
        await self._claim.say({EPOCH: machine.epoch, RECORDS: records}, is_ended=is_ended)
        self._said = records

    async def end(self) -> None:
        """The driver has stopped in an orderly way: register the last numbers."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        driver = self._driver
        if driver is not None and not driver.failed.done() and self._claim is not None:
            with contextlib.suppress(SeriatimError, TimeoutError):
                async with asyncio.timeout(LAST_WORD_S):
                    await self._say(driver, is_ended=True)
        self._driver = None
        if self._claim is not None:
            await self._claim.close()
