"""The messages of a sequencing tree that travel over TCP, in the frames of runtime/net/wire.py."""

from seriatim.protocols.link import Frame
from seriatim.protocols.tree.messages import (
    Announce,
    Answer,
    Arrived,
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
    Reign,
    Routed,
    Settled,
    Subscribe,
    Summary,
    Switch,
    Switched,
    SwitchShape,
    Ticket,
    Update,
    Updated,
    Vouch,
    Welcome,
)
from seriatim.runtime.net.wire import decoders_for

TREE = decoders_for(
    between=Frame[
        Pass
        | Announce
        | Cut
        | Summary
        | Vouch
        | Switched
        | Switch
        | SwitchShape
        | Reign
        | Routed
        | Heal
        | Healed
        | AskToHeal
    ]
    | Welcome
    | Arrived,
    from_client=Ticket | Settled | Subscribe | Update | Refresh | Inquire | Locate,
    for_client=Granted | Refused | Joined | Updated | Refreshed | Answer | Moved | Located,
)
