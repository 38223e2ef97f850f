"""The port of one broker, for the brokers below it, its clients and observers.

The handshake is that of system_door.py; brokers must be given the same file, clients need not. Then a connection
carries frames between its two ends; a frame in another name closes it.

A client says in its hello (epoch 1) that the broker must know it. A broker that has forgotten the client, or has lost
its journal, says so, and the client starts anew.
"""

from typing import TYPE_CHECKING, Any

from seriatim.live.system import SystemGuest, SystemListener
from seriatim.model import APPLICATION, BROKER, Address, RemoteError, event_bytes
from seriatim.protocols.link import Frame
from seriatim.protocols.overlay.messages import Publish
from seriatim.runtime.net.door import Problem
from seriatim.runtime.net.system_door import SHOWN_MAX
from seriatim.runtime.net.wire import Envelope, Hello, Refusal

if TYPE_CHECKING:
    from seriatim.live.overlay.live import LiveBroker

NAME_CHARACTERS_MAX = 256
FRAME_OVERHEAD_BYTES = 256 * 1024  # a filter, an id and what is around an event
FORGOTTEN = b"forgotten"  # in a refusal: start anew


class BrokerListener(SystemListener):
    """Where the brokers below, clients and observers connect."""

    host: "LiveBroker"

    @property
    def clients(self) -> int:
        """How many are connected."""
        return sum(visitor.role == "client" for visitor in self.connected.values())

    def visitor(self) -> "BrokerGuest":
        return BrokerGuest(self)

    def send_away(self, client: Address, reason: str) -> None:
        """Tell a forgotten client so, if it is connected."""
        visitor = self.connected.get(client)
        if visitor is not None:
            visitor.close(reason, Refusal(reason, True, FORGOTTEN))

    def report_for(self, problem: Problem) -> bytes:
        return FORGOTTEN if problem.kind == "forgotten" else super().report_for(problem)

    def problem_with_role(self, hello: Hello) -> Problem | None:
        if hello.role not in ("node", "client"):
            return Problem("role", f"this is a broker; it accepts brokers and clients, not a {hello.role}")
        return None

    def problem_with_other(self, hello: Hello) -> Problem | None:
        return self._problem_with_broker(hello) if hello.role == "node" else self._problem_with_client(hello)

    def _problem_with_broker(self, hello: Hello) -> Problem | None:
        host, name = self.host, hello.name
        if name == host.name:
            return Problem("id", f"broker {name!r} is this process; two processes cannot have one id")
        if hello.digest != host.description.digest:
            return Problem("description", "its overlay or its options differ from those here")
        if name not in host.place.children:
            return Problem("id", f"{name[:SHOWN_MAX]!r} is not below {host.name!r}")
        present = self.connected.get(name)
        if present is not None and present.process != hello.process:
            reason = f"another process is broker {name!r} and is connected; two processes cannot have one id"
            return Problem("id", reason, retry=True)
        return host.admit(name, hello.epoch, hello.process)

    def _problem_with_client(self, hello: Hello) -> Problem | None:
        host, name = self.host, hello.name
        if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
            return Problem("name", f"names have 1 to {NAME_CHARACTERS_MAX} printable characters")
        if name in host.config.brokers or name in (BROKER, APPLICATION):
            return Problem("name", f"{name!r} is not a name for a client")
        present = self.connected.get(name)
        if present is not None and present.process != hello.process:
            return Problem("name", f"another client is connected as {name!r}")
        if hello.epoch and not host.knows(name):
            reason = f"{host.name} has forgotten {name}, or has lost its journal"
            return Problem("forgotten", reason, retry=True)
        if present is None and self.clients >= host.clients_max:
            return Problem("too many clients", f"{self.clients} clients are connected already", retry=True)
        return None


class BrokerGuest(SystemGuest):
    """A connection that a broker below, a client or an observer has made."""

    _host: "LiveBroker"

    def prepare(self, hello: Hello) -> int:
        if hello.role == "node":
            return super().prepare(hello)
        return self._host.payload_bytes_max + FRAME_OVERHEAD_BYTES

    def heard(self, envelope: Envelope[Any]) -> None:
        if envelope.target != self._host.name:
            raise RemoteError(f"{self.name} speaks to {envelope.target[:SHOWN_MAX]!r}")
        if self.role == "client":
            check_size(envelope.message, self._host.payload_bytes_max)
        super().heard(envelope)


def check_size(frame: Frame[object], most: int) -> None:
    """RemoteError: an event of a client is too large."""
    if isinstance(frame.body, Publish):
        size = event_bytes(frame.body.event.payload, frame.body.event.headers)
        if size > most:
            raise RemoteError(f"an event has {size} bytes; at most {most} are allowed")
