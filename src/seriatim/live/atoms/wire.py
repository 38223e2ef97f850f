"""The messages of a cluster of sequencing atoms that travel over TCP, in the frames of runtime/net/wire.py."""

from seriatim.protocols.atoms.live_messages import Alive, BetweenStations, Forgotten, Full, Room, ToClient, ToStation
from seriatim.protocols.link import Frame
from seriatim.runtime.net.wire import decoders_for

ATOMS = decoders_for(
    between=Frame[BetweenStations] | Full,
    from_client=Frame[ToStation] | Alive,
    for_client=Frame[ToClient] | Forgotten | Full | Room,
)
