"""The messages of a sequencing tree that travel over TCP, in the frames of runtime/net/wire.py."""

from seriatim.protocols.link import Frame
from seriatim.protocols.tree.messages import (
    Announce,
    Answer,
    AskToHeal,
    Cut,
    Granted,
    Heal,
    Healed,
    Inquire,
    Joined,
    Locate,
    Located,
    Moved,
    Pass,
    Refresh,
    Refreshed,
    Refused,
    Routed,
    Settled,
    Subscribe,
    Summary,
    Switch,
    Switched,
    Ticket,
    Update,
    Updated,
    Vouch,
)
from seriatim.runtime.net.wire import decoders_for

TREE = decoders_for(
    between=Frame[Pass | Announce | Cut | Summary | Vouch | Switched | Switch | Routed | Heal | Healed | AskToHeal],
    from_client=Ticket | Settled | Subscribe | Update | Refresh | Inquire | Locate,
    for_client=Granted | Refused | Joined | Updated | Refreshed | Answer | Moved | Located,
)
