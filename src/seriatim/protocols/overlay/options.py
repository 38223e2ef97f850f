"""One options object for all brokers of an overlay; every broker must be given the same one."""

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from seriatim.model import InputError

Order: TypeAlias = Literal["rooted", "resolution", "fifo", "central"]


class OverlayOptions(Struct, frozen=True, kw_only=True):
    """How an overlay orders. Times are in milliseconds."""

    order: Order = "rooted"
    """rooted: where interests meet; central: at the root; resolution: by clocks; fifo: each publisher alone."""

    early: bool = True
    """rooted: notify clients on the way up where nobody can see another order."""

    held_max: int = 10_000
    """Commands of one client that may wait at its broker; more publications are refused."""

    subscriptions_max: int = 10_000
    """Subscriptions of one client; more are refused."""

    advertisements_max: int = 10_000
    """Advertisements of one client; more are refused."""

    turned_max: int = 32
    """rooted: a broker tells a child of publications that have turned when there are this many, or when it is asked."""

    retry_ms: float = 500.0
    """A message that is not acknowledged after this time is sent again."""

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise InputError("order", f"unknown order {self.order!r}", f"use one of {', '.join(get_args(Order))}")
        if self.retry_ms <= 0:
            raise InputError("retry_ms", f"{self.retry_ms:g} is not positive", "give a number above 0")
        for name in ("held_max", "subscriptions_max", "advertisements_max", "turned_max"):
            if getattr(self, name) < 1:
                raise InputError(name, f"{getattr(self, name)} is too small", "give at least 1")
