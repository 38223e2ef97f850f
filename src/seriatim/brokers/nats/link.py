"""One connection to a NATS server, kept up: what the NATS brokers stand on.

*Sending* never blocks: messages are queued, and a task writes them in order. While the server is away nothing is
queued, and requests under way are forgotten, so that nothing old reaches the server after an outage. A caller that
waits for an answer learns that none will come, and asks again. One inbox serves all questions; each has a number.

*Connections.* nats-py can reconnect by itself, but then it sends what it had buffered, however old, and a few errors
close it for good. So each of its clients is used for one connection, and this file makes the next one: `on_up` is
called when there is one, `on_down` when it is lost.
"""

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any, TypeAlias

import nats.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from seriatim.brokers.nats.client import TolerantClient
from seriatim.brokers.nats.credentials import NatsCredentials
from seriatim.model import Closed, ConnectionFailed, InputError, RequestRefused

logger = logging.getLogger(__name__)

ASK_S = 5.0
SWEEP_S = 0.25
RETRY_MIN_S = 0.02
RETRY_MAX_S = 2.0
FLUSH_S = 2.0
HANG_UP_S = 1.0
CANCELLATIONS = 10
PING_S = 5.0  # a server that answers no ping for twice this time is presumed dead
WRITES_PER_TURN = 100  # then others get their turn of the loop

# The answer, or why there will be none, or None: the server went away or said nothing in time.
Reply: TypeAlias = Msg | RequestRefused | None
OnReply: TypeAlias = Callable[[Reply], None]
Handler: TypeAlias = Callable[[Msg], None]
# What waits to be written: (subject, data, reply, headers), or something to do with the connection, in its turn.
Item: TypeAlias = tuple[str, bytes, str, dict[str, str] | None] | Callable[[Client], Coroutine[Any, Any, None]]


class Asked(Struct):
    """A question under way."""

    subject: str
    deadline: float
    on_reply: OnReply


