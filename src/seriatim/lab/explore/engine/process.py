"""One machine of a world, and everything that belongs to it alone: its clock, journal, log, script and budget.

`run` steps processes in place, `space` freezes and thaws them: both mean the same by a transition.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from seriatim.lab.explore.engine.world import Budget, Channel, Stateful, Transition, World
from seriatim.model import APPLICATION, Address
from seriatim.protocols.machine import Effects, Payload


@dataclass(slots=True)
class Zombie:
    """A process that was replaced and does not know it yet: its machine, and how much of the journal it has seen."""

    machine: Stateful
    journal_last: int
    wake_at: float | None
    lives: int = 8  # how often it may still act
    journal: list[Payload] | None = None  # its own; None: it shares that of the process that replaced it


@dataclass(slots=True)
class Process:
    """One machine with all that is its own. Time is the machine's own clock: only its own ticks move it."""

    world: World
    address: Address
    machine: Stateful | None
    budget: Budget
    issued: int = 0
    answered: int = 0
    clock: float = 0.0
    wake_at: float | None = None
    journal: list[Payload] = field(default_factory=list)
    log: list[Payload] = field(default_factory=list)
    zombie: Zombie | None = None
    read_to: int = 0  # the journal, by the process that runs; the one that it replaced may append
    lives: int = 1  # as registered: each has a later epoch
    newest: list[Payload] | None = None  # the journal, while a process looks at an older copy of it
    apart: list[Payload] | None = None  # the journal of a second process
    is_healing: bool = False  # the journal was lost, and there is no other one yet

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
        if self.machine is None or self.issued == len(self.script) or not self.world.listens(self.machine):
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
        if self.budget.losses_of_journal and self.newest is None and self.apart is None and self.zombie is None:
            found.append(Transition("forget", self.address))
        if self.budget.copies and self.newest is None and self.apart is None:
            lacks = self.world.aged(self.journal)
            found += [
                Transition("age", self.address, lane=str(each))
                for each in sorted({1, lacks // 2, lacks} - {0})
                if each <= lacks
            ]
            if self.journal and self.zombie is None and self.budget.copies == self.world.budgets[self.address].copies:
                found.append(Transition("double", self.address))  # one or the other: an operator knows which is newest
        return found

    def channel_transitions(self, channel: Channel, message: Payload) -> list[Transition]:
        """What can be done with a message that is next on a channel to this machine."""
        found = [Transition("deliver", *at(channel))]
        if self.machine is not None:
            if self.budget.crashes:
                found.append(Transition("crash", *at(channel)))
            if (self.budget.losses or self.zombie is not None) and self.world.may_lose(channel, message):
                if self.budget.losses:
                    found.append(Transition("lose", *at(channel)))
                if self.zombie is not None and (self.zombie.journal is None or self.world.known_apart(channel)):
                    found.append(Transition("haunt", *at(channel)))
        return found

    def take(self, transition: Transition, message: Payload | None) -> Effects:
        """Let it happen. The effects that remain to be carried out are the messages to send."""
        kind, machine = transition.kind, self.machine
        if machine is None:
            return Effects()
        if kind == "deliver":
            assert message is not None, "there is a message on the channel"
            effects = machine.step(self._sender(transition), message, self.clock)
        elif kind == "issue":
            command = message if message is not None else self.script[self.issued]
            self.issued += 1
            effects = machine.step(APPLICATION, command, self.clock)
        elif kind == "tick":
            self._spend(ticks=1)
            effects = self._tick(machine)
        elif kind == "crash":
            self._spend(crashes=1)
            leaked: list[tuple[Address, Payload]] = []
            if transition.source:
                assert message is not None, "it crashes after this message"
                last = machine.step(self._sender(transition), message, self.clock)
                leaked = [each for each in last.send if self.world.leaks(each[1])]
                self.journal.extend([] if leaked else last.persist)
            effects = self._restart()
            effects.send[:0] = leaked
        elif kind == "replace":
            self._spend(takeovers=1)
            self.zombie = Zombie(machine, len(self.journal), self.wake_at)
            effects = self._restart()
        elif kind == "forget":
            self._spend(losses_of_journal=1)
            self.journal, self.is_healing = [], True
            effects = self._restart()
        elif kind == "age":
            self._spend(copies=1)
            self.newest, self.journal = self.journal, self.journal[: len(self.journal) - int(transition.lane)]
            effects = self._restart()
        elif kind == "double":
            self._spend(copies=1)
            self.apart = list(self.journal)
            self.zombie = Zombie(machine, 0, self.wake_at, journal=self.apart)
            effects = self._restart()
        elif kind == "haunt":
            return self._haunt(transition, message)
        elif kind == "suspect":
            assert self.world.suspicion is not None, "only worlds that know suspicion offer it"
            effects = machine.step(APPLICATION, self.world.suspicion(transition.lane), self.clock)
        elif kind == "lose":
            self._spend(losses=1)
            return Effects()
        else:
            self._spend(deaths=1)
            self.machine = self.wake_at = None
            return Effects()
        effects = self._accepted(effects)
        self.obey(effects)
        return self._heeded(effects)

    def tick(self) -> Effects:
        """Let the machine act at the time that it waits for."""
        if self.machine is None:
            return Effects()
        effects = self._tick(self.machine)
        effects = self._accepted(effects)
        self.obey(effects)
        return self._heeded(effects)

    def _accepted(self, effects: Effects) -> Effects:
        """The journal refuses what this process appends if the one that it replaced has appended since it was read.
        Then it is read again."""
        if not effects.persist or not self.world.fenced or self.read_to == len(self.journal):
            return effects
        return self._restart()

    def _heeded(self, effects: Effects) -> Effects:
        """If the machine says that its journal is not the newest, its operator puts that back, and starts it again."""
        if effects.persist and self.newest is not None:
            self.newest = None  # it acts, and the journal that the replaced process appends to is gone
            if self.zombie is not None and self.zombie.journal is None:
                self.zombie = None
        if not any(map(self.world.is_outdated, effects.notify)):
            return effects
        if self.newest is not None:
            self.journal, self.newest = self.newest, None
        elif self.apart is not None:
            self.journal, self.apart = self.apart, None
            self.zombie = None if self.zombie is not None and self.zombie.journal is not None else self.zombie
        elif self.read_to == len(self.journal):
            return effects  # there is no newer one: it stays mute, and machines that wait for it are stuck
        again = self._restart()
        self.obey(again)
        return again

    def obey(self, effects: Effects) -> None:
        """Carry out what concerns this machine alone: its journal, its application and its next waking."""
        if effects.persist:
            self.is_healing = False
            self.journal.extend(effects.persist)
            self.read_to = len(self.journal)
        self.wake_at = effects.wake_at
        if effects.notify:
            noted = map(self.world.noted, effects.notify)
            self.log.extend(payload for payload in noted if payload is not None)
            self.answered += sum(map(self.world.is_answer, effects.notify))
            if any(map(self.world.ends, effects.notify)):
                self.machine = self.wake_at = self.zombie = None

    def _sender(self, transition: Transition) -> Address:
        return self.world.seen_as.get(transition.source, transition.source)

    def _tick(self, machine: Stateful) -> Effects:
        self.clock = max(self.clock, self.wake_at or 0.0)
        return machine.tick(self.clock)

    def _restart(self) -> Effects:
        """Replace the process by another one. Answers to the old one are not waited for any more."""
        self.answered += max(0, self.waiting())
        restore = self.world.roles[self.address].restore
        assert restore is not None, "checked when the world was made"
        self.lives += 1
        self.read_to = len(self.journal)
        come_back, heal = self.world.roles[self.address].come_back, self.world.roles[self.address].heal
        if self.is_healing:
            assert heal is not None, "only a machine that can be healed forgets"
            self.machine = heal(self.lives)
            return self.machine.tick(self.clock)
        self.machine = restore(self.journal) if come_back is None else come_back(self.journal, self.lives)
        return self.machine.tick(self.clock)

    def _haunt(self, transition: Transition, message: Payload | None) -> Effects:
        """The replaced process acts. Its journal refuses it, if it gets as far as that."""
        zombie = self.zombie
        assert zombie is not None, "only a process that was replaced haunts"
        if transition.source:
            assert message is not None, "there is a message on the channel"
            effects = zombie.machine.step(self._sender(transition), message, self.clock)
        else:
            effects = zombie.machine.tick(max(self.clock, zombie.wake_at or 0.0))
        zombie.wake_at = effects.wake_at
        zombie.lives -= 1
        if any(map(self.world.is_outdated, effects.notify)):
            self.zombie = None
        elif zombie.journal is not None:
            zombie.journal.extend(effects.persist)
        elif effects.persist:
            journal = self.journal if self.newest is None else self.newest  # no older copy
            if self.world.fenced and zombie.journal_last != len(journal):
                self.zombie = None
                return Effects()
            journal.extend(effects.persist)
            zombie.journal_last = len(journal)
        if not zombie.lives:
            self.zombie = None
        return effects

    def _spend(self, **amounts: int) -> None:
        left = {name: getattr(self.budget, name) - amount for name, amount in amounts.items()}
        self.budget = replace(self.budget, **left)


def at(channel: Channel) -> tuple[Address, Address, str]:
    """Target, source and lane, as a transition names them."""
    return channel.target, channel.source, channel.lane
