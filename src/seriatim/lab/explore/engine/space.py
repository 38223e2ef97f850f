"""All executions of a world, as a graph of states that costs little to walk.

A global state is a tuple of small integers: per machine one for its `Local` (everything that belongs to it alone) and
one for its inbox. Both are *interned*: equal values have the same number. A machine meets the same input in the same
local state in very many global states, so the outcome of a step is remembered by (local, transition, message), and
the machine itself is thawed, stepped and frozen only the first time.

Two states are the same iff their integers are, and that is decided by canonical encodings, not by hashes of them; only
the set of visited states, in `search`, is kept as 128-bit digests.
"""

from typing import Any, NamedTuple

import msgspec

from seriatim.lab.explore.engine.checks import Violation
from seriatim.lab.explore.engine.process import Process
from seriatim.lab.explore.engine.run import ExplorerError, Run, envelopes
from seriatim.lab.explore.engine.world import REGULAR, TIMER, Budget, Channel, Stateful, Transition, World, encode
from seriatim.model import APPLICATION, Address, InputError
from seriatim.protocols.machine import Payload

_plain = msgspec.msgpack.Encoder()

State = tuple[int, ...]  # local numbers of all machines, then inbox numbers of all machines


class Local(NamedTuple):
    """A frozen process. What can no longer matter is left out, so that states differ only where the future can."""

    address: Address
    snapshot: bytes | None  # None: dead
    issued: int
    answered: int
    clock: float
    wake_at: float | None
    journal: tuple[int, ...]
    log: int
    budget: Budget
    passive: bool


class Outcome(NamedTuple):
    """The result of a step: the next local state, messages as (machine, channel, message), and whether it notified."""

    local: int
    sends: tuple[tuple[int, int, int], ...]
    notified: bool


class Offer(NamedTuple):
    """What can happen to one machine, and by which edges (bits) it may make others send."""

    regular: tuple[int, ...]
    optional: tuple[int, ...]
    edges: int


