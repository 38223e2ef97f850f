"""The messages of a sequencing tree that travel over TCP, in the frames of runtime/net/wire.py."""

from seriatim.protocols.link import Frame
from seriatim.protocols.tree.messages import (
    Announce,
    Answer,
    Cut,
    Granted,
    Inquire,
    Joined,
    Pass,
    Refresh,
    Refreshed,
    Refused,
    Routed,
    Settled,
    Subscribe,
    Summary,
    Ticket,
    Update,
    Updated,
)
from seriatim.runtime.net.wire import decoders_for

TREE = decoders_for(
    between=Frame[Pass | Announce | Cut | Summary | Routed],
    from_client=Ticket | Settled | Subscribe | Update | Refresh | Inquire,
    for_client=Granted | Refused | Joined | Updated | Refreshed | Answer,
)
