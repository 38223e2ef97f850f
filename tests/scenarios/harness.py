"""Runs a scenario: real machines, one message at a time, in an order the transcript decides.

Messages wait on channels: one per source and target, and one per topic from the broker to each subscriber, since
brokers do not order topics among each other. `run` always delivers the oldest message of all channels that are not
held, so a scenario is deterministic.
"""

from collections import defaultdict, deque
from copy import deepcopy
from dataclasses import dataclass

from msgspec.structs import replace

from seriatim.audit import Verdict, audit
from seriatim.lab.sim.recorder import Recorder
from seriatim.model import APPLICATION, BROKER, Address, Event, Gap, InputError, Notification, Number, Topic
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.protocols.tree.messages import Move
from tests.scenarios.show import show, show_value
from tests.scenarios.systems import Declaration, System, build
from tests.scenarios.transcript import Transcript

AUDITED = ("tno", "acyclic", "integrity", "completeness")
DELIVERIES_MAX = 10_000  # of one `run`: a world that chatters on is broken


@dataclass(frozen=True, order=True)
class Channel:
    """`lane` is the topic on the way from the broker to a subscriber."""

    source: Address
    target: Address
    lane: str = ""

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


def play(transcript: Transcript) -> Transcript:
    """Run the transcript from the start and put what happens into it."""
    first, *rest = transcript.blocks()
    declaration = Declaration()
    for command in first.commands:
        declaration.read(command)
    scenario = Scenario(build(declaration), declaration)
    first.output[:] = []
    for block in rest:
        block.output[:] = []
        for command in block.commands:
            block.output.extend(scenario.do(command))
        block.output = block.output or ["nothing happens"]
    return transcript


