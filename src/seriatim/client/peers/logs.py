"""The logs of a peer, in the common schema: what `seriatim audit <folder>` judges causal order from.

*Each life is a subscriber and a publisher of its own*: a new life begins at a new frontier, its publications are
numbered from 1 again, and a restarted process has forgotten what its predecessor was notified of. *So is each topic*,
because peers order the events of a topic, and nothing across topics: `3.1/chat` is peer 3 in its first life on `chat`.
Events have no number in their topic, so the rows have none.
"""

from collections.abc import Sequence, Set

from msgspec import structs

from seriatim.client.direct.logs import DirectDeliveries, DirectPublications
from seriatim.client.events import Event
from seriatim.client.inbox import NOTHING
from seriatim.model import Publication, Topic


def log_name(life: str, topic: Topic) -> str:
    """The name of a life on a topic, in logs."""
    return f"{life}/{topic}"


class PeerDeliveries(DirectDeliveries):
    """What the subscriptions of one bus are given, as one folder is told of it."""

    def begin(self, topic: Topic, life: str) -> None:
        """From here on the topic is held, in this life."""
        self.end(topic)
        subscriber = log_name(life, topic)
        self._begin(topic, subscriber, self._positions.setdefault(subscriber, 0))

    def handed(self, events: Sequence[Event], received_at: float | None, left_out: Set[int] = NOTHING) -> None:
        """The application is given these. LogError: too many rows could not be written, and these are not accepted."""
        self._gathered.make_room()
        self._put(events, received_at)

    def seen(self, topic: Topic, life: str) -> int:
        """How many events the application was given of a topic in this life. They are in the log from here on: what is
        said to have been seen must be found there, even if this process is killed now."""
        self.flush()
        return self._positions.get(log_name(life, topic), 0)


class PeerPublications(DirectPublications):
    """What one bus publishes: the row changes if another life publishes the event."""

    def sent(self, event_id: str, life: str) -> None:
        """The peer publishes it, in this life. A new life has seen nothing."""

        def in_this_life(row: Publication) -> Publication:
            publisher = log_name(life, row.topic)
            return row if publisher == row.publisher else structs.replace(row, publisher=publisher, seen=0)

        self.change(event_id, in_this_life)
