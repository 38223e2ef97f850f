"""`connect` and what it was asked for, checked before anything is done."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from seriatim.brokers.urls import check_url, shown
from seriatim.client.cluster import Cluster, JournalFactory, Journals
from seriatim.client.logs import log_place
from seriatim.client.options import GapPolicy, Limits, check_name, check_path, check_time
from seriatim.model import InputError
from seriatim.protocols.tree.proofs import KEY_BYTES_MIN
from seriatim.runtime import Journal
from seriatim.runtime.addresses import split_address
from seriatim.runtime.security import SecurityOptions

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
    scheme = url.partition("://")[0] if isinstance(url, str) and "://" in url else ""
    if not scheme:
        raise InputError("url", f"{url!r} is not a URL", 'give one such as "nats://127.0.0.1:4222" or "memory://"')
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise InputError("url", f"{shown(url)!r} does not begin with a scheme we know", f"use one of {known}")
    check_url(url)
    if order not in ("tree", "atoms"):
        raise InputError("order", f"nothing orders by {order!r}", 'use "tree" or "atoms"')
    if mode not in (None, "log", "ticket"):
        raise InputError("mode", f"{mode!r} is no mode", 'use "log", "ticket", or None for the cluster\'s own')
    if name is not None:
        check_name("name", name)
    check_name("cluster", cluster)
    if causal not in (None, True, False):
        raise InputError("causal", f"{causal!r} is neither", "use True, False, or None for the cluster's own")
    _check_secrets(token, tls, stamp_key)
    check_time("timeout_s", timeout_s, 1e6)
    _check_sequencers(sequencers)
    if not isinstance(gaps, GapPolicy):
        raise InputError("gaps", f"{gaps!r} is no gap policy", "use GapPolicy.wait(), skip() or raise_()")
    if not isinstance(limits, Limits):
        raise InputError("limits", f"{limits!r} are none", "use seriatim.Limits(...)")
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
        publication_log=log_place("publication_log", publication_log),
        open_cluster=open_cluster,
    )


def _check_secrets(token: object, tls: object, stamp_key: object) -> None:
    """Values are not shown: they may be secrets in the wrong place."""
    if token is not None and not isinstance(token, str):
        raise InputError("token", f"a {type(token).__name__} is not a string", "give the token as a string")
    if tls is not None and not isinstance(tls, bool | SecurityOptions):
        fix = "give True, or a seriatim.runtime.security.SecurityOptions"
        raise InputError("tls", f"a {type(tls).__name__} does not say how", fix)
    if stamp_key is not None and not isinstance(stamp_key, bytes):
        fix = "give bytes: of the hexadecimal digits in the key's file, bytes.fromhex(text)"
        raise InputError("stamp_key", f"a {type(stamp_key).__name__} is not bytes", fix)
    if stamp_key is not None and len(stamp_key) < KEY_BYTES_MIN:
        problem = f"it has {len(stamp_key)} bytes, and no key of a cluster has fewer than {KEY_BYTES_MIN}"
        raise InputError("stamp_key", problem, "give the key that the sequencers have")


def _check_sequencers(sequencers: object) -> None:
    if isinstance(sequencers, str):
        raise InputError("sequencers", "a string is not a list", f"give [{sequencers!r}]")
    if sequencers is not None and not isinstance(sequencers, Sequence):
        raise InputError("sequencers", f"{sequencers!r} is not a list", 'give ["host:port"]')
    for address in sequencers or ():
        if not isinstance(address, str):
            raise InputError("sequencers", f"{address!r} is not an address", 'give "host:port"')
        split_address("sequencers", address)


def _journal_factory(journals: Journals | None) -> JournalFactory | None:
    if journals is None or callable(journals):
        return journals
    folder = check_path("journals", journals, "a folder, or a function from a name to a Journal")

    def open_file(durable: str) -> Journal:
        from seriatim.runtime.file_journal import FileJournal  # lazily: most clients need none

        return FileJournal(folder / durable)

    return open_file
