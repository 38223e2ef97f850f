"""SRPT played by its own machines: what the models of paper 001 are compared with."""

from collections.abc import Sequence

from seriatim.lab.experiments.paper001.broker_model import Latencies
from seriatim.lab.experiments.paper001.tree_worlds import THE_PAPERS, TreeWorld, is_srpt_pub, settled_nodes
from seriatim.lab.papers.srpt import Broker, Client, Overlay
from seriatim.lab.papers.srpt.messages import Request
from seriatim.lab.sim import PacketDelays
from seriatim.model import Address
from seriatim.protocols.machine import Payload

TOPIC = "T"


class SrptWorld(TreeWorld):
    """SRPT-S; `roots` by topic."""

    def __init__(
        self, size: int, roots: dict[str, int], members: Sequence[int] | None = None, delays: PacketDelays = THE_PAPERS
    ) -> None:
        self.overlay = Overlay(range(size), roots)
        super().__init__(delays, self.overlay.address)
        joined = range(size) if members is None else members
        for id, node in settled_nodes(self.overlay, {topic: joined for topic in roots}).items():
            self.add(id, node, is_srpt_pub)

    def on_message(self, id: int, source: Address, message: Payload, now: float) -> None:
        if type(message) is Request:
            self.on_received(id, message.event.id, source, now)
        super().on_message(id, source, message, now)


class BrokerWorld(TreeWorld):
    """Brokers 0 … brokers - 1, and clients from there on, dealt out to the brokers in turn; all of them subscribe."""

    def __init__(self, brokers: int, clients: int, root: int) -> None:
        self.brokers = brokers
        self.overlay = Overlay(range(brokers), {TOPIC: root}, prefix="broker")
        super().__init__(THE_PAPERS, self._address)
        machines = {id: Broker(self.overlay, id) for id in range(brokers)}
        for id in range(brokers, brokers + clients):
            broker = self.broker_of(id)
            client = Client(self.overlay.address(broker))
            branch = client.branch(TOPIC)
            branch.subscribed = branch.attached = True
            machines[broker].branch(TOPIC).children[self._address(id)] = 1
            self.add(id, client, is_srpt_pub)
        for id, machine in machines.items():
            machine.branch(TOPIC).attached = True
            parent = self.overlay.parent(TOPIC, id)
            if parent is not None:
                machines[parent].branch(TOPIC).children[self.overlay.address(id)] = 1
        for id, machine in machines.items():
            machine.sort_children(machine.branch(TOPIC))
            self.add(id, machine, is_srpt_pub)

    def broker_of(self, client: int) -> int:
        return (client - self.brokers) % self.brokers

    def latencies(self) -> Latencies:
        """Of what has been played."""
        tree, last, count = 0.0, 0.0, 0
        for seen in self.seen.values():
            for id, time in seen.received.items():
                if id >= self.brokers and id != seen.source:
                    at_broker = seen.received[self.broker_of(id)]
                    tree += at_broker - seen.at
                    last += time - at_broker
                    count += 1
        return Latencies(tree / count, last / count)

    def _address(self, id: int) -> Address:
        return self.overlay.address(id) if id < self.brokers else f"client{id}"

    def on_message(self, id: int, source: Address, message: Payload, now: float) -> None:
        if type(message) is Request and id == self.overlay.root(TOPIC):
            self.on_received(id, message.event.id, source, now)
        super().on_message(id, source, message, now)
