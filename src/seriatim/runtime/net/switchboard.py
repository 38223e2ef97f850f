"""How each address is reached: one table from address to outlet, for machines of this process and for connections.

A message to an address that is not in the table is dropped and counted. Machines repeat unanswered messages, so a
connection that is being made again needs no queue here.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from typing import TypeAlias

from seriatim.model import Address
from seriatim.protocols.machine import Payload

# Takes (source, message) for one target. Must not block and must not raise.
Outlet: TypeAlias = Callable[[Address, Payload], None]

DELIVERED_AT_ONCE = 512  # messages per turn of the loop; then sockets, timers and the journal get theirs


class Switchboard:
    """Keeps the order of messages between any two addresses."""

    def __init__(self) -> None:
        self.dropped = 0
        self._outlets: dict[Address, Outlet] = {}
        self._routes: dict[tuple[Address, Address], Outlet] = {}
        self._inlets: dict[Address, Outlet] = {}
        self._local: deque[tuple[Address, Address, Payload]] = deque()
        self._draining = False
        self.on_change: list[Callable[[], None]] = []  # called when a machine of this process is attached or detached

    @property
    def attached(self) -> Collection[Address]:
        """The machines of this process."""
        return self._inlets.keys()

    @property
    def queued(self) -> int:
        return len(self._local)

    def attach(self, address: Address, deliver: Outlet) -> None:
        """Attach a machine of this process. The event loop calls it, never another machine's step."""

        def enqueue(source: Address, message: Payload) -> None:
            self._enqueue(source, address, message)

        self._outlets[address] = enqueue
        self._inlets[address] = deliver
        for changed in list(self.on_change):
            changed()

    def plug(self, address: Address, outlet: Outlet, *, source: Address | None = None) -> None:
        """Reach `address` through `outlet` (a connection). Replaces the outlet that was there.

        With `source`, only for messages of that address: two nodes of this process have a connection each to the
        parent they share.
        """
        if source is None:
            self._outlets[address] = outlet
        else:
            self._routes[source, address] = outlet

    def unplug(self, address: Address, outlet: Outlet | None = None, *, source: Address | None = None) -> None:
        """Forget an address; with `outlet`, only if that is still how it is reached."""
        if source is not None:
            if outlet is None or self._routes.get((source, address)) is outlet:
                self._routes.pop((source, address), None)
        elif outlet is None or self._outlets.get(address) is outlet:
            self._outlets.pop(address, None)
            if self._inlets.pop(address, None) is not None:
                for changed in list(self.on_change):
                    changed()

    def reaches(self, address: Address) -> bool:
        """Whether the address has an outlet for every source."""
        return address in self._outlets

    def send(self, source: Address, target: Address, message: Payload) -> None:
        """Hand over a message. Never blocks."""
        outlet = self._outlets.get(target) or self._routes.get((source, target))
        if outlet is None:
            self.dropped += 1
        else:
            outlet(source, message)

    def deliver(self, source: Address, target: Address, message: Payload) -> None:
        """Hand over what came from outside: only to a machine of this process, never on to another connection."""
        if target in self._inlets:
            self._enqueue(source, target, message)
        else:
            self.dropped += 1

    def _enqueue(self, source: Address, target: Address, message: Payload) -> None:
        self._local.append((source, target, message))
        if not self._draining:
            self._draining = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        """Deliver the messages that are here now, up to a bound. New messages wait for the next turn of the loop.

        If a machine raises, the loop reports it as a failure of its driver. The other machines get their messages.
        """
        try:
            for _ in range(min(len(self._local), DELIVERED_AT_ONCE)):
                source, target, message = self._local.popleft()
                deliver = self._inlets.get(target)
                if deliver is None:
                    self.dropped += 1
                else:
                    deliver(source, message)
        finally:
            if self._local:
                asyncio.get_running_loop().call_soon(self._drain)
            else:
                self._draining = False
