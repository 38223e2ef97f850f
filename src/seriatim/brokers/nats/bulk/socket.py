"""A plain blocking connection to a NATS server, for jobs that only read large amounts.

Jobs that read whole streams run in processes of their own, without an event loop. A message is two slices of a buffer,
so reading costs a few microseconds each. Brokers and clients use link.py, which stays connected.

Every connection has its own inbox, and every question its own subject below it, so an answer to an earlier question, or
to somebody else, is never mistaken for the answer to this one. Every wait is bounded.
"""

import base64
import json
import random
import re
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from seriatim.brokers.nats.credentials import NatsCredentials
from seriatim.model import ConnectionFailed, InputError, RequestRefused

TIMEOUT_S = 10.0
RECEIVE_BYTES = 1 << 20
LINE_BYTES_MAX = 64 * 1024  # of a line of the protocol; INFO is the longest
NO_RESPONDERS = b"NATS/1.0 503"


class InboxMessage(NamedTuple):
    """One message to our inbox: headers as they came (with the line `NATS/1.0` and the empty line), and the body."""

    headers: bytes
    body: bytes
    subject: bytes = b""


class NatsSocket:
    """Connects when it is made. Close it, or use it in a `with`."""

    def __init__(
        self,
        servers: Sequence[str],
        credentials: NatsCredentials | None = None,
        *,
        name: str = "seriatim reader",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.credentials = credentials if credentials is not None else NatsCredentials()
        self.inbox = f"{self.credentials.inbox}.{random.SystemRandom().getrandbits(96):024x}"
        self._timeout_s = timeout_s
        self._name = name
        self._questions = count(1)
        self._buffer = b""
        self._at = 0
        problems = []
        for server in servers:
            try:
                self._connect(server)
                return
            except (OSError, ssl.SSLError, ConnectionFailed) as error:
                problems.append(f"{server.rpartition('@')[2]}: {error}")
        raise ConnectionFailed(f"no NATS server can be read: {'; '.join(problems)}")

    def __enter__(self) -> "NatsSocket":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    # ── connecting ────────────────────────────────────────────────────────────────────────────────────────────────

    def _connect(self, server: str) -> None:
        parts = urlsplit(server)
        assert parts.hostname is not None, "checked by urls.py"
        self._socket = socket.create_connection((parts.hostname, parts.port or 4222), self._timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._buffer, self._at = b"", 0
            greeting = self._line()
            if not greeting.startswith(b"INFO "):
                raise ConnectionFailed("the other side is not a NATS server")
            info = json.loads(greeting[5:])
            if parts.scheme == "tls" or info.get("tls_required"):
                name = self.credentials.tls_name or parts.hostname
                self._socket = self.credentials.tls().wrap_socket(self._socket, server_hostname=name)
                self._buffer, self._at = b"", 0
            hello = self._hello(str(info.get("nonce", "")))
            self._socket.sendall(f"CONNECT {json.dumps(hello)}\r\nSUB {self.inbox}.* 1\r\nPING\r\n".encode())
            while (line := self._line()) != b"PONG":
                self._check_line(line)
        except BaseException:
            self._socket.close()
            raise

    def _hello(self, nonce: str) -> dict[str, Any]:
        credentials = self.credentials
        hello: dict[str, Any] = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "lang": "python",
            "version": "seriatim",
            "name": self._name,
        }
        if credentials.user is not None:
            hello |= {"user": credentials.user, "pass": credentials.password}
        if credentials.token is not None:
            hello["auth_token"] = credentials.token
        if credentials.credentials_file is not None:
            jwt, seed = _read_credentials(credentials.credentials_file)
            hello |= {"jwt": jwt, "sig": _signed(seed, nonce)[1]}
        if credentials.key_file is not None:
            key, signature = _signed(credentials.key_file.read_bytes().strip(), nonce)
            hello |= {"nkey": key, "sig": signature}
        return hello

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, subject: str, question: bytes) -> bytes:
        """Send a question. Returns the subject on which it is answered."""
        return self.ask_many(subject, [question])[0]

    def ask_many(self, subject: str, questions: Sequence[bytes]) -> list[bytes]:
        """Send several questions at once. Returns the subject on which each is answered."""
        replies = [f"{self.inbox}.{next(self._questions)}" for _ in questions]
        self._send(
            b"".join(
                f"PUB {subject} {reply} {len(question)}\r\n".encode() + question + b"\r\n"
                for reply, question in zip(replies, questions, strict=True)
            )
        )
        return [reply.encode() for reply in replies]

    def request(self, subject: str, question: bytes = b"") -> InboxMessage:
        """A question with one answer. ConnectionFailed: none came in time; RequestRefused: nobody listens there."""
        reply = self.ask(subject, question)
        for answer in self.answers():
            if answer.subject == reply:
                if answer.headers.startswith(NO_RESPONDERS):
                    raise RequestRefused(f"nobody answers {subject}; JetStream is not enabled, or we may not ask")
                return answer
        raise AssertionError("answers() never ends")

    def answers(self) -> Iterator[InboxMessage]:
        """Every message to our inbox, as it comes, without end. ConnectionFailed: nothing came in time."""
        while True:
            line = self._line()
            if line[:5] == b"HMSG ":
                words = line.split(b" ")
                head, total = int(words[-2]), int(words[-1])
                data = self._take(total)
                yield InboxMessage(data[:head], data[head:], words[1])
            elif line[:4] == b"MSG ":
                words = line.split(b" ")
                yield InboxMessage(b"", self._take(int(words[-1])), words[1])
            else:
                self._check_line(line)

    def _check_line(self, line: bytes) -> None:
        if line == b"PING":
            self._send(b"PONG\r\n")
        elif line[:4] == b"-ERR":
            problem = line[5:].decode(errors="replace").strip("' ")
            kind = RequestRefused if "permission" in problem.lower() else ConnectionFailed
            raise kind(f"the NATS server says {problem!r}")

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionFailed(f"the connection to NATS was lost: {error}") from None

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n", self._at)) < 0:
            if len(self._buffer) - self._at > LINE_BYTES_MAX:
                raise ConnectionFailed("the other side is not a NATS server")
            self._receive(0)
        line = self._buffer[self._at : end]
        self._at = end + 2
        return line

    def _take(self, length: int) -> bytes:
        """The next `length` bytes; skips the line break behind them."""
        end = self._at + length
        if end + 2 > len(self._buffer):
            self._receive(length + 2)
            end = length
        data = self._buffer[self._at : end]
        self._at = end + 2
        return data

    def _receive(self, needed: int) -> None:
        """Receive until the buffer holds at least `needed` bytes from here on."""
        parts = [self._buffer[self._at :]]
        have = len(parts[0])
        needed = max(needed, have + 1)
        deadline = time.monotonic() + self._timeout_s
        while have < needed:
            try:
                part = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                raise ConnectionFailed(f"the NATS server said nothing for {self._timeout_s:g} s") from None
            except OSError as error:
                raise ConnectionFailed(f"the connection to NATS was lost: {error}") from None
            if not part:
                raise ConnectionFailed("the NATS server closed the connection")
            if time.monotonic() > deadline and have + len(part) < needed:
                raise ConnectionFailed(f"a message did not arrive within {self._timeout_s:g} s")
            parts.append(part)
            have += len(part)
        self._buffer = b"".join(parts)
        self._at = 0


_BLOCK = re.compile(r"-----BEGIN [A-Z ]+-----\s*([^\s-]+)\s*-+END", re.ASCII)


def _read_credentials(path: Path) -> tuple[str, bytes]:
    """The token and the seed in a credentials file of NATS."""
    blocks = _BLOCK.findall(path.read_text(encoding="utf-8"))
    if len(blocks) < 2:
        raise InputError("creds", f"{path} is not a NATS credentials file", "use one that nsc has written")
    return blocks[0], blocks[1].encode()


def _signed(seed: bytes, nonce: str) -> tuple[str, str]:
    """The public key of a seed, and its signature of the server's nonce."""
    try:
        import nkeys
    except ImportError:
        raise InputError("nkey", "key and credentials files need nkeys", 'pip install "seriatim[nats]"') from None
    pair = nkeys.from_seed(bytearray(seed))
    signature = base64.urlsafe_b64encode(pair.sign(nonce.encode())).rstrip(b"=").decode()
    return pair.public_key.decode(), signature
