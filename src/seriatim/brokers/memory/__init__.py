"""A broker inside the process."""

from seriatim.brokers.memory.broker import MemoryBroker

__all__ = ["MemoryBroker"]
