"""The state of the roles. All of it is plain data, so that it can be kept, compared and brought back."""

from msgspec import Struct, field

from seriatim.model import Address, Number
from seriatim.protocols.overlay.messages import (
    Advertise,
    Clock,
    Id,
    Key,
    Name,
    Publication,
    Publish,
    Subscribe,
    Unadvertise,
    Where,
)


class Advertised(Struct, array_like=True):
    """An advertisement that a broker knows."""

    owner: Address
    where: Where


class Routes(Struct, array_like=True):
    """Subscriptions and advertisements, by direction: a neighbour or a client."""

    wanted: dict[Address, dict[Id, Where]] = field(default_factory=dict)
    offered: dict[Address, dict[Id, Advertised]] = field(default_factory=dict)
    passed_on: dict[Address, dict[Id, Where]] = field(default_factory=dict)  # by neighbour: what it knows through us


class Held(Struct, array_like=True):
    """A subscription of a client of this broker: what the client calls it, and the number of its last match.

    `after`: only what has a larger clock counts; None: nothing yet (order by resolution).
    """

    name: Name
    number: Number = 0
    after: Clock | None = None


class Offer(Struct, array_like=True):
    """An advertisement of a client of this broker, and whether everybody has heard of it."""

    id: Id
    heard: bool = False


class ClientSide(Struct, array_like=True):
    """The state of one client at its broker.

    `queue`: commands that wait, in order: for an advertisement to be heard everywhere, or for publications to come
    back. `joining`: subscriptions that have not begun.
    """

    names: dict[Name, Id] = field(default_factory=dict)
    held: dict[Id, Held] = field(default_factory=dict)
    offers: dict[Name, Offer] = field(default_factory=dict)
    queue: list[Publish | Advertise | Unadvertise] = field(default_factory=list)
    joining: list[Subscribe] = field(default_factory=list)
    forgotten: bool = False


class Echo(Struct, array_like=True):
    """A question that was forwarded to others: who asked, who has not answered yet, and the answers so far.

    `keys`: publications that were notified early and have to come back before it is answered. `where`: of a question of
    the broker itself, behind a late advertisement.
    """

    source: Address
    waits_for: set[Address]
    is_advertisement: bool
    name: Name = ""
    clock: Clock = 0
    unreachable: set[Address] = field(default_factory=set)
    keys: set[Key] = field(default_factory=set)
    where: Where = ""


class Climbing(Struct, array_like=True):
    """A publication that went to the parent and has not come back.

    `told`: the clients that were notified early. `untold`: those that may be notified of it when it comes back.
    `asked`: the parent tells as soon as it has turned; else when that costs nothing.
    """

    origin: Address
    direction: Address
    wanted: bool
    told: set[Address] = field(default_factory=set)
    untold: set[Address] = field(default_factory=set)
    asked: bool = False


class Merge(Struct, array_like=True):
    """The state of the order by resolution: what waits for its place, what was promised, and who asked."""

    waiting: dict[Address, list[Publication]] = field(default_factory=dict)  # by client, in order
    done: dict[Address, tuple[Clock, Key]] = field(default_factory=dict)  # by client: what it was notified of last
    heard: dict[Address, Clock] = field(default_factory=dict)  # by publisher: the clock of what came last of it
    promised: dict[Address, Clock] = field(default_factory=dict)  # by neighbour
    inquired: dict[Address, Clock] = field(default_factory=dict)  # by neighbour: the largest clock we asked about
    asked: dict[Address, list[Clock]] = field(default_factory=dict)  # by neighbour: what it asked and we owe


class BrokerState(Struct, array_like=True):
    """Everything a broker remembers."""

    routes: Routes = field(default_factory=Routes)
    clients: dict[Address, ClientSide] = field(default_factory=dict)
    echoes: dict[Id, Echo] = field(default_factory=dict)
    climbing: dict[Key, Climbing] = field(default_factory=dict)
    merge: Merge = field(default_factory=Merge)
    suspected: set[Address] = field(default_factory=set)
    forgotten: set[Address] = field(default_factory=set)
    serial: int = 0
    clock: Clock = 0
    turned: dict[Address, list[Key]] = field(default_factory=dict)  # by child: it climbed from there; not told yet
    uneven: set[Address] = field(default_factory=set)  # publishers of which one had to follow another needlessly


class ClientState(Struct, array_like=True):
    """The state of a client: the number it was notified of last, by subscription."""

    numbers: dict[Name, Number] = field(default_factory=dict)
