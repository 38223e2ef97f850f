"""What travels over TCP in an overlay of brokers: the same frames as in wire.py, around other messages."""

import msgspec

from seriatim.protocols.link import Frame
from seriatim.protocols.overlay.messages import Between, Command, ToClient
from seriatim.runtime.wire import Decoders, Envelope, Ping, Refusal, Welcome

OVERLAY = Decoders(
    from_client=msgspec.msgpack.Decoder(Ping | Envelope[Frame[Command]]).decode,
    from_node=msgspec.msgpack.Decoder(Ping | Envelope[Frame[Between]]).decode,
    for_client=msgspec.msgpack.Decoder(Ping | Envelope[Frame[ToClient]] | Welcome | Refusal).decode,
    for_node=msgspec.msgpack.Decoder(Ping | Envelope[Frame[Between]] | Welcome | Refusal).decode,
)
