"""The messages of peers that travel over TCP, in the frames of runtime/net/wire.py."""

from seriatim.protocols.vcube.linked import Parcel
from seriatim.runtime.net.wire import decoders_for

PEERS = decoders_for(between=Parcel)
