"""The admin port: what a server is doing, over HTTP. Read-only, a few paths, everything bounded.

    /metrics   for Prometheus           /health    200 or 503: does everything work?
    /status    JSON: nodes, epochs      /ready     200 or 503: can it serve those that connect?
    /explain   JSON: what waits         /live      200 or 503: would it not help to start it again?

With a token the first three ask for it (`Authorization: Bearer …`); without one, listen on this machine only. The
others say why they are 503, a sentence per line, or with `Accept: application/json` an object per line (health.py).
Without the token they say only yes or no, so that probes need no secret.
"""

import asyncio
import hmac
import logging
import socket
import ssl
from collections.abc import Callable, Collection, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from seriatim.model import InputError
from seriatim.runtime.net.addresses import bound_address, listen_on, split_address
from seriatim.server.health import DEAD, UNREADY, Kind, Problem
from seriatim.server.metrics import CONTENT_TYPE

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX = 8 * 1024
REQUEST_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0
CONNECTIONS_MAX = 64
JSON = "application/json"
# The paths that answer yes or no: what no is called, and which problems make it so (None: any).
PROBES: dict[str, tuple[str, Collection[Kind] | None]] = {
    "/health": ("not healthy", None),
    "/ready": ("not ready", UNREADY),
    "/live": ("not live", DEAD),
}
TEXT = "text/plain; charset=utf-8"


class Reply(msgspec.Struct, frozen=True):
    """One answer."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT
    headers: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """The bytes of the answer. There is one answer per connection."""
        lines = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
            *self.headers,
        ]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self.body


def plain(status: HTTPStatus, text: str, *headers: str) -> Reply:
    return Reply(status, text.encode() + b"\n", TEXT, headers)


class AdminServer:
    """Answers on one address. `metrics`: the text for Prometheus. `problems`: what does not work now."""

    def __init__(
        self,
        bind: str,
        metrics: Callable[[], str],
        status: Callable[[], dict[str, Any]],
        explain: Callable[[], list[Any]],
        problems: Callable[[], Sequence[Problem]],
        *,
        token: str = "",
        context: ssl.SSLContext | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        split_address("admin address", bind)
        if not request_timeout_s > 0:
            raise InputError("request_timeout_s", f"{request_timeout_s} is not positive", "give a number above 0")
        self.address = bind
        self._metrics = metrics
        self._status = status
        self._explain = explain
        self._problems = problems
        self._token = token
        self._context = context
        self._request_timeout_s = request_timeout_s
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self._context is not None else 'http'}://{self.address}"

    async def start(self) -> None:
        """Listen. ConnectionFailed: the address cannot be used."""
        sockets = listen_on("admin address", self.address)
        self.address = bound_address(self.address, sockets)
        self._servers = [await self._serve(each) for each in sockets]
        if not self._token and not all(_is_loopback(each) for each in sockets):
            logger.warning("admin port is open to everybody: address=%s fix=%s", self.address, "set a token")
        logger.info("admin port open: url=%s", self.url)

    async def stop(self) -> None:
        """Close everything. May be called twice."""
        for server in self._servers:
            server.close()
        self._servers = []
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, listening: socket.socket) -> asyncio.Server:
        tls: dict[str, Any] = {}
        if self._context is not None:
            tls = {"ssl_handshake_timeout": self._request_timeout_s, "ssl_shutdown_timeout": 1.0}
        return await asyncio.start_server(self._accept, sock=listening, limit=HEAD_BYTES_MAX, ssl=self._context, **tls)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            problem = {"message": "a request at the admin port failed", "exception": error, "task": task}
            asyncio.get_running_loop().call_exception_handler(problem)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer, then the connection is closed, whatever happens."""
        reply: Reply | None = plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed to answer; see its log")
        try:
            reply = await self._reply(reader)
        finally:
            try:
                if reply is not None:
                    writer.write(reply.encode())
                    async with asyncio.timeout(ANSWER_TIMEOUT_S):
                        await writer.drain()
                writer.close()
            except (TimeoutError, ConnectionError):
                writer.transport.abort()

    async def _reply(self, reader: asyncio.StreamReader) -> Reply | None:
        try:
            async with asyncio.timeout(self._request_timeout_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return plain(HTTPStatus.REQUEST_TIMEOUT, f"no request within {self._request_timeout_s:g} s")
        except asyncio.LimitOverrunError:
            return plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {HEAD_BYTES_MAX} bytes")
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            return None  # it hung up
        return self._answer(head)

    def _answer(self, head: bytes) -> Reply:
        request, *fields = head.decode("latin-1").split("\r\n")
        method, _, rest = request.partition(" ")
        target, _, version = rest.partition(" ")
        if not target.startswith("/") or version not in ("HTTP/1.1", "HTTP/1.0"):
            return plain(HTTPStatus.BAD_REQUEST, "only HTTP/1.1 is supported")
        if method != "GET":
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is supported", "Allow: GET")
        path = target.partition("?")[0]
        known = self._knows(fields)
        if path in PROBES:
            return self._probe(path, in_detail=known, as_json=any(map(_accepts_json, fields)))
        if not known:
            return plain(HTTPStatus.UNAUTHORIZED, "send the token: Authorization: Bearer …", "WWW-Authenticate: Bearer")
        if path == "/metrics":
            return Reply(HTTPStatus.OK, self._metrics().encode(), CONTENT_TYPE)
        if path == "/status":
            return _json(self._status())
        if path == "/explain":
            return _json(self._explain())
        return plain(HTTPStatus.NOT_FOUND, "unknown path; use /metrics, /status, /explain, /health, /ready or /live")

    def _knows(self, fields: list[str]) -> bool:
        """Whether one of the header fields is the token."""
        if not self._token:
            return True
        for field in fields:
            name, _, value = field.partition(":")
            scheme, _, token = value.strip().partition(" ")
            if name.strip().lower() == "authorization" and scheme.lower() == "bearer":
                return hmac.compare_digest(token.strip().encode("latin-1"), self._token.encode())
        return False

    def _probe(self, path: str, *, in_detail: bool, as_json: bool) -> Reply:
        no, kinds = PROBES[path]
        problems = [each for each in self._problems() if kinds is None or each.kind in kinds]
        if not problems:
            return plain(HTTPStatus.OK, "ok")
        if not in_detail:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, no)
        if as_json:
            lines = b"".join(msgspec.json.encode(each) + b"\n" for each in problems)
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, lines, JSON)
        return plain(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(each.sentence for each in problems))


def _accepts_json(field: str) -> bool:
    name, _, value = field.partition(":")
    return name.strip().lower() == "accept" and JSON in value.lower()


def _json(value: object) -> Reply:
    return Reply(HTTPStatus.OK, msgspec.json.encode(value) + b"\n", JSON)


def _is_loopback(listening: socket.socket) -> bool:
    host = listening.getsockname()[0]
    return isinstance(host, str) and (host.startswith("127.") or host == "::1")
