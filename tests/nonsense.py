"""A message that no machine knows."""

from msgspec import Struct


class Nonsense(Struct, frozen=True):
    text: str = "nonsense"
