"""The seam between protocols and whatever drives them.

A role of a protocol is a *machine*: it is given one input at a time and answers with `Effects`. It has no clock, no
randomness, no socket, no task and no logger; time is handed in. The simulator, the explorer and the live runtime
drive the same machines, so what one of them shows holds for all of them.
"""

from typing import Protocol, TypeAlias

from msgspec import Struct

from seriatim.model import Address

Payload: TypeAlias = Struct  # a frozen Struct, from some protocol's messages.py


class Effects(Struct):
    """The requests of a machine to its driver, in order of obligation.

    1. `persist`: append these records to the machine's journal, durably, before anything below leaves the process.
       A machine is rebuilt by stepping through its journal. A journal that refuses an append means that another
       process has taken over: drop these effects and stop.
    2. `send`: hand each message to its target, in this order per target.
    3. `notify`: give these to the application, in this order: Notification, Gap, and answers to its commands.
    4. `wake_at`: call `tick` at this time or soon after; replaces any earlier wish. None: no wish.
    """

    persist: list[Payload] = []
    send: list[tuple[Address, Payload]] = []
    notify: list[Payload] = []
    wake_at: float | None = None

    def add(self, more: "Effects") -> None:
        """Do this too, behind what there is. The wish for a tick stays."""
        self.persist += more.persist
        self.send += more.send
        self.notify += more.notify


class Machine(Protocol):
    """One role of one protocol. `now` is in milliseconds and never runs backwards."""

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        """Take one message (or, from APPLICATION, one command)."""
        ...

    def tick(self, now: float) -> Effects:
        """Let time pass: retransmit, expire, give up. A machine that does not depend on time inherits this."""
        return Effects()
