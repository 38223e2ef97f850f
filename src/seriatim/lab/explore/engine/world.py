"""A small world to explore: which machines exist, how their messages travel, what is asked of them, what may fail.

A `World` is a description and never changes; `run.Run` executes it once, `space.Space` spans all its executions.

Everything that can happen is a `Transition`, and each one acts on exactly one machine, its `target`: it takes the head
of a channel to that machine, or its next command, or one of its faults. Faults and timer firings are counted per
machine and no budget is shared. So two transitions with different targets never disturb each other, which is the one
fact both reductions of `search` stand on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from seriatim.lab.explore.engine.checks import Checks
from seriatim.model import APPLICATION, Address, InputError
from seriatim.protocols.machine import Machine, Payload

TIMER: Address = "timer"  # as a cause of messages: a tick or a fault

Kind: TypeAlias = Literal[
    "deliver", "issue", "tick", "crash", "die", "lose", "replace", "haunt", "suspect", "age", "double", "forget"
]

REGULAR: frozenset[str] = frozenset({"deliver", "issue"})  # the others may happen, but nobody can count on them


class Transition(NamedTuple):
    """One thing that can happen to `target`. Those that consume a message name its channel.

    - `deliver` a message; `issue` the next command; `tick`: its time has come.
    - `crash`: the process dies and another takes over from its journal; with a channel: during a message, after its
      journal had it and before anybody heard. `die`: it is never seen again. `lose` a message on the way to it.
    - `replace`: another process takes over while the old one still runs; `haunt`: the old one takes a message or ticks.
    - `age`: the process dies, and another starts from an older copy of its journal (`lane`: how many records it lacks);
      `double`: another process takes over with a copy of the journal, so that the journal does not fence the old one,
      which haunts.
    - `forget`: the process dies, and its journal is lost; its operator heals it.
    - `suspect`: its driver tells it that the machine named by `lane` is gone, which is true.
    """

    kind: Kind
    target: Address
    source: Address = ""
    lane: str = ""

    @property
    def channel(self) -> "Channel":
        return Channel(self.source, self.target, self.lane)


class Channel(NamedTuple):
    """Messages from one machine to another, first in first out within a lane; lanes overtake each other."""

    source: Address
    target: Address
    lane: str = ""


_encode = msgspec.msgpack.Encoder().encode


def encode(value: Any) -> bytes:
    """Encode a value so that equal values give equal bytes, whatever order their sets and dictionaries were filled
    in."""
    return _encode(msgspec.to_builtins(value, str_keys=True, order="deterministic"))


class Stateful(Machine, Protocol):
    """A machine that keeps all its state in one Struct, and can be built again from it."""

    state: Any


@dataclass(frozen=True)
class Role:
    """How to make one machine, and how to make it again: from its state, and from its journal after a crash."""

    create: Callable[[], Stateful]
    thaw: Callable[[Any], Stateful]
    restore: Callable[[Sequence[Payload]], Stateful] | None = None
    come_back: Callable[[Sequence[Payload], int], Stateful] | None = None  # the same, in at least this epoch
    heal: Callable[[int], Stateful] | None = None  # without its journal, in this epoch


@dataclass(frozen=True)
class Budget:
    """How often something optional may happen to one machine."""

    ticks: int = 0
    crashes: int = 0
    losses: int = 0
    deaths: int = 0
    takeovers: int = 0
    losses_of_journal: int = 0
    copies: int = 0  # older copies of its journal, and second processes with a journal of their own


NO_BUDGET = Budget()


def everyone(target: Address, source: Address) -> None:
    """The influence of a world about which nothing is known."""


def as_addressed(target: Address, message: Payload) -> Sequence[tuple[Address, Payload]]:
    """Messages go to whom they are addressed."""
    return [(target, message)]


def one_lane(source: Address, target: Address, message: Payload) -> str:
    """One first-in-first-out channel from any machine to any other."""
    return ""


@dataclass(frozen=True)
class World:
    """The machines of a world, and the commands they get.

    - `setup`: commands issued one by one, each drained, before exploration begins.
    - `scripts`: the commands of each client. The next one may be issued once the one before was issued, or, for clients
      in `one_at_a_time`, once it was answered.
    - `answers`: how many answers a command is owed; `is_answer`: whether a notification is one.
    - `influence(target, source)`: to whom `target` may send in reaction to a message from `source` (also APPLICATION
      and TIMER); None: to anyone. `passive(machine)`: whatever this machine is sent, it will send nothing. Both only
      serve to leave out interleavings; a machine that does otherwise stops the search with an error.
    - `normalise(machine)`: wipe from the state of a machine what cannot matter in this world (timers, where time stands
      still); `noted(payload)`: what of a notification the checks look at. The less is kept, the fewer states differ.
    - `patience`: how many rounds of ticks a world that came to rest is given before what is owed must be there. 0 for
      worlds without faults: there nothing may have to be repeated.
    - `lost_with(sender, message)`: a message can only be lost because its sender died (None) or is another one now.
      Without it, any message that `may_lose` allows.
    - `suspicion(address)`: the command by which a driver says that the machine there is gone.
    - `fenced`: a journal refuses the appends of a process that was replaced. Off only to see what happens then.
    - `listens(machine)`: whether it takes commands now; whoever gives it some waits until then.
    - `prepared(address, command, machine)`: the command as an application gives it that knows its other machines;
      `hands_on(address, payload)`: to whom an application passes on what the machine there told it.
    - `aged(journal)`: by how many records an older copy of this journal may be shorter; `is_outdated(payload)`: whether
      a machine says that its journal is one, so that its operator puts the newest back; `known_apart(channel)`: whether
      a second process with a journal of its own may take a message of this channel.
    - `ends(payload)`: whether a machine says that its process may end. It ends at once.
    - `leaks`: these messages leave before the journal has the input that caused them. Only to see what happens then.
    - `route` and `seen_as`: one party may be played by several machines (a broker with a machine per topic, say).
      `route` says which of them gets which part of a message, `seen_as` the name under which others know each.
    """

    name: str
    roles: Mapping[Address, Role]
    checks: Checks
    setup: Sequence[tuple[Address, Payload]] = ()
    scripts: Mapping[Address, Sequence[Payload]] = field(default_factory=dict)
    one_at_a_time: frozenset[Address] = frozenset()
    budgets: Mapping[Address, Budget] = field(default_factory=dict)
    route: Callable[[Address, Payload], Sequence[tuple[Address, Payload]]] = as_addressed
    seen_as: Mapping[Address, Address] = field(default_factory=dict)
    lane: Callable[[Address, Address, Payload], str] = one_lane
    may_lose: Callable[[Channel, Payload], bool] = lambda channel, message: True
    answers: Callable[[Payload], int] = lambda command: 0
    is_answer: Callable[[Payload], bool] = lambda payload: False
    influence: Callable[[Address, Address], frozenset[Address] | None] = everyone
    passive: Callable[[Any], bool] = lambda machine: False
    normalise: Callable[[Any], None] = lambda machine: None
    noted: Callable[[Payload], Payload | None] = lambda payload: payload
    patience: int = 0
    lost_with: Callable[[Any, Payload], bool] | None = None
    suspicion: Callable[[Address], Payload] | None = None
    fenced: bool = True
    prepared: Callable[[Address, Payload, Callable[[Address], Any]], Payload] = lambda address, command, machine: (
        command
    )
    listens: Callable[[Any], bool] = lambda machine: True
    hands_on: Callable[[Address, Payload], Sequence[Address]] = lambda address, payload: ()
    leaks: Callable[[Payload], bool] = lambda message: False
    aged: Callable[[Sequence[Payload]], int] = lambda journal: 0
    is_outdated: Callable[[Payload], bool] = lambda payload: False
    ends: Callable[[Payload], bool] = lambda payload: False
    known_apart: Callable[["Channel"], bool] = lambda channel: False
    about: str = ""

    def __post_init__(self) -> None:
        if not self.roles:
            raise InputError("roles", "the world has no machines", "give at least one")
        for reserved in (APPLICATION, TIMER):
            if reserved in self.roles:
                raise InputError(f"roles[{reserved!r}]", "the name is reserved", "give the machine another address")
        named = {"setup": [address for address, _ in self.setup], "scripts": list(self.scripts)}
        named |= {"budgets": list(self.budgets), "one_at_a_time": sorted(self.one_at_a_time)}
        for place, addresses in named.items():
            for address in addresses:
                if address not in self.roles:
                    raise InputError(
                        place, f"unknown machine {address!r}", f"use one of {', '.join(sorted(self.roles))}"
                    )
        for address, budget in self.budgets.items():
            if min(astuple(budget)) < 0:
                raise InputError(f"budgets[{address!r}]", "a count is negative", "give 0 or more")
            if (budget.crashes or budget.takeovers) and self.roles[address].restore is None:
                raise InputError(
                    f"budgets[{address!r}]", "it has no journal to crash with", "give its role a `restore`"
                )
        if self.patience < 0:
            raise InputError("patience", f"{self.patience} is negative", "give 0 or more")
