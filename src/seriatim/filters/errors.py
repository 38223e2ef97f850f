"""The errors of filters. The message says where, why, and what to write instead.

InputError
└── FilterError          a filter cannot be read or is too large; points at the character if it came as text
    └── Contradiction    a filter that no event can match; names the predicates that exclude each other
"""

from seriatim.model import InputError

EXCERPT_CHARACTERS = 60  # shown of a long filter, around the place


class FilterError(InputError):
    """A filter cannot be used. `position` counts characters of `text` from 0; None if it did not come as text."""

    def __init__(self, problem: str, fix: str, text: str | None = None, position: int | None = None) -> None:
        place = "filter" if position is None else f"filter, character {position + 1}"
        super().__init__(place, problem, fix)
        self.text = text
        self.position = position

    def __str__(self) -> str:
        """The message and, below it, the place."""
        message = super().__str__()
        if self.text is None or self.position is None:
            return message
        start = max(0, self.position - EXCERPT_CHARACTERS // 2)
        shown = self.text[start : start + EXCERPT_CHARACTERS]
        before = "…" if start else ""
        after = "…" if start + EXCERPT_CHARACTERS < len(self.text) else ""
        line = "".join(character if character.isprintable() else " " for character in shown)
        return f"{message}\n  {before}{line}{after}\n  {' ' * (len(before) + self.position - start)}^"


class Contradiction(FilterError):
    """No event can match. `reason` names the fewest predicates that exclude each other."""

    def __init__(self, reason: str, fix: str, text: str | None = None, position: int | None = None) -> None:
        super().__init__(f"{reason}: it matches nothing", fix, text, position)
        self.reason = reason
