"""The virtual hypercube: clusters, and the nearest peer in each of them. Pure arithmetic on ids, no state.

Papers 001 and 002 define the ordered cluster c(i, s) by recursion. Written out, c(i, s) holds the ids whose distance
i ⊕ j has its highest bit at place s, in order of that distance; so "the first member of the cluster" is the nearest
one. Nothing in this needs the ids to fill a power of two: an id that nobody has is just never nearest.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

from seriatim.model import Address, InputError

Id: TypeAlias = int  # of a peer, from 0
Life: TypeAlias = int  # one life of a peer: its id, and how often it was born again

IDS_MAX = 1 << 16
PREFIX = "peer"


def cluster(i: Id, s: int) -> list[Id]:
    """c(i, s) as printed: the first neighbour, then that neighbour's clusters 1 … s-1. All ids, in use or not."""
    first = i ^ (1 << (s - 1))
    return [first, *(j for k in range(1, s) for j in cluster(first, k))]


def cluster_of(i: Id, j: Id) -> int:
    """Which cluster of i holds j; 0: j is i."""
    return (i ^ j).bit_length()


def nearest(ids: Sequence[Id], i: Id, s: int) -> Id | None:
    """The first of these (sorted) ids in c(i, s). Takes as many steps as the cluster has bits, not members."""
    size = 1 << (s - 1)
    low = (i ^ size) & ~(size - 1)
    start, stop = bisect_left(ids, low), bisect_left(ids, low + size)
    if start == stop:
        return None
    while stop - start > 1:  # halve the cluster, always towards i
        size >>= 1
        middle = bisect_left(ids, low + size, start, stop)
        if i & size:
            start, stop, low = (middle, stop, low + size) if middle < stop else (start, stop, low)
        elif middle > start:
            stop = middle
        else:
            low += size
    return ids[start]


def within(ids: Sequence[Id], i: Id, s: int) -> Sequence[Id]:
    """The ids in cluster c(i, s), in order. `ids` must be sorted."""
    size = 1 << (s - 1)
    low = (i ^ size) & ~(size - 1)
    return ids[bisect_left(ids, low) : bisect_left(ids, low + size)]


class Cube:
    """The peers there may be. Every peer of a system is given the same ones."""

    def __init__(self, ids: Iterable[Id]) -> None:
        self.ids = tuple(sorted(ids))
        if not self.ids:
            raise InputError("peers", "no peer was given", "name at least one peer")
        for id in self.ids:
            if not 0 <= id < IDS_MAX:
                raise InputError(f"peer {id}", "the id is out of range", f"use ids from 0 to {IDS_MAX - 1}")
        for id, following in zip(self.ids, self.ids[1:], strict=False):
            if id == following:
                raise InputError(f"peer {id}", "two peers have this id", "give every peer its own")
        self.height = max(self.ids).bit_length()
        self._known = frozenset(self.ids)

    def __contains__(self, id: Id) -> bool:
        return id in self._known

    def neighbours(self, ids: Sequence[Id], i: Id) -> Iterator[tuple[int, Id]]:
        """The nearest of these in every cluster of i that has one of them."""
        for s in range(1, self.height + 1):
            found = nearest(ids, i, s)
            if found is not None:
                yield s, found


@lru_cache(IDS_MAX)  # asked for with every message
def address_of(life: Life) -> Address:
    """Where a peer is reached. Its lives have the same address."""
    return f"{PREFIX}{id_of(life)}"


@lru_cache(IDS_MAX)
def id_at(address: Address) -> Id | None:
    """The peer that is reached there; None: no peer is."""
    digits = address.removeprefix(PREFIX)
    return int(digits) if address.startswith(PREFIX) and digits.isdecimal() else None


def life_of(id: Id, births: int) -> Life:
    return births * IDS_MAX + id


def id_of(life: Life) -> Id:
    return life % IDS_MAX


def births_of(life: Life) -> int:
    return life // IDS_MAX


@lru_cache(IDS_MAX)
def name_of(life: Life) -> str:
    """The name of a life for people: 3, or 3.1 after the peer was born again."""
    return f"{id_of(life)}.{births_of(life)}" if births_of(life) else f"{id_of(life)}"
