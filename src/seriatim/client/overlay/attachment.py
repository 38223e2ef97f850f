"""A client's attachment to its broker: the machine, its link, its TCP connection.

While the broker remembers the client, a broken connection is restored and nothing is lost or repeated. When the broker
has forgotten the client, the attachment ends, and the bus makes another one under a new name.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence

from seriatim.client.overlay.urls import BrokerAt
from seriatim.live.overlay.config import RETRY_MS
from seriatim.live.overlay.live import FORGOTTEN
from seriatim.live.overlay.wire import OVERLAY
from seriatim.live.system import DIALING
from seriatim.model import APPLICATION, Address, Closed
from seriatim.protocols.machine import Payload
from seriatim.protocols.overlay import Client
from seriatim.protocols.overlay.messages import Command, Reached
from seriatim.protocols.overlay.running import ClientNode
from seriatim.runtime import Clock, Driver, Switchboard
from seriatim.runtime.net.dialer import Dialer, Peer
from seriatim.runtime.net.wire import VERSION, Hello, Refusal


class Attachment:
    """`told` gets the machine's notifications for its application, in order; `forgotten` gets the reason, once."""

    def __init__(
        self,
        name: Address,
        broker: BrokerAt,
        clock: Clock,
        told: Callable[[Sequence[Payload]], None],
        forgotten: Callable[[str], None],
    ) -> None:
        self.name = name
        self._broker = broker
        self._node = ClientNode(Client(name, broker.name), RETRY_MS)
        switchboard = Switchboard()
        self._driver = Driver(name, self._node, clock, send=switchboard.send, notify=told)
        switchboard.attach(name, self._driver.deliver)
        self._dialer = _ClientDialer(self, switchboard, broker)
        self._forgotten: Callable[[str], None] | None = forgotten
        self._running = False

    def start(self) -> None:
        self._running = True
        self._driver.start()
        self._dialer.start()

    async def wait_connected(self, timeout_s: float) -> None:
        """ConnectionFailed: no connection in time, or it was refused for good."""
        await self._dialer.wait_connected(self._broker.name, timeout_s)

    async def stop(self) -> None:
        self._running = False
        self._forgotten = None
        await self._driver.stop()
        await self._dialer.stop()

    def command(self, command: Command) -> None:
        """Send a command to the broker, now or as soon as it is connected."""
        if not self._running:
            raise Closed(f"{self.name} is no longer a client of {self._broker.name}")
        self._driver.command(APPLICATION, command)

    def problems(self) -> list[str]:
        """Why the broker is not connected; empty: it is."""
        return [f"{name} is not connected: {story}" for name, story in self._dialer.problems().items()]

    def waits(self) -> list[str]:
        """The commands that the broker has not acknowledged."""
        return self._node.explain()

    @property
    def is_known(self) -> bool:
        """Whether the broker must know this client by now."""
        return self._node.is_known

    def reached(self, broker: Address) -> None:
        self._driver.deliver(APPLICATION, Reached(broker))

    def end(self, reason: str) -> None:
        """The broker has forgotten this client."""
        forgotten, self._forgotten = self._forgotten, None
        if forgotten is not None:
            asyncio.get_running_loop().call_soon(forgotten, reason)


class _ClientDialer(Dialer):
    """The connection. Its hello says (epoch 1) that the broker must know the client."""

    def __init__(self, attachment: Attachment, switchboard: Switchboard, broker: BrokerAt) -> None:
        super().__init__(
            switchboard,
            [Peer(broker.name, (broker.address,))],
            cluster=broker.cluster,
            name=attachment.name,
            role="client",
            security=broker.security,
            options=DIALING,
            on_connect=attachment.reached,
            decoders=OVERLAY,
        )
        self._attachment = attachment
        self._process = secrets.token_hex(8)

    def greeting(self) -> Hello:
        hello, epoch = self.hello, int(self._attachment.is_known)
        return Hello(VERSION, hello.cluster, "client", hello.name, hello.token, epoch, self._process)

    def refusal(self, refusal: Refusal, address: str) -> str:
        if refusal.report == FORGOTTEN:
            self._attachment.end(refusal.reason)
        return refusal.reason
