"""The options of an application: what happens at a gap, how much may wait, how long anything may take."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from seriatim.brokers.capabilities import BROKER
from seriatim.brokers.naming import ordered_topic
from seriatim.filters import Attributes, Filter, headers_of, parse
from seriatim.model import InputError, Topic
from seriatim.protocols.tree import TreeOptions

TIME_TO_LIVE_MS = 2_000.0  # on brokers that lose events, if the gap policy does not say
BUFFER_MAX = 65_536  # events held back on brokers that lose events

NAME_BYTES_MAX = 255  # of a topic

_TOKEN = re.compile(r"[A-Za-z0-9_.~-]{1,128}")
_HEADER_NAME = re.compile(r"[!-9;-~]+")  # printable ASCII without space and colon
_RESERVED = ("seriatim-", "nats-")


GAPS_FIX = "use GapPolicy.wait(), skip() or raise_()"


class GapPolicy(Struct, frozen=True):
    """What to do about numbers that will never come. Make one with `wait`, `skip` or `raise_`.

    On brokers that lose events every policy is bounded: no event is held longer than a time to live, and missing
    numbers are then reported as a gap.
    """

    kind: Literal["wait", "skip", "raise"] = "wait"
    after_s: float | None = None

    @classmethod
    def wait(cls) -> "GapPolicy":
        """Wait until somebody decides; `explain` says what the subscription waits for."""
        return cls("wait")

    @classmethod
    def skip(cls, after_s: float | None = None) -> "GapPolicy":
        """Continue after the gap and report it. `after_s`: how long to wait before asking for a missing number."""
        return cls("skip", after_s)

    @classmethod
    def raise_(cls, after_s: float | None = None) -> "GapPolicy":
        """Raise GapError in the gap's place; iterating again continues after it."""
        return cls("raise", after_s)

    def __post_init__(self) -> None:
        if self.kind not in ("wait", "skip", "raise"):
            raise InputError("gaps", f"unknown gap policy {self.kind!r}", GAPS_FIX)
        if self.after_s is not None:
            check_time("after_s", self.after_s, 1e9)

    def applied_to(
        self, options: TreeOptions, *, lossy: bool, durable: bool, stamp_key: bytes | None = None
    ) -> TreeOptions:
        """The options of one subscription."""
        wished_ms = self.after_s * 1000.0 if self.after_s is not None else None
        on_lost: Literal["wait", "skip"] = "wait" if self.kind == "wait" else "skip"
        options = structs.replace(options, on_lost=on_lost, durable=durable, stamp_key=stamp_key)
        if wished_ms is not None:
            options = structs.replace(options, patience_ms=wished_ms)
        if lossy:
            time_to_live_ms = wished_ms if wished_ms is not None else TIME_TO_LIVE_MS
            options = structs.replace(options, buffer_max=BUFFER_MAX, time_to_live_ms=time_to_live_ms)
        return options


class Limits(Struct, frozen=True, kw_only=True):
    """How much may wait inside the client before somebody has to slow down.

    Limits of bytes let one event pass that is larger than what is left, so that an event of any size gets through.
    """

    queue_events: int = 100_000
    """Events published and not yet confirmed: `publish` waits, `publish_nowait` raises QueueFull."""

    queue_bytes: int = 64 * 1024 * 1024
    """The same in bytes."""

    unread_events: int = 65_536
    """Events that a subscription was notified of and the application has not taken. With more than that the client asks
    the broker to pause (events on their way still come), and with half of it to continue. It also bounds events that
    wait for others: topics that are ahead are not read further."""

    unread_bytes: int = 32 * 1024 * 1024
    """The same in bytes; what waits for others is counted in bytes with atoms only."""

    gaps: int = 1_024
    """Gaps that `Subscription.gaps` remembers."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(f"limits.{name}", f"{value!r} is not a whole number", "give a number above 0")
            if value <= 0:
                raise InputError(f"limits.{name}", f"{value} is not positive", "give a number above 0")


def check_portable_topic(topic: object) -> Topic:
    """Check a topic's name, also against what every kind of broker takes, so that a program can move from one to
    another."""
    return ordered_topic(check_topic(topic), 0)  # remembers what it has looked at


def check_topic(topic: object) -> Topic:
    """A topic's name, or the error that says what is wrong with it. The broker may be stricter."""
    if isinstance(topic, (list, tuple, set, frozenset)):
        fix = 'give them one by one: subscribe("orders", "prices")'
        raise InputError("topic", f"expected one name, got {topic!r}", fix)
    if not isinstance(topic, str) or not topic:
        raise InputError("topic", f"{topic!r} is not a name", "give a non-empty string")
    if not 0 < utf8_bytes(topic) <= NAME_BYTES_MAX:
        problem = f"{topic[:40]!r} is too long, or has characters that cannot be sent"
        raise InputError("topic", problem, f"use at most {NAME_BYTES_MAX} bytes of Unicode text")
    return topic


