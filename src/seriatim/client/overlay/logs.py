"""The logs of a client of an overlay, in the common schema: what `seriatim audit <folder>` judges its order from.

*Each subscription is a subscriber*: `ticker~1a2b/1`. After its broker has forgotten it, it begins anew under another
name (`ticker~1a2b.2/1`), because it is another subscription there. Events have a number in the subscription and none in
their topic, so the rows have none. Which topics a filter matches is known only from what comes, so a topic counts as
held from its first event on.
"""

from collections.abc import Sequence, Set
from pathlib import Path

from seriatim.client.direct.logs import DirectDeliveries
from seriatim.client.events import Event
from seriatim.client.inbox import NOTHING
from seriatim.runtime import Clock


class OverlayDeliveries(DirectDeliveries):
    """What one subscription is given."""

    def __init__(self, place: Path, subscriber: str, clock: Clock, where: str) -> None:
        super().__init__(place, clock)
        self._where = where
        self._subscriber = subscriber
        self._positions[subscriber] = 0

    def handed(self, events: Sequence[Event], received_at: float | None, left_out: Set[int] = NOTHING) -> None:
        """The application is given these. LogError: too many rows could not be written, and these are not accepted."""
        self._gathered.make_room()
        for position, event in enumerate(events, self._positions[self._subscriber]):
            if event.topic not in self._stays:
                self._begin(event.topic, self._subscriber, position, self._where)
        self._put(events, received_at)

    def renew(self, subscriber: str) -> None:
        """From here on it is another subscription."""
        self.end_all()
        self._subscriber = subscriber
        self._positions[subscriber] = 0
