"""One node of the tree, running in this process: its machine, its journal, its port to the broker.

How a node is rebuilt from its journal, and which changes of the configuration it takes, is in founding.py. The same
host serves the sequencer server and the sequencer embedded in `memory://`.
"""

import asyncio
import logging
from collections.abc import Container

from seriatim.brokers import Broker, Port
from seriatim.brokers.naming import check_topic
from seriatim.model import BROKER, Address, ConnectionFailed, InputError, Node, RequestRefused, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.messages import Refused, Subscribe, Ticket, Update
from seriatim.runtime import Clock, Driver, Journal, Switchboard
from seriatim.runtime.switchboard import Outlet
from seriatim.server.founding import Rebuilt, encode_founded, encode_snapshot, rebuild, without_journal

logger = logging.getLogger(__name__)


class NodeHost:
    """Starts, runs and stops one node. `failed` is done when the node ended by itself: fenced, or a broken journal."""

    def __init__(
        self,
        tree: SequencingTree,
        node: Node,
        options: TreeOptions,
        *,
        broker: Broker,
        switchboard: Switchboard,
        journal: Journal,
    ) -> None:
        self.tree = tree
        self.node = node
        self.options = options
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._broker = broker
        self._switchboard = switchboard
        self._journal = journal
        self._port: Port | None = None
        self._driver: Driver | None = None
        self._deliver: Outlet
        self._numbered: Container[Topic]  # topics that have a number here, so their names were taken before

    @property
    def driver(self) -> Driver:
        """The running driver."""
        assert self._driver is not None, "start it first"
        return self._driver

    @property
    def epoch(self) -> int:
        """How often a process has taken the node over."""
        return self.machine.epoch

    @property
    def machine(self) -> SequencerNode:
        """The node's machine, to look at."""
        machine = self.driver.machine
        assert isinstance(machine, SequencerNode)
        return machine

    async def start(self) -> None:
        """Open the journal (which fences or refuses any other process), rebuild the node, and serve.

        Raises what keeps it from that; the journal is closed again then.
        """
        try:
            rebuilt = rebuild(self.tree, self.node, self.options, await self._journal.open())
            if rebuilt.is_new and self.options.mode == "log":
                rebuilt = await self._without_journal() or rebuilt
            if rebuilt.founded is not None:
                await self._journal.append([encode_founded(rebuilt.founded)])
        except BaseException:
            await self._journal.close()
            raise
        machine, founded = rebuilt.machine, rebuilt.current
        clock = Clock(rebuilt.at_least)
        self._port = self._broker.attach(self.node, self._from_broker)
        self._driver = driver = Driver(
            self.node,
            machine,
            clock,
            send=self._send,
            journal=self._journal,
            encode_state=lambda: encode_snapshot(founded, machine, clock.now_ms()),
        )
        self._deliver = driver.deliver
        self._numbered = machine.state.sequencer.homes
        driver.failed.add_done_callback(self._on_failed)
        self._switchboard.attach(self.node, self._from_network)
        driver.start()
        logger.info("node started", extra={"node": self.node, "epoch": machine.epoch})

    async def _without_journal(self) -> Rebuilt | None:
        """A new node that has stamped before is an old one without its journal. It may go on, but not in silence, and
        in a later epoch: what is said in an earlier one is refused by everybody who has heard the old one."""
        extra = {"node": self.node}
        try:
            epoch = await self._broker.stamped_epoch(self.node)
        except (ConnectionFailed, RequestRefused) as error:
            logger.warning("not known whether this node is new", extra={**extra, "reason": str(error)})
            return None
        if epoch is None:
            return None
        said = "the journal is empty, but the broker has stamps of this node: it has lost its journal"
        effect = "subscribers begin their topics anew, with a gap; durable subscriptions are not known any more"
        fix = "stop it, restore the journal and start it again; or go on, and let durable subscriptions begin anew"
        if len(self.tree.parents) > 1:
            effect = "its links to other nodes begin again, and theirs do not: one of them may stop, or wait for ever"
            fix = "stop it, restore the journal and start it again; or begin anew, with empty journals on all nodes"
        logger.warning(said, extra={**extra, "effect": effect, "fix": fix})
        return without_journal(self.tree, self.node, self.options, epoch)

    async def stop(self) -> None:
        """Orderly: what is journaled is sent, then the journal is closed."""
        self._switchboard.unplug(self.node)
        if self._driver is not None:
            await self._driver.stop()
        if self._port is not None:
            await self._port.close()
        await self._journal.close()

    def _from_network(self, source: Address, message: Payload) -> None:
        """A name that no broker would take goes no further: it would be in the journal, and asked for, for ever."""
        kind = type(message)
        if kind is Ticket and message.topic in self._numbered:
            self._deliver(source, message)  # nearly all that comes
            return
        named: frozenset[Topic] = frozenset()
        if kind is Subscribe:
            named, request = message.topics | message.left | {message.topic}, message.version
        elif kind is Update:
            named, request = message.topics, message.version
        elif kind is Ticket:
            named, request = frozenset({message.topic}), message.request
        for topic in named:
            try:
                check_topic(topic)
            except InputError as error:
                logger.warning("refused", extra={"at": self.node, "source": source, "reason": str(error)})
                self._switchboard.send(self.node, source, Refused(request, topic, str(error)))
                return
        self._deliver(source, message)

    def _from_broker(self, message: Payload) -> None:
        self._deliver(BROKER, message)

    def _send(self, source: Address, target: Address, message: Payload) -> None:
        if target == BROKER:
            assert self._port is not None, "attached before the driver starts"
            self._port.send(message)
        else:
            self._switchboard.send(source, target, message)

    def _on_failed(self, failed: "asyncio.Future[BaseException]") -> None:
        self._switchboard.unplug(self.node)
        if not failed.cancelled() and not self.failed.done():
            logger.error("node stopped", extra={"node": self.node, "reason": str(failed.result())})
            self.failed.set_result(failed.result())
