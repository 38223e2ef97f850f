"""From a URL to a broker: the scheme names the kind, the rest where it is and how it is used.

    memory://name?seed=7&loss=0.1                in this process; one name, one broker
    nats://host:port,host:port?streams=64        JetStream: keeps a numbered log per topic
    tls://host:port?creds=path                   the same, encrypted or not at all
    nats+core://host:port, tls+core://host:port  plain NATS: keeps nothing, may lose events

Options come from the URL or as keywords; keywords win. A token or user and password may stand before the first host, as
NATS writes them: nats://token@host, nats://user:password@host. Client libraries are imported when a URL needs them.

| option | of | meaning |
|---|---|---|
| seed, loss, duplication, reordering, delay_ms, keeps_log | memory | see MemoryBroker |
| buckets | memory, core | topics share so many ordered topics; 0: each is ordered as itself |
| streams | nats | `topic`: a stream for each; a number: topics share so many |
| cluster | nats, core | keeps systems on one server apart |
| storage, replicas, max_age_s, max_bytes, duplicates_s | nats | how streams are made, see StreamOptions |
| pace_ms | nats | how often at most a home asks how long a log is |
| domain | nats | JetStream domain |
| token, user, password, creds, nkey | nats, core | who we are; creds and nkey are files |
| ca, cert, key, tls_name | nats, core | files and name for TLS |
| inbox | nats, core | answers to us go below this subject, for permissions: one per user |
| name, connect_timeout_s | nats, core | shown by the server's tools; how long to try at first |
"""

import difflib
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from seriatim.brokers.memory import MemoryBroker
from seriatim.brokers.seam import Broker
from seriatim.model import InputError

DEFAULT_PORT = 4222
CLUSTER = "seriatim"
CONNECT_S = 10.0


def open_broker(url: str, **options: Any) -> Broker:
    """A broker for this URL, not connected yet: call `open` on it. InputError says what is wrong with the URL."""
    scheme, separator, _ = url.partition("://")
    make = _SCHEMES.get(scheme) if separator else None
    if make is None:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise InputError("url", f"{shown(url)!r} does not begin with a scheme we know", f"use one of {known}")
    return make(url, options)


def check_url(url: str) -> None:
    """Whether `open_broker` can read it. Makes nothing, and needs no client library."""
    scheme = url.partition("://")[0]
    if scheme == "memory":
        _parameters(url, split_url(url).query, _MEMORY)
    elif scheme in _SCHEMES:
        _nats(url.replace("+core", "", 1), {}, _CORE if scheme.endswith("+core") else _JETSTREAM)


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


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────

_shared: dict[str, "_Shared"] = {}


