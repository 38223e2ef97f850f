"""Random worlds of SRPT in the simulator: nodes or clients that subscribe, publish, leave and come back."""

from random import Random

from seriatim.lab.papers.srpt import Broker, Client, Overlay, SrptNode
from seriatim.lab.sim.delays import Uniform
from seriatim.lab.sim.engine import Simulator
from seriatim.lab.sim.network import Link
from seriatim.lab.sim.process import Restore
from seriatim.lab.sim.recorder import Recorder
from seriatim.model import Event, History, Notification
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube.messages import Publish, Subscribe, Subscribed, Unsubscribe

TOPICS = ("A", "B")


class SrptWorld:
    """Users are the nodes themselves (SRPT-S) or clients of brokers (SRPT-B)."""

    def __init__(self, seed: int, variant: str, fifo: bool = True) -> None:
        self.random = Random(f"srpt {seed}")
        self.simulator = Simulator(seed, Link(Uniform(1.0, 60.0), fifo=fifo), self._notified)
        self.recorder = Recorder()
        self.subscribed: dict[tuple[str, str], int] = {}  # while held: how many events had been given to publishers
        self.events: list[Event] = []
        self.notified: dict[str, list[str]] = {}
        ids = self.random.sample(range(24), self.random.randint(2, 10))
        if variant == "S":
            self.overlay = Overlay(ids)
            for id in ids:
                self.simulator.add(self.overlay.address(id), self._node(id))
            self.users = [self.overlay.address(id) for id in ids]
        else:
            self.overlay = Overlay(ids, prefix="broker")
            for id in ids:
                self.simulator.add(self.overlay.address(id), self._broker(id))
            self.users = [f"client{number}" for number in range(12)]
            for user in self.users:
                self.simulator.add(user, self._client(self.overlay.address(self.random.choice(ids))))

    def play(self, acts: int = 60) -> History:
        """A subscription by most, then anything by anybody; at the end, silence."""
        wanted: set[tuple[str, str]] = set()
        now = 0.0
        for number in range(acts):
            now += self.random.expovariate(1 / 20.0)
            user, topic = self.random.choice(self.users), self.random.choice(TOPICS)
            self.simulator.run(until_ms=now)
            if number < len(self.users) or self.random.random() < 0.2:
                command: Payload = Unsubscribe(topic) if (user, topic) in wanted else Subscribe(topic)
                if (user, topic) in wanted:
                    self.subscribed.pop((user, topic), None)
                wanted ^= {(user, topic)}
            else:
                event = Event(f"e{number}", topic, user)
                self.events.append(event)
                self.recorder.published(event, user, now, self.recorder.seen(user))
                command = Publish(event)
            self.simulator.command(user, command)
        self.simulator.run(until_ms=now + 5_000.0)
        return self.recorder.history({}, ())

    def _notified(self, address: str, payload: Payload, now: float) -> None:
        match payload:
            case Notification():
                self.recorder.notified(address, payload, now)
                self.notified.setdefault(address, []).append(payload.event.id)
            case Subscribed(topic):
                self.subscribed[address, topic] = len(self.events)

    def _node(self, id: int) -> Restore:
        return lambda records, epoch: SrptNode(self.overlay, id)

    def _broker(self, id: int) -> Restore:
        return lambda records, epoch: Broker(self.overlay, id)

    def _client(self, broker: str) -> Restore:
        return lambda records, epoch: Client(broker)
