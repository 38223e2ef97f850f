"""Asks a running peer or broker for its report: one question, one answer."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from seriatim.model import ConnectionFailed
from seriatim.runtime.net.addresses import split_address
from seriatim.runtime.net.connection import Connection, TransportOptions
from seriatim.runtime.net.dialer import explain_failure
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.wire import FRAME_BYTES_MAX, VERSION, Hello, Ping, Refusal, Welcome, decode_answer

Report = TypeVar("Report")


async def ask(
    address: str, security: SecurityOptions, timeout_s: float, kind: str, decode: Callable[[bytes], Report]
) -> Report:
    """The report of the process at this address. `kind`: the expected process. ConnectionFailed: no answer."""
    host, port = split_address("seed", address)
    context = security.client_context()
    loop = asyncio.get_running_loop()
    observer = _Observer(security, kind, decode)
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(
                lambda: observer, host, port, ssl=context, server_hostname=host if context is not None else None
            )
            return await observer.answer
    except TimeoutError:
        raise ConnectionFailed(f"no {kind} has answered at {address} within {timeout_s:g} s") from None
    except OSError as error:
        raise ConnectionFailed(f"no {kind} answers at {address}: {explain_failure(error)}") from None
    finally:
        observer.close("asked")


class _Observer(Connection, Generic[Report]):
    """One question."""

    def __init__(self, security: SecurityOptions, kind: str, decode: Callable[[bytes], Report]) -> None:
        super().__init__(TransportOptions(), decode_answer, body_bytes_max=FRAME_BYTES_MAX)
        self.answer: asyncio.Future[Report] = self._loop.create_future()
        self._token = security.token_of("observer")
        self._kind = kind
        self._decode = decode

    def begun(self) -> None:
        self.post(Hello(VERSION, "", "observer", "observer", self._token))

    def take(self, frame: Ping | Welcome | Refusal) -> None:
        if self.answer.done():
            return
        if isinstance(frame, Refusal):
            self._failed(f"the {self._kind} at {self.peer} refuses: {frame.reason}")
        elif isinstance(frame, Welcome):
            if not frame.report:
                self._failed(f"at {self.peer} is a sequencer, not a {self._kind}")
            else:
                self.answer.set_result(self._decode(frame.report))

    def violated(self, reason: str) -> None:
        self._failed(f"what is at {self.peer} does not speak as a {self._kind} does: {reason}")
        super().violated(reason)

    def ended(self, reason: str) -> None:
        kind = self._kind
        self._failed(f"the {kind} at {self.peer} closed the connection without an answer; does it expect TLS, or none?")

    def _failed(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(ConnectionFailed(reason))
