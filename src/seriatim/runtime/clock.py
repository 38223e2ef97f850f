"""Milliseconds that never run backwards, whatever happens to the machine's clock.

Machines compare times across restarts (leases, desks), so after a restart the time must continue where it was: wall
clock. But a wall clock jumps. So it is read once, at the start; after that the monotonic clock moves the time on.
"""

import time


class Clock:
    """`at_least`: the latest time in the journal that is being continued."""

    def __init__(self, at_least: float = 0.0) -> None:
        self._offset_ms = max(time.time() * 1000.0, at_least) - time.monotonic() * 1000.0

    def now_ms(self) -> float:
        """Milliseconds since 1970, as far as the wall clock was right at the start."""
        return self._offset_ms + time.monotonic() * 1000.0

    def seconds_until(self, at_ms: float) -> float:
        """How long to sleep until then; 0 if it is past."""
        return max(0.0, (at_ms - self.now_ms()) / 1000.0)
