"""The messages of an overlay of brokers that travel over TCP, in the frames of runtime/net/wire.py."""

from seriatim.protocols.link import Frame
from seriatim.protocols.overlay.messages import Between, Command, ToClient
from seriatim.runtime.net.wire import decoders_for

OVERLAY = decoders_for(between=Frame[Between], from_client=Frame[Command], for_client=Frame[ToClient])
