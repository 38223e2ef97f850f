"""`connect`: from a URL to a bus."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from seriatim.client.bus import Bus
from seriatim.client.cluster import Cluster, Journals
from seriatim.client.embedded import open_embedded
from seriatim.client.options import GapPolicy, Limits
from seriatim.client.settings import Settings, check_settings


def connect(
    url: str,
    *,
    order: Literal["tree", "atoms"] = "tree",
    mode: Literal["log", "ticket"] | None = None,
    causal: bool | None = None,
    name: str | None = None,
    token: str | None = None,
    tls: Any = None,
    stamp_key: bytes | None = None,
    cluster: str = "seriatim",
    sequencers: Sequence[str] | None = None,
    gaps: GapPolicy | None = None,
    timeout_s: float = 10.0,
    limits: Limits | None = None,
    journals: Journals | None = None,
    publication_log: str | Path | None = None,
    join: bool = False,
) -> Bus:
    """A bus on the broker at `url`; enter it to connect: `async with connect(url) as bus`.

    `memory://name` runs broker and sequencer in this process. Anywhere else the cluster's sequencers are found through
    the broker, or at `sequencers` ("host:port"). `vcube:///path/peers.toml?id=3` makes this process a peer, without any
    broker (docs/peers.md). `overlay://host:port` is a broker that filters by content (docs/overlay.md).

    `order="atoms"`: on a cluster that orders by sequencing atoms instead of a tree (docs/atoms.md).

    `mode`, `causal`: what the cluster must be (for memory://: what it shall be); None: whatever it is. `name`: what
    logs and errors call this client. `token`, `tls`: how to be let in by the sequencers. `stamp_key`: the key with
    which a ticket-mode cluster proves its stamps; subscriptions then drop what is not proven. `gaps`: what they do
    about events that will never come; None: they wait. `timeout_s`: how long anything may take. `limits`: how much may
    wait inside. `journals`: a folder, or a function from a name to a Journal, for durable subscriptions.
    `publication_log`: a folder in which what is published is written down, or "broker:". `join` (vcube://): publishing
    on a topic subscribes to it first, if it is not held; brokers need no such thing.
    """
    settings = check_settings(
        url,
        open_cluster=_open_cluster,
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
        order=order,
    )
    if url.startswith("vcube:"):
        from seriatim.client.peer_bus import PeerBus  # lazily: only those who are peers need it

        return PeerBus(settings, join)
    if url.startswith("overlay:"):
        from seriatim.client.overlay_bus import OverlayBus  # lazily, as well

        return OverlayBus(settings)
    if order == "atoms":
        from seriatim.client.atoms_bus import AtomsBus  # lazily: most clients have a tree

        return AtomsBus(settings)
    return Bus(settings)


async def _open_cluster(settings: Settings) -> Cluster:
    if settings.url.startswith("memory:"):
        return await open_embedded(settings.url, mode=settings.mode, causal=settings.causal, order=settings.order)
    from seriatim.client.discovery import open_remote  # lazily: memory:// needs no network

    return await open_remote(settings)
