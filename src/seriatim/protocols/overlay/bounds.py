"""Limits on what a broker accepts from a client: bounded names and numbers, and events only in the client's own name.

Names travel to all brokers and stay there, so a malicious client must not choose how long or how many they are.
"""

from seriatim.filters import Attributes
from seriatim.model import Address, Event
from seriatim.protocols.overlay import messages as say
from seriatim.protocols.overlay.options import OverlayOptions
from seriatim.protocols.overlay.state import ClientSide

NAME_MAX = 300  # characters; a topic has up to 255, and the advertisement that publishing implies is called after it

Problem = tuple[str, str]  # the name of what is wrong, and the reason


def too_much(side: ClientSide, command: say.Command, options: OverlayOptions) -> Problem | None:
    """Whether the client asks for more than it may."""
    match command:
        case say.Publish() if len(side.queue) >= options.held_max:
            return "QueueFull", f"{len(side.queue)} commands wait; publish more slowly"
        case say.Subscribe(name) | say.Advertise(name) if len(name) > NAME_MAX:
            return "NameTooLong", f"it has {len(name)} characters; {NAME_MAX} are allowed"
        case say.Subscribe() if len(side.names) + len(side.joining) >= options.subscriptions_max:
            return "TooManySubscriptions", f"one client may have {options.subscriptions_max}"
        case say.Advertise() if _has_all(side, options.advertisements_max):
            return "TooManyAdvertisements", f"one client may have {options.advertisements_max}; advertise more at once"
        case say.Unadvertise() if len(side.queue) >= options.held_max + 2 * options.advertisements_max:
            return "QueueFull", f"{len(side.queue)} commands wait"  # more than can be about something
    return None


def forged(client: Address, event: Event, attributes: Attributes) -> Problem | None:
    """Why an event is refused: it is in another's name, or gives one topic to filters and another to readers. None: it
    is fine."""
    if event.publisher != client:
        return "ForgedPublisher", "it is in the name of somebody else"
    if attributes.get("topic", event.topic) != event.topic:
        return "TopicMismatch", "its topic is not the one that its attribute says"
    return None


def _has_all(side: ClientSide, advertisements_max: int) -> bool:
    """Whether a client has as many advertisements as it may, counting those in the queue. The queue is only searched if
    it can matter."""
    if len(side.offers) + len(side.queue) < advertisements_max:
        return False
    return len(side.offers) + sum(isinstance(each, say.Advertise) for each in side.queue) >= advertisements_max
