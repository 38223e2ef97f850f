"""Does anybody listen where the master of a cluster is said to be? Asked before anything starts: Spark alone takes a
minute to give up, and then shows where in its code. Imports no Spark."""

import socket
from collections.abc import Iterator

from seriatim.model import InputError

ANSWER_S = 10.0
DEFAULT_PORT = 7077


def check_master(master: str, timeout_s: float = ANSWER_S) -> None:
    """InputError: this is a standalone master (`spark://host:port,host:port`), and none of these can be reached."""
    if not master.startswith("spark://"):
        return
    problems: list[str] = []
    places = list(_places(master))
    for host, port in places:
        try:
            socket.create_connection((host, port), timeout_s / len(places)).close()
            return
        except TimeoutError:
            problems.append(f"{host}:{port} does not answer within {timeout_s / len(places):g} s")
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or error}")
    raise InputError("--master", "; ".join(problems), "start the master, or correct the address (spark://host:7077)")


def _places(master: str) -> Iterator[tuple[str, int]]:
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":") if ":" in place else (place, "", str(DEFAULT_PORT))
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise InputError("--master", f"{place!r} is not a host and port", "write spark://host:7077")
        yield host.strip("[]"), int(port)
