"""`{{n}}` and `{{time}}` in the data of `seriatim pub`, so that repeated events differ."""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

from seriatim.model import InputError

_PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")

NAMES: dict[str, str] = {
    "n": "1, 2, 3, … for each event",
    "time": "the time, ISO 8601 in UTC",
    "time_ns": "the time in nanoseconds since 1970",
}


def template(text: str) -> Callable[[int], bytes]:
    """A function from an event's count to its data. Unknown names in braces are an error, before anything is sent."""
    for name in _PLACE.findall(text):
        if name not in NAMES:
            known = ", ".join(f"{{{{{each}}}}}" for each in NAMES)
            raise InputError("DATA", f"{{{{{name}}}}} is unknown", f"use {known}")
    if not _PLACE.search(text):
        data = text.encode()
        return lambda count: data

    def fill(count: int) -> bytes:
        now_ns = time.time_ns()
        now = datetime.fromtimestamp(now_ns / 1e9, UTC).isoformat()
        values = {"n": str(count), "time": now, "time_ns": str(now_ns)}
        return _PLACE.sub(lambda match: values[match[1]], text).encode()

    return fill
