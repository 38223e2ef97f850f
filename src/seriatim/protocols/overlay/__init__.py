"""Content-based overlay: brokers in a tree, filters, and one order where interests meet. README.md describes it."""

from seriatim.protocols.overlay.broker import Broker
from seriatim.protocols.overlay.client import Client
from seriatim.protocols.overlay.options import Order, OverlayOptions
from seriatim.protocols.overlay.topology import Overlay, OverlayError, Place

__all__ = ["Broker", "Client", "Order", "Overlay", "OverlayError", "OverlayOptions", "Place"]