class _Shared:
    """A broker of this process that is known by name, while somebody is connected."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = dict(options)
        self.broker = MemoryBroker(**options)
        self.connections = 0


class _NamedMemoryBroker(MemoryBroker):
    """A connection to a broker known by name; the last one to be closed ends it."""

    def __init__(self, name: str, shared: _Shared) -> None:
        super().__init__()
        self._name = name
        self._shared: _Shared | None = shared
        self.connect_to(shared.broker)
        shared.connections += 1

    async def close(self) -> None:
        await super().close()
        if (shared := self._shared) is not None:
            self._shared = None
            shared.connections -= 1
            if not shared.connections and _shared.get(self._name) is shared:
                del _shared[self._name]


_MEMORY: dict[str, Callable[[str], Any]] = {
    "seed": int,
    "loss": float,
    "duplication": float,
    "reordering": float,
    "delay_ms": float,
    "keeps_log": lambda text: _truth(text),
    "buckets": int,
}


def _memory(url: str, options: Mapping[str, Any]) -> Broker:
    parts = split_url(url)
    name = parts.netloc
    if parts.path not in ("", "/"):
        raise InputError("url", f"{url!r} has a path", "use memory://name?option=value")
    chosen = {**_parameters(url, parts.query, _MEMORY), **_known(options, _MEMORY)}
    if not name:  # nobody else can name it: a broker of its own
        return MemoryBroker(**chosen)
    shared = _shared.get(name)
    if shared is None:
        shared = _shared[name] = _Shared(chosen)
    for option, value in chosen.items():
        if shared.options.get(option, value) != value or option not in shared.options:
            raise InputError(
                option,
                f"memory://{name} is open already, with other options ({shared.options or 'none'})",
                "name the options where it is opened first, the same ones later or none",
            )
    return _NamedMemoryBroker(name, shared)


# ── nats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _streams(text: str) -> str | int:
    return text if text == "topic" else int(text)


_CREDENTIALS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "token": ("token", str),
    "user": ("user", str),
    "password": ("password", str),
    "creds": ("credentials_file", Path),
    "nkey": ("key_file", Path),
    "ca": ("authority_file", Path),
    "cert": ("certificate_file", Path),
    "key": ("certificate_key_file", Path),
    "tls_name": ("tls_name", str),
    "inbox": ("inbox", str),
}
_STREAM_OPTIONS: dict[str, Callable[[str], Any]] = {
    "storage": str,
    "replicas": int,
    "max_age_s": float,
    "max_bytes": int,
    "duplicates_s": float,
}
_CONNECTION: dict[str, Callable[[str], Any]] = {
    "cluster": str,
    "name": str,
    "connect_timeout_s": float,
    **{name: kind for name, (_, kind) in _CREDENTIALS.items()},
}
_JETSTREAM: dict[str, Callable[[str], Any]] = {
    **_CONNECTION,
    **_STREAM_OPTIONS,
    "streams": _streams,
    "pace_ms": float,
    "domain": str,
}
_CORE: dict[str, Callable[[str], Any]] = {**_CONNECTION, "buckets": int}


def _jetstream(url: str, options: Mapping[str, Any]) -> Broker:
    jetstream = _nats_module("seriatim.brokers.nats_jetstream")
    servers, chosen = _nats(url, options, _JETSTREAM)
    stream_options = {name: chosen.pop(name) for name in _STREAM_OPTIONS if name in chosen}
    broker: Broker = jetstream.JetStreamBroker(
        servers,
        options=jetstream.StreamOptions(**stream_options),
        credentials=_credentials(chosen),
        **chosen,
    )
    return broker


def _core(url: str, options: Mapping[str, Any]) -> Broker:
    core = _nats_module("seriatim.brokers.nats_core")
    servers, chosen = _nats(url.replace("+core", "", 1), options, _CORE)
    broker: Broker = core.CoreBroker(servers, credentials=_credentials(chosen), **chosen)
    return broker


class NatsPlace(NamedTuple):
    """Where JetStream is and who we are there, for those who only read it."""

    servers: list[str]
    credentials: Any  # NatsCredentials
    cluster: str
    domain: str | None
    timeout_s: float


def nats_place(url: str, **options: Any) -> NatsPlace:
    """A URL of JetStream, read as `open_broker` reads it; options about how streams are made are not used."""
    if url.partition("://")[0] not in ("nats", "tls"):
        raise InputError("url", f"{shown(url)!r} is not JetStream", "use nats://host:port or tls://host:port")
    servers, chosen = _nats(url, options, _JETSTREAM)
    return NatsPlace(
        servers.split(","),
        _credentials(chosen),
        chosen.get("cluster", CLUSTER),
        chosen.get("domain"),
        chosen.get("connect_timeout_s", CONNECT_S),
    )


def _nats_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "nats":
            raise
        raise InputError("url", "the client library for NATS is missing", 'pip install "seriatim[nats]"') from None


def _nats(
    url: str, options: Mapping[str, Any], kinds: Mapping[str, Callable[[str], Any]]
) -> tuple[str, dict[str, Any]]:
    """The servers, separated by commas, and the options."""
    scheme, _, rest = url.partition("://")
    hosts, _, query = rest.partition("?")
    chosen = _parameters(url, query, kinds)
    servers = []
    for host in hosts.rstrip("/").split(","):
        identity, _, address = host.rpartition("@")
        if identity:
            user, separator, password = identity.partition(":")
            given = {"user": unquote(user), "password": unquote(password)} if separator else {"token": unquote(user)}
            chosen = {**given, **chosen}
        servers.append(f"{scheme}://{_host_and_port(url, address)}")
    return ",".join(servers), {**chosen, **_known(options, kinds)}


def _host_and_port(url: str, address: str) -> str:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.path or not address.isprintable() or " " in address:
        fix = "use nats://host:port, and brackets around an IPv6 host: nats://[::1]:4222"
        raise InputError("url", f"{address!r} in {shown(url)!r} is not a host and port", fix)
    return f"[{host}]:{port or DEFAULT_PORT}" if ":" in host else f"{host}:{port or DEFAULT_PORT}"


def _credentials(chosen: dict[str, Any]) -> Any:
    from seriatim.brokers.nats_credentials import NatsCredentials

    found = {}
    for name, (field, kind) in _CREDENTIALS.items():
        if (value := chosen.pop(name, None)) is not None:
            found[field] = kind(value)
    return NatsCredentials(**found)


# ── reading URLs ──────────────────────────────────────────────────────────────────────────────────────────────────


def _parameters(url: str, query: str, kinds: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        _known({name: text}, kinds)
        if name in found:
            raise InputError(name, f"{shown(url)!r} names it twice", "name it once")
        try:
            found[name] = kinds[name](text)
        except ValueError:
            raise InputError(name, f"{text!r} cannot be read", f"see the table in {__name__}") from None
    return found


def _known(options: Mapping[str, Any], kinds: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in options:
        if name not in kinds:
            near = difflib.get_close_matches(name, kinds, n=1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(kinds))}"
            raise InputError(name, "this kind of broker has no such option", advice)
    return options


def _truth(text: str) -> bool:
    try:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


_SCHEMES: dict[str, Callable[[str, Mapping[str, Any]], Broker]] = {
    "memory": _memory,
    "nats": _jetstream,
    "tls": _jetstream,
    "nats+core": _core,
    "tls+core": _core,
}
