"""`connect`: from a URL to a bus."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from seriatim.client.bus import Bus
from seriatim.client.options import GapPolicy, Limits
from seriatim.client.session import Session
from seriatim.client.settings import Journals, Settings
from seriatim.runtime.net.security import SecurityOptions
from seriatim.server.orders import Order


def connect(
    url: str,
    *,
    order: Order | None = None,
    mode: Literal["log", "ticket"] | None = None,
    causal: bool | None = None,
    name: str | None = None,
    token: str | None = None,
    tls: bool | SecurityOptions | None = None,
    stamp_key: bytes | None = None,
    cluster: str = "seriatim",
    sequencers: Sequence[str] | None = None,
    gaps: GapPolicy | None = None,
    timeout_s: float = 10.0,
    limits: Limits | None = None,
    journals: Journals | None = None,
    publication_log: str | Path | None = None,
    join: bool = False,
    confirm: Literal["placed", "stored"] | None = None,
    own_order: bool = False,
) -> Bus:
    """A bus on the broker at `url`; enter it to connect: `async with connect(url) as bus`.

    `memory://name` runs broker and sequencer in this process. Elsewhere the client finds the cluster's sequencers
    through the broker, or at `sequencers` ("host:port"). `vcube:///path/peers.toml?id=3` makes this process a peer,
    without a broker (docs/peers.md). `overlay://host:port` is a broker that filters by content (docs/overlay.md).

    `order`: the order that the cluster must promise (memory://: the order to start with): "global", one order that fits
    what everybody sees, "pairwise", or "atoms", which means sequencing atoms instead of a tree (docs/atoms.md); None
    accepts any tree. `mode`: who must number the events; None accepts any. `causal` (atoms): whether the cluster must
    keep causal order. `name`: the name of this client in logs and errors. `token`, `tls`: credentials for the
    sequencers. `stamp_key`: the key with which a ticket-mode cluster signs its stamps; subscriptions then drop unsigned
    events. `gaps`: what subscriptions do about events that will never come; None: wait. `timeout_s`: the limit of every
    wait. `limits`: how much may queue in the client. `journals`: a folder, or a function from a name to a Journal, for
    durable subscriptions. `publication_log`: a folder for a log of publications, or "broker:". `join` (vcube://):
    publishing on a topic subscribes to it first.

    `confirm`: when a publish returns. "placed", the default of a tree: when the event has its place in the order, so
    that whatever anybody publishes afterwards comes after it. "stored": when the broker has it. `own_order`: the events
    of this bus keep their order across topics, even if they are not awaited individually.
    """
    return Bus(
        session_of(
            Settings(
                url=url,
                order=order,
                mode=mode,
                causal=causal,
                name=name,
                token=token,
                tls=tls,
                stamp_key=stamp_key,
                cluster=cluster,
                sequencers=sequencers,
                gaps=gaps if gaps is not None else GapPolicy.wait(),
                timeout_s=timeout_s,
                limits=limits if limits is not None else Limits(),
                journals=journals,
                publication_log=publication_log,
                join=join,
                confirm=confirm,
                own_order=own_order,
            )
        )
    )


def session_of(settings: Settings) -> Session:
    """The session for the URL and `order`. Imported lazily, because a process usually needs only one kind."""
    if settings.url.startswith("vcube:"):
        from seriatim.client.peers.session import PeerSession

        return PeerSession(settings)
    if settings.url.startswith("overlay:"):
        from seriatim.client.overlay.session import OverlaySession

        return OverlaySession(settings)
    if settings.order == "atoms":
        from seriatim.client.atoms.session import AtomsSession

        return AtomsSession(settings)
    from seriatim.client.tree.session import TreeSession

    return TreeSession(settings)
