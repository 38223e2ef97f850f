"""Which nodes a process runs: they may come and go with the layout of the cluster.

A process that is to run a node which the cluster does not have yet waits, and answers who asks whether it is there. One
that runs all nodes starts those that come. A node that has left the cluster stops here when nothing is owed any more; a
process that has no node left ends.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec.json import encode

from seriatim.model import Closed, InputError, Node, SeriatimError
from seriatim.server.status import WaitingNode, node_subject

if TYPE_CHECKING:
    from seriatim.live.describing import Answers
    from seriatim.live.server import SequencerServer

logger = logging.getLogger(__name__)

RETRY_S = 1.0
SETTLE_S = 10.0  # how long a node that has left may take to be heard


class Roster:
    """The nodes of one process. `undone`: why it has none: what it waited for was not made."""

    def __init__(self, process: "SequencerServer") -> None:
        self.undone: SeriatimError | None = None
        self.changed = asyncio.Event()  # other nodes run here than before
        self._process = process
        self._file = process.config
        self._adjusting: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def place_of(self, node: Node) -> int:
        """Which of the node's addresses this process has: the one that its file gave it, wherever that is listed now.

        InputError: none.
        """
        process, known = self._process, self._file.nodes.get(node)
        listed, place = process.config.nodes[node].addresses, process.place
        if known is not None and place < len(known.addresses) and known.addresses[place] in listed:
            return listed.index(known.addresses[place])
        if place >= len(listed):
            fix = f"`seriatim standby add {node} HOST:PORT` adds one"
            raise InputError("--standby", f"node {node} has no standby number {place}", fix)
        return place

    # ── waiting to be added ───────────────────────────────────────────────────────────────────────────────────────

    async def tell_waiting(self) -> None:
        """The cluster does not have these nodes yet: say so, and answer who asks whether they are here."""
        process = self._process
        config, requests = process.config, process.broker.requests
        for node in sorted(process.agreement.awaited):
            at, below = config.nodes[node].addresses[0], config.nodes[node].parent
            text = "waiting to be added: cluster=%s node=%s parent=%s address=%s fix=%s"
            logger.warning(text, config.cluster, node, below, at, f"seriatim node add {node}")
            if requests is not None:
                await requests.answer(node_subject(config.cluster, "waiting", node), partial(self._waiting, node))

    def _waiting(self, node: Node, _: bytes) -> bytes | None:
        if node not in self._process.agreement.awaited:
            return None
        config = self._file.nodes[node]
        return encode(WaitingNode(node, config.parent, list(config.addresses), config.journal))

    # ── following ─────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, answers: "Answers") -> None:
        """Follow the layout from now on."""
        self._process.agreement.on_change.append(self._news.set)
        self._adjusting = asyncio.get_running_loop().create_task(self._adjust_forever(answers))

    async def stop(self) -> None:
        if self._adjusting is not None:
            self._adjusting.cancel()
            await asyncio.gather(self._adjusting, return_exceptions=True)

    async def _adjust_forever(self, answers: "Answers") -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._end_those_that_left()
                await self._start_new_ones()
                for name in list(self._process.served):
                    await answers.answer_for(name)
            except (SeriatimError, OSError) as error:
                logger.error("nodes of the layout do not run yet: reason=%s again_s=%s", error, RETRY_S)
                await asyncio.sleep(RETRY_S)
                self._news.set()
            self._process.nodes = list(self._process.served)
            self.changed.set()

    async def _end_those_that_left(self) -> None:
        process = self._process
        for name, served in list(process.served.items()):
            if name in process.config.nodes and served.place >= 0:
                continue
            removed = any(each.kind == "remove" and each.node == name for each in process.agreement.layout.history)
            if removed:
                await served.settle(SETTLE_S)
            elif name not in process.config.nodes:
                problem = f"node {name} was not added to cluster {process.config.cluster}: the change was undone"
                self.undone = Closed(f"{problem}; start it again, and it waits anew")
            logger.info("node runs here no longer: cluster=%s node=%s", process.config.cluster, name)
            del process.served[name]
            await served.stop()

    async def _start_new_ones(self) -> None:
        process = self._process
        if not process.runs_all:
            return
        for name in [each for each in process.config.nodes if each not in process.served]:
            served = await process.new_node(name)
            try:
                await served.listen()
                for each in process.served.values():
                    each.connect(process.served)
                await served.start()
            except (SeriatimError, OSError):
                del process.served[name]
                await served.stop()
                raise
