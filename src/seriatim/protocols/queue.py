"""A queue as plain data: items are added at the end and taken from the front. It can be encoded, like all state.

A list alone would move all of its items whenever one is taken; a deque cannot be encoded.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec import Struct, field

Item = TypeVar("Item")


class Queue(Struct, Generic[Item], array_like=True):
    """The first `taken` of the items are gone; they are dropped when they are half of all, so each is moved once."""

    items: list[Item] = field(default_factory=list)
    taken: int = 0

    def __len__(self) -> int:
        return len(self.items) - self.taken

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items[self.taken :])

    @property
    def first(self) -> Item:
        """The item that is taken next."""
        return self.items[self.taken]

    def append(self, item: Item) -> None:
        self.items.append(item)

    def take(self, count: int = 1) -> list[Item]:
        """The first `count` items, or as many as there are."""
        start = self.taken
        found = self.items[start : start + count]
        self.taken += len(found)
        self._drop_taken()
        return found

    def remove(self, index: int) -> None:
        """Take out the item at this place of the queue."""
        del self.items[self.taken + index]
        self._drop_taken()

    def _drop_taken(self) -> None:
        if 2 * self.taken >= len(self.items):
            del self.items[: self.taken]
            self.taken = 0
