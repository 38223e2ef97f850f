"""The messages between clients and brokers. All of it travels on links that neither lose, repeat nor reorder."""

from typing import TypeAlias

from msgspec import Struct

from seriatim.model import Address, Event, Number
from seriatim.protocols.link import Frame as Frame
from seriatim.protocols.node import Forgetting

Name: TypeAlias = str  # what a client calls a subscription or an advertisement
Id: TypeAlias = str  # what brokers call it: no two are ever the same, also not one after the other
Where: TypeAlias = str  # the text of a filter
Key: TypeAlias = str  # one publication on its way: the broker that took it, and its number there
Clock: TypeAlias = int

# ── commands of applications, and what they are told ──────────────────────────────────────────────────────────────


class Subscribe(Struct, frozen=True, tag=True):
    """Tell me of what matches this filter, under this name."""

    name: Name
    where: Where


class Unsubscribe(Struct, frozen=True, tag=True):
    """End the subscription of this name."""

    name: Name


class Advertise(Struct, frozen=True, tag=True):
    """I am going to publish what matches this filter."""

    name: Name
    where: Where


class Unadvertise(Struct, frozen=True, tag=True):
    """I have published everything under this advertisement."""

    name: Name


class Publish(Struct, frozen=True, tag=True):
    """An event; its attributes are in its headers. One of the client's advertisements must match it."""

    event: Event


class Subscribed(Struct, frozen=True, tag=True):
    """Everything that matches and is published from now on will come; except from beyond `unreachable` brokers."""

    name: Name
    unreachable: tuple[Address, ...] = ()


class Unsubscribed(Struct, frozen=True, tag=True):
    """To a client: nothing more comes under this name. `last`: the number of the last event that came."""

    name: Name
    last: Number = 0


class Advertised(Struct, frozen=True, tag=True):
    """Every broker knows the advertisement; except those beyond `unreachable` ones."""

    name: Name
    unreachable: tuple[Address, ...] = ()


class Unadvertised(Struct, frozen=True, tag=True):
    """The advertisement is withdrawn."""

    name: Name


class EventTaken(Struct, frozen=True, tag="Published"):
    """The event is in the broker's journal and on its way."""

    event_id: str


class Refused(Struct, frozen=True, tag=True):
    """To a client: its command was refused; nothing was changed. `error`: the name of the error; `reason`: a
    sentence."""

    command: str
    name: str
    error: str
    reason: str


class Deliver(Struct, frozen=True, tag=True):
    """From a broker to its client: an event, and its number in each of the client's subscriptions that it matches.

    Without an event: these numbers will never come, and why.
    """

    event: Event | None
    numbers: dict[Name, Number]
    reason: str = ""


class Suspect(Struct, frozen=True, tag=True):
    """To a broker, from its driver: this neighbour does not answer. Nobody waits for it until it is heard again."""

    neighbour: Address


class Answers(Struct, frozen=True, tag=True):
    """To a broker, from its driver: there is a connection to this neighbour again."""

    neighbour: Address


class Forget(Forgetting, frozen=True, tag=True):
    """To a broker, from its driver: this client is gone for good."""

    client: Address

    @property
    def whom(self) -> Address:
        return self.client


class Reached(Struct, frozen=True, tag=True):
    """To a node, from its driver: there is a new connection to this address. Not recorded: it changes no state."""

    address: Address


# ── between brokers: who wants and who has what ───────────────────────────────────────────────────────────────────


class Advertisement(Struct, frozen=True, tag=True):
    """The flood: this owner may publish what matches this. Answered with `Heard` when everybody beyond has heard."""

    id: Id
    owner: Address
    where: Where


class Late(Struct, frozen=True, tag=True):
    """The flood, behind an advertisement: it was acknowledged without you. What was published under it since then has
    not come to you, whoever wanted it."""

    id: Id


class Withdrawal(Struct, frozen=True, tag=True):
    """The flood: nothing more comes of this advertisement."""

    id: Id


class Interest(Struct, frozen=True, tag=True):
    """Send me what matches this."""

    id: Id
    where: Where


class Disinterest(Struct, frozen=True, tag=True):
    """Stop sending what matches this subscription."""

    id: Id


class Sound(Struct, frozen=True, tag=True):
    """The echo behind a subscription: to every broker that may send a match. Whoever gets it has the subscription.

    Answered with `Heard` when everybody beyond has heard. Every clock there is beyond `clock` then.
    """

    token: Id
    where: Where
    clock: Clock = 0


class Heard(Struct, frozen=True, tag=True):
    """Everybody beyond me has heard of it, except those beyond `unreachable` ones. `clock`: the largest there."""

    token: Id
    clock: Clock = 0
    unreachable: tuple[Address, ...] = ()


# ── between brokers: publications ─────────────────────────────────────────────────────────────────────────────────


class Publication(Struct, frozen=True):
    """One event on its way. `clock` counts only in the order by resolution.

    `origin`: the client, behind its broker's name (`B2/client`); so is the owner of an advertisement.
    """

    key: Key
    origin: Address
    event: Event
    clock: Clock = 0


class Climb(Struct, frozen=True, tag=True, omit_defaults=True):
    """To the parent: somebody beyond you wants this. `wanted`: so does somebody on the way back to its origin.

    `asks`: the same as `Ask` right behind it.
    """

    publication: Publication
    wanted: bool
    asks: bool = False


class Descend(Struct, frozen=True, tag=True, omit_defaults=True):
    """To a child: this is in its place now; notify. `turned`: the same as `Turned` right before it."""

    publication: Publication
    turned: tuple[Key, ...] = ()


class Turned(Struct, frozen=True, tag=True):
    """To a child that these climbed from and where nobody wants them: they are in their place now."""

    keys: tuple[Key, ...]


class Ask(Struct, frozen=True, tag=True):
    """To the parent: somebody waits for what climbed from me so far. Tell me of each as soon as it has turned."""


class Spread(Struct, frozen=True, tag=True):
    """To any neighbour: somebody in your direction wants this (orders `fifo` and `resolution`)."""

    publication: Publication


class Inquire(Struct, frozen=True, tag=True):
    """To a neighbour, in the order by resolution: can anything still come from you that is not after this clock?"""

    clock: Clock


class Promise(Struct, frozen=True, tag=True):
    """To a neighbour: whatever comes from me from now on, and that you wanted by then, is after this clock."""

    clock: Clock


Command: TypeAlias = Subscribe | Unsubscribe | Advertise | Unadvertise | Publish
Answer: TypeAlias = Subscribed | Unsubscribed | Advertised | Unadvertised | EventTaken | Refused
ToClient: TypeAlias = Answer | Deliver
Routing: TypeAlias = Advertisement | Late | Withdrawal | Interest | Disinterest | Sound | Heard
Moving: TypeAlias = Climb | Descend | Turned | Ask | Spread | Inquire | Promise  # publications
Between: TypeAlias = Routing | Moving
Told: TypeAlias = Suspect | Answers | Forget
Input: TypeAlias = Command | Between | Told  # what a broker takes, and its journal keeps
