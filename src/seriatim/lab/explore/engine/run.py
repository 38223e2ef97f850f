"""One execution of a world, stepped in place: for random walks, replays and the way into an exhaustive search.

`Run` puts channels between the processes of a world, and can end its faults and let it come to rest.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from seriatim.lab.explore.engine.checks import Fact, Issued, Violation
from seriatim.lab.explore.engine.process import Process, at
from seriatim.lab.explore.engine.show import show, show_transition
from seriatim.lab.explore.engine.world import NO_BUDGET, Channel, Transition, World
from seriatim.model import APPLICATION, Address, InputError, SeriatimError
from seriatim.protocols.machine import Effects, Payload

DRAIN_LIMIT = 100_000  # deliveries: no world here needs as many, so a world that does never comes to rest

# A machine that raises one of these has failed: nothing a world does may break a machine.
FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, SeriatimError)


class ExplorerError(SeriatimError):
    """The world is not what its description says, or does not come to rest."""


class Run:
    """A world under way. With `processes`, one that goes on from where these came to rest."""

    def __init__(self, world: World, processes: dict[Address, Process] | None = None) -> None:
        self.world = world
        self.channels: dict[Channel, deque[Payload]] = {}  # never holds an empty queue
        self.issued: list[Issued] = []
        self.facts: dict[str, tuple[Any, dict[Address, float]]] = {}  # answers, and when by the clocks of the keepers
        self.contradictions: list[Violation] = []
        self.failures: list[Violation] = []
        if processes is not None:
            self.processes = processes
            return
        self.processes = {
            address: Process(world, address, role.create(), world.budgets.get(address, NO_BUDGET))
            for address, role in world.roles.items()
        }
        for address in self.processes:
            self.pass_time(address)
        self.drain()
        for address, command in world.setup:
            self.issue_setup(address, command)

    def issue_setup(self, address: Address, command: Payload) -> None:
        """A command from before the scripts; everything it leads to happens at once."""
        process = self.processes[address]
        assert process.machine is not None, "nobody dies before the run begins"
        effects = process.machine.step(APPLICATION, command, process.clock)
        process.answered -= self.world.answers(command)  # so that only answers to the script count
        process.obey(effects)
        self.send(address, effects)
        self.drain()

    # ── what can happen, and letting it happen ────────────────────────────────────────────────────────────────────

    def take(self, transition: Transition) -> Payload | None:
        """Let it happen; returns the message it consumed, if any."""
        message = self._pop(transition) if transition.source else None
        process = self.processes[transition.target]
        told = message
        if transition.kind == "issue":
            told = self.world.prepared(transition.target, process.script[process.issued], self.machine)
            notified = {address: len(each.log) for address, each in self.processes.items()}
            self.issued.append(Issued(transition.target, told, notified))
        try:
            effects = process.take(transition, told)
        except FAILURES as error:
            if transition.kind == "haunt":  # it was replaced, and nobody hears of its end
                process.zombie = None
            else:
                self._fail(process, show_transition(transition, told), error)
            return message
        self.send(transition.target, effects)
        return message

    def pass_time(self, address: Address) -> None:
        """A tick that no budget counts."""
        process = self.processes[address]
        try:
            effects = process.tick()
        except FAILURES as error:
            self._fail(process, "a tick", error)
            return
        self.send(address, effects)

    def _fail(self, process: Process, what: str, error: Exception) -> None:
        sentence = f"{process.address} failed at {what}: {type(error).__name__}: {error}"
        self.failures.append(Violation("failure", sentence))
        process.machine = process.wake_at = None

    def drain(self) -> None:
        """Deliver everything, in a fixed order, until nothing is on its way."""
        for _ in range(DRAIN_LIMIT):
            if not self.channels:
                return
            self.take(Transition("deliver", *at(next(iter(self.channels)))))
        raise ExplorerError(f"{self.world.name}: still busy after {DRAIN_LIMIT} deliveries")

    def end_faults(self) -> None:
        """End all faults: nothing fails from now on, and no replaced process still acts."""
        for process in self.processes.values():
            process.budget, process.zombie = NO_BUDGET, None

    def settle(self) -> list[Violation]:
        """Faults are over: let messages arrive and time pass until nothing is owed, or patience ends."""
        for _ in range(self.world.patience):
            self.drain()
            wishes = {address: wish for address, each in self.processes.items() if (wish := each.wake_at) is not None}
            if not wishes:
                break
            if not self.world.checks.stopped(self):
                return []
            soonest = min(wishes.values())
            for process in self.processes.values():  # clocks may have run apart; from now on they all move
                process.clock = max(process.clock, soonest)
            for address, wish in wishes.items():
                if wish == soonest:
                    self.pass_time(address)
        self.drain()
        return self.world.checks.stopped(self)

    def send(self, source: Address, effects: Effects) -> None:
        """Put messages on their channels."""
        world = self.world
        for channel, message in envelopes(world, source, effects):
            for fact in world.checks.facts(channel.target, message):
                self._lay_down(fact)
            queue = self.channels.get(channel)
            if queue is None:
                queue = self.channels[channel] = deque()
            queue.append(message)
        for payload in effects.notify:
            for target in world.hands_on(source, payload):
                self.channels.setdefault(Channel(APPLICATION, target), deque()).append(payload)

    def _lay_down(self, fact: Fact) -> None:
        now = {keeper: self.processes[keeper].clock for keeper in fact.keepers}
        known, since = self.facts.get(fact.question, (fact.answer, now))
        passed = max((clock - since[keeper] for keeper, clock in now.items()), default=0.0)
        if known != fact.answer and passed < fact.lifetime_ms:
            sentence = f"{fact.question}: {show(known)} at first, {show(fact.answer)} later"
            self.contradictions.append(Violation("contradiction", sentence))
        self.facts[fact.question] = fact.answer, now

    def _pop(self, transition: Transition) -> Payload:
        queue = self.channels[transition.channel]
        message = queue.popleft()
        if not queue:
            del self.channels[transition.channel]
        return message

    # ── looking at it ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def addresses(self) -> Sequence[Address]:
        return list(self.processes)

    def machine(self, address: Address) -> Any:
        return self.processes[address].machine

    def log(self, address: Address) -> Sequence[Payload]:
        return self.processes[address].log

    def waiting(self, address: Address) -> int:
        return self.processes[address].waiting()

    def follow(self, way: Iterable[Transition]) -> None:
        """Go this way; transitions that cannot happen (any more) are left out."""
        for transition in way:
            if self.is_enabled(transition):
                self.take(transition)

    def is_enabled(self, transition: Transition) -> bool:
        process = self.processes[transition.target]
        if transition.kind == "suspect":
            return process.machine is not None and self.processes[transition.lane].machine is None
        if not transition.source:
            return transition in process.own_transitions()
        channel = transition.channel
        queue = self.channels.get(channel)
        if queue is None or transition not in process.channel_transitions(channel, queue[0]):
            return False
        lost_with = self.world.lost_with
        if transition.kind != "lose" or lost_with is None:
            return True
        return lost_with(self.processes[channel.source].machine, queue[0])

    def finish(self) -> list[Violation]:
        """End the faults, let everything arrive that can, and say what is broken."""
        self.end_faults()
        owed = self.settle()
        return [*self.failures, *self.violations(), *owed]

    def violations(self) -> list[Violation]:
        """What the logs show to be broken so far."""
        checks = self.world.checks
        logs = [(address, process.log) for address, process in self.processes.items() if process.log]
        found: list[Violation | None] = [*self.contradictions, *(checks.log(address, log) for address, log in logs)]
        for index, (one, log) in enumerate(logs):
            found.extend(checks.pair(one, log, other, other_log) for other, other_log in logs[index + 1 :])
        broken = [violation for violation in found if violation is not None]
        knot = checks.everybody(dict(logs)) if not broken else None
        return broken if knot is None else [knot]


def envelopes(world: World, source: Address, effects: Effects) -> list[tuple[Channel, Payload]]:
    """What is to be sent, with the channel each message travels on."""
    found = []
    for addressee, whole in effects.send:
        for target, message in world.route(addressee, whole):
            if target not in world.roles:
                problem = f"nobody has the address {target!r}"
                raise InputError(f"message of {source}", problem, "add a role for it to the world")
            found.append((Channel(source, target, world.lane(source, target, message)), message))
    return found
