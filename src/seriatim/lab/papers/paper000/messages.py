"""Every message of paper 000's algorithm. README.md beside this file has the same list as a table.

The application's commands are those of protocols.vcube, as for all papers.

A timestamp is an `Entries`: topic → sequence number, highest rank first; 0 is the paper's ⊥.
"""

from msgspec import Struct

from seriatim.model import Address, Entries, Event, Topic

# ── with the event notification service (ENS) ─────────────────────────────────────────────────────────────────────


class EnsPublish(Struct, frozen=True, tag=True):
    """To the ENS: hand this to all who subscribed to the topic. No event: a dummy (subscriptionUpdate)."""

    topic: Topic
    event: Event | None
    timestamp: Entries


class EnsSubscribe(Struct, frozen=True, tag=True):
    """To the ENS: notify me of the topic from now on."""

    topic: Topic


class EnsSubscribed(Struct, frozen=True, tag=True):
    """From the ENS: what is published on the topic after this will be notified (ENSsubscribeReturn)."""

    topic: Topic


class EnsUnsubscribe(Struct, frozen=True, tag=True):
    """To the ENS: notify me of the topic no longer."""

    topic: Topic


class EnsNotify(Struct, frozen=True, tag=True):
    """From the ENS: this was published on the topic. No event: a dummy."""

    topic: Topic
    event: Event | None
    timestamp: Entries


# ── with and between topic managers ───────────────────────────────────────────────────────────────────────────────


class CreateTimestamp(Struct, frozen=True, tag=True):
    """CREATE_PUB_TS, publisher → manager of the topic: a timestamp for this event, please."""

    event_id: str
    publisher: Address
    topic: Topic


class FillInTimestamp(Struct, frozen=True, tag=True):
    """FILL_IN_PUB_TS, manager → next manager of the sequencing group: add your entry and pass it on."""

    timestamp: Entries
    event_id: str
    publisher: Address


class EventTimestamp(Struct, frozen=True, tag=True):
    """EVENT_TS, last manager → publisher: the timestamp is complete."""

    timestamp: Entries
    event_id: str


class FillInSubscription(Struct, frozen=True, tag=True):
    """FILL_IN_SUB_TS, subscriber → lowest manager → … → highest: the new subscription, collecting its clock."""

    timestamp: Entries
    topics: tuple[Topic, ...]
    subscriber: Address


class CompletedSubscription(Struct, frozen=True, tag=True):
    """COMPLETED_SUB_VC, last manager → subscriber: the clock your subscription starts from."""

    timestamp: Entries
    topics: tuple[Topic, ...]


class UpdateSubscription(Struct, frozen=True, tag=True):
    """UPDATE_SUB, subscriber → manager: my subscription is now this; no topics: forget me."""

    subscriber: Address
    topics: tuple[Topic, ...]
