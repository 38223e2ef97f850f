"""The discrete-event engine: drives machines through simulated time, from one seed.

Everything that happens is an entry on one heap, `(time, tie, process, source, message)`; the tie is a running count,
so equal times keep the order in which they were asked for and a run depends on nothing but its seed. An entry without
a source is a wake-up (no message) or an action of the world (a function).

A message belongs to the process that its target address had when it was sent: a message under way to a process that
dies is lost with it, and a message under way to a replaced process still reaches that process.
"""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from seriatim.lab.sim.network import Link, Network, Pair, Route
from seriatim.lab.sim.process import NEVER, Cost, Doom, Journal, Observe, Process, QueueStatistics, Restore
from seriatim.model import APPLICATION, Address, InputError, Message, SeriatimError
from seriatim.protocols.machine import Effects, Machine, Payload

# Is given what a machine wants its application to know: (address, notification, now).
Notified: TypeAlias = Callable[[Address, Payload, float], None]
Action: TypeAlias = Callable[[], object]

RESTLESS_MAX = 1_000  # ticks of one process without any time passing


class Counts(Struct):
    """The work of the engine so far."""

    steps: int = 0  # messages and commands given to machines
    ticks: int = 0
    sent: int = 0
    lost: int = 0  # on a link, in a partition, or because the target was dead
    duplicated: int = 0
    crashes: int = 0
    fenced: int = 0  # processes stopped by their journal


_Entry: TypeAlias = tuple[float, int, Any, Address | None, Any]


class MachineFailed(SeriatimError):
    """A machine raised an error or never rests; the sentence says which one, when, and on what. A finding, not a bug
    of the world: runs report it as a violation."""


