"""What the indexes keep of a filter: once, however many hold it."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from seriatim.filters.boxes import Codes
from seriatim.filters.filter import Constraint, Filter
from seriatim.filters.spans import Spans
from seriatim.filters.values import DOMAINS, Key, Kind
from seriatim.model import InputError

K = TypeVar("K", bound=Hashable)
LIST_MAX = 8  # holders of one filter that are kept in a list, which is smaller; more are kept in a dict


class Stored(Generic[K]):
    """A filter, who holds it, and its box: the constraints that are not answered by hashing."""

    __slots__ = ("codes", "filter", "holders", "spans")

    def __init__(self, filter: Filter, boxed: tuple[Constraint, ...]) -> None:
        self.filter = filter
        self.holders: list[K] | dict[K, None] = []
        self.spans: tuple[Spans, ...] = tuple(constraint.spans for constraint in boxed)
        self.codes = box_codes(boxed)

    def hold(self, key: K) -> None:
        if isinstance(self.holders, dict):
            self.holders[key] = None
        elif len(self.holders) < LIST_MAX:
            self.holders.append(key)
        else:
            self.holders = dict.fromkeys([*self.holders, key])

    def release(self, key: K) -> None:
        if isinstance(self.holders, dict):
            del self.holders[key]
        else:
            self.holders.remove(key)


class Holdings(Generic[K]):
    """Who holds which filter. The same filter is one `Stored` for all of them."""

    __slots__ = ("_by_filter", "_by_key")

    def __init__(self) -> None:
        self._by_key: dict[K, Stored[K]] = {}
        self._by_filter: dict[Filter, Stored[K]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def filter(self, key: K) -> Filter:
        """The filter that was added under this key."""
        return self._known(key).filter

    def find(self, filter: Filter) -> Stored[K] | None:
        return self._by_filter.get(filter)

    def hold(self, key: K, stored: Stored[K]) -> None:
        """One more holder; the first makes it known."""
        self._by_filter[stored.filter] = stored
        self._by_key[key] = stored
        stored.hold(key)

    def check_new(self, key: K) -> None:
        if key in self._by_key:
            raise InputError(f"key {key!r}", "holds a filter already", "remove it first, or use another key")

    def release(self, key: K) -> Stored[K]:
        """One holder less; who has none any more is forgotten."""
        stored = self._known(key)
        del self._by_key[key]
        stored.release(key)
        if not stored.holders:
            del self._by_filter[stored.filter]
        return stored

    def _known(self, key: K) -> Stored[K]:
        try:
            return self._by_key[key]
        except KeyError:
            raise InputError(f"key {key!r}", "holds no filter here", "add it first") from None


def box_codes(constraints: tuple[Constraint, ...]) -> Codes:
    """The codes of the box around a filter's allowed values."""
    return tuple(code for constraint in constraints for code in span_codes(constraint.kind, constraint.spans))


def span_codes(kind: Kind, spans: Spans) -> tuple[int, int]:
    """The codes of the lowest value and of one that no value exceeds."""
    domain = DOMAINS[kind]
    return domain.code(spans[0]), high_code(kind, spans[-1] if len(spans) % 2 == 0 else None)


def high_code(kind: Kind, high: Key | None) -> int:
    domain = DOMAINS[kind]
    return (1 << domain.code_bits) - 1 if high is None else domain.code(high)
