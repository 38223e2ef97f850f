"""Reference only: the algorithm of paper 000 exactly as printed, with its failures. Use protocols.tree instead."""

from seriatim.protocols.paper000.deployment import deploy
from seriatim.protocols.paper000.ens import Ens
from seriatim.protocols.paper000.messages import Publish, Subscribe, Subscribed, Unsubscribe
from seriatim.protocols.paper000.publisher import Publisher
from seriatim.protocols.paper000.ranks import Ranks, manager_of
from seriatim.protocols.paper000.subscriber import Held, Subscriber
from seriatim.protocols.paper000.topic_manager import TopicManager

__all__ = [
    "Ens",
    "Held",
    "Publish",
    "Publisher",
    "Ranks",
    "Subscribe",
    "Subscribed",
    "Subscriber",
    "TopicManager",
    "Unsubscribe",
    "deploy",
    "manager_of",
]
