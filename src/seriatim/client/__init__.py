"""The API for applications: connect, publish, subscribe. docs/guarantees.md lists the guarantees."""

from seriatim.client.bus import Bus
from seriatim.client.connect import connect
from seriatim.client.events import Event, Published
from seriatim.client.explain import Explanation, HeldEvent
from seriatim.client.options import GapPolicy, Limits
from seriatim.client.subscription import Subscription

__all__ = ["Bus", "Event", "Explanation", "GapPolicy", "HeldEvent", "Limits", "Published", "Subscription", "connect"]
