"""The shape of an overlay: which broker is linked to which, and which of them is the root.

An overlay is a tree. That is checked here, once, for every caller that knows all of it: a configuration file, a plan, a
test. A broker itself is only given its `Place`: its neighbours.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from seriatim.model import Address, InputError
from seriatim.order.tree import check_shape


class OverlayError(InputError):
    """The brokers form no overlay: there is a cycle, two have one name, or one cannot be reached."""


class Place(Struct, frozen=True):
    """The part of the overlay that a broker knows. The root has no parent."""

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
        self.root = check_shape(self.parents, "brokers", "broker {!r}".format, OverlayError)
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

    def path(self, broker: Address) -> Sequence[Address]:
        """The way up from this broker to the root, both included."""
        found = [broker]
        while (above := self.parents[found[-1]]) is not None:
            found.append(above)
        return found

    def __repr__(self) -> str:
        return f"Overlay({self.parents!r})"
