"""Brokers and clients joined by links that can be held up: for tests that tell one story at a time."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from seriatim.filters import Value
from seriatim.lab.explore.overlay.cast import publish
from seriatim.model import APPLICATION, Address, Notification
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.overlay import Broker, Client, Overlay, OverlayOptions
from seriatim.protocols.overlay.messages import Advertise, Subscribe, Unadvertise, Unsubscribe

Way = tuple[Address, Address]


class Net:
    """A tree of brokers, given as parents, and clients, given as the broker of each. Messages arrive at once."""

    def __init__(
        self,
        parents: Mapping[Address, Address | None],
        clients: Mapping[Address, Address],
        options: OverlayOptions | None = None,
        broker: type[Broker] = Broker,
    ) -> None:
        self.overlay = Overlay(parents)
        options = options if options is not None else OverlayOptions()
        self.machines: dict[Address, Any] = {
            name: broker(place, options) for name, place in self.overlay.places.items()
        }
        self.machines |= {name: Client(name, at) for name, at in clients.items()}
        self.logs: dict[Address, list[Payload]] = {name: [] for name in self.machines}
        self.sent: list[tuple[Address, Address, Payload]] = []
        self._queues: dict[Way, deque[Payload]] = {}
        self._held: set[Way] = set()

    def tell(self, address: Address, message: Payload) -> None:
        """A command, and everything it leads to over links that are not held up."""
        self._obey(address, self.machines[address].step(APPLICATION, message, 0.0))
        self.run()

    def subscribe(self, client: Address, where: str, name: str = "s") -> None:
        self.tell(client, Subscribe(name, where))

    def unsubscribe(self, client: Address, name: str = "s") -> None:
        self.tell(client, Unsubscribe(name))

    def advertise(self, client: Address, where: str = "true", name: str = "a") -> None:
        self.tell(client, Advertise(name, where))

    def unadvertise(self, client: Address, name: str = "a") -> None:
        self.tell(client, Unadvertise(name))

    def publish(self, client: Address, id: str, **attributes: Value) -> None:
        self.tell(client, publish(client, id, **attributes))

    def hold(self, *ways: Way) -> None:
        """Nothing arrives over these links until they are released."""
        self._held.update(ways)

    def release(self, *ways: Way) -> None:
        """Those links, or all."""
        self._held.difference_update(ways or list(self._held))
        self.run()

    def run(self) -> None:
        for _ in range(100_000):
            way = next((way for way, queue in self._queues.items() if queue and way not in self._held), None)
            if way is None:
                return
            source, target = way
            self._obey(target, self.machines[target].step(source, self._queues[way].popleft(), 0.0))
        raise AssertionError("still chattering")

    def seen(self, client: Address) -> list[str]:
        """The ids of what it was notified of."""
        return [payload.event.id for payload in self.logs[client] if isinstance(payload, Notification)]

    def told(self, client: Address, kind: type) -> list[Any]:
        """The answers of this type that it got."""
        return [payload for payload in self.logs[client] if isinstance(payload, kind)]

    def count(self, kind: type) -> int:
        """How many messages of this type were sent."""
        return sum(isinstance(message, kind) for _, _, message in self.sent)

    def _obey(self, address: Address, effects: Effects) -> None:
        self.logs[address].extend(effects.notify)
        for target, message in effects.send:
            self.sent.append((address, target, message))
            self._queues.setdefault((address, target), deque()).append(message)
