"""From a URL to a broker: the scheme names the kind, the rest where it is and how it is used.

    memory://name?seed=7&loss=0.1                in this process; one name, one broker
    nats://host:port,host:port?streams=64        JetStream: keeps a numbered log per topic
    tls://host:port?creds=path                   the same, encrypted only
    nats+core://host:port, tls+core://host:port  plain NATS: keeps nothing, may lose events

Options come from the URL or as keywords; keywords win. Each kind reads its own URLs, with the functions below; its
`kind.py` says which options there are. A kind, and its client library, is imported when a URL needs it. `register` adds
kinds from elsewhere.
"""

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from seriatim.brokers.bulk import BulkReader
from seriatim.brokers.seam import Broker, Kind
from seriatim.model import InputError

_KINDS: dict[str, Kind | str] = {  # by scheme; a kind, or where to import it from
    "nats": "seriatim.brokers.nats.kind:JETSTREAM",
    "tls": "seriatim.brokers.nats.kind:JETSTREAM",
    "nats+core": "seriatim.brokers.nats.kind:CORE",
    "tls+core": "seriatim.brokers.nats.kind:CORE",
    "memory": "seriatim.brokers.memory.kind:MEMORY",
}


def register(scheme: str, kind: Kind) -> None:
    """Make URLs of this scheme known in this process."""
    _KINDS[scheme] = kind


def schemes() -> list[str]:
    return list(_KINDS)


def kind_or_none(url: str) -> Kind | None:
    """The kind of broker that a URL names. None: it is not the URL of a broker."""
    scheme, separator, _ = url.partition("://")
    kind = _KINDS.get(scheme) if separator else None
    if isinstance(kind, str):
        module, _, name = kind.partition(":")
        kind = _KINDS[scheme] = getattr(importlib.import_module(module), name)
    assert not isinstance(kind, str)
    return kind


def kind_of(url: str) -> Kind:
    """The kind of broker that a URL names. InputError: there is none."""
    known = ", ".join(f"{name}://" for name in _KINDS)
    kind = kind_or_none(url)
    if kind is None:
        raise InputError("url", f"{shown(url)!r} does not begin with a scheme we know", f"use one of {known}")
    return kind


def open_broker(url: str, **options: Any) -> Broker:
    """A broker for this URL, not connected yet: call `open` on it. InputError says what is wrong with the URL."""
    return kind_of(url).open(url, options)


def bulk_reader(url: str, **options: Any) -> BulkReader:
    """A bulk reader for this URL. InputError: this kind of broker has none."""
    kind = kind_or_none(url)
    reader = kind.bulk(url, options) if kind is not None else None
    if reader is None:
        problem = f"{shown(url)!r} is not a broker that can be read in bulk"
        raise InputError("url", problem, "use one that can, such as nats://host:port (JetStream)")
    return reader


def check_url(url: str) -> None:
    """Whether `open_broker` can read it, if it is the URL of a broker. Needs no client library."""
    if (kind := kind_or_none(url)) is not None:
        kind.check(url)


def split_url(url: str) -> SplitResult:
    """The parts of a URL of one place. InputError: it cannot be taken apart."""
    try:
        return urlsplit(url)
    except ValueError as error:
        fix = 'write an IPv6 host in brackets and close them: "[::1]:4222"'
        raise InputError("url", f"{shown(url)!r} cannot be read ({error})", fix) from None


def shown(url: str) -> str:
    """A URL without its secrets, for messages and logs."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    hosts, slash, query = rest.partition("?")
    bare = ",".join(host.rpartition("@")[2] for host in hosts.split(","))
    kept = [pair for pair in query.split("&") if not pair.startswith(("token=", "password="))]
    return f"{scheme}://{bare}{slash}{'&'.join(kept)}".rstrip("?")


# ── for kinds, to read their URLs ─────────────────────────────────────────────────────────────────────────────────


def read_query(url: str, query: str, readers: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """The options in a URL's query, each read by its reader, which raises ValueError."""
    found: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        check_options({name: text}, readers)
        if name in found:
            raise InputError(name, f"{shown(url)!r} names it twice", "name it once")
        try:
            found[name] = readers[name](text)
        except ValueError:
            raise InputError(name, f"{text!r} cannot be read", "give a value that this option takes") from None
    return found


def check_options(options: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options, if all of them are known."""
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]}?" if near else f"use one of {', '.join(sorted(known))}"
            raise InputError(name, "this kind of broker has no such option", advice)
    return options


def read_truth(text: str) -> bool:
    """Yes or no."""
    try:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None
