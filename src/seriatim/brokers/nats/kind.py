"""URLs of NATS: `nats://host:port,host:port?streams=64` (JetStream), `nats+core://host:port`; also tls, tls+core.

A token or user and password may stand before the first host: nats://token@host, nats://user:password@host. The client
library is imported when a broker is opened.

| option | of | meaning |
|---|---|---|
| streams | JetStream | `topic`: a stream for each; a number: topics share that many |
| buckets | core | the number of subjects that topics share; 0: each has its own |
| cluster | both | keeps systems on one server apart |
| storage, replicas, max_age_s, order_max_age_s, max_bytes, duplicates_s | JetStream | see StreamOptions |
| pace_ms | JetStream | the shortest time between two questions about the length of a log |
| domain | JetStream | JetStream domain |
| token, user, password, creds, nkey | both | who we are; creds and nkey are files |
| ca, cert, key, tls_name | both | files and name for TLS |
| inbox | both | answers to us go below this subject, for permissions: one per user |
| name, connect_timeout_s | both | shown by the server's tools; how long to try at first |
"""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote, urlsplit

from seriatim.brokers.seam import Broker, Kind
from seriatim.brokers.urls import check_options, read_query, shown
from seriatim.model import InputError

if TYPE_CHECKING:
    from seriatim.brokers.nats.bulk.reader import NatsReader
    from seriatim.brokers.nats.credentials import NatsCredentials
    from seriatim.brokers.nats.server import NatsServer

DEFAULT_PORT = 4222
CLUSTER = "seriatim"
CONNECT_S = 10.0


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
    "order_max_age_s": float,
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


class NatsKind(Kind):
    """The common part of both kinds."""

    file_options = ("creds", "nkey", "ca", "cert", "key")
    options: ClassVar[dict[str, Callable[[str], Any]]]

    def check(self, url: str) -> None:
        _read(url, {}, self.options)


class JetStreamKind(NatsKind):
    """NATS with JetStream."""

    options = _JETSTREAM
    has_journals = True
    has_order_log = True
    layout_options = ("replicas", "storage", "max_age_s", "order_max_age_s")
    reading_options = (*_CREDENTIALS, "domain", "connect_timeout_s")

    def open(self, url: str, options: Mapping[str, Any]) -> Broker:
        jetstream = _module("seriatim.brokers.nats.jetstream")
        servers, chosen = _read(url, options, _JETSTREAM)
        stream_options = {name: chosen.pop(name) for name in _STREAM_OPTIONS if name in chosen}
        broker: Broker = jetstream.JetStreamBroker(
            servers, options=jetstream.StreamOptions(**stream_options), credentials=_credentials(chosen), **chosen
        )
        return broker

    def cluster_options(self, cluster: str, buckets: int | None, layout: Mapping[str, Any]) -> dict[str, Any]:
        streams = {} if buckets is None else {"streams": buckets or "topic"}
        return {"cluster": cluster, **streams, **layout}

    def bulk(self, url: str, options: Mapping[str, Any]) -> "NatsReader":
        """A bulk reader. It ignores the options about how streams are created."""
        bulk = _module("seriatim.brokers.nats.bulk.reader")
        servers, chosen = _read(url, options, _JETSTREAM)
        reader: NatsReader = bulk.NatsReader(
            servers.split(","),
            _credentials(chosen),
            chosen.get("cluster", CLUSTER),
            chosen.get("domain"),
            chosen.get("connect_timeout_s", CONNECT_S),
        )
        return reader

    def server(self, folder: Path, port: int = 0, *, config: str = "") -> "NatsServer":
        from seriatim.brokers.nats.server import NatsServer

        return NatsServer(folder, port, config=config)

    def how_to_empty(self) -> str:
        return "delete its events with the server's tools: nats stream purge"

    def how_to_delete(self, stream: str) -> str:
        return f"delete it first: nats stream rm {stream}"


class CoreKind(NatsKind):
    """Plain NATS."""

    options = _CORE
    keeps_log = False
    lossy = True

    def open(self, url: str, options: Mapping[str, Any]) -> Broker:
        core = _module("seriatim.brokers.nats.core")
        servers, chosen = _read(url, options, _CORE)
        broker: Broker = core.CoreBroker(servers, credentials=_credentials(chosen), **chosen)
        return broker

    def cluster_options(self, cluster: str, buckets: int | None, layout: Mapping[str, Any]) -> dict[str, Any]:
        return {"cluster": cluster} if buckets is None else {"cluster": cluster, "buckets": buckets}


JETSTREAM = JetStreamKind()
CORE = CoreKind()


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "nats":
            raise
        raise InputError("url", "the client library for NATS is missing", 'pip install "seriatim[nats]"') from None


def _read(
    url: str, options: Mapping[str, Any], readers: Mapping[str, Callable[[str], Any]]
) -> tuple[str, dict[str, Any]]:
    """The servers, separated by commas, and the options."""
    scheme, _, rest = url.partition("://")
    scheme = scheme.removesuffix("+core")
    hosts, _, query = rest.partition("?")
    chosen = read_query(url, query, readers)
    servers = []
    for host in hosts.rstrip("/").split(","):
        identity, _, address = host.rpartition("@")
        if identity:
            user, separator, password = identity.partition(":")
            given = {"user": unquote(user), "password": unquote(password)} if separator else {"token": unquote(user)}
            chosen = {**given, **chosen}
        servers.append(f"{scheme}://{_host_and_port(url, address)}")
    return ",".join(servers), {**chosen, **check_options(options, readers)}


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


def _credentials(chosen: dict[str, Any]) -> "NatsCredentials":
    from seriatim.brokers.nats.credentials import NatsCredentials

    found = {}
    for name, (field, read) in _CREDENTIALS.items():
        if (value := chosen.pop(name, None)) is not None:
            found[field] = read(value)
    return NatsCredentials(**found)
