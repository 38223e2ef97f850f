"""One options object for all peers of a system; every peer is given the same one."""

from typing import Literal

from msgspec import Struct

from seriatim.model import InputError


class VCubeOptions(Struct, frozen=True, kw_only=True):
    """How peers publish and watch each other. Times are in milliseconds."""

    window: int = 32
    """Publications of one source that may be under way on a topic. 1 is the paper's stop-and-wait."""

    pruning: Literal["stable", "direct"] = "stable"
    """When a dependency may be left out of a barrier because another one implies it. direct: at once, as in the paper:
    smallest barriers, but not safe if two peers crash. stable: once everybody has received the one that implies it."""

    heartbeat_ms: float | None = None
    """A peer says this often that it is alive. None: peers do not watch each other; the driver says who is gone."""

    suspect_after_ms: float = 2_000.0
    """A watched peer that says nothing for this long is declared dead."""

    def __post_init__(self) -> None:
        if self.window < 1:
            raise InputError("window", f"{self.window} is too small", "give at least 1")
        for name in ("heartbeat_ms", "suspect_after_ms"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InputError(name, f"{value} is not positive", "give a number above 0")
        if self.heartbeat_ms is not None and self.suspect_after_ms <= self.heartbeat_ms:
            raise InputError(
                "suspect_after_ms",
                f"{self.suspect_after_ms:g} is not above heartbeat_ms {self.heartbeat_ms:g}",
                "give a few heartbeats",
            )