class Interned:
    """Numbers for values: the same number for equal values, from 0."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.values: list[Any] = []

    def number(self, key: Any, value: Any = None) -> int:
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.values)
            self.values.append(key if value is None else value)
        return found


class Space:
    """The states and transitions of one world."""

    def __init__(self, world: World) -> None:
        haunted = [address for address, budget in world.budgets.items() if budget.takeovers]
        if haunted:
            raise InputError(f"budgets[{haunted[0]!r}].takeovers", "a search has no zombies", "walk this world instead")
        self.world = world
        self.addresses: list[Address] = list(world.roles)
        self.count = len(self.addresses)
        self.index = {address: index for index, address in enumerate(self.addresses)}
        self.locals = Interned()
        self.inboxes = Interned()  # values: tuple of (channel, messages), sorted
        self.channels = Interned()
        self.messages = Interned()
        self.logs = Interned()  # values: tuples of message numbers
        self.transitions = Interned()
        self.owner: list[int] = []  # transition → the machine it acts on
        self.owned = [0] * self.count  # machine → its transitions, as bits
        self._snapshots: dict[tuple[Address, bytes], bytes] = {}
        self._outcomes: dict[tuple[int, int, int], Outcome] = {}
        self._pops: dict[tuple[int, int], tuple[int, int]] = {}
        self._pushes: dict[tuple[int, int, int], int] = {}
        self._offers: dict[tuple[int, int], Offer] = {}
        self._log_checks: dict[tuple[int, int], Violation | None] = {}
        self._pair_checks: dict[tuple[int, int, int, int], Violation | None] = {}
        self._knots: dict[tuple[int, ...], Violation | None] = {}  # by the logs of all machines
        self._decoders: dict[Address, msgspec.msgpack.Decoder[Any]] = {}
        self.edges = Interned()  # (source, target): a message that may be sent
        self.leads_to = self._influences()
        self.initial = self._freeze_run(Run(world))

    # ── walking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def offer(self, state: State, machine: int) -> Offer:
        """What can happen to this machine in this state."""
        key = state[machine], state[machine + self.count]
        found = self._offers.get(key)
        if found is None:
            found = self._offers[key] = self._make_offer(machine, *key)
        return found

    def follow(self, state: State, transition: int) -> tuple[State, bool]:
        """The state after this transition, and whether an application was told something."""
        machine = self.owner[transition]
        inbox = state[machine + self.count]
        popped = self._pops.get((inbox, transition))
        if popped is None:
            popped = self._pops[inbox, transition] = self._pop(inbox, transition)
        message, rest = popped
        key = state[machine], transition, message
        outcome = self._outcomes.get(key)
        if outcome is None:
            outcome = self._outcomes[key] = self._step(*key)
        after = list(state)
        after[machine] = outcome.local
        after[machine + self.count] = rest
        pushes = self._pushes
        for target, channel, sent in outcome.sends:
            place = target + self.count
            push = after[place], channel, sent
            inbox_after = pushes.get(push)
            if inbox_after is None:
                inbox_after = pushes[push] = self._push(*push)
            after[place] = inbox_after
        return tuple(after), outcome.notified

    # ── checking ──────────────────────────────────────────────────────────────────────────────────────────────────

    def broken_by(self, state: State, machine: int) -> Violation | None:
        """Whether this machine's log breaks a promise, by itself or together with another's."""
        mine = self.locals.values[state[machine]].log
        key = machine, mine
        if key not in self._log_checks:
            self._log_checks[key] = self.world.checks.log(self.addresses[machine], self.log_payloads(mine))
        found = self._log_checks[key]
        for other in range(self.count):
            if found is not None:
                break
            if other != machine:
                found = self._broken_pair(min(machine, other), max(machine, other), state)
        return found if found is not None else self._knot(state)

    def _knot(self, state: State) -> Violation | None:
        """Whether the logs of all machines together break a promise."""
        key = tuple(self.locals.values[local].log for local in state[: self.count])
        if key not in self._knots:
            logs = {address: self.log_payloads(log) for address, log in zip(self.addresses, key, strict=True)}
            self._knots[key] = self.world.checks.everybody({who: log for who, log in logs.items() if log})
        return self._knots[key]

    def _broken_pair(self, one: int, other: int, state: State) -> Violation | None:
        log = self.locals.values[state[one]].log
        other_log = self.locals.values[state[other]].log
        key = one, log, other, other_log
        if key not in self._pair_checks:
            self._pair_checks[key] = self.world.checks.pair(
                self.addresses[one], self.log_payloads(log), self.addresses[other], self.log_payloads(other_log)
            )
        return self._pair_checks[key]

    def violations(self, state: State) -> list[Violation]:
        """Everything broken in a state where the run may stop."""
        broken = [self.broken_by(state, machine) for machine in range(self.count)]
        found = list(dict.fromkeys(violation for violation in broken if violation is not None))
        processes = {
            self.locals.values[local].address: self.thaw(self.locals.values[local]) for local in state[: self.count]
        }
        return found + Run(self.world, processes).settle()

    def log_payloads(self, log: int) -> list[Payload]:
        return [self.messages.values[message] for message in self.logs.values[log]]

    def thaw(self, local: Local) -> Process:
        """The process again, ready to step."""
        machine = None if local.snapshot is None else self._thaw_machine(local.address, local.snapshot)
        process = Process(self.world, local.address, machine, local.budget, local.issued, local.answered, local.clock)
        process.wake_at = local.wake_at
        process.journal = [self.messages.values[record] for record in local.journal]
        process.read_to = len(process.journal)
        process.log = self.log_payloads(local.log)
        return process

    # ── freezing and thawing ──────────────────────────────────────────────────────────────────────────────────────

    def _thaw_machine(self, address: Address, canonical: bytes) -> Stateful:
        state = self._decoders[address].decode(self._snapshots[address, canonical])
        return self.world.roles[address].thaw(state)

    def _freeze(self, process: Process) -> int:
        address, machine, budget = process.address, process.machine, process.budget
        canonical: bytes | None = None
        passive = True
        if machine is not None:
            if address not in self._decoders:
                self._decoders[address] = msgspec.msgpack.Decoder(type(machine.state))
            self.world.normalise(machine)
            canonical = encode(machine.state)
            if (address, canonical) not in self._snapshots:
                self._snapshots[address, canonical] = _plain.encode(machine.state)
            passive = process.issued == len(process.script) and self.world.passive(machine)
        ticks_left = (budget.ticks > 0 or self.world.patience > 0) and machine is not None
        local = Local(
            address,
            canonical,
            process.issued,
            process.answered,
            process.clock,
            process.wake_at if ticks_left else None,
            tuple(map(self._message, process.journal)) if budget.crashes and machine is not None else (),
            self.logs.number(tuple(map(self._message, process.log))),
            budget,
            passive,
        )
        return self.locals.number(local)

    def _freeze_run(self, run: Run) -> State:
        if run.channels:
            raise ExplorerError(f"{self.world.name}: messages are on their way before exploration begins")
        nothing = self.inboxes.number(())
        return (*(self._freeze(run.processes[address]) for address in self.addresses), *[nothing] * self.count)

    def _message(self, payload: Payload) -> int:
        return self.messages.number((type(payload), encode(payload)), payload)

    # ── one step of one machine ───────────────────────────────────────────────────────────────────────────────────

    def _step(self, local: int, number: int, message: int) -> Outcome:
        before: Local = self.locals.values[local]
        transition: Transition = self.transitions.values[number]
        process = self.thaw(before)
        effects = process.take(transition, None if message < 0 else self.messages.values[message])
        cause = _cause(transition)
        allowed = self.world.influence(before.address, cause)
        sends = []
        for channel, payload in envelopes(self.world, before.address, effects):
            if (allowed is not None and channel.target not in allowed) or (before.passive and cause != TIMER):
                raise ExplorerError(
                    f"{self.world.name}: {before.address} sent {type(payload).__name__} to {channel.target} because of "
                    f"{cause}; `influence` or `passive` of this world says that it does not"
                )
            sends.append((self.index[channel.target], self.channels.number(channel), self._message(payload)))
        return Outcome(self._freeze(process), tuple(sends), bool(effects.notify))

    def _pop(self, inbox: int, number: int) -> tuple[int, int]:
        transition: Transition = self.transitions.values[number]
        if not transition.source:
            return -1, inbox
        channel = self.channels.numbers[transition.channel]
        queues = dict(self.inboxes.values[inbox])
        queue = queues.pop(channel)
        if len(queue) > 1:
            queues[channel] = queue[1:]
        return queue[0], self.inboxes.number(tuple(sorted(queues.items())))

    def _push(self, inbox: int, channel: int, message: int) -> int:
        queues = dict(self.inboxes.values[inbox])
        queues[channel] = (*queues.get(channel, ()), message)
        return self.inboxes.number(tuple(sorted(queues.items())))

    # ── what can happen ───────────────────────────────────────────────────────────────────────────────────────────

    def _make_offer(self, machine: int, local: int, inbox: int) -> Offer:
        process = self.thaw(self.locals.values[local])
        found = process.own_transitions()
        edges = 0
        address = self.addresses[machine]
        if process.machine is not None and process.issued < len(process.script):  # now, or once it was answered
            edges |= self._edge(APPLICATION, address)
        if any(transition.kind != "issue" for transition in found):
            edges |= self._edge(TIMER, address)
        passive = self.locals.values[local].passive
        for channel_number, queue in self.inboxes.values[inbox]:
            channel: Channel = self.channels.values[channel_number]
            if not passive:
                edges |= self._edge(channel.source, address)
            found += process.channel_transitions(channel, self.messages.values[queue[0]])
        numbers = [(self._transition(transition, machine), transition.kind in REGULAR) for transition in found]
        return Offer(
            tuple(number for number, regular in numbers if regular),
            tuple(number for number, regular in numbers if not regular),
            edges,
        )

    def _transition(self, transition: Transition, machine: int) -> int:
        number = self.transitions.number(transition)
        if number == len(self.owner):
            self.owner.append(machine)
            self.owned[machine] |= 1 << number
        return number

    def _edge(self, source: Address, target: Address) -> int:
        return 1 << self.edges.number((source, target))

    def _influences(self) -> list[int]:
        """For each machine, the edges from which a chain of reactions can reach it without passing through it."""
        sources = [*self.addresses, APPLICATION, TIMER]
        all_edges = [(source, target) for source in sources for target in self.addresses]
        for edge in all_edges:
            self.edges.number(edge)
        everyone = frozenset(self.addresses)
        reactions = {edge: self._reaction(edge, everyone) for edge in all_edges}
        leads_to = []
        for machine in self.addresses:
            reaching: set[tuple[Address, Address]] = set()
            grew = True
            while grew:
                grew = False
                for edge in all_edges:
                    if edge in reaching or edge[1] == machine:
                        continue
                    if any(to == machine or (edge[1], to) in reaching for to in reactions[edge]):
                        reaching.add(edge)
                        grew = True
            leads_to.append(sum(1 << self.edges.numbers[edge] for edge in reaching))
        return leads_to

    def _reaction(self, edge: tuple[Address, Address], everyone: frozenset[Address]) -> frozenset[Address]:
        allowed = self.world.influence(edge[1], edge[0])
        return everyone if allowed is None else allowed


def _cause(transition: Transition) -> Address:
    if transition.kind == "issue":
        return APPLICATION
    return transition.source if transition.kind == "deliver" else TIMER
