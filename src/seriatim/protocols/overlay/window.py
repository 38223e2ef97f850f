"""How much of a link may be under way at once.

A connection that is given more than it can hold breaks, and so would the next one. So the messages under way to one
neighbour or client, first sent or repeated, are bounded in number and in bytes; the rest is kept in the link until
acknowledgements make room for it. Nothing of this is state: a new connection begins with an empty window.
"""

from collections import deque
from typing import Any

from seriatim.protocols.link import RESENT_AT_ONCE, Frame, Link
from seriatim.protocols.machine import Payload
from seriatim.protocols.overlay.messages import Climb, Deliver, Descend, Publish, Spread

UNDER_WAY_MESSAGES_MAX = 4096
UNDER_WAY_BYTES_MAX = 4 * 1024 * 1024  # of events; small beside what a connection can hold
SILENT_MOST = 16  # while nothing is acknowledged, every 16th retry repeats in any case


class Window:
    """The messages under way on one link: the oldest ones that are not acknowledged."""

    __slots__ = ("_bytes", "_heard", "_silent", "_sizes", "posted")

    def __init__(self, link: Link[Any]) -> None:
        self.posted = link.acknowledged  # up to this number all is under way, or came over
        self._sizes: deque[tuple[int, int]] = deque()  # of what is under way, by number
        self._bytes = 0
        self._heard = self.posted  # acknowledged when it was last time to repeat
        self._silent = 0  # how often nothing more was

    def admits(self, frame: Frame[Any]) -> bool:
        """Whether a new message can go out now: all before it did, and there is room."""
        if frame.body is None or frame.number != self.posted + 1 or not self._take(frame.number, frame.body):
            return False
        self.posted = frame.number
        return True

    def go_on(self, link: Link[Any], epoch: int) -> list[Frame[Any]]:
        """The frames for which there is room now."""
        have = link.acknowledged
        while self._sizes and self._sizes[0][0] <= have:
            self._bytes -= self._sizes.popleft()[1]
        self.posted = max(self.posted, have)
        frames = []
        while self.posted < link.sent:
            body = link.unacknowledged[self.posted + 1]
            if not self._take(self.posted + 1, body):
                break
            self.posted += 1
            frames.append(Frame(epoch, self.posted, link.received, body))
        return frames

    def repeat(self, link: Link[Any], epoch: int) -> list[Frame[Any]]:
        """Repeat the oldest messages under way, if nothing was acknowledged since the last time.

        Waits longer each time: a slow connection must not carry the same messages over and over.
        """
        have = link.acknowledged
        if have > self._heard:
            self._heard, self._silent = have, 0
            return self.go_on(link, epoch)
        self._silent += 1
        if self._silent & (self._silent - 1) and self._silent % SILENT_MOST:
            return []
        last = min(self.posted, have + RESENT_AT_ONCE)
        again = [Frame(epoch, n, link.received, link.unacknowledged[n]) for n in range(have + 1, last + 1)]
        return again + self.go_on(link, epoch)

    def _take(self, number: int, body: Payload) -> bool:
        size = bytes_of(body)
        is_full = self._bytes + size > UNDER_WAY_BYTES_MAX or len(self._sizes) >= UNDER_WAY_MESSAGES_MAX
        if self._sizes and is_full:
            return False
        self._sizes.append((number, size))
        self._bytes += size
        return True


def bytes_of(body: Payload) -> int:
    """The size of the event in a message; nothing else in it is large."""
    if isinstance(body, Climb | Descend | Spread):
        event = body.publication.event
    elif isinstance(body, Publish | Deliver) and body.event is not None:
        event = body.event
    else:
        return 0
    headers = event.headers or {}
    return len(event.payload) + sum(len(name) + len(value) for name, value in headers.items())
