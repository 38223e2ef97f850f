"""One execution of a world, stepped in place: for random walks, replays and the way into an exhaustive search.

A `Process` is one machine and everything that belongs to it alone: its clock, journal, log, script and budget. `Run`
adds the channels between them. `space` freezes and thaws the very same processes, so both drivers mean the same by a
transition.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from seriatim.explore.checks import Fact, Issued, Violation
from seriatim.explore.show import show, show_transition
from seriatim.explore.world import NO_BUDGET, Budget, Channel, Stateful, Transition, World, encode
from seriatim.model import APPLICATION, Address, InputError, SeriatimError
from seriatim.protocols.machine import Effects, Payload

DRAIN_LIMIT = 100_000  # deliveries: no world here needs as many, so a world that does is chattering for ever


# A machine that raises one of these has failed: nothing a world does may break a machine.
FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, SeriatimError)


class ExplorerError(SeriatimError):
    """The world is not what its description says, or does not come to rest."""


class Zombie:
    """A process that was replaced and does not know it yet: its machine, and how much of the journal it has seen."""

    __slots__ = ("journal_last", "lives", "machine", "wake_at")

    def __init__(self, machine: Stateful, journal_last: int, wake_at: float | None) -> None:
        self.machine = machine
        self.journal_last = journal_last
        self.wake_at = wake_at
        self.lives = 8  # how often it may still act


class Process:
    """One machine with all that is its own. Time is the machine's own clock: only its own ticks move it."""

    __slots__ = (
        "address",
        "answered",
        "budget",
        "clock",
        "issued",
        "journal",
        "log",
        "machine",
        "wake_at",
        "world",
        "zombie",
    )

    def __init__(self, world: World, address: Address) -> None:
        self.world = world
        self.address = address
        self.machine: Stateful | None = world.roles[address].create()
        self.zombie: Zombie | None = None
        self.issued = 0
        self.answered = 0
        self.clock = 0.0
        self.wake_at: float | None = None
        self.journal: list[Payload] = []
        self.log: list[Payload] = []
        self.budget: Budget = world.budgets.get(address, NO_BUDGET)

    @property
    def script(self) -> Sequence[Payload]:
        return self.world.scripts.get(self.address, ())

    def waiting(self) -> int:
        """Answers owed for the commands issued so far. A dead machine owes nothing."""
        if self.machine is None:
            return 0
        answers = self.world.answers
        return sum(answers(command) for command in self.script[: self.issued]) - self.answered

    def can_issue(self) -> bool:
        """Whether its application may give the next command now."""
        if self.machine is None or self.issued == len(self.script):
            return False
        return self.address not in self.world.one_at_a_time or self.waiting() <= 0

    def own_transitions(self) -> list[Transition]:
        """What can happen to this machine without a message."""
        if self.machine is None:
            return []
        found = []
        if self.can_issue():
            found.append(Transition("issue", self.address))
        if self.budget.ticks and self.wake_at is not None:
            found.append(Transition("tick", self.address))
        if self.budget.crashes:
            found.append(Transition("crash", self.address))
        if self.budget.deaths:
            found.append(Transition("die", self.address))
        if self.budget.takeovers and self.zombie is None:
            found.append(Transition("replace", self.address))
        if self.zombie is not None:
            found.append(Transition("haunt", self.address))
        return found

    def channel_transitions(self, channel: Channel, message: Payload, which: bytes = b"") -> list[Transition]:
        """What can be done with a message that is next on a channel to this machine."""
        found = [Transition("deliver", *at(channel), which)]
        if self.machine is not None:
            if self.budget.crashes:
                found.append(Transition("crash", *at(channel), which))
            if (self.budget.losses or self.zombie is not None) and self.world.may_lose(channel, message):
                if self.budget.losses:
                    found.append(Transition("lose", *at(channel), which))
                if self.zombie is not None:
                    found.append(Transition("haunt", *at(channel), which))
        return found

    def take(self, transition: Transition, message: Payload | None) -> Effects:
        """Let it happen. The effects that remain to be carried out are the messages to send."""
        kind, machine = transition.kind, self.machine
        if machine is None:
            return Effects()
        if kind == "deliver":
            effects = machine.step(self._sender(transition), message, self.clock)
        elif kind == "issue":
            command = self.script[self.issued]
            self.issued += 1
            effects = machine.step(APPLICATION, command, self.clock)
        elif kind == "tick":
            self._spend(ticks=1)
            effects = self._tick(machine)
        elif kind == "crash":
            self._spend(crashes=1)
            if transition.source:
                self.journal.extend(machine.step(self._sender(transition), message, self.clock).persist)
            effects = self._restart()
        elif kind == "replace":
            self._spend(takeovers=1)
            self.zombie = Zombie(machine, len(self.journal), self.wake_at)
            effects = self._restart()
        elif kind == "haunt":
            return self._haunt(transition, message)
        elif kind == "lose":
            self._spend(losses=1)
            return Effects()
        else:
            self._spend(deaths=1)
            self.machine = self.wake_at = None
            return Effects()
        self.obey(effects)
        return effects

    def tick(self) -> Effects:
        """Its time has come, by no fault."""
        if self.machine is None:
            return Effects()
        effects = self._tick(self.machine)
        self.obey(effects)
        return effects

    def obey(self, effects: Effects) -> None:
        """Carry out what concerns this machine alone: its journal, its application and its next waking."""
        self.journal.extend(effects.persist)
        self.wake_at = effects.wake_at
        if effects.notify:
            noted = map(self.world.noted, effects.notify)
            self.log.extend(payload for payload in noted if payload is not None)
            self.answered += sum(map(self.world.is_answer, effects.notify))

    def _sender(self, transition: Transition) -> Address:
        return self.world.seen_as.get(transition.source, transition.source)

    def _tick(self, machine: Stateful) -> Effects:
        self.clock = max(self.clock, self.wake_at or 0.0)
        return machine.tick(self.clock)

    def _restart(self) -> Effects:
        """Another process takes over. Whoever waited for an answer of the old one waits no more."""
        self.answered += max(0, self.waiting())
        restore = self.world.roles[self.address].restore
        assert restore is not None, "checked when the world was made"
        self.machine = restore(self.journal)
        return self.machine.tick(self.clock)

    def _haunt(self, transition: Transition, message: Payload | None) -> Effects:
        """The replaced process acts. Its journal refuses it, if it gets as far as that."""
        zombie = self.zombie
        assert zombie is not None, "only a process that was replaced haunts"
        if transition.source:
            effects = zombie.machine.step(self._sender(transition), message, self.clock)
        else:
            effects = zombie.machine.tick(max(self.clock, zombie.wake_at or 0.0))
        zombie.wake_at = effects.wake_at
        zombie.lives -= 1
        if effects.persist:
            if self.world.fenced and zombie.journal_last != len(self.journal):
                self.zombie = None
                return Effects()
            self.journal.extend(effects.persist)
            zombie.journal_last = len(self.journal)
        if not zombie.lives:
            self.zombie = None
        return effects

    def _spend(self, **amounts: int) -> None:
        left = {name: getattr(self.budget, name) - amount for name, amount in amounts.items()}
        self.budget = replace(self.budget, **left)


