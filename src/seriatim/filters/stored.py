"""What the indexes keep of a filter: once, however many hold it."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from seriatim.filters.boxes import Codes
from seriatim.filters.filter import Constraint, Filter
from seriatim.filters.spans import Spans
from seriatim.filters.values import DOMAINS, Kind
from seriatim.model import InputError

K = TypeVar("K", bound=Hashable)
TUPLE_MAX = 8  # holders of one filter that are kept in a tuple, which is smaller; more are kept in a dict


class Stored(Generic[K]):
    """A filter, who holds it, and its box: the constraints that are not answered by hashing."""

    __slots__ = ("_boxed", "_codes", "filter", "holders", "spans")

    def __init__(self, filter: Filter, boxed: tuple[Constraint, ...]) -> None:
        self.filter = filter
        self.holders: tuple[K, ...] | dict[K, None] = ()
        self.spans: tuple[Spans, ...] = tuple(constraint.spans for constraint in boxed)
        self._boxed = boxed
        self._codes: Codes | None = None

    @property
    def codes(self) -> Codes:
        """The codes of the box around the allowed values. Only trees ask for them, and few filters are in one."""
        if self._codes is None:
            self._codes = tuple(code for each in self._boxed for code in span_codes(each.kind, each.spans))
        return self._codes

    def hold(self, key: K) -> None:
        if isinstance(self.holders, dict):
            self.holders[key] = None
        elif len(self.holders) < TUPLE_MAX:
            self.holders = (*self.holders, key)
        else:
            self.holders = dict.fromkeys((*self.holders, key))

    def release(self, key: K) -> None:
        if isinstance(self.holders, dict):
            del self.holders[key]
        else:
            self.holders = tuple(each for each in self.holders if each != key)


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
        """Count one holder less. A filter without holders is forgotten."""
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


def span_codes(kind: Kind, spans: Spans) -> tuple[int, int]:
    """The codes of the lowest value and of one that no value exceeds."""
    domain = DOMAINS[kind]
    is_bounded = len(spans) % 2 == 0
    return domain.code(spans[0]), domain.code(spans[-1]) if is_bounded else (1 << domain.code_bits) - 1
