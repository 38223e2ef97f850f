"""Addresses of sockets as people write them, `host:port` with brackets around an IPv6 host, and listening there."""

import errno
import socket
from collections.abc import Sequence

from seriatim.model import ConnectionFailed, InputError

PORT_MAX = 65_535
EXAMPLE = 'write "host:port", for example "127.0.0.1:7411" or "[::1]:7411"'
BACKLOG = 512  # connections the kernel keeps until they are accepted

# A host has addresses of a kind that this machine does not: not a mistake, as long as one of them can be used.
NOT_HERE = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


def split_address(field: str, text: str) -> tuple[str, int]:
    """Host and port; port 0 stands for a free one. `field` is named in the error."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InputError(field, f"{text!r} has more than one colon", EXAMPLE)
    if not host or "/" in text or " " in text or not text.isprintable():
        raise InputError(field, f"{text!r} is not an address", EXAMPLE)
    if not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise InputError(field, f"{text!r} has no port between 0 and {PORT_MAX}", EXAMPLE)
    return host, int(port)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach it."""
    host, _ = split_address("address", address)
    return host.startswith(("127.", "localhost", "::1"))


def bound_address(wanted: str, sockets: Sequence[socket.socket]) -> str:
    """The address with the real port in place of 0."""
    return f"{wanted.rpartition(':')[0]}:{sockets[0].getsockname()[1]}"


def listen_on(field: str, text: str) -> list[socket.socket]:
    """Sockets that listen on every address of the host, on one port. ConnectionFailed says what is in the way."""
    host, port = split_address(field, text)
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                made = socket.socket(family, kind, protocol)
                sockets.append(made)
                _bind(made, (address[0], port, *address[2:]))
            except OSError as error:
                sockets.pop().close()
                if error.errno not in NOT_HERE:
                    raise
                problem = error
            else:
                port = made.getsockname()[1]
        if not sockets:
            raise problem or OSError(errno.EADDRNOTAVAIL, "no such address on this machine")
    except OSError as error:
        for made in sockets:
            made.close()
        taken = error.errno == errno.EADDRINUSE
        fix = "another process uses it: stop that one, or give another port" if taken else f"correct {field}"
        raise ConnectionFailed(f"cannot listen on {text}: {error.strerror or error}; {fix}") from None
    return sockets


def _bind(made: socket.socket, address: "tuple[str | int, ...]") -> None:
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.bind(address)
    made.listen(BACKLOG)
