"""Logs on the broker itself: rows of clients' delivery and publication logs, in streams beside the events.

So an archive finds the logs of all clients in one place, without collecting files from machines.
"""

import sys
from typing import Protocol

from seriatim.brokers.seam import Broker
from seriatim.model import InputError

BROKER = "broker:"  # in place of a folder: the log is kept on the broker


class RowChannel(Protocol):
    """One client's rows of one table, in order. Lines are JSON; `-` before one withdraws the row of that key."""

    def send(self, lines: bytes) -> None:
        """Hand over whole lines; returns at once. LogError: too much waits, because the broker does not take it."""

    async def written(self, timeout_s: float) -> None:
        """Until the broker has everything. LogError: it has not, in that time."""

    async def read(self) -> list[bytes]:
        """What this client has written before, message by message."""

    def close(self) -> None:
        """Hand over no more; what waits is forgotten."""


def row_channel_on(broker: Broker, table: str, client: str) -> RowChannel:
    """Where rows of this client go. InputError: this broker keeps no streams."""
    jetstream = sys.modules.get("seriatim.brokers.nats_jetstream")  # if it is one, it is loaded
    if jetstream is None or not isinstance(broker, jetstream.JetStreamBroker):
        raise InputError("log", "only JetStream keeps logs of clients", 'give a folder instead of "broker:"')
    from seriatim.brokers.nats_rows import NatsRowChannel

    return NatsRowChannel(broker.streams, table, client, broker.payload_bytes_max)
