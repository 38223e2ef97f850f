"""Processes that must be given the same file: peers, and brokers of an overlay.

The content that must be equal is a *description*. Its digest is in every hello between them. A process with another
description is refused, and told the difference. A *report* is the state of one process. Observers and refused processes
get it; `ask` asks for it. Their connections are in system_door.py.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct, field

from seriatim.model import UNREADABLE, ConnectionFailed, RemoteError
from seriatim.runtime.net.addresses import split_address
from seriatim.runtime.net.connection import Connection, TransportOptions
from seriatim.runtime.net.dialer import explain_failure
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.wire import FRAME_BYTES_MAX, Hello, Ping, Refusal, Welcome, decode_answer
from seriatim.runtime.net.wire import VERSION as WIRE_VERSION

VERSION = 1
DIGEST_CHARACTERS = 16


class SystemDescription(Struct, frozen=True, kw_only=True):
    """What all processes of a system are given alike. The subclass adds the processes."""

    cluster: str
    options: dict[str, bool | int | float | str]

    @property
    def digest(self) -> str:
        """A digest of the description, independent of the order in which it was written."""
        data = msgspec.json.encode(self, order="sorted")
        return hashlib.sha256(data).hexdigest()[:DIGEST_CHARACTERS]


class SystemReport(Struct, frozen=True, kw_only=True):
    """The state of one process. The subclass adds its own fields."""

    version: int = VERSION
    waits: list[str] = field(default_factory=list)
    left_out: int = 0  # further waits that are not listed
    problems: list[str] = field(default_factory=list)  # what does not work now; earlier programs report none


Description = TypeVar("Description", bound=SystemDescription)
Report = TypeVar("Report", bound=SystemReport)
Answered = TypeVar("Answered")


def encode_report(report: SystemReport) -> bytes:
    """The report as bytes."""
    return msgspec.json.encode(report)


def decode_report(data: bytes, type: type[Report], kind: str) -> Report:
    """Read the report of a `kind` of process. RemoteError: it is not one, or is of another version."""
    try:
        report = msgspec.json.decode(data, type=type)
    except UNREADABLE as error:
        raise RemoteError(f"a {kind}'s report cannot be read: {error}") from None
    if report.version != VERSION:
        raise RemoteError(
            f"a {kind} reports in version {report.version}, and this one reads {VERSION}; "
            "install the same release of seriatim everywhere"
        )
    return report


def first_difference(
    ours: Description, theirs: Description, path: str, members: Callable[[Description], Mapping[str, str]]
) -> str:
    """The first thing that differs, by the path of its key; empty: nothing does. `members`: who they are."""
    if ours.cluster != theirs.cluster:
        return f"cluster is {theirs.cluster!r} there and {ours.cluster!r} here"
    return _in_table(path, members(ours), members(theirs)) or _in_table("options", ours.options, theirs.options)


def _in_table(path: str, ours: Mapping[str, object], theirs: Mapping[str, object]) -> str:
    for key in sorted({*ours, *theirs}, key=lambda key: (len(key), key)):  # 9 before 10
        there, here = theirs.get(key), ours.get(key)
        if there != here:
            return f"{path}.{key} is {_shown(there)} there and {_shown(here)} here"
    return ""


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)


def explain_refusal(refusal: Refusal, difference: Callable[[bytes], str]) -> str:
    """Why we are not let in. `difference`: between our description and the one in their report, if there is one."""
    if not refusal.report:
        return refusal.reason
    try:
        differs = difference(refusal.report) or "nothing that this release knows of"
    except RemoteError as error:
        return f"{refusal.reason} ({error})"
    return f"{refusal.reason}: {differs}"


async def ask(
    address: str, security: SecurityOptions, timeout_s: float, kind: str, decode: Callable[[bytes], Answered]
) -> Answered:
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


class _Observer(Connection, Generic[Answered]):
    """One question."""

    def __init__(self, security: SecurityOptions, kind: str, decode: Callable[[bytes], Answered]) -> None:
        super().__init__(TransportOptions(), decode_answer, body_bytes_max=FRAME_BYTES_MAX)
        self.answer: asyncio.Future[Answered] = self._loop.create_future()
        self._token = security.token_of("observer")
        self._kind = kind
        self._decode = decode

    def begun(self) -> None:
        self.post(Hello(WIRE_VERSION, "", "observer", "observer", self._token))

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
