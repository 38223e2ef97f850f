"""One options object for all roles of the sequencing tree; every role of a system is given the same one."""

from typing import Literal, TypeAlias

from msgspec import Struct, structs

from seriatim.model import InputError
from seriatim.protocols.proofs import KEY_BYTES_MIN

TreeOrder: TypeAlias = Literal["global", "pairwise"]


class TreeOptions(Struct, frozen=True, kw_only=True):
    """How a system orders. Times are in milliseconds."""

    mode: Literal["log", "ticket"] = "log"
    """log: the broker numbers events, the home stamps ranges. ticket: the publisher asks for numbers first."""

    order: TreeOrder = "global"
    """global: couple topics that any subscription holds together; one order of all events fits what everybody sees.
    pairwise: couple topics that two subscriptions hold; any two subscribers agree on what both see."""

    order_log: bool = True
    """With global order: keep the order of all events as a log on the broker. False: the broker keeps no log."""

    order_ms: float = 50.0
    """The shortest time between two messages that hand on the order of what passed a node: the root's to the broker,
    another node's to its parent, if nothing else climbs."""

    own_order: bool = False
    """Keep each publisher's own order across topics, also of events that it does not wait for."""

    stages: bool = False
    """Log mode: nodes tell stamps in stages, so that a subscriber waits for the meeting nodes of its own topics only.
    Needs a broker that passes on plain messages. In ticket mode there are none."""

    stages_ahead: int = 256
    """Stages are told of at most so many numbers more than usual beyond the last stamp that the broker keeps. So it is
    known what may have been told by a node that has lost its journal."""

    full_stamps: bool = False
    """Every event carries its whole stamp: all topics its own was ever coupled with. Needed where the broker may lose
    events; differences are smaller."""

    retry_ms: float = 500.0
    """An unanswered request is repeated after this time."""

    lease_ms: float = 10_000.0
    """A granted number that is not in its slot after this time is voided by its home."""

    subscriber_lease_ms: float | None = None
    """A subscriber that no node confirms for this long stops notifying; nodes forget it after twice this time. Not so a
    durable one: it may be away for any time. None: nodes never forget a subscriber (its couplings only make stamps
    larger; nobody waits for it)."""

    patience_ms: float = 2_000.0
    """After waiting this long for a number, a subscriber asks the number's home about it."""

    on_lost: Literal["wait", "skip"] = "wait"
    """What to do when the broker no longer keeps a number: wait and tell the application (`Answer`), or rejoin and
    report a gap."""

    buffer_max: int | None = None
    """Unreliable brokers (paper 000 §4): hold at most this many events; the oldest is notified to make room."""

    time_to_live_ms: float | None = None
    """Unreliable brokers: hold an event at most this long."""

    ticket_count_max: int = 65_536
    """Largest range one ticket may ask for."""

    open_tickets_max: int = 1_024
    """Unsettled tickets one publisher may have at one node."""

    stamp_key: bytes | None = None
    """Ticket mode: nodes prove the stamps they grant with this key, and subscribers drop what is not proven. Nodes and
    subscribers have it; publishers must not. None: stamps are believed."""

    jump_max: int | None = None
    """Ticket mode: drop an event that is, or whose stamp names a number, more than this beyond what is done here. What
    was real is asked for again. None: no bound."""

    durable: bool = False
    """Subscribers persist what they were notified of, so that they resume after a restart. Nodes never forget them."""

    history_window: int = 2_048
    """Of the past, a subscriber has at most so many numbers asked for and not notified."""

    confirm: Literal["placed", "stored"] = "stored"
    """Log mode, publishers: tell only that an event is stored, or also when it has its place in the order."""

    @property
    def follows_stamps(self) -> bool:
        """Whether publishers must know which of their events have their place. In ticket mode a number is a place."""
        return self.mode == "log" and (self.own_order or self.confirm == "placed")

    @property
    def tells_stages(self) -> bool:
        """Whether stamps are told in stages. In ticket mode the publisher needs the finished one before it writes."""
        return self.stages and self.mode == "log"

    @property
    def threshold(self) -> int:
        """How many subscriptions must hold two topics for them to be coupled."""
        return 1 if self.order == "global" else 2

    @property
    def keeps_order_log(self) -> bool:
        """Whether there is an order log. Pairwise order has no one order that it could hold."""
        return self.order == "global" and self.order_log

    def __repr__(self) -> str:
        """The options without the stamp key, because they are logged."""
        shown = {each.name: getattr(self, each.name) for each in structs.fields(self)}
        shown["stamp_key"] = None if self.stamp_key is None else "(secret)"
        return f"TreeOptions({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __post_init__(self) -> None:
        if self.order_ms < 0:
            raise InputError("order_ms", f"{self.order_ms} is negative", "give 0 or a positive number")
        for name in ("retry_ms", "lease_ms", "patience_ms", "ticket_count_max", "open_tickets_max", "history_window"):
            if getattr(self, name) <= 0:
                raise InputError(name, f"{getattr(self, name)} is not positive", "give a number above 0")
        for name in ("subscriber_lease_ms", "buffer_max", "time_to_live_ms", "jump_max"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InputError(name, f"{value} is not positive", "give a number above 0, or None for no bound")
        if self.own_order and self.order == "pairwise":
            raise InputError(
                "own_order",
                "pairwise order does not order topics that one subscription alone holds together",
                'set order="global"',
            )
        if self.mode == "log" and (self.stamp_key is not None or self.jump_max is not None):
            raise InputError(
                "stamp_key" if self.stamp_key is not None else "jump_max",
                "in log mode only sequencers write stamps: the broker's permissions see to that",
                'leave it out, or set mode="ticket"',
            )
        if self.stamp_key is not None and len(self.stamp_key) < KEY_BYTES_MIN:
            raise InputError(
                "stamp_key", f"{len(self.stamp_key)} bytes can be guessed", f"give at least {KEY_BYTES_MIN} random ones"
            )
        bounded = self.buffer_max is not None or self.time_to_live_ms is not None
        if bounded and self.mode == "log":
            raise InputError(
                "mode",
                "a log does not lose events, so none is given up (buffer_max, time_to_live_ms)",
                'set mode="ticket", or let on_lost decide about what the log no longer keeps',
            )
        if bounded and not self.full_stamps:
            raise InputError(
                "full_stamps",
                "events may be skipped (buffer_max, time_to_live_ms), and a skipped difference is lost",
                "set full_stamps=True",
            )
