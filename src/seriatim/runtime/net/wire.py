"""The frames on TCP between clients and nodes, between nodes, and between peers: length-framed msgpack, versioned by
the hello.

    frame     := length (4 bytes, big-endian, of what follows), body
    first     who connected → server: Hello     server → who connected: Welcome, or Refusal and the connection is closed
    then      both ways: Envelope, or Ping (nothing was sent for a while)
              server → who connected: Welcome again when other nodes run there now; Refusal before it closes

The product defines what an envelope may hold: `live/<product>/wire.py` lists its messages. Each side decodes only what
the other may say to it: a client's frame cannot even hold what only nodes tell each other. A frame that is not exactly
one of these closes the connection. Nothing here can execute anything, and no length is trusted before it is checked.
"""

from collections.abc import Callable
from struct import Struct as Layout
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from seriatim.model import Address, InputError, Node, RemoteError

VERSION = 2  # since 2 a ticket may settle the range before it
LENGTH_BYTES = 4
FRAME_BYTES_MAX = 8 * 1024 * 1024  # of one body
HELLO_BYTES_MAX = 4 * 1024  # until somebody is known, nobody may make us hold more

Message = TypeVar("Message")


class Hello(Struct, frozen=True, tag=True, array_like=True):
    """Who connects. A client may speak for its name and every address that begins with `name/`; a node or a peer for
    itself; an observer only asks for the server's `report`.

    `epoch` is the node's: of two processes that both think they run it, the one of the later epoch does. A peer's is
    how often it was born; `process` tells its processes apart, `digest` is of what all peers must be given alike.
    `heard`: the latest epoch that the caller knows of whom it calls.
    """

    version: int
    cluster: str
    role: Literal["client", "node", "peer", "observer"]
    name: Address
    token: str = ""
    epoch: int = 0
    process: str = ""
    digest: str = ""
    heard: int = 0


class Welcome(Struct, frozen=True, tag=True, array_like=True):
    """The server takes this connection; these nodes run there now. Longer frames than this are not taken.

    A peer says of itself what a `Hello` does, and answers an observer with its report.
    """

    version: int
    cluster: str
    nodes: list[Node]
    frame_bytes_max: int = FRAME_BYTES_MAX
    epoch: int = 0
    process: str = ""
    report: bytes = b""


class Refusal(Struct, frozen=True, tag=True, array_like=True):
    """The server does not accept the connection, or no longer, and why. `retry`: it may later (a standby).

    `report`: of a peer whose description differs from that of the caller, so that the difference can be named.
    """

    reason: str
    retry: bool = False
    report: bytes = b""


class Ping(Struct, frozen=True, tag=True, array_like=True):
    """A sign of life."""


class Envelope(Struct, Generic[Message], frozen=True, tag=True, array_like=True):
    """One message from one address to another."""

    source: Address
    target: Address
    message: Message


WireFrame: TypeAlias = Hello | Welcome | Refusal | Ping | Envelope[Any]


class Decoders(Struct, frozen=True):
    """How the frames of one product are read, by sender and receiver."""

    from_client: "Callable[[bytes], Ping | Envelope[Any]]"
    from_node: "Callable[[bytes], Ping | Envelope[Any]]"
    for_client: "Callable[[bytes], Ping | Envelope[Any] | Welcome | Refusal]"
    for_node: "Callable[[bytes], Ping | Envelope[Any] | Welcome | Refusal]"


def decoders_for(*, between: Any, from_client: Any = None, for_client: Any = None) -> Decoders:
    """The decoders of a product, from its message types: between its nodes, from clients, for clients.

    The default, None, is for a product without clients: no message fits.
    """
    read = msgspec.msgpack.Decoder
    return Decoders(
        from_client=read(Ping | Envelope[from_client]).decode,
        from_node=read(Ping | Envelope[between]).decode,
        for_client=read(Ping | Envelope[for_client] | Welcome | Refusal).decode,
        for_node=read(Ping | Envelope[between] | Welcome | Refusal).decode,
    )


decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_answer = msgspec.msgpack.Decoder(Ping | Welcome | Refusal).decode

# What the encoder raises about a message that does not fit the format: numbers of more than 64 bits, lone surrogates.
UNWRITABLE = (OverflowError, TypeError, ValueError)

encode_body = msgspec.msgpack.Encoder().encode

_length = Layout(">I")
encode_length = _length.pack
_length_at = _length.unpack_from


def encode_frame(body: WireFrame) -> bytes:
    """A whole frame, ready to be written."""
    data = encode_body(body)
    if len(data) > FRAME_BYTES_MAX:
        raise InputError("message", f"{len(data)} bytes in one frame", f"send at most {FRAME_BYTES_MAX}")
    return encode_length(len(data)) + data


class Framing:
    """Cuts what arrives into bodies. Holds at most one unfinished frame."""

    __slots__ = ("_needed", "_rest", "body_bytes_max")

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self._rest = bytearray()
        self._needed = LENGTH_BYTES  # below this many bytes there is nothing to look at

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete now. RemoteError: a frame is announced that is too long."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
            self._rest = bytearray()
        bodies: list[bytes] = []
        position, end = 0, len(data)
        self._needed = LENGTH_BYTES
        while end - position >= LENGTH_BYTES:
            start = position + LENGTH_BYTES
            (length,) = _length_at(data, position)
            if length > self.body_bytes_max:
                raise RemoteError(f"a frame of {length} bytes is announced; at most {self.body_bytes_max} are taken")
            if start + length > end:
                self._needed = LENGTH_BYTES + length
                break
            position = start + length
            bodies.append(data[start:position])
        if position < end:
            self._rest += data[position:]
        return bodies
