"""A link between two machines that neither loses, repeats nor reorders, over a network that may do all three.

Each side numbers its messages and keeps them until the other side acknowledges them. The receiver takes numbers in
order and drops everything else; dropped messages are sent again. Both ends live inside machines, so a machine that is
rebuilt from its journal also gets its unacknowledged messages back. There is one writer per link: frames of an earlier
epoch of the other side are refused.
"""

from itertools import islice, takewhile
from typing import Generic, TypeVar

from msgspec import Struct, field

Body = TypeVar("Body")

RESENT_AT_ONCE = 256


class Frame(Struct, Generic[Body], frozen=True, tag=True, omit_defaults=True):
    """One message on a link, or (number 0, no body) only an acknowledgement. `received` is the sender's own count.

    A body without a number is a greeting: it is not taken, but answered. An acknowledgement also says the latest epoch
    of the other side that was `heard` (-1: an earlier version of this program does not say), and how many messages the
    other side has acknowledged. `doubt`: its sender does not act yet, since others have not confirmed its journal; one
    that is only `READY` waits for nobody but the receiver; one that is `BLANK` has lost its journal, and confirms
    nothing.
    """

    epoch: int
    number: int
    received: int
    body: Body | None = None
    heard: int = -1
    acknowledged: int = 0
    doubt: int = 0


UNCONFIRMED, READY, BLANK = 1, 2, 3


class Link(Struct, Generic[Body], array_like=True):
    """One end of a link. `sent` and `received` count messages from the beginning of the link, over all restarts."""

    sent: int = 0
    received: int = 0
    peer_epoch: int = 0
    unacknowledged: dict[int, Body] = field(default_factory=dict)
    resend_due: float | None = None

    @property
    def acknowledged(self) -> int:
        """The other side has the messages up to this number."""
        return self.sent - len(self.unacknowledged)

    def send(self, body: Body, epoch: int, now: float, retry_ms: float) -> "Frame[Body]":
        """Number a message and keep it until it is acknowledged."""
        self.sent += 1
        self.unacknowledged[self.sent] = body
        if self.resend_due is None:
            self.resend_due = now + retry_ms
        return Frame(epoch, self.sent, self.received, body)

    def receive(self, frame: "Frame[Body]") -> Body | None:
        """The body, if it is the next one. None: nothing to take; the frame may still have acknowledged something."""
        if frame.epoch < self.peer_epoch:
            return None
        self.peer_epoch = frame.epoch
        for number in list(takewhile(lambda number: number <= frame.received, self.unacknowledged)):
            del self.unacknowledged[number]
        if not self.unacknowledged:
            self.resend_due = None
        if frame.body is None or frame.number != self.received + 1:
            return None
        self.received += 1
        return frame.body

    def acknowledgement(self, epoch: int, doubt: int = 0) -> "Frame[Body]":
        """A frame that only tells how far we are."""
        return Frame(epoch, 0, self.received, None, self.peer_epoch, self.acknowledged, doubt)

    def resend(self, epoch: int, now: float, retry_ms: float) -> "list[Frame[Body]]":
        """The oldest unacknowledged messages, in order, if it is time to repeat them.

        Their number is bounded: after a restart from the journal nothing counts as acknowledged, and the answer to the
        first repeat tells how much really is.
        """
        if self.resend_due is None or now < self.resend_due:
            return []
        self.resend_due = now + retry_ms
        oldest = islice(self.unacknowledged.items(), RESENT_AT_ONCE)
        return [Frame(epoch, number, self.received, body) for number, body in oldest]
