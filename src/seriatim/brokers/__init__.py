"""Real brokers behind one small seam (seam.py). A broker's client library is imported only in its own files."""

from seriatim.brokers.memory.broker import MemoryBroker
from seriatim.brokers.seam import Broker, ChannelOf, Deliver, Mode, OnError, Port
from seriatim.brokers.urls import open_broker

__all__ = ["Broker", "ChannelOf", "Deliver", "MemoryBroker", "Mode", "OnError", "Port", "open_broker"]
