"""The seam to a broker: what the machines say to `BROKER` and hear from it, carried to a real server and back.

A `Broker` is one connection. Each machine attaches to it and gets a *port*: it sends the messages of
protocols/tree/messages.py, section "with the broker", and is given the answers through `deliver`. An adapter
translates; it decides nothing about order.

    machine sends        the broker does                                   machine is given
    Append(event)        put it at the end of the topic's log, once        Appended
    Watch(topics)        report the logs' lengths, now and when they grow  Grown, Trimmed
    Stamped(…)           keep it on the topic's stamp channel, once        Kept
    Write(…)             fill the slot if it is empty                      Written (what it holds)
    Listen(topic, after) deliver from there on, in order, with stamps      Listening, Delivered, Stamped, Trimmed
    Unlisten(topic)      stop

Requests that fail because the server is away are not answered: machines repeat them. A request that the server
refuses for good (no permission, message too large) is given to `on_error`.
"""

from collections.abc import Callable, Iterable
from typing import Literal, Protocol, TypeAlias

from seriatim.model import Address, Node, SeriatimError, Topic
from seriatim.protocols.machine import Payload

Deliver: TypeAlias = Callable[[Payload], None]
OnError: TypeAlias = Callable[[Payload, SeriatimError], None]  # (the message that cannot be carried out, why)
Mode: TypeAlias = Literal["log", "ticket"]
HomeOf: TypeAlias = Callable[[Topic], Node]


class Port(Protocol):
    """The broker as one machine sees it."""

    def send(self, message: Payload) -> None:
        """Hand over one message. Never blocks, never raises; keeps the order of what is sent."""
        ...

    def pause(self, topic: Topic | None = None) -> None:
        """Back-pressure: deliver nothing more (a little that is on its way may still come) until `resume`.

        With `topic`: no more events of that one; their stamps still come, since what is here already waits for them. A
        wish: a broker that would only keep the events in another corner of the same memory need not do it.
        """
        ...

    def resume(self, topic: Topic | None = None) -> None:
        """Go on delivering; with `topic`, the events of that one. Both kinds of pause hold side by side."""
        ...

    async def close(self) -> None:
        """Detach: nothing is delivered any more."""
        ...


class Broker(Protocol):
    """One connection to a broker."""

    @property
    def keeps_log(self) -> bool:
        """Whether log mode is possible: a numbered log per topic, replayed from any position."""
        ...

    @property
    def lossy(self) -> bool:
        """Whether events may get lost or reordered: then stamps are full and waits are bounded."""
        ...

    @property
    def payload_bytes_max(self) -> int:
        """The largest message it takes."""
        ...

    def ordered_topic(self, name: Topic) -> Topic:
        """The topic under which events published as `name` are ordered: itself, or the bucket it shares with others.

        InputError: no topic may be called so. Ask before a name is used: an adapter may have to prepare for it.
        """
        ...

    def check_slots(self, topic: Topic) -> None:
        """InputError: this topic cannot have slots here. Whoever writes only later asks before it promises to."""
        ...

    async def capture(self, names: Iterable[Topic]) -> None:
        """Returns when the broker keeps, and orders, whatever anybody publishes under these names from now on.

        A topic of its own is captured when it is listened to; a name that joins a bucket may take a moment longer.
        """
        ...

    async def stamped_epoch(self, node: Node) -> int | None:
        """The epoch of the last stamp that this node has written, as far as the broker can tell; 0: it cannot.

        None: it has never stamped, or nothing here outlives a process.
        """
        ...

    def know(self, topics: Iterable[Topic]) -> None:
        """A machine here holds these ordered topics, or is about to: stamps must call them by their names.

        On the way stamps name topics by ids. Called before the machine is told to hold them.
        """
        ...

    def configure(self, mode: Mode, home_of: HomeOf) -> None:
        """How the cluster orders, and which node is home to a topic (its stamps are on that node's channel).

        Told before any port sends: sequencers know it from their configuration, clients from the cluster's
        description, which they ask for over this very connection.
        """
        ...

    async def open(self) -> None:
        """Connect. ConnectionFailed says what was tried."""
        ...

    def attach(self, address: Address, deliver: Deliver, on_error: OnError | None = None) -> Port:
        """A port for the machine at this address."""
        ...

    async def request(self, subject: str, data: bytes, timeout_s: float) -> bytes | None:
        """Ask whoever answers on a subject (finding the sequencers). None: nobody did."""
        ...

    async def answer(self, subject: str, reply: Callable[[bytes], bytes | None]) -> None:
        """Answer such questions until closed; None: say nothing."""
        ...

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        ...