def utf8_bytes(text: str) -> int:
    """How long it is on the way; 0: it cannot be sent (half of a surrogate pair, as in undecodable file names)."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def check_name(field: str, name: object) -> str:
    """A name that travels in addresses and file names."""
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise InputError(field, f"{name!r} is not a name", "use up to 128 letters, digits and _ . ~ -")
    return name


def check_time(field: str, value: object, below_s: float) -> None:
    """Seconds that somebody may wait for."""
    if not isinstance(value, int | float) or not 0 < value < below_s:
        raise InputError(field, f"{value!r} is not a time", "give a number of seconds above 0")


def check_path(field: str, path: object, wanted: str) -> Path:
    """A path, or the error that says what is `wanted` instead."""
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise InputError(field, f"{path!r} is not a path", f"give {wanted}")
    return Path(path)


def check_log(field: str, place: object) -> Path | str | None:
    """Where a log goes: a folder, or "broker:"."""
    if place is None or place == BROKER:
        return BROKER if place is not None else None
    return check_path(field, place, f'a folder, or "{BROKER}"')


def check_gaps(gaps: object) -> None:
    """InputError: this is not a gap policy."""
    if not isinstance(gaps, GapPolicy):
        raise InputError("gaps", f"expected a GapPolicy, got {gaps!r}", GAPS_FIX)


def names_of(topics: tuple[Topic, ...]) -> frozenset[Topic]:
    if not topics:
        raise InputError("topics", "no topic is named", "name at least one")
    return frozenset(check_portable_topic(topic) for topic in topics)


def check_held(names: frozenset[Topic], held: set[Topic]) -> None:
    """InputError: not all of these are held."""
    if not names <= held:
        unknown = ", ".join(sorted(names - held))
        raise InputError("topics", f"{unknown} is not held", f"name some of {', '.join(sorted(held))}")


def check_filter(where: object) -> Filter | None:
    """Parse `where`. FilterError: it is not a filter."""
    if where is not None and not isinstance(where, str | Filter):
        raise InputError("where", f"{where!r} is not a filter", "write one, such as 'price > 100'")
    return parse(where) if isinstance(where, str) else where


def check_headers(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """Headers that every broker carries unchanged, as a plain dictionary of their own."""
    if not headers:
        return None
    if not isinstance(headers, Mapping):
        raise InputError("headers", f"{headers!r} is not a mapping", 'give names and values, as {"trace": "7"}')
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            fix = "use printable ASCII without space and colon"
            raise InputError("headers", f"{name!r} is not a header's name", fix)
        if name.lower().startswith(_RESERVED):
            fix = "use a name that begins with neither Seriatim- nor Nats-"
            raise InputError("headers", f"{name} is reserved", fix)
        if not isinstance(value, str):
            raise InputError(f"headers[{name!r}]", f"{value!r} is not a string", "convert it")
        if value != value.strip() or "\r" in value or "\n" in value:
            problem = f"{value!r} has a line break, or space at an end"
            raise InputError(f"headers[{name!r}]", problem, "strip it; brokers would change it")
        if value and not utf8_bytes(value):
            raise InputError(f"headers[{name!r}]", f"{value!r} cannot be sent", "use Unicode text")
    return dict(headers)


def with_attributes(headers: Mapping[str, str] | None, attributes: Attributes | None) -> Mapping[str, str] | None:
    """The headers of an event that has these attributes. InputError names one that cannot be, or is there twice."""
    if attributes is None:
        return headers
    written, others = headers_of(attributes), check_headers(headers) or {}
    for name in written.keys() & others.keys():
        raise InputError(f"headers[{name!r}]", "the attributes set it too", "give it once")
    return {**others, **written}


def check_pairs(events: Iterable[tuple[Topic, bytes]]) -> list[tuple[Topic, bytes]]:
    """Topic and data of many events; the values are checked later, individually."""
    try:
        return [(topic, data) for topic, data in events]
    except (TypeError, ValueError):
        fix = 'give [("orders", b"first"), ("prices", b"second")], or a topic and a list of bytes'
        raise InputError("events", "expected pairs of topic and data", fix) from None
