"""One options object for all roles of a system of atoms; every role is given the same one."""

from msgspec import Struct

from seriatim.model import InputError


class AtomsOptions(Struct, frozen=True, kw_only=True):
    """How a system orders. Times are in milliseconds."""

    causal: bool = False
    """Groups that share one member get an atom (else two): what a client was notified of precedes what it sends."""

    spread: bool = False
    """New atoms are spread over all hosts. Else those of one change live together, where there are fewest."""

    retry_ms: float = 500.0
    """A message that is not acknowledged after this time is sent again."""

    kept_events_max: int = 65_536
    """Events that a station keeps for the broker, or for one other station: beyond that ingresses take no more."""

    kept_bytes_max: int = 64 * 1024 * 1024
    """The same in bytes."""

    @property
    def threshold(self) -> int:
        """How many members two groups must share to be ordered against each other."""
        return 1 if self.causal else 2

    def __post_init__(self) -> None:
        for name in ("retry_ms", "kept_events_max", "kept_bytes_max"):
            if getattr(self, name) <= 0:
                raise InputError(name, f"{getattr(self, name):g} is not positive", "give a number above 0")
