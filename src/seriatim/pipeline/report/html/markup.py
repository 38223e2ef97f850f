"""HTML and SVG that cannot be broken out of: every text is escaped unless it was made here.

Names of topics, events and subscribers come from logs, and anybody may have written those. `element` escapes every
plain string; only `Markup`, its own result, passes unchanged.
"""

import re
from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "br", "hr", "wbr"})

# Characters that no page may hold (controls, halves of pairs, non-characters) and those that turn the direction of text
# around what follows them, which would let a name rewrite the words beside it.
_UNSHOWABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def plain(text: object) -> str:
    """Text as it may be shown anywhere: what cannot be shown becomes a replacement character."""
    return _UNSHOWABLE.sub("\ufffd", str(text))


def escaped(text: object) -> Markup:
    """Any text as HTML."""
    return text if isinstance(text, Markup) else Markup(escape(plain(text), quote=True))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    """Several texts, each escaped if it must be."""
    return Markup(between.join(escaped(part) for part in parts))


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. Underscores at the end of attribute names fall away (`class_`), others become hyphens. An attribute
    that is None is left out."""
    words = [name]
    for key, value in attributes.items():
        if value is not None:
            words.append(f'{key.rstrip("_").replace("_", "-")}="{escape(plain(value), quote=True)}"')
    opening = f"<{' '.join(words)}>"
    if name in VOID:
        assert not children, f"<{name}> holds nothing"
        return Markup(opening)
    return Markup(f"{opening}{joined(children)}</{name}>")
