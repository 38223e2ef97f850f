"""From where to where a replay goes: a time, or a number for each topic (a cut)."""

import re
from datetime import UTC, datetime

from msgspec import Struct, field

from seriatim.model import InputError, Number, Topic

_NUMBERS = re.compile(r"[^=,]+=\d+(,[^=,]+=\d+)*")
FIX = "give a time (2026-07-14T09:30:00Z) or numbers (orders=120,payments=7)"


class Bound(Struct, frozen=True):
    """`time_ms`: since 1970, by the broker's clock. `numbers`: topics that are not named are not bounded."""

    time_ms: float | None = None
    numbers: dict[Topic, Number] = field(default_factory=dict)


NO_BOUND = Bound()


def parse_bound(text: str, what: str = "bound") -> Bound:
    """A time without a zone is UTC."""
    if _NUMBERS.fullmatch(text):
        pairs = [pair.split("=") for pair in text.split(",")]
        numbers = {topic.strip(): int(number) for topic, number in pairs}
        if len(numbers) < len(pairs):
            raise InputError(what, f"{text!r} names a topic twice", "name it once")
        return Bound(numbers=numbers)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(what, f"{text!r} is neither a time nor numbers of topics", FIX) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return Bound(time_ms=time.timestamp() * 1000)