class _Moment:
    """Turns the error of a machine into one that names the moment it failed in."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.entry: _Entry | None = None

    def __enter__(self) -> "_Moment":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, MachineFailed) and self.entry is not None:
            now, _, process, source, message = self.entry
            given = f"{process} was given {message!r} by {source}" if source else f"{process or 'the world'} was woken"
            raise MachineFailed(f"seed {self.seed}, {now} ms: {given}: {type(error).__name__}: {error}") from error


class _Role(Struct, frozen=True):
    restore: Restore
    cost: Cost
    observe: Observe | None


class Simulator:
    """A world of machines under one clock. Add machines, give commands, let faults happen, run."""

    def __init__(
        self,
        seed: int | str,
        link: Link | Callable[[Address, Address], Link] | None = None,
        notified: Notified | None = None,
        record_messages: bool = False,
    ) -> None:
        self.seed = seed
        self.random = Random(str(seed))
        self.network = Network(Link() if link is None else link, self.random)
        self.now = 0.0
        self.counts = Counts()
        self.processes: dict[Address, Process] = {}
        self.journals: dict[Address, Journal] = {}
        self.queues: dict[Address, QueueStatistics] = {}
        self.messages: list[Message] | None = [] if record_messages else None
        self._notified = notified
        self._roles: dict[Address, _Role] = {}
        self._retired: set[Address] = set()
        # A process is None where the entry belongs to the world; typed loosely because the hot loop unpacks it.
        self._heap: list[_Entry] = []
        self._tie = 0
        self._moment = _Moment(seed)

    # ── machines ──────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, address: Address, restore: Restore, cost: Cost | None = None, observe: Observe | None = None) -> None:
        """Start a machine. `restore` builds it, now from an empty journal and after each crash from what it wrote."""
        if address in self._roles or address == APPLICATION:
            raise InputError("address", f"{address!r} is taken", "give every machine its own address")
        self._roles[address] = _Role(restore, cost or Cost(), observe)
        self.journals[address] = Journal()
        self.queues[address] = QueueStatistics()
        self.start(address)

    def start(self, address: Address) -> None:
        """Start a new process at an address: the first, or one after a crash, or one beside a process that only
        seemed dead. The latter runs on until its journal refuses it."""
        role = self._role(address)
        journal = self.journals[address]
        epoch = journal.open()
        machine = role.restore(journal.records(), epoch)
        routes = self.network.routes_from(address)
        process = Process(address, machine, journal, routes, role.cost, self.queues[address], role.observe)
        self.processes[address] = process
        self._apply(process, machine.tick(self.now))

    def crash(self, address: Address, doom: Doom | None = None) -> None:
        """Stop a process: at once, or as `doom` says, in the middle of its next step that has any effect."""
        self._role(address)
        process = self.processes[address]
        if doom is not None:
            process.doom = doom
        elif process.running:
            self._stop(process)

    def retire(self, address: Address) -> None:
        """Stop a process whose address will not be used again; healing does not bring it back."""
        self.crash(address)
        self._retired.add(address)

    def is_running(self, address: Address) -> bool:
        self._role(address)
        return self.processes[address].running

    def machine(self, address: Address) -> Machine:
        """The newest machine at an address, running or not."""
        self._role(address)
        return self.processes[address].machine

    # ── the world's own actions ───────────────────────────────────────────────────────────────────────────────────

    def at(self, time_ms: float, action: Action) -> None:
        """Call a function at a point of simulated time."""
        if not time_ms >= self.now:
            raise InputError("time_ms", f"{time_ms} is before now ({self.now})", "give a time that is still to come")
        self._tie += 1
        heappush(self._heap, (time_ms, self._tie, None, None, action))

    def command(self, address: Address, message: Payload) -> bool:
        """Give a machine a command of its application, now. False: no process is there to take it."""
        self._role(address)
        process = self.processes[address]
        if not process.running:
            return False
        self._step(process, APPLICATION, message)
        return True

    def partition(self, pairs: Iterable[Pair], start_ms: float, end_ms: float) -> None:
        """Cut these pairs from one time to another."""
        if not end_ms >= start_ms:
            raise InputError(
                "end_ms", f"{end_ms} is before start_ms {start_ms}", "let the partition end after it starts"
            )
        cut = list(pairs)
        for pair in cut:
            for address in pair:
                self._role(address)
        self.at(start_ms, lambda: self.network.cut(cut))
        self.at(end_ms, lambda: self._release(self.network.mend(cut)))

    def heal(self) -> None:
        """End all faults: links lose nothing more, partitions end, dead processes start again."""
        self._release(self.network.heal())
        for address, process in self.processes.items():
            process.doom = None
            if not process.running and address not in self._retired:
                self.start(address)

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, until_ms: float = NEVER, steps_max: int | None = None) -> bool:
        """Let time pass. True: everything up to `until_ms` has happened. False: stopped after `steps_max` steps.

        Machines with periodic timers never fall silent, so give at least one of the two bounds.
        """
        heap = self._heap
        counts = self.counts
        steps_left = -1 if steps_max is None else steps_max
        with self._moment as moment:
            while heap and heap[0][0] <= until_ms:
                if steps_left == 0:
                    return False
                steps_left -= 1
                moment.entry = entry = heappop(heap)
                now, _, process, source, message = entry
                self.now = now
                if source is None:
                    if message is None:
                        self._wake(process)
                    else:
                        message()
                elif not process.running:
                    counts.lost += 1
                elif process.cost.processing_ms:
                    self._enqueue(process, source, message)
                else:
                    # The same as _step and _apply, written out because nearly all time is spent here.
                    counts.steps += 1
                    if process.observe is not None:
                        process.observe(source, message, now)
                    effects = process.machine.step(source, message, now)
                    if effects.persist or effects.notify or process.doom is not None:
                        self._apply(process, effects)
                        continue
                    if effects.send:
                        self._send(process, effects.send)
                    if effects.wake_at != process.wake_at:
                        self._set_timer(process, effects.wake_at)
        if until_ms < NEVER:
            self.now = max(self.now, until_ms)
        return True

    def run_to_end(self, steps_max: int = 100_000_000) -> None:
        """Let time pass until nothing more happens."""
        if not self.run(steps_max=steps_max):
            raise AssertionError(f"still busy after {steps_max} steps")

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _role(self, address: Address) -> _Role:
        role = self._roles.get(address)
        if role is None:
            raise InputError("address", f"no machine at {address!r}", "add the machine first, or correct the name")
        return role

    def _stop(self, process: Process) -> None:
        process.running = False
        process.inbox.clear()
        self.counts.crashes += 1

    def _step(self, process: Process, source: Address, message: Payload) -> None:
        self.counts.steps += 1
        if process.observe is not None:
            process.observe(source, message, self.now)
        self._apply(process, process.machine.step(source, message, self.now))

    def _apply(self, process: Process, effects: Effects) -> None:
        """Carry out the effects in the order of obligation; nothing leaves a process whose journal refuses it."""
        if process.doom is not None and (effects.persist or effects.send):
            self._die(process, process.doom, effects)
            return
        if effects.persist and not process.persist(effects.persist):
            process.inbox.clear()
            self.counts.fenced += 1
            return
        if effects.send:
            self._send(process, effects.send)
        if effects.notify and self._notified is not None:
            for notification in effects.notify:
                self._notified(process.address, notification, self.now)
        if effects.wake_at != process.wake_at:
            self._set_timer(process, effects.wake_at)

    def _die(self, process: Process, doom: Doom, effects: Effects) -> None:
        if not effects.persist or (doom.persists and process.persist(effects.persist)):
            self._send(process, effects.send[: doom.sends])
        self._stop(process)

    def _send(self, process: Process, sends: list[tuple[Address, Payload]]) -> None:
        heap = self._heap
        processes = self.processes
        routes = process.routes
        source = process.address
        tie = self._tie
        queues = process.cost.transmission_ms > 0.0
        depart = self.now
        for target, message in sends:
            route = routes.get(target)
            if route is None:
                self._role(target)
                route = self.network.route(source, target)
            if queues:
                depart = process.depart(message, self.now)
            if route.plain:
                arrival = depart + route.draw()
                if route.fifo:
                    if arrival < route.last_arrival:
                        arrival = route.last_arrival
                    else:
                        route.last_arrival = arrival
                tie += 1
                heappush(heap, (arrival, tie, processes[target], source, message))
                if self.messages is not None:
                    self._record(source, target, message, depart, arrival)
            else:
                self._tie = tie
                self._send_with_faults(route, source, target, message, depart)
                tie = self._tie
        self._tie = tie
        self.counts.sent += len(sends)

    def _send_with_faults(
        self, route: Route, source: Address, target: Address, message: Payload, depart: float
    ) -> None:
        if route.cuts and route.link.holds:
            route.held.append((message, depart))
            return
        arrivals = [] if route.cuts else route.arrivals(depart, self.random)
        if not arrivals:
            self.counts.lost += 1
        self.counts.duplicated += max(0, len(arrivals) - 1)
        for arrival in arrivals:
            self._tie += 1
            heappush(self._heap, (arrival, self._tie, self.processes[target], source, message))
        if self.messages is not None:
            self._record(source, target, message, depart, arrivals[0] if arrivals else None)

    def _release(self, waiting: list[tuple[Pair, Route]]) -> None:
        for (source, target), route in waiting:
            held, route.held = route.held, []
            for message, depart in held:
                self._send_with_faults(route, source, target, message, max(depart, self.now))

    def _enqueue(self, process: Process, source: Address, message: Payload) -> None:
        process.inbox.append((source, message))
        if len(process.inbox) == 1:
            self._work(process)

    def _work(self, process: Process) -> None:
        def finish() -> None:
            if not process.running:
                return
            source, message = process.inbox.popleft()
            self._step(process, source, message)
            if process.inbox and process.running:
                self._work(process)

        self.at(self.now + process.cost.processing_ms, finish)

    def _set_timer(self, process: Process, wake_at: float | None) -> None:
        """Note the wish. Only an earlier one needs the heap: a later one is looked at when the earlier one fires."""
        process.wake_at = wake_at
        if wake_at is not None and wake_at < process.timer_at:
            process.timer_at = max(wake_at, self.now)
            self._tie += 1
            heappush(self._heap, (process.timer_at, self._tie, process, None, None))

    def _wake(self, process: Process) -> None:
        if self.now < process.timer_at:
            return  # an earlier entry than the one noted: it was replaced
        process.timer_at = NEVER
        wake_at = process.wake_at
        if wake_at is None or not process.running:
            return
        process.wake_at = None
        if wake_at > self.now:
            self._set_timer(process, wake_at)
            return
        self.counts.ticks += 1
        process.restless = process.restless + 1 if process.ticked_at == self.now else 0
        process.ticked_at = self.now
        if process.restless > RESTLESS_MAX:
            raise MachineFailed(f"seed {self.seed}, {self.now} ms: {process} asks to be woken at once, forever")
        self._apply(process, process.machine.tick(self.now))

    def _record(self, source: Address, target: Address, message: Payload, sent: float, received: float | None) -> None:
        assert self.messages is not None
        size = len(msgspec.msgpack.encode(message))
        kind = type(message).__name__
        self.messages.append(Message(str(self.seed), source, target, kind, size, sent, received))
