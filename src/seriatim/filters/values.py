"""Names of attributes, and the four types of their values, each as an ordered set of keys.

A filter is exact because every type is a *chain with successors*: for each value there is a next larger one, or none.
So `> 100` is `≥` the successor of 100, `= v` is the half-open span from v to its successor, and every predicate is a
set of such spans (spans.py). Nothing is approximated: satisfiable, intersects and covers are answered over the very
values that an event can carry.

| type      | values                                                            | key                     |
|-----------|-------------------------------------------------------------------|-------------------------|
| number    | 64-bit integers and finite 64-bit floats; 1 and 1.0 are one value | the number              |
| string    | text, ordered by code points                                      | the text                |
| boolean   | false, true                                                       | the boolean             |
| timestamp | microseconds of the years 1 to 9999, in UTC                       | microseconds since 1970 |

A type also has *codes*: integers of a fixed width that never order two keys the other way round (equal codes are
possible). The indexes cut the space of values by their bits (boxes.py).
"""

import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from seriatim.filters.limits import EVENT_ATTRIBUTES_MAX, EVENT_STRING_CHARACTERS_MAX, NAME_CHARACTERS_MAX
from seriatim.model import InputError

Value: TypeAlias = bool | int | float | str | datetime
Kind: TypeAlias = str  # "number", "string", "boolean" or "timestamp"
Key: TypeAlias = Any  # what values of one type are compared by: int | float, str, bool, int
Attributes: TypeAlias = Mapping[str, Value]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")
RESERVED = frozenset({"and", "or", "not", "in", "prefix", "true", "false"})

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
FLOAT_MAX = math.nextafter(math.inf, 0)
SURROGATES = range(0xD800, 0xE000)  # code points that are not characters
CHARACTER_MAX = 0x10FFFF

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
TIMESTAMP_MIN = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
TIMESTAMP_MAX = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


@dataclass(frozen=True, eq=False)
class Domain:
    """One type of values. Keys are what is compared."""

    kind: Kind
    least: Key  # the smallest key
    code_bits: int
    code: Callable[[Key], int]  # an integer of `code_bits` bits, never smaller for a larger key
    successor: Callable[[Key], Key | None]  # the next larger key; None if there is none
    predecessor: Callable[[Key], Key | None]  # the next smaller key; None if there is none
    literal: Callable[[Key], str]  # the key as filters write it
    value: Callable[[Key], Value] = lambda key: key  # the value with this key


def _number_code(key: Key) -> int:
    bits: int = _BITS.unpack(_FLOAT.pack(key + 0.0))[0]  # the sum makes 0.0 of -0.0, which is the same number
    return bits ^ _SIGN if bits < _SIGN else bits ^ _ALL


def _number_after(key: Key) -> Key | None:
    nearest = float(key)
    following: float = nearest if nearest > key else math.nextafter(nearest, math.inf)
    if INTEGER_MIN <= key < INTEGER_MAX:
        integer = math.floor(key) + 1
        return integer if integer <= following else following
    return following if following <= FLOAT_MAX else None


def _number_before(key: Key) -> Key | None:
    """The largest number below this one, by symmetry: every number has a negative. (That of the integer -2^63 is a
    float.)"""
    mirrored = _number_after(-key)
    return None if mirrored is None else -mirrored


def _number_literal(key: Key) -> str:
    if INTEGER_MIN <= key <= INTEGER_MAX and key == math.floor(key):
        return str(int(key))
    return repr(float(key))


def _string_literal(key: Key) -> str:
    text = json.dumps(key, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)


def after_prefix(prefix: str) -> str | None:
    """The smallest string that is larger than all that begin with `prefix`; None if there is none."""
    while prefix:
        point = ord(prefix[-1]) + 1
        if point in SURROGATES:
            point = SURROGATES.stop
        if point <= CHARACTER_MAX:
            return prefix[:-1] + chr(point)
        prefix = prefix[:-1]
    return None


def _timestamp_literal(key: Key) -> str:
    moment = EPOCH + key * MICROSECOND
    fraction = f".{moment.microsecond:06}".rstrip("0") if moment.microsecond else ""
    # Not strftime: it writes years before 1000 with fewer than four digits on some systems.
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}{fraction}Z"


_FLOAT, _BITS = struct.Struct(">d"), struct.Struct(">Q")
_SIGN, _ALL = 1 << 63, (1 << 64) - 1

