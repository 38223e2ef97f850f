"""A process: one machine running at one address, from its start to its crash, and its journal, which survives it.

The machine is pure; everything that makes it a process in a world is here: its journal, its timer, its queues.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct

from seriatim.lab.sim.network import Route
from seriatim.model import Address, InputError
from seriatim.protocols.machine import Machine, Payload


class Opened(Struct, frozen=True):
    """Marks where a new epoch begins."""

    epoch: int


class Journal:
    """Survives the crash of every process that writes it."""

    def __init__(self) -> None:
        self.entries: list[Payload] = []
        self.epoch = 0

    @property
    def last(self) -> int:
        """The sequence number of the last entry; 0 when empty."""
        return len(self.entries)

    def open(self) -> int:
        """Begin a new epoch, and return it."""
        self.epoch += 1
        self.entries.append(Opened(self.epoch))
        return self.epoch

    def append(self, records: Sequence[Payload], expected_last: int) -> bool:
        """Append all of the records or none. False: another process has written since, and has replaced this one."""
        if expected_last != len(self.entries):
            return False
        self.entries.extend(records)
        return True

    def records(self) -> list[Payload]:
        """What machines wrote, oldest first."""
        return [entry for entry in self.entries if type(entry) is not Opened]


# Builds the machine of an address from what its journal holds (nothing, the first time) and the new epoch.
Restore: TypeAlias = Callable[[Sequence[Payload], int], Machine]


def always(machine: Machine) -> Restore:
    """For a machine that never crashes: it is always the same one."""
    return lambda records, epoch: machine


# Sees each message just before the machine does: (source, message, now).
Observe: TypeAlias = Callable[[Address, Payload, float], None]

# Does this message take a place in the output queue?
Waits: TypeAlias = Callable[[Payload], bool]

NEVER = float("inf")


class Cost(Struct, frozen=True):
    """The cost of a message for the machines at its two ends (paper 001 §4: 1 and 1, with a propagation delay of 100).

    A machine handles one message at a time, each for `processing_ms`. It has one output queue: copies for several
    targets leave one after the other, each after `transmission_ms`. `waits` says of a message whether it takes a place
    in that queue; one that does not leaves `transmission_ms` after it was sent, whatever is before it. None: all wait.
    """

    processing_ms: float = 0.0
    transmission_ms: float = 0.0
    waits: Waits | None = None

    def __post_init__(self) -> None:
        for name in ("processing_ms", "transmission_ms"):
            if not getattr(self, name) >= 0.0:
                raise InputError(name, f"{getattr(self, name)} is not a duration", "give 0 or more milliseconds")


class QueueStatistics(Struct):
    """The output queue of one address over its whole life. Kept only where transmission takes time."""

    messages: int = 0
    waited_ms: float = 0.0  # sum over messages, without their own transmission
    waited_ms_max: float = 0.0
    places: int = 0  # sum over messages: the place each took, itself counted and the one being transmitted not

    @property
    def mean_place(self) -> float:
        """The place in the queue that a message took when it came, in the mean; 0: there were none."""
        return self.places / self.messages if self.messages else 0.0


class Doom(Struct, frozen=True):
    """How a process dies in the middle of its next step: with or without its records, after so many messages."""

    persists: bool
    sends: int


@dataclass(slots=True, repr=False, eq=False)
class Process:
    """One life of one address."""

    address: Address
    machine: Machine
    journal: Journal
    routes: dict[Address, Route]
    cost: Cost
    queue: QueueStatistics
    observe: Observe | None
    journal_last: int = field(init=False)
    epoch: int = field(init=False)
    running: bool = True
    doom: Doom | None = None
    wake_at: float | None = None  # what the machine last wished
    timer_at: float = NEVER  # the earliest wake-up that is on the heap
    ticked_at: float = -1.0
    restless: int = 0  # how often it was woken again without time passing
    inbox: deque[tuple[Address, Payload]] = field(default_factory=deque)  # waiting to be processed, the first in work
    transmits_until: float = 0.0

    def __post_init__(self) -> None:
        self.journal_last, self.epoch = self.journal.last, self.journal.epoch

    def persist(self, records: Sequence[Payload]) -> bool:
        """Write to the journal. False: somebody else has taken over, and this process has stopped."""
        if not self.journal.append(records, self.journal_last):
            self.running = False
            return False
        self.journal_last += len(records)
        return True

    def depart(self, message: Payload, now: float) -> float:
        """Put one message into the output queue; when is it on the wire?"""
        transmission_ms = self.cost.transmission_ms
        if not transmission_ms:
            return now
        if self.cost.waits is not None and not self.cost.waits(message):
            return now + transmission_ms
        start = self.transmits_until if self.transmits_until > now else now
        waited_ms = start - now
        queue = self.queue
        queue.messages += 1
        queue.waited_ms += waited_ms
        queue.places += 1 + int(waited_ms / transmission_ms + 1e-9)
        if waited_ms > queue.waited_ms_max:
            queue.waited_ms_max = waited_ms
        self.transmits_until = start + transmission_ms
        return self.transmits_until

    def __repr__(self) -> str:
        return f"{self.address}@{self.epoch}{'' if self.running else ' (stopped)'}"
