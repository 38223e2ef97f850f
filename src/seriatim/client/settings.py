"""`connect` and what it was asked for, checked before anything is done."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from seriatim.brokers.urls import shown
from seriatim.client.cluster import Cluster, JournalFactory, Journals
from seriatim.client.logs import log_place
from seriatim.client.options import GapPolicy, Limits, check_name
from seriatim.model import InputError
from seriatim.runtime import Journal

SCHEMES = ("nats", "tls", "nats+core", "tls+core", "memory", "vcube", "overlay")


class Settings(Struct, frozen=True, kw_only=True):
    """Everything about one bus."""

    url: str
    order: Literal["tree", "atoms"] = "tree"
    mode: Literal["log", "ticket"] | None = None
    causal: bool | None = None
    name: str | None = None
    token: str | None = None
    tls: Any = None
    stamp_key: bytes | None = None
    cluster: str = "seriatim"
    sequencers: tuple[str, ...] | None = None
    gaps: GapPolicy = GapPolicy()
    timeout_s: float = 10.0
    limits: Limits = Limits()
    journals: JournalFactory | None = None
    publication_log: Path | str | None = None
    open_cluster: "Callable[[Settings], Awaitable[Cluster]]"


def check_settings(
    url: str,
    *,
    open_cluster: "Callable[[Settings], Awaitable[Cluster]]",
    mode: Literal["log", "ticket"] | None,
    causal: bool | None,
    name: str | None,
    token: str | None,
    tls: Any,
    stamp_key: bytes | None,
    cluster: str,
    sequencers: Sequence[str] | None,
    gaps: GapPolicy,
    timeout_s: float,
    limits: Limits,
    journals: Journals | None,
    publication_log: str | Path | None,
    order: Literal["tree", "atoms"] = "tree",
) -> Settings:
    """The settings, or an InputError that names the argument and the fix."""
    if not isinstance(url, str) or not urlsplit(url).scheme or "://" not in url:
        raise InputError("url", f"{url!r} is not a URL", 'give one such as "nats://127.0.0.1:4222" or "memory://"')
    if urlsplit(url).scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise InputError("url", f"{shown(url)!r} does not begin with a scheme we know", f"use one of {known}")
    if order not in ("tree", "atoms"):
        raise InputError("order", f"nothing orders by {order!r}", 'use "tree" or "atoms"')
    if mode not in (None, "log", "ticket"):
        raise InputError("mode", f"{mode!r} is no mode", 'use "log", "ticket", or None for the cluster\'s own')
    if name is not None:
        check_name("name", name)
    check_name("cluster", cluster)
    if not 0 < timeout_s < 1e6:
        raise InputError("timeout_s", f"{timeout_s} is not a time", "give a number of seconds above 0")
    if isinstance(sequencers, str):
        raise InputError("sequencers", "a string is not a list", f"give [{sequencers!r}]")
    for address in sequencers or ():
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdigit()):
            raise InputError("sequencers", f"{address!r} is not an address", 'give "host:port"')
    if not isinstance(gaps, GapPolicy):
        raise InputError("gaps", f"{gaps!r} is no gap policy", "use GapPolicy.wait(), skip() or raise_()")
    return Settings(
        url=url,
        order=order,
        mode=mode,
        causal=causal,
        name=name,
        token=token,
        tls=tls,
        stamp_key=stamp_key,
        cluster=cluster,
        sequencers=tuple(sequencers) if sequencers is not None else None,
        gaps=gaps,
        timeout_s=float(timeout_s),
        limits=limits,
        journals=_journal_factory(journals),
        publication_log=log_place(publication_log),
        open_cluster=open_cluster,
    )


def _journal_factory(journals: Journals | None) -> JournalFactory | None:
    if journals is None or callable(journals):
        return journals
    folder = Path(journals)

    def open_file(durable: str) -> Journal:
        from seriatim.runtime.file_journal import FileJournal  # lazily: most clients need none

        return FileJournal(folder / durable)

    return open_file