class NatsLink:
    """Connects to the first server that answers, and to another one when that connection is lost."""

    def __init__(
        self,
        servers: Sequence[str],
        credentials: NatsCredentials | None = None,
        *,
        name: str | None = None,
        connect_timeout_s: float = 5.0,
    ) -> None:
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[], None]] = []
        self.servers = list(servers)
        self.credentials = credentials if credentials is not None else NatsCredentials()
        self._tls = self.credentials.tls()
        self._name = name
        self._connect_timeout_s = connect_timeout_s
        self._client: TolerantClient | None = None
        self.max_payload = 1024 * 1024  # the largest message, headers included, that the server takes
        self._last_problem = ""
        self.is_closed = False  # for good
        self._inbox = f"{self.credentials.inbox}.{random.SystemRandom().getrandbits(96):024x}"
        self._tokens = count(1)
        self._asked: dict[int, Asked] = {}
        self._standing: dict[str, Handler] = {f"{self._inbox}.a.*": self._on_answer}
        self._if_refused: dict[str, Callable[[RequestRefused], None]] = {}  # by subject of a standing subscription
        self._subscriptions: dict[str, Subscription] = {}
        self._out: deque[Item] = deque()
        self._wake = asyncio.Event()
        self._lost = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: asyncio.Task[None] | None = None

    # ── connection ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_up(self) -> bool:
        return self._client is not None

    @property
    def problem(self) -> str | None:
        """Why nothing can be sent now. None: there is a connection."""
        if self.is_up:
            return None
        why = f" ({self._last_problem})" if self._last_problem else ""
        return f"no NATS server answers at {self._where()}{why}"

    async def open(self) -> None:
        """Connect to one of the servers, in the time given. ConnectionFailed says what was tried."""
        if self.is_closed:
            raise Closed("this connection to NATS was closed; make a new one")
        if self._tasks:
            return
        deadline = time.monotonic() + self._connect_timeout_s
        pause_s = RETRY_MIN_S
        while not await self._connect_to_one():
            if any(word in self._last_problem.lower() for word in ("authoriz", "certificate", "secure connection")):
                raise ConnectionFailed(f"{self._where()} refused us: {self._last_problem}; check the credentials")
            if time.monotonic() + pause_s > deadline:
                raise ConnectionFailed(
                    f"no NATS server answers at {self._where()} within {self._connect_timeout_s:g} s "
                    f"({self._last_problem}); start one, or check the URL"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_up()), loop.create_task(self._sweep_forever())]
        for task in self._tasks:
            task.add_done_callback(_report)

    async def close(self) -> None:
        """Disconnect. Tell callers that wait for an answer that none will come. May be called twice."""
        if self.is_closed:
            return
        self.is_closed = True
        client, self._client = self._client, None
        if tasks := [*self._tasks, *([self._writer] if self._writer is not None else [])]:
            await _end(*tasks)
        if client is not None:
            await self._hang_up(client)
        self._forget_everything()

    def _where(self) -> str:
        return ", ".join(
            server.rpartition("@")[2].removeprefix("nats://").removeprefix("tls://") for server in self.servers
        )

    async def _keep_up(self) -> None:
        """Connect again whenever the connection is lost. Never returns."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            client, self._client = self._client, None
            if client is not None:
                await self._hang_up(client)
            if self._writer is not None:  # it may wait for a flush that will never happen
                await _end(self._writer)
            self._forget_everything()
            for callback in list(self.on_down):
                callback()
            logger.warning("connection to nats lost: servers=%s reason=%s", self._where(), self._last_problem)
            pause_s = RETRY_MIN_S
            while not await self._connect_to_one():
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, RETRY_MAX_S)
            logger.info("connected to nats again: servers=%s", self._where())

    async def _connect_to_one(self) -> bool:
        for server in list(self.servers):
            if await self._connect_to(server):
                return True
            self.servers.append(self.servers.pop(0))
        return False

    async def _connect_to(self, server: str) -> bool:
        client = TolerantClient()
        problems: list[str] = []
        up = False

        async def on_error(error: Exception) -> None:
            if self._drop_refused(str(error)):
                return
            problems.append(str(error))
            if not isinstance(error, nats.errors.Error | OSError):
                logger.error("handling a message from nats failed: reason=%s", error, exc_info=error)
            if up:
                self._on_problem(str(error))

        def on_lost(reading: "asyncio.Task[None]") -> None:
            problem = reading.exception() if not reading.cancelled() else None
            if self._client is client:
                self._last_problem = str(problem or client.last_error or "closed by the server")
                self._lost.set()

        def secret(value: str | None) -> Callable[[], str] | None:
            """A secret. It is sent only over an encrypted connection if the URL demands encryption."""

            def say() -> str:
                assert value is not None
                self._insist_on_tls(server, client)
                return value

            return say if value is not None else None

        credentials = self.credentials
        try:
            await client.connect(
                servers=[server],
                error_cb=on_error,
                name=self._name,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=int(max(1.0, self._connect_timeout_s)),
                ping_interval=int(PING_S),
                tls=self._tls,
                tls_hostname=credentials.tls_name,
                user=secret(credentials.user),
                password=secret(credentials.password),
                token=secret(credentials.token),
                user_credentials=str(credentials.credentials_file) if credentials.credentials_file else None,
                nkeys_seed=str(credentials.key_file) if credentials.key_file else None,
            )
            self._insist_on_tls(server, client)
            subscribed: set[str] = set()
            while missing := self._standing.keys() - subscribed:  # more may be wanted while we wait
                for subject in sorted(missing):
                    subscribed.add(subject)
                    if (handler := self._standing.get(subject)) is not None:
                        await self._subscribe(client, subject, handler)
                await client.flush(timeout=int(max(1.0, self._connect_timeout_s)))
            if problems:
                raise nats.errors.Error(problems[-1])
        except (nats.errors.Error, OSError, TimeoutError, ssl.SSLError) as error:
            self._last_problem = problems[-1] if problems else str(error) or type(error).__name__
            await self._hang_up(client)
            return False
        except asyncio.CancelledError:
            await self._hang_up(client)
            raise
        except ImportError as error:  # nkeys, which only key and credentials files need
            await self._hang_up(client)
            raise InputError(
                "credentials", f"they need a package that is missing: {error}", 'pip install "seriatim[nats]"'
            ) from None
        up = True
        self._client = client
        client.on_lost(on_lost)
        self.max_payload = client.max_payload
        self._out.clear()
        self._writer = asyncio.get_running_loop().create_task(self._write_forever(client))
        self._writer.add_done_callback(lambda _: self._lost.set() if self._client is client else None)
        self._writer.add_done_callback(_report)
        for url in client.discovered_servers:
            scheme = "tls" if server.startswith("tls") else "nats"
            address = f"{scheme}://{url.netloc}"
            if not any(each.rpartition("@")[2].rpartition("/")[2] == url.netloc for each in self.servers):
                self.servers.append(address)
        for callback in list(self.on_up):
            callback()
        return True

    def _insist_on_tls(self, server: str, client: TolerantClient) -> None:
        """nats-py encrypts if the server asks for it. A tls:// URL means that we ask for it."""
        if server.startswith("tls://") and not client.is_encrypted:
            raise nats.errors.SecureConnWantedError

    async def _hang_up(self, client: TolerantClient) -> None:
        """Close with a time limit: nats-py may wait for the server, swallow a cancellation or leave the socket open."""
        closing = asyncio.get_running_loop().create_task(client.close())
        closing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await _end(closing, patience_s=HANG_UP_S)
        client.drop()

    def _on_problem(self, text: str) -> None:
        """The server reports an error. A missing permission names the subject, in lower case: its callers are told."""
        self._last_problem = text
        if "permissions violation" not in text:
            return
        logger.error("nats refused permission: reason=%s", text)
        refused = RequestRefused(f"the NATS server says: {text}; allow it in the server's permissions")
        for token, asked in list(self._asked.items()):
            if f'"{asked.subject.lower()}"' in text:
                self._settle(token, refused)

    def _drop_refused(self, text: str) -> bool:
        """Whether the server refuses a subscription that we can do without. Whoever wanted it is told."""
        for subject, if_refused in list(self._if_refused.items()):
            if f'subscription to "{subject.lower()}"' in text:
                logger.error("nats refused permission: reason=%s", text)
                self.unlisten(subject)
                if_refused(RequestRefused(f"the NATS server says: {text}; allow it in the server's permissions"))
                return True
        return False

    def _forget_everything(self) -> None:
        self._out.clear()
        for token in list(self._asked):
            self._settle(token, None)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None, reply: str = "") -> bool:
        """Queue a message. False: the server is away, and the message is forgotten."""
        if self._client is None:
            return False
        self._send((subject, data, reply, headers))
        return True

    def _send(self, item: Item) -> None:
        self._out.append(item)
        self._wake.set()

    def ask(
        self,
        subject: str,
        data: bytes,
        on_reply: OnReply,
        headers: dict[str, str] | None = None,
        timeout_s: float = ASK_S,
        token: int | None = None,
    ) -> None:
        """Queue a question. `on_reply` is called exactly once, never from inside this call."""
        if self._client is None:
            asyncio.get_running_loop().call_soon(on_reply, None)
            return
        token = token if token is not None else next(self._tokens)
        self._asked[token] = Asked(subject, time.monotonic() + timeout_s, on_reply)
        self._send((subject, data, f"{self._inbox}.a.{token}", headers))

    async def call(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None = None,
        timeout_s: float = ASK_S,
        token: int | None = None,
    ) -> Reply:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def on_reply(reply: Reply) -> None:
            if not future.done():
                future.set_result(reply)

        self.ask(subject, data, on_reply, headers, timeout_s, token)
        return await future

    def listen(
        self, subject: str, handler: Handler, if_refused: Callable[[RequestRefused], None] | None = None
    ) -> None:
        """Hand every message on a subject to `handler`, on this connection and on all that follow.

        `if_refused`: told once if the server does not permit it; then nothing is heard. Without it a connection on
        which it is not permitted is no connection.
        """
        self._standing[subject] = handler
        if if_refused is not None:
            self._if_refused[subject] = if_refused
        if self._client is not None:
            self._send(lambda client: self._subscribe(client, subject, handler))

    def unlisten(self, subject: str) -> None:
        self._standing.pop(subject, None)
        self._if_refused.pop(subject, None)

        async def unsubscribe(client: Client) -> None:
            subscription = self._subscriptions.pop(subject, None)
            if subscription is not None:
                with contextlib.suppress(nats.errors.BadSubscriptionError):
                    await subscription.unsubscribe()

        if self._client is not None:
            self._send(unsubscribe)

    def once(self, subject: str, handler: Handler) -> Callable[[], None]:
        """Hand the next message on a subject to `handler`; gone when the connection is. Returns how to stop it."""
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: None if done.cancelled() else handler(done.result()))
        found: list[Subscription] = []

        async def subscribe(client: Client) -> None:
            if not future.done():
                subscription = await client.subscribe(subject, future=future, max_msgs=1)
                await subscription.unsubscribe(limit=1)
                found.append(subscription)

        async def unsubscribe(client: Client) -> None:
            for subscription in found:
                with contextlib.suppress(nats.errors.BadSubscriptionError):
                    await subscription.unsubscribe()

        def stop() -> None:
            if not future.done():
                future.cancel()
                if self._client is not None:
                    self._send(unsubscribe)

        if self._client is not None:
            self._send(subscribe)
        return stop

    async def flush(self) -> bool:
        """Wait until the server has seen everything sent so far. False: it has not within the time limit.

        Sends a message to ourselves, because the client library's own ping overtakes unwritten messages.
        """
        token = next(self._tokens)
        return await self.call(f"{self._inbox}.a.{token}", b"", timeout_s=FLUSH_S, token=token) is not None

    def inbox(self, word: str) -> str:
        """A subject that nobody else uses, for messages rather than answers."""
        return f"{self._inbox}.{word}"

    async def _subscribe(self, client: Client, subject: str, handler: Handler) -> None:
        async def callback(message: Msg) -> None:
            handler(message)

        self._subscriptions[subject] = await client.subscribe(
            subject, cb=callback, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def _write_forever(self, client: Client) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            written = 0
            while self._out and self._client is client:
                item = self._out.popleft()
                try:
                    if isinstance(item, tuple):
                        await client.publish(item[0], item[1], item[2], item[3])
                    else:
                        await item(client)
                except nats.errors.ConnectionClosedError:
                    return  # waiting callers are told when everything is forgotten
                except OSError as error:
                    self._last_problem = str(error)
                    return
                except nats.errors.Error as error:
                    self._refuse(item, str(error))
                written += 1
                if written % WRITES_PER_TURN == 0:
                    await asyncio.sleep(0)

    def _refuse(self, item: object, problem: str) -> None:
        """nats-py refused an item. Only its sender is told."""
        logger.error("nats-py refused a message: reason=%s", problem)
        if isinstance(item, tuple) and item[2].startswith(f"{self._inbox}.a."):
            self._settle(int(item[2].rpartition(".")[2]), RequestRefused(f"it cannot be sent: {problem}"))

    def _on_answer(self, message: Msg) -> None:
        self._settle(int(message.subject.rpartition(".")[2]), message)

    def _settle(self, token: int, reply: Reply) -> None:
        asked = self._asked.pop(token, None)
        if asked is not None:
            asked.on_reply(reply)

    async def _sweep_forever(self) -> None:
        """End the questions that were not answered in time. Never returns."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = time.monotonic()
            for token in [token for token, asked in self._asked.items() if asked.deadline <= now]:
                self._settle(token, None)


async def _end(*tasks: "asyncio.Task[None]", patience_s: float = 0.0) -> None:
    """Let tasks finish for a while, then cancel them; again if need be, since nats-py may swallow a cancellation."""
    _, left = await asyncio.wait(tasks, timeout=patience_s)
    for _ in range(CANCELLATIONS):
        if not left:
            break
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.1)


def _report(task: "asyncio.Task[None]") -> None:
    """Log how a task failed: these tasks end only by being cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("a task of the connection to nats failed: reason=%s", error, exc_info=error)


def no_responders(message: Msg) -> bool:
    """Whether the server says that nobody listens on the subject of the question."""
    return not message.data and message.headers is not None and message.headers.get("Status") == "503"