class Scenario:
    """A world under way."""

    def __init__(self, system: System, world: Declaration) -> None:
        self.system = system
        self.subscribers = list(world.subscribers)
        self.now = 0.0
        self.channels: dict[Channel, deque[tuple[int, Payload]]] = defaultdict(deque)
        self.held: set[Channel] = set()
        self.sent = 0
        self.down: set[Address] = set()
        self.copies: dict[Address, Machine] = {}
        self.wake_at: dict[Address, float] = {}
        self.journals: dict[Address, list[Payload]] = defaultdict(list)
        self.logs: dict[Address, list[Notification | Gap]] = {name: [] for name in self.subscribers}
        self.holding: dict[Address, set[str]] = {name: set() for name in self.subscribers}
        self.recorder = Recorder()
        self.numbers: dict[str, Number] = {}  # of every event that the broker handed out
        self.output: list[str] = []
        self._set_up()

    def _set_up(self) -> None:
        """Let the world begin: every machine wakes up once, and initial subscriptions are taken."""
        for name in self.subscribers:
            held = self.system.held(name)
            self.recorder.holds(name, held, dict.fromkeys(held, 0))
        for address, machine in self.system.machines.items():
            self._obey(address, machine.tick(self.now))
        for name, topics in self.system.setup.items():
            self._change(name, topics, [])
            self.drain(aloud=False)

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────

    def do(self, command: str) -> list[str]:
        """Carry out one command and say what happened."""
        self.output = []
        match command.split():
            case ["publish", publisher, topic, *ids]:
                events = tuple(Event(each, topic, publisher) for each in ids)
                for event in events:
                    self.recorder.published(event, publisher, self.now)
                self._tell(publisher, self.system.publish(events))
            case ["subscribe", subscriber, *topics]:
                self._change(subscriber, topics, [])
            case ["unsubscribe", subscriber, *topics]:
                self._change(subscriber, [], topics)
            case ["change", subscriber, *changes]:
                added = [each[1:] for each in changes if each[0] == "+"]
                removed = [each[1:] for each in changes if each[0] == "-"]
                self._change(subscriber, added, removed)
            case ["deliver", source, target, *lane]:
                self._deliver(self._channel(source, target, *lane), aloud=True)
            case ["lose", source, target, *lane]:
                channel = self._channel(source, target, *lane)
                self.output.append(f"{channel}: {show(self._take(channel))} is lost")
            case ["repeat", source, target, *lane]:
                channel = self._channel(source, target, *lane)
                self.channels[channel].append((self._next(), self.channels[channel][0][1]))
                self.output.append(f"{channel}: {show(self.channels[channel][-1][1])} will arrive twice")
            case ["overtake", source, target, *lane]:
                channel = self._channel(source, target, *lane)
                self.channels[channel].rotate(1)
                self.output.append(f"{channel}: {show(self.channels[channel][0][1])} overtakes")
            case ["hold", *ends]:
                self.held.add(Channel(*ends))
                self.output.append(f"{' '.join(ends)} is slow")
            case ["release", *ends]:
                self.held.remove(Channel(*ends))
                self.output.append(f"{' '.join(ends)} is quick again")
            case ["run"]:
                self.drain(aloud=True)
            case ["settle"]:
                self.drain(aloud=False)
            case ["tick", milliseconds]:
                self._pass_time(float(milliseconds))
            case ["copy", address]:
                self.copies[address] = deepcopy(self.system.machines[address])
                self.output.append(f"a standby has the state of {address}")
            case ["fail", "over", address]:
                self.system.machines[address] = self.copies.pop(address)
                self.output.append(f"the standby answers for {address}")
            case ["move", root, topic, home]:
                self._tell(root, [Move(topic, home)])
            case ["crash", address]:
                self.down.add(address)
                self.wake_at.pop(address, None)
                self.output.append(f"{address} is down")
            case ["restart", address]:
                self._restart(address)
            case ["log", subscriber]:
                self.output.append(" ".join(map(_entry, self.logs[subscriber])) or "(nothing)")
            case ["explain", address]:
                held = self.system.explain(address)
                self.output += [f"{what}: {why}" for what, why in held.items()] or ["nothing is held"]
            case ["state", address]:
                self.output += _show_state(self.system.machines[address])
            case ["audit"]:
                self.output += self._audit()
            case _:
                raise AssertionError(f"{command!r} is not a command")
        return self.output

    def drain(self, aloud: bool) -> None:
        """Deliver, oldest message first, until nothing is left that is not held."""
        for _ in range(DELIVERIES_MAX):
            ready = [
                (queue[0][0], channel)
                for channel, queue in self.channels.items()
                if queue and not self._blocked(channel)
            ]
            if not ready:
                return
            self._deliver(min(ready)[1], aloud)
        raise AssertionError(f"still busy after {DELIVERIES_MAX} messages")

    # ── machines ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _change(self, subscriber: Address, add: list[Topic], remove: list[Topic]) -> None:
        self.recorder.joining(subscriber, add)
        self._tell(subscriber, self.system.change(add, remove))

    def _tell(self, address: Address, commands: list[Payload]) -> None:
        for command in commands:
            try:
                effects = self.system.machines[address].step(APPLICATION, command, self.now)
            except InputError as error:
                self.output.append(f"error: {error}")
            else:
                self._obey(address, effects)

    def _deliver(self, channel: Channel, aloud: bool) -> None:
        message = self._take(channel)
        lost = channel.target in self.down
        if aloud and (shown := show(message)):
            self.output.append(f"{channel}: {shown}" + (" is lost" if lost else ""))
        if lost:
            return
        self._obey(channel.target, self.system.machines[channel.target].step(channel.source, message, self.now))

    def _obey(self, address: Address, effects: Effects) -> None:
        self.journals[address].extend(effects.persist)
        if effects.wake_at is None:
            self.wake_at.pop(address, None)
        else:
            self.wake_at[address] = effects.wake_at
        for target, message in effects.send:
            if address == BROKER and (notified := self.system.notified(message)) is not None:
                event, number = notified
                self.numbers[event.id] = number
            lane = getattr(message, "topic", "") if address == BROKER and target in self.logs else ""
            self.channels[Channel(address, target, lane)].append((self._next(), message))
        for told in effects.notify:
            self._notify(address, told)
        if address in self.logs:
            self._look_at(address)

    def _notify(self, address: Address, told: Payload) -> None:
        if isinstance(told, Notification | Gap):
            self.logs[address].append(told)
            self.output.append(f"{address} notified {_entry(told)}")
            if isinstance(told, Notification):
                self.recorder.notified(address, told, self.now)
            return
        self.output.append(f"{address} is told: {show(told)}")
        if address in self.logs and (start := self.system.started(address, told)):
            self.recorder.holds(address, self.recorder.held(address) | start.keys(), start)

    def _look_at(self, subscriber: Address) -> None:
        """Tell what is newly held back, and note which topics were left."""
        held = self.system.explain(subscriber)
        for what, why in held.items():
            if what not in self.holding[subscriber]:
                self.output.append(f"{subscriber} holds {what}: {why}")
        self.holding[subscriber] = set(held)
        topics = self.recorder.held(subscriber)
        if left := topics - self.system.held(subscriber):
            self.recorder.holds(subscriber, topics - left, {})

    def _pass_time(self, milliseconds: float) -> None:
        self.now += milliseconds
        self.output.append(f"{milliseconds:.0f} ms pass")
        due = [address for address, wake_at in sorted(self.wake_at.items()) if wake_at <= self.now]
        for address in due:
            self._obey(address, self.system.machines[address].tick(self.now))

    def _restart(self, address: Address) -> None:
        self.down.remove(address)
        machine = self.system.restore(address, self.journals[address])
        self.system.machines[address] = machine
        self.output.append(f"{address} is back")
        self._obey(address, machine.tick(self.now))

    # ── channels ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _next(self) -> int:
        self.sent += 1
        return self.sent

    def _channel(self, source: Address, target: Address, lane: str = "") -> Channel:
        """The channel with the oldest message, where the command does not name a topic."""
        found = [
            (queue[0][0], channel)
            for channel, queue in self.channels.items()
            if queue and (channel.source, channel.target) == (source, target) and lane in ("", channel.lane)
        ]
        assert found, f"nothing is on its way from {source} to {target} {lane}"
        return min(found)[1]

    def _take(self, channel: Channel) -> Payload:
        return self.channels[channel].popleft()[1]

    def _blocked(self, channel: Channel) -> bool:
        whole = Channel(channel.source, channel.target)
        return bool({channel, whole} & self.held)

    # ── verdicts ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _audit(self) -> list[str]:
        """The reference auditor's verdict. Nothing is on its way any more, so what has not come will not come."""
        waiting = [way for way, queue in self.channels.items() if queue and way.target not in self.down]
        assert not waiting, f"{', '.join(map(str, waiting))}: run first, a verdict needs a world at rest"
        history = self.recorder.history(self.numbers)
        history.publications = [row for row in history.publications if row.number is not None]  # those on the broker
        last = {row.topic: row.number for row in sorted(history.publications, key=lambda row: row.number or 0)}
        history.subscriptions = [
            row if row.until is not None else replace(row, end=last.get(row.topic)) for row in history.subscriptions
        ]
        report = audit(history)
        verdicts = [report.verdicts[name] for name in AUDITED]
        lines = [f"{verdict.guarantee}: {verdict.answer}{_because(verdict)}" for verdict in verdicts]
        return lines + [f"{anomaly.name}: {anomaly.sentence}" for anomaly in report.anomalies_against(AUDITED)]


def _because(verdict: Verdict) -> str:
    return f" ({verdict.reason})" if verdict.answer == "unknown" else ""


def _entry(told: Notification | Gap) -> str:
    if isinstance(told, Gap):
        return f"gap {told.topic} {told.first}..{told.last} ({told.reason})"
    late = ", out of order" if told.out_of_order else ""
    return f"{told.event.id} ({told.event.topic} {told.number}{late})"


def _show_state(machine: Machine) -> list[str]:
    state = machine.state  # type: ignore[attr-defined]  # the seam promises none, but machines under test have one
    return [f"{name}: {show_value(getattr(state, name))}" for name in state.__struct_fields__]
