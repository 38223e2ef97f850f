"""The checks, and how a broken promise is reported.

Every check here is *stable*: once broken it stays broken whatever happens next, because logs only grow. Therefore it is
enough to look at the states where a run can stop, and a search that reaches all of those misses nothing.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from seriatim.model import Address, Notification
from seriatim.protocols.machine import Payload


class Violation(Struct, frozen=True):
    """A promise that was broken: its name, and one sentence that shows it."""

    kind: str
    sentence: str


class Issued(NamedTuple):
    """A command, and how many notifications each machine had given to its application by then."""

    address: Address
    command: Payload
    notified: Mapping[Address, int]


class Stopped(Protocol):
    """A world in which no message is on its way and no command is waiting to be issued."""

    @property
    def addresses(self) -> Sequence[Address]: ...

    def machine(self, address: Address) -> Any:
        """The machine, to look at; None if it is dead."""
        ...

    def log(self, address: Address) -> Sequence[Payload]:
        """What it gave to its application, in order."""
        ...

    def waiting(self, address: Address) -> int:
        """How many answers its application is still owed."""
        ...

    @property
    def issued(self) -> Sequence["Issued"]:
        """The commands of the scripts, in the order they were issued; a search does not keep them."""
        ...


class Fact(NamedTuple):
    """A question that must have one answer only, whoever gives it, for a time after it was given last.

    `keepers`: whoever may have to remember it; it is over when the time has passed for one of them.
    """

    question: str
    answer: Any
    lifetime_ms: float = inf
    keepers: Sequence[Address] = ()


class Checks:
    """Checks that promise nothing. A world overrides what it promises."""

    def log(self, address: Address, log: Sequence[Payload]) -> Violation | None:
        """Look at the log of one machine."""
        return None

    def pair(
        self, one: Address, log: Sequence[Payload], other: Address, other_log: Sequence[Payload]
    ) -> Violation | None:
        """Compare the logs of two machines."""
        return None

    def everybody(self, logs: Mapping[Address, Sequence[Payload]]) -> Violation | None:
        """Look at the logs of all machines together, when no two of them contradict each other."""
        return None

    def facts(self, target: Address, message: Payload) -> Sequence[Fact]:
        """What this message to `target` lays down for good. A random walk refuses two answers to one question."""
        return ()

    def stopped(self, world: Stopped) -> list[Violation]:
        """Look at a world where nothing more happens by itself: is everything there that was owed?"""
        return []


class OrderChecks(Checks):
    """Nobody is notified twice, and any two see what they share in one order. With `is_acyclic`, one order of all
    events fits what everybody saw. Those in `forgotten` are promised nothing."""

    forgotten: frozenset[Address] = frozenset()
    is_acyclic = False

    def log(self, address: Address, log: Sequence[Payload]) -> Violation | None:
        id = None if address in self.forgotten else first_duplicate(ids_of(log))
        return None if id is None else Violation("duplicate", f"{address} was notified of {id} twice")

    def pair(
        self, one: Address, log: Sequence[Payload], other: Address, other_log: Sequence[Payload]
    ) -> Violation | None:
        if one in self.forgotten or other in self.forgotten:
            return None
        found = first_inversion(ids_of(log), ids_of(other_log))
        if found is None:
            return None
        a, b = found
        return Violation("inversion", f"{one} was notified of {a} before {b}, {other} of {b} before {a}")

    def everybody(self, logs: Mapping[Address, Sequence[Payload]]) -> Violation | None:
        if not self.is_acyclic:
            return None
        ids = {address: ids_of(log) for address, log in logs.items() if address not in self.forgotten}
        cycle = shortest_cycle(ids)
        if not cycle:
            return None
        (first, a, b), *rest = cycle
        others = ", ".join(f"{address} of {c} before {d}" for address, c, d in rest)
        return Violation("cycle", f"{first} was notified of {a} before {b}, {others}")

    def causal_inversions(
        self, world: Stopped, causes: Mapping[str, frozenset[str]], except_for: Set[Address] = frozenset()
    ) -> list[Violation]:
        """Where an effect came before its cause; `causes` must be transitively closed."""
        found = []
        for address in world.addresses:
            pair = (
                None
                if address in self.forgotten or address in except_for
                else first_causal_inversion(ids_of(world.log(address)), causes)
            )
            if pair is not None:
                sentence = f"{address} was notified of {pair[1]} before its cause {pair[0]}"
                found.append(Violation("causal-inversion", sentence))
        return found


def ids_of(log: Sequence[Payload]) -> list[str]:
    """The events of a log that were promised to be in order."""
    return [payload.event.id for payload in log if type(payload) is Notification and not payload.out_of_order]


def inner(machine: Any) -> Any:
    """The machine inside a node with links, or the machine itself."""
    return getattr(machine, "inner", machine)


def stuck(address: Address, what: str, reasons: Iterable[str]) -> Violation:
    """A machine that is not done, and why."""
    return Violation("stuck", f"{address} {what}: {'; '.join(reasons) or 'nothing that it knows of'}")


def first_inversion(log: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    """Two ids (a, b) that `log` has as a … b and `other` as b … a; None if the two agree on what they share.

    Two logs agree on every pair iff what they share is one and the same sequence, so looking at neighbours is enough.
    """
    positions = {id: position for position, id in enumerate(log)}
    previous = -1
    for id in other:
        position = positions.get(id)
        if position is None:
            continue
        if position < previous:
            return id, log[previous]
        previous = position
    return None


def shortest_cycle(logs: Mapping[Address, Sequence[str]]) -> list[tuple[Address, str, str]]:
    """The fewest steps (who, a, b), "who has a before b", that lead from an id back to it; none: one order fits all."""
    knotted = _knotted(logs)
    positions = {
        address: {id: place for place, id in enumerate(id for id in log if id in knotted)}
        for address, log in logs.items()
    }
    orders = {address: list(places) for address, places in positions.items() if len(places) > 1}
    best: list[tuple[Address, str, str]] = []
    for start in sorted(knotted):
        came_from: dict[str, tuple[Address, str]] = {}
        queue = deque([start])
        while queue and start not in came_from:
            id = queue.popleft()
            for address, order in orders.items():
                for after in order[positions[address].get(id, len(order)) + 1 :]:
                    if after not in came_from:
                        came_from[after] = address, id
                        queue.append(after)
        if start not in came_from:
            continue
        steps: list[tuple[Address, str, str]] = []
        id = start
        while not steps or id != start:
            address, before = came_from[id]
            steps.append((address, before, id))
            id = before
        if not best or len(steps) < len(best):
            best = steps[::-1]
    return best


def _knotted(logs: Mapping[Address, Sequence[str]]) -> set[str]:
    """The ids that are left when, again and again, those are taken away before or after which nothing comes."""
    after: dict[str, set[str]] = {id: set() for log in logs.values() for id in log}
    for log in logs.values():
        for one, next_one in pairwise(log):
            after[one].add(next_one)
    left = set(after)
    for _ in range(2):  # forwards, then backwards
        before = dict.fromkeys(left, 0)
        for id in left:
            for other in after[id] & left:
                before[other] += 1
        free = [id for id, count in before.items() if not count]
        for id in free:  # grows while we walk it
            for other in after[id] & before.keys():
                before[other] -= 1
                if not before[other]:
                    free.append(other)
        left = before.keys() - set(free)
        turned: dict[str, set[str]] = {id: set() for id in left}
        for id in left:
            for other in after[id] & left:
                turned[other].add(id)
        after = turned
    return left


def first_duplicate(log: Sequence[str]) -> str | None:
    """An id that occurs twice, or None."""
    seen: set[str] = set()
    for id in log:
        if id in seen:
            return id
        seen.add(id)
    return None


def first_causal_inversion(log: Sequence[str], causes: Mapping[str, frozenset[str]]) -> tuple[str, str] | None:
    """(cause, effect) where `log` has the effect first; `causes` must be transitively closed."""
    later = set(log)
    for id in log:
        later.discard(id)
        early = later & causes.get(id, frozenset())
        if early:
            return min(early), id
    return None
