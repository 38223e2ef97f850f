"""A journal belongs to one broker at one place: what it was founded with, and rebuilding the broker from it.

Replaying a journal gives the same broker only under the neighbours and the order it was written under. So these are its
first record, and a snapshot carries them too; a broker that is to be started with others is refused.
"""

import msgspec
from msgspec import Struct

from seriatim.model import UNREADABLE, InputError, JournalError
from seriatim.protocols.overlay import Broker, OverlayOptions, Place
from seriatim.protocols.overlay.messages import Stepped, TookOver
from seriatim.protocols.overlay.running import BrokerNode, LinkedState
from seriatim.runtime import Recovered

FIX = "start it as it was, or give it an empty journal together with all others"


class Founded(Struct, frozen=True, tag=True):
    """The journal is of this broker, among these neighbours, with this order.

    `bounds`: what was refused or sent depends on them, so under others the same inputs would make another broker.
    Journals from before they were recorded have none, or one less; ids or messages were made otherwise then.
    """

    place: Place
    order: str
    early: bool
    bounds: tuple[int, ...] = ()


class Snapshot(Struct):
    """A broker's state, what it was founded with, and the time of the last input it stands for."""

    founded: Founded
    state: LinkedState
    now: float


class Rebuilt(Struct):
    """A broker as its journal left it. `is_new`: the journal must be given `founded` first."""

    machine: BrokerNode
    founded: Founded
    at_least: float
    is_new: bool


_record: msgspec.msgpack.Decoder[Stepped | TookOver | Founded] = msgspec.msgpack.Decoder(Stepped | TookOver | Founded)
_snapshot = msgspec.msgpack.Decoder(Snapshot)
_encoder = msgspec.msgpack.Encoder()


def encode_founded(founded: Founded) -> bytes:
    """As a record of the journal."""
    return _encoder.encode(founded)


def encode_snapshot(founded: Founded, machine: BrokerNode, now: float) -> bytes:
    """The state of a broker, for its journal."""
    return _encoder.encode(Snapshot(founded, machine.linked_state, now))


def rebuild(place: Place, options: OverlayOptions, recovered: Recovered) -> Rebuilt:
    """The broker as its journal left it; a journal nobody wrote gives a new one.

    JournalError: this is not the journal of a broker. InputError: it is, but not of the one that is to be started.
    """
    bounds = options.held_max, options.subscriptions_max, options.advertisements_max, options.turned_max
    now = Founded(place, options.order, options.early, bounds)
    snapshot, records = _decoded(place, recovered)
    if snapshot is None and not records:
        node = BrokerNode.take_over(lambda: Broker(place, options), options.retry_ms, [])
        return Rebuilt(_as_broker(node), now, 0.0, True)
    then = snapshot.founded if snapshot is not None else records[0]
    if not isinstance(then, Founded):
        raise JournalError(f"the journal of {place.name} does not begin as a broker's does")
    _check_same(then, now)
    steps = [record for record in records if not isinstance(record, Founded)]
    times = [record.now for record in steps if isinstance(record, Stepped)]
    node = BrokerNode.take_over(
        lambda state=None: Broker(then.place, options, state),  # with its neighbours in the same order
        options.retry_ms,
        steps,
        snapshot.state if snapshot is not None else None,  # type: ignore[arg-type]  # the same fields, typed
    )
    at_least = max([snapshot.now if snapshot is not None else 0.0, *times])
    return Rebuilt(_as_broker(node), now, at_least, False)


def _as_broker(node: object) -> BrokerNode:
    assert isinstance(node, BrokerNode), "a class method makes its own class"
    return node


def _decoded(place: Place, recovered: Recovered) -> tuple[Snapshot | None, list[Stepped | TookOver | Founded]]:
    try:
        snapshot = _snapshot.decode(recovered.snapshot) if recovered.snapshot is not None else None
        return snapshot, [_record.decode(record) for record in recovered.records]
    except UNREADABLE as error:
        raise JournalError(
            f"the journal of {place.name} holds something else than a broker's records: {error}"
        ) from None


def _check_same(then: Founded, now: Founded) -> None:
    if then.place.name != now.place.name:
        problem = f"it is of broker {then.place.name}, not of {now.place.name}"
        raise InputError("journal", problem, "give every broker a journal of its own")
    if then.place.parent != now.place.parent or set(then.place.children) != set(now.place.children):
        neighbours = ", ".join(then.place.neighbours) or "nobody"
        problem = f"the journal of {now.place.name} was written next to {neighbours}, in another tree"
        raise InputError("brokers", problem, FIX)
    if (then.order, then.early) != (now.order, now.early):
        problem = f"the journal of {now.place.name} was written with order {then.order!r} and early {then.early}"
        raise InputError("options.order", problem, FIX)
    if then.bounds != now.bounds:
        before = ", ".join(map(str, then.bounds)) or "none, by an earlier version"
        problem = f"the journal of {now.place.name} was written with other bounds ({before})"
        raise InputError("options.waiting_max, subscriptions_max, advertisements_max", problem, FIX)
