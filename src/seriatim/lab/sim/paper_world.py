"""Paper 000's algorithm as printed, in a simulated world without crashes and loss, which it cannot handle."""

from functools import partial

from seriatim.lab.papers.paper000 import Publish, Publisher, Subscribe, Subscribed, Subscriber, Unsubscribe, deploy
from seriatim.lab.papers.paper000.messages import CompletedSubscription, EnsNotify, EnsPublish
from seriatim.lab.sim.delays import LOCAL_NETWORK, WIDE_NETWORK
from seriatim.lab.sim.engine import Simulator
from seriatim.lab.sim.network import reliable_fifo
from seriatim.lab.sim.process import always
from seriatim.lab.sim.recorder import Recorder
from seriatim.lab.sim.scenario import Changing, Crash, Publishing, Replacement, Scenario
from seriatim.model import Address, Event, InputError, Notification, Number, Topic
from seriatim.protocols.machine import Payload


class PaperWorld:
    """A scenario of the printed algorithm, ready to run. The tree's shape is ignored: topics are ranked by name."""

    def __init__(self, scenario: Scenario, record_messages: bool = False) -> None:
        if scenario.has_crashes or scenario.loss or scenario.duplication or scenario.broker != "fifo":
            raise InputError(
                "protocol", "paper000 has no answer to crashes, loss or disorder", "leave these faults out"
            )
        self.recorder = Recorder()
        delay = LOCAL_NETWORK if scenario.delay == "local" else WIDE_NETWORK
        self.simulator = Simulator(scenario.seed, reliable_fifo(delay), self._notified, record_messages)
        self._wanted: dict[Address, set[Topic]] = {name: set() for name in scenario.subscribers}
        self._starts: dict[Address, dict[Topic, Number]] = {name: {} for name in scenario.subscribers}
        self._events = dict.fromkeys(scenario.publishers, 0)
        self._numbers: dict[str, Number] = {}
        machines = deploy(scenario.homes, {name: () for name in scenario.subscribers}, scenario.publishers)
        for address, machine in machines.items():
            self.simulator.add(address, always(machine), observe=partial(self._observe, address))

    def publish(self, act: Publishing) -> None:
        for topic in act.topics:
            self._events[act.publisher] += 1
            event = Event(f"{act.publisher}-{self._events[act.publisher]}", topic, act.publisher)
            self.recorder.published(event, act.publisher, self.simulator.now)
            self.simulator.command(act.publisher, Publish(event))

    def change(self, act: Changing) -> None:
        self._wanted[act.subscriber] = (self._wanted[act.subscriber] | act.add) - act.remove
        for topic in sorted(act.remove):
            self.simulator.command(act.subscriber, Unsubscribe(topic))
        for topic in sorted(act.add):
            self.simulator.command(act.subscriber, Subscribe(topic))
        self._note_topics(act.subscriber)

    def crash(self, fault: Crash) -> None:
        raise AssertionError("refused in the constructor")

    def replace(self, fault: Replacement) -> None:
        raise AssertionError("refused in the constructor")

    def heal(self) -> None:
        self.simulator.heal()

    def numbers(self) -> dict[str, Number]:
        """Which event has which number: what passed through the event notification service."""
        return self._numbers

    def unfinished(self) -> list[str]:
        sentences = []
        for name in self._wanted:
            state = self._subscriber(name).state
            if state.opening is not None:
                sentences.append(f"{name}: its subscription to {state.opening} is not complete")
        for name in self._events:
            publisher = self.simulator.machine(name)
            assert isinstance(publisher, Publisher)
            sentences += [f"{name}: {event_id} waits for its timestamp" for event_id in publisher.state.outgoing]
        return sentences

    def explain(self, subscriber: str) -> list[str]:
        return [
            f"{held.topic} {held.number} is held: {held.waits_for} is at {held.reached}, must be at {held.wanted}"
            for held in self._subscriber(subscriber).explain()
        ]

    def explain_nodes(self) -> list[str]:
        return []  # topic managers answer at once and wait for nobody

    def _subscriber(self, name: Address) -> Subscriber:
        machine = self.simulator.machine(name)
        assert isinstance(machine, Subscriber)
        return machine

    def _note_topics(self, name: Address) -> None:
        state = self._subscriber(name).state
        starts, self._starts[name] = self._starts[name], {}
        self.recorder.holds(name, set(state.topics) - {state.opening}, starts)

    def _observe(self, address: Address, source: Address, message: Payload, now: float) -> None:
        match message:
            case EnsPublish(topic, event, timestamp) if event is not None:
                self._numbers[event.id] = timestamp[topic]
            case EnsNotify(_, event) if event is not None:
                self.recorder.received(address, event.id, now)
            case CompletedSubscription(timestamp):
                opening = self._subscriber(address).state.opening
                if opening is not None:
                    self._starts[address][opening] = timestamp[opening]

    def _notified(self, address: Address, notification: Payload, now: float) -> None:
        match notification:
            case Notification():
                self.recorder.notified(address, notification, now)
            case Subscribed():
                self._note_topics(address)
