"""Names of attributes: what a filter can write and a header can carry on every broker."""

import re

from seriatim.filters.limits import NAME_CHARACTERS_MAX
from seriatim.model import InputError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")
RESERVED = frozenset({"and", "or", "not", "in", "prefix", "true", "false"})


def check_name(name: str) -> str:
    """Return the name. InputError: it is not a valid name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            f"attribute {name!r}", "not a name", "use letters, digits, _ and dots between words, as in order.price"
        )
    if len(name) > NAME_CHARACTERS_MAX:
        raise InputError(
            f"attribute {name[:20]}…",
            f"{len(name)} characters, and a name may have {NAME_CHARACTERS_MAX}",
            "shorten it",
        )
    if name in RESERVED:
        raise InputError(f"attribute {name!r}", "a word of the filter language", f"call it {name}_ or something else")
    return name
