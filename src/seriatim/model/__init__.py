"""Plain values: names, events, log rows, errors. Imports nothing else of the package."""

from seriatim.model.errors import InputError, LogError, RemoteError, SeriatimError, TreeError, UnknownTopic
from seriatim.model.events import Event, Gap, Notification
from seriatim.model.names import APPLICATION, BROKER, Address, Entries, Node, Number, Topic
from seriatim.model.records import Delivery, History, Message, Publication, Subscription

__all__ = [
    "APPLICATION",
    "BROKER",
    "Address",
    "Delivery",
    "Entries",
    "Event",
    "Gap",
    "History",
    "InputError",
    "LogError",
    "Message",
    "Node",
    "Notification",
    "Number",
    "Publication",
    "RemoteError",
    "SeriatimError",
    "Subscription",
    "Topic",
    "TreeError",
    "UnknownTopic",
]
