"""Journals of a process's nodes on a NATS cluster: one connection for all of them, beside the broker's own.

The broker's connection forgets what is under way when the server goes away, because machines repeat it. A journal must
know what became of each append, so it has a connection that reconnects by itself (brokers/nats_journal.py does the
rest).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

import nats.errors
from nats.aio.client import Client

from seriatim.brokers.naming import escape
from seriatim.brokers.nats_credentials import NatsCredentials
from seriatim.brokers.nats_journal import NatsJournal
from seriatim.model import Closed, ConnectionFailed, Node

logger = logging.getLogger(__name__)

CONNECT_S = 5.0
RECONNECT_S = 0.2
CLOSE_S = 5.0


class NatsJournals:
    """Open it, then ask for journals. A journal that is in use must be closed before this is."""

    def __init__(
        self, servers: list[str], credentials: NatsCredentials | None = None, *, cluster: str, replicas: int = 1
    ) -> None:
        self._servers = servers
        self._credentials = credentials if credentials is not None else NatsCredentials()
        self._cluster = cluster
        self._replicas = replicas
        self._client: Client | None = None

    async def open(self) -> None:
        """Connect. ConnectionFailed says what was tried."""
        client = Client()
        problems: list[str] = []

        async def on_error(error: Exception) -> None:
            problems.append(str(error))
            logger.warning("connection of the journals", extra={"reason": str(error)})

        def secret(value: str | None) -> Callable[[], str] | None:
            """Said only after the connection is encrypted, if the URL says that it must be."""

            def say() -> str:
                assert value is not None
                self._insist_on_tls(client)
                return value

            return say if value is not None else None

        credentials = self._credentials
        try:
            async with asyncio.timeout(CONNECT_S * len(self._servers) + CONNECT_S):
                await client.connect(
                    servers=self._servers,
                    error_cb=on_error,
                    name=f"seriatim journals {self._cluster}",
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=RECONNECT_S,  # type: ignore[arg-type]  # declared int, only slept on
                    connect_timeout=int(CONNECT_S),
                    tls=credentials.tls(),
                    tls_hostname=credentials.tls_name,
                    user=secret(credentials.user),
                    password=secret(credentials.password),
                    token=secret(credentials.token),
                    user_credentials=str(credentials.credentials_file) if credentials.credentials_file else None,
                    nkeys_seed=str(credentials.key_file) if credentials.key_file else None,
                    inbox_prefix=credentials.inbox,
                )
            self._insist_on_tls(client)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                await asyncio.wait_for(client.close(), CLOSE_S)
            reason = problems[-1] if problems else str(error) or type(error).__name__
            raise ConnectionFailed(f"no connection for journals to {', '.join(self._servers)}: {reason}") from None
        self._client = client

    def _insist_on_tls(self, client: Client) -> None:
        """nats-py encrypts if the server asks for it. A tls:// URL means that we ask for it."""
        writer = getattr(client._transport, "_io_writer", None)
        encrypted = writer is not None and writer.get_extra_info("ssl_object") is not None
        if any(server.startswith("tls://") for server in self._servers) and not encrypted:
            raise nats.errors.SecureConnWantedError

    def journal(self, node: Node, *, beat_s: float | None = None) -> NatsJournal:
        """A journal of this node, to be opened. `beat_s`: show life so often, for standbys."""
        if self._client is None:
            raise Closed("the journals are not connected")
        name = escape(node)
        return NatsJournal(
            self._client,
            f"{self._cluster}-journal-{name}",
            subject=f"_{self._cluster}.journal.{name}",
            replicas=self._replicas,
            beat_s=beat_s,
        )

    async def close(self) -> None:
        """Disconnect. May be called twice."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                await asyncio.wait_for(client.close(), CLOSE_S)
