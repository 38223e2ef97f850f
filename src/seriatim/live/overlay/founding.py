"""The journal of a broker: its initial configuration, and rebuilding the broker from the journal.

Replaying a journal gives the same broker only with the neighbours and the order it was written with. Starting a
broker with others is refused.
"""

from typing import Any

from msgspec import Struct

from seriatim.live.founding import JournalFormat, Rebuilt
from seriatim.model import InputError
from seriatim.protocols.node import Stepped, TookOver
from seriatim.protocols.overlay import Broker, OverlayOptions, Place
from seriatim.protocols.overlay.messages import Input
from seriatim.protocols.overlay.running import BrokerNode, LinkedState
from seriatim.runtime import Recovered

FIX = "start it as it was, or start all brokers with empty journals"


class Founded(Struct, frozen=True, tag=True):
    """The first record of a broker's journal: the broker, its neighbours and its order.

    `bounds`: limits that decide what is refused or sent, so replaying with other limits would give another broker. Old
    journals lack some or all of them; ids or messages were made differently then.
    """

    place: Place
    order: str
    early: bool
    bounds: tuple[int, ...] = ()


JOURNAL = JournalFormat("broker", Founded, LinkedState, Stepped[Input] | TookOver)


def rebuild(place: Place, options: OverlayOptions, recovered: Recovered) -> Rebuilt[BrokerNode, Founded]:
    """The broker as its journal left it; an empty journal gives a new one.

    JournalError: this is not the journal of a broker. InputError: it belongs to another broker.
    """
    bounds = options.held_max, options.subscriptions_max, options.advertisements_max, options.turned_max
    now = Founded(place, options.order, options.early, bounds)
    content = JOURNAL.read(place.name, recovered)
    then = content.founded
    if then is not None:
        _check_same(then, now)
    written = then.place if then is not None else place  # with its neighbours in the same order
    state: Any = content.state  # the same fields as the node's own, typed
    node = BrokerNode.take_over(
        lambda state=None: Broker(written, options, state), options.retry_ms, content.steps, state
    )
    node.confirm()
    return Rebuilt(node, content.at_least, now, now if then is None else None)


def _check_same(then: Founded, now: Founded) -> None:
    if then.place.name != now.place.name:
        problem = f"it belongs to broker {then.place.name}, not to {now.place.name}"
        raise InputError("journal", problem, "give every broker a journal of its own")
    if then.place.parent != now.place.parent or set(then.place.children) != set(now.place.children):
        neighbours = ", ".join(then.place.neighbours) or "nobody"
        problem = f"the journal of {now.place.name} was written with the neighbours {neighbours}"
        raise InputError("brokers", problem, FIX)
    if (then.order, then.early) != (now.order, now.early):
        problem = f"the journal of {now.place.name} was written with order {then.order!r} and early {then.early}"
        raise InputError("options.order", problem, FIX)
    if then.bounds != now.bounds:
        before = ", ".join(map(str, then.bounds)) or "none, by an earlier version"
        problem = f"the journal of {now.place.name} was written with other bounds ({before})"
        raise InputError("options.waiting_max, subscriptions_max, advertisements_max", problem, FIX)
