"""The shape of an overlay: which broker is linked to which, and which of them is the root.

An overlay is a tree. That is checked here, once, for whoever knows all of it: a configuration file, a plan, a test. A
broker itself is only given its `Place`: its neighbours.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from seriatim.model import Address, InputError


class OverlayError(InputError):
    """Not an overlay: a cycle, two brokers of one name, or a broker that cannot be reached."""


class Place(Struct, frozen=True):
    """What a broker knows of the overlay. The root has no parent."""

    name: Address
    parent: Address | None = None
    children: tuple[Address, ...] = ()

    @property
    def neighbours(self) -> tuple[Address, ...]:
        return self.children if self.parent is None else (self.parent, *self.children)


class Overlay:
    """A tree of brokers. `parents` maps each broker to its parent, and the root to None."""

    def __init__(self, parents: Mapping[Address, Address | None]) -> None:
        self.parents = dict(parents)
        self.root = _check(self.parents)
        children: dict[Address, list[Address]] = {broker: [] for broker in self.parents}
        for broker, parent in self.parents.items():
            if parent is not None:
                children[parent].append(broker)
        self.places = {
            broker: Place(broker, parent, tuple(children[broker])) for broker, parent in self.parents.items()
        }

    @classmethod
    def of(cls, brokers: Iterable[tuple[Address, Address | None]]) -> "Overlay":
        """From a list of brokers with their parents, as a file has it: a name may not occur twice."""
        parents: dict[Address, Address | None] = {}
        for broker, parent in brokers:
            if broker in parents:
                raise OverlayError(f"broker {broker!r}", "there are two of this name", "give each broker its own name")
            parents[broker] = parent
        return cls(parents)

    @classmethod
    def linked(cls, root: Address, links: Iterable[tuple[Address, Address]]) -> "Overlay":
        """From undirected links between brokers, and the name of the root."""
        neighbours: dict[Address, list[Address]] = {root: []}
        for one, other in links:
            if one == other or other in neighbours.get(one, ()):
                raise OverlayError(f"link from {one} to {other}", "it closes a cycle", "leave it out")
            neighbours.setdefault(one, []).append(other)
            neighbours.setdefault(other, []).append(one)
        parents: dict[Address, Address | None] = {root: None}
        work = [root]
        while work:
            broker = work.pop()
            for neighbour in neighbours[broker]:
                if neighbour == parents[broker]:
                    continue
                if neighbour in parents:
                    raise OverlayError(
                        f"link from {broker} to {neighbour}", "it closes a cycle", "leave one link of it out"
                    )
                parents[neighbour] = broker
                work.append(neighbour)
        for broker in neighbours:
            if broker not in parents:
                raise OverlayError(f"broker {broker!r}", f"no links lead to it from {root!r}", "add a link")
        return cls(parents)

    def path(self, broker: Address) -> Sequence[Address]:
        """The way up from this broker to the root, both included."""
        found, above = [], broker
        while True:
            found.append(above)
            parent = self.parents[above]
            if parent is None:
                return found
            above = parent

    def __repr__(self) -> str:
        return f"Overlay({self.parents!r})"


def _check(parents: Mapping[Address, Address | None]) -> Address:
    """The root of what is a tree; raises an error that says why it is not one."""
    if not parents:
        raise OverlayError("brokers", "no broker was given", "name at least one, with parent None")
    for broker, parent in parents.items():
        if not broker:
            raise OverlayError("brokers", "one has an empty name", "give every broker a name")
        if parent is not None and parent not in parents:
            raise OverlayError(
                f"broker {broker!r}", f"its parent {parent!r} is unknown", f"add {parent!r} or correct the name"
            )
    for start in parents:
        climbed = [start]
        while (above := parents[climbed[-1]]) is not None:
            if above in climbed:
                cycle = " → ".join([*climbed[climbed.index(above) :], above])
                raise OverlayError(f"broker {start!r}", f"cycle {cycle}", "give one of them another parent, or none")
            climbed.append(above)
    roots = [broker for broker, parent in parents.items() if parent is None]
    if len(roots) > 1:
        raise OverlayError("brokers", f"more than one root: {', '.join(roots)}", "give all but one of them a parent")
    return roots[0]