NUMBERS = Domain(
    kind="number",
    least=-FLOAT_MAX,
    code_bits=64,
    code=_number_code,
    successor=_number_after,
    predecessor=_number_before,
    literal=_number_literal,
)
STRINGS = Domain(
    kind="string",
    least="",
    code_bits=8 * 32,
    code=lambda key: int.from_bytes(key[:32].encode()[:32].ljust(32, b"\0"), "big"),
    successor=lambda key: f"{key}\0",
    # Most strings have none: between any shorter one and "b" there is always another.
    predecessor=lambda key: key[:-1] if key.endswith("\0") else None,
    literal=_string_literal,
)
BOOLEANS = Domain(
    kind="boolean",
    least=False,
    code_bits=1,
    code=int,
    successor=lambda key: None if key else True,
    predecessor=lambda key: False if key else None,
    literal=lambda key: "true" if key else "false",
)
TIMESTAMPS = Domain(
    kind="timestamp",
    least=TIMESTAMP_MIN,
    code_bits=64,
    code=lambda key: key - TIMESTAMP_MIN,
    successor=lambda key: key + 1 if key < TIMESTAMP_MAX else None,
    predecessor=lambda key: key - 1 if key > TIMESTAMP_MIN else None,
    literal=_timestamp_literal,
    value=lambda key: EPOCH + key * MICROSECOND,
)
DOMAINS: Final[dict[Kind, Domain]] = {domain.kind: domain for domain in (NUMBERS, STRINGS, BOOLEANS, TIMESTAMPS)}


def check_name(name: str) -> str:
    """Return the name of an attribute. InputError: a filter cannot write it, or a header cannot carry it."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        fix = "use letters, digits, _ and dots between words, as in order.price"
        raise InputError(f"attribute {name!r}", "not a name", fix)
    if len(name) > NAME_CHARACTERS_MAX:
        problem = f"{len(name)} characters, and a name may have {NAME_CHARACTERS_MAX}"
        raise InputError(f"attribute {name[:20]}…", problem, "shorten it")
    if name in RESERVED:
        raise InputError(f"attribute {name!r}", "a word of the filter language", f"call it {name}_ or something else")
    return name


def typed(field: str, value: object) -> tuple[Kind, Key]:
    """The type of a value and its key. `field` says in the error whose value it is."""
    kind = type(value)
    if kind is str:
        return "string", _checked_string(field, value)
    if kind is int or kind is float:
        return "number", _checked_number(field, value)
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, datetime):
        return "timestamp", _checked_timestamp(field, value)
    if isinstance(value, str):  # a subclass, such as an enumeration
        return "string", _checked_string(field, str.__str__(value))
    if isinstance(value, int):
        return "number", _checked_number(field, int(value))
    if isinstance(value, float):
        return "number", _checked_number(field, float(value))
    fix = "give a number, a string, a boolean or a timestamp; an attribute that is absent is left out"
    raise InputError(field, f"{kind.__name__} is not a type of attributes", fix)


def typed_attributes(attributes: Attributes) -> dict[str, tuple[Kind, Key]]:
    """All attributes of an event, checked, with types and keys."""
    if len(attributes) > EVENT_ATTRIBUTES_MAX:
        problem = f"{len(attributes)} of them, and an event may have {EVENT_ATTRIBUTES_MAX}"
        raise InputError("attributes", problem, "keep the rest in the payload")
    return {name: typed(name, value) for name, value in attributes.items()}


def _checked_number(field: str, value: Any) -> int | float:
    if type(value) is int:
        if INTEGER_MIN <= value <= INTEGER_MAX:
            return value
        try:
            is_float = float(value) == value
        except OverflowError:
            is_float = False
        if is_float:
            return float(value)
        fix = "round it, or make it a string if it is a name"
        raise InputError(field, "neither a 64-bit integer nor a 64-bit float", fix)
    if math.isfinite(value):
        number: float = value
        return number
    raise InputError(field, f"{value} is not a number", "leave the attribute out")


def _checked_string(field: str, value: Any) -> str:
    text: str = value
    if len(text) > EVENT_STRING_CHARACTERS_MAX:
        problem = f"{len(text)} characters, and an attribute may have {EVENT_STRING_CHARACTERS_MAX}"
        raise InputError(field, problem, "keep long text in the payload")
    if not text.isascii() and any(ord(character) in SURROGATES for character in text):
        raise InputError(field, "half of a surrogate pair is not a character", "decode the text as UTF-8 or UTF-16")
    return text


def _checked_timestamp(field: str, value: datetime) -> int:
    if value.tzinfo is None or value.utcoffset() is None:
        raise InputError(field, "a timestamp without a time zone", "give it one, for instance tzinfo=UTC")
    microseconds = (value - EPOCH) // MICROSECOND
    if not TIMESTAMP_MIN <= microseconds <= TIMESTAMP_MAX:
        raise InputError(field, "a timestamp outside the years 1 to 9999 in UTC", "give an earlier or a later one")
    return microseconds
