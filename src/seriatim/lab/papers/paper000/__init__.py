"""Reference only: the algorithm of paper 000 exactly as printed, with its failures. Use protocols.tree instead."""

from seriatim.lab.papers.paper000.deployment import deploy
from seriatim.lab.papers.paper000.ens import Ens
from seriatim.lab.papers.paper000.publisher import Publisher
from seriatim.lab.papers.paper000.ranks import Ranks
from seriatim.lab.papers.paper000.subscriber import Held, Subscriber
from seriatim.lab.papers.paper000.topic_manager import TopicManager
from seriatim.protocols.vcube.messages import Publish, Subscribe, Subscribed, Unsubscribe

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
]
