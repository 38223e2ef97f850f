"""The arguments of `connect`, checked before anything else happens."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from seriatim.brokers.urls import check_url, schemes, shown
from seriatim.client.options import GapPolicy, Limits, check_gaps, check_log, check_name, check_path, check_time
from seriatim.model import InputError
from seriatim.protocols.proofs import KEY_BYTES_MIN
from seriatim.runtime import Journal
from seriatim.runtime.net.addresses import split_address
from seriatim.runtime.net.security import SecurityOptions
from seriatim.server.orders import Order, read_order

logger = logging.getLogger(__name__)

BROKERLESS = ("vcube", "overlay")

JournalFactory: TypeAlias = Callable[[str], Journal]  # from the name of a durable subscription to its journal
Journals: TypeAlias = str | Path | JournalFactory


class Settings(Struct, frozen=True, kw_only=True):
    """Everything about one bus. InputError names the argument that is wrong, and the fix."""

    url: str
    order: Order | None = None
    mode: Literal["log", "ticket"] | None = None
    causal: bool | None = None
    name: str | None = None
    token: str | None = None
    tls: bool | SecurityOptions | None = None
    stamp_key: bytes | None = None
    cluster: str = "seriatim"
    sequencers: Sequence[str] | None = None
    gaps: GapPolicy = GapPolicy()
    timeout_s: float = 10.0
    limits: Limits = Limits()
    journals: Journals | None = None
    publication_log: Path | str | None = None
    join: bool = False
    confirm: Literal["placed", "stored"] | None = None
    own_order: bool = False

    def __post_init__(self) -> None:
        url = self.url
        scheme = url.partition("://")[0] if isinstance(url, str) and "://" in url else ""
        if not scheme:
            raise InputError("url", f"{url!r} is not a URL", 'give one such as "nats://127.0.0.1:4222" or "memory://"')
        if scheme not in (known_schemes := (*schemes(), *BROKERLESS)):
            known = ", ".join(f"{name}://" for name in known_schemes)
            raise InputError("url", f"unknown scheme in {shown(url)!r}", f"use one of {known}")
        check_url(url)
        if self.mode not in (None, "log", "ticket"):
            fix = 'use "log" or "ticket", or None for the cluster\'s own mode'
            raise InputError("mode", f"unknown mode {self.mode!r}", fix)
        if self.name is not None:
            check_name("name", self.name)
        check_name("cluster", self.cluster)
        if self.causal not in (None, True, False):
            fix = "use True or False, or None for the cluster's own choice"
            raise InputError("causal", f"expected a bool, got {self.causal!r}", fix)
        if self.confirm not in (None, "placed", "stored"):
            fix = 'use "placed" or "stored", or None for the default'
            raise InputError("confirm", f"unknown value {self.confirm!r}", fix)
        if self.own_order not in (True, False):
            raise InputError("own_order", f"expected a bool, got {self.own_order!r}", "use True or False")
        chosen = read_order(self.order, self.causal is True and scheme not in BROKERLESS)
        structs.force_setattr(self, "order", chosen.order)
        for notice in chosen.notices:
            logger.warning("older keyword: keyword=%s argument_of=connect meaning=%s", notice.keyword, notice.meaning)
        _check_secrets(self.token, self.tls, self.stamp_key)
        check_time("timeout_s", self.timeout_s, 1e6)
        _check_sequencers(self.sequencers)
        check_gaps(self.gaps)
        if not isinstance(self.limits, Limits):
            raise InputError("limits", f"expected a Limits object, got {self.limits!r}", "use seriatim.Limits(...)")
        check_log("publication_log", self.publication_log)
        if self.journals is not None and not callable(self.journals):
            check_path("journals", self.journals, "a folder, or a function from a name to a Journal")

    def journal(self, name: str) -> Journal | None:
        """The journal of this name, in the place that the application gave. None: it gave none."""
        if self.journals is None or callable(self.journals):
            return self.journals(name) if self.journals is not None else None
        from seriatim.runtime.journal.file_journal import FileJournal  # lazily: most clients need none

        return FileJournal(Path(self.journals) / name)

    def journal_folder(self, name: str) -> Path | None:
        """Where that journal is, if it is a folder here."""
        return Path(self.journals) / name if isinstance(self.journals, str | Path) else None

    @property
    def security(self) -> SecurityOptions | None:
        """Token and TLS as the application gave them. None: it gave neither."""
        if self.token is None and not self.tls:
            return None
        security = self.tls if isinstance(self.tls, SecurityOptions) else SecurityOptions(tls=bool(self.tls))
        return structs.replace(security, token=self.token) if self.token is not None else security


def _check_secrets(token: object, tls: object, stamp_key: object) -> None:
    """Errors do not show the values: a secret may be in the wrong argument."""
    if token is not None and not isinstance(token, str):
        raise InputError("token", f"expected a string, got {type(token).__name__}", "give the token as a string")
    if tls is not None and not isinstance(tls, bool | SecurityOptions):
        fix = "give True, or a seriatim.runtime.net.security.SecurityOptions"
        raise InputError("tls", f"expected a bool or SecurityOptions, got {type(tls).__name__}", fix)
    if stamp_key is not None and not isinstance(stamp_key, bytes):
        fix = "give bytes; bytes.fromhex(text) converts the hexadecimal digits of a key file"
        raise InputError("stamp_key", f"expected bytes, got {type(stamp_key).__name__}", fix)
    if stamp_key is not None and len(stamp_key) < KEY_BYTES_MIN:
        problem = f"it has {len(stamp_key)} bytes; every cluster key has at least {KEY_BYTES_MIN}"
        raise InputError("stamp_key", problem, "give the key that the sequencers have")


def _check_sequencers(sequencers: object) -> None:
    if isinstance(sequencers, str):
        raise InputError("sequencers", "expected a list, got a string", f"give [{sequencers!r}]")
    if sequencers is not None and not isinstance(sequencers, Sequence):
        raise InputError("sequencers", f"expected a list, got {sequencers!r}", 'give ["host:port"]')
    for address in sequencers or ():
        if not isinstance(address, str):
            raise InputError("sequencers", f"{address!r} is not an address", 'give "host:port"')
        split_address("sequencers", address)