class Run:
    """A world under way. With `processes`, one that goes on from where these came to rest."""

    def __init__(self, world: World, processes: dict[Address, Process] | None = None) -> None:
        self.world = world
        self.channels: dict[Channel, deque[Payload]] = {}  # never holds an empty queue
        self.bags: dict[Channel, list[tuple[bytes, Payload]]] = {}  # the same for bags, sorted
        self.issued: list[Issued] = []
        self.facts: dict[str, tuple[Any, float]] = {}
        self.contradictions: list[Violation] = []
        self.failures: list[Violation] = []
        if processes is not None:
            self.processes = processes
            return
        self.processes = {address: Process(world, address) for address in world.roles}
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
            told = process.script[process.issued]
            notified = {address: len(each.log) for address, each in self.processes.items()}
            self.issued.append(Issued(transition.target, told, notified))
        try:
            effects = process.take(transition, message)
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
            if self.channels:
                self.take(Transition("deliver", *at(next(iter(self.channels)))))
            elif self.bags:
                channel, bag = next(iter(self.bags.items()))
                self.take(Transition("deliver", *at(channel), bag[0][0]))
            else:
                return
        raise ExplorerError(f"{self.world.name}: still chattering after {DRAIN_LIMIT} deliveries")

    def end_faults(self) -> None:
        """From now on nothing fails, and nobody who was replaced still acts."""
        for process in self.processes.values():
            process.budget, process.zombie = NO_BUDGET, None

    def settle(self) -> list[Violation]:
        """Faults are over: let messages arrive and time pass until nothing is owed, or patience ends."""
        for _ in range(self.world.patience):
            self.drain()
            wishes = {address: wish for address, each in self.processes.items() if (wish := each.wake_at) is not None}
            if not wishes or not self.world.checks.stopped(self):
                break
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
                self._lay_down(fact, self.processes[source].clock)
            if world.is_bag(channel):
                insort(self.bags.setdefault(channel, []), (encode(message), message), key=_first)
                continue
            queue = self.channels.get(channel)
            if queue is None:
                queue = self.channels[channel] = deque()
            queue.append(message)

    def _lay_down(self, fact: Fact, now: float) -> None:
        known, since = self.facts.get(fact.question, (fact.answer, now))
        if known != fact.answer and now - since < fact.lifetime_ms:
            sentence = f"{fact.question}: {show(known)} at first, {show(fact.answer)} later"
            self.contradictions.append(Violation("contradiction", sentence))
        self.facts[fact.question] = fact.answer, now

    def _pop(self, transition: Transition) -> Payload:
        channel = transition.channel
        if not transition.message:
            queue = self.channels[channel]
            message = queue.popleft()
            if not queue:
                del self.channels[channel]
            return message
        bag = self.bags[channel]
        index = next(index for index, (which, _) in enumerate(bag) if which == transition.message)
        message = bag.pop(index)[1]
        if not bag:
            del self.bags[channel]
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
            if self._is_enabled(transition):
                self.take(transition)

    def _is_enabled(self, transition: Transition) -> bool:
        process = self.processes[transition.target]
        if not transition.source:
            return transition in process.own_transitions()
        channel, which = transition.channel, transition.message
        if which:
            waiting = dict(self.bags.get(channel, ()))
            return which in waiting and transition in process.channel_transitions(channel, waiting[which], which)
        queue = self.channels.get(channel)
        return queue is not None and transition in process.channel_transitions(channel, queue[0])

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
        return [violation for violation in found if violation is not None]


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


def at(channel: Channel) -> tuple[Address, Address, str]:
    """Target, source and lane, as a transition names them."""
    return channel.target, channel.source, channel.lane


def _first(pair: tuple[bytes, Payload]) -> bytes:
    return pair[0]
