"""What travels over TCP in a cluster of sequencing atoms: the same frames as in wire.py, around other messages."""

import msgspec

from seriatim.protocols.atoms.live_messages import Alive, BetweenStations, Forgotten, Full, Room, ToClient, ToStation
from seriatim.protocols.link import Frame
from seriatim.runtime.wire import Decoders, Envelope, Ping, Refusal, Welcome

ATOMS = Decoders(
    from_client=msgspec.msgpack.Decoder(Ping | Envelope[Frame[ToStation] | Alive]).decode,
    from_node=msgspec.msgpack.Decoder(Ping | Envelope[Frame[BetweenStations] | Full]).decode,
    for_client=msgspec.msgpack.Decoder(
        Ping | Envelope[Frame[ToClient] | Forgotten | Full | Room] | Welcome | Refusal
    ).decode,
    for_node=msgspec.msgpack.Decoder(Ping | Envelope[Frame[BetweenStations] | Full] | Welcome | Refusal).decode,
)
