"""Peers joined by links that a test can slow down. Plays a story with VCube-PS as printed, and with ours."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from seriatim.lab.papers.paper001 import CubeNode
from seriatim.model import APPLICATION, Event, Notification
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.protocols.vcube import Cube, Peer, VCubeOptions, address_of
from seriatim.protocols.vcube.cube import id_at
from seriatim.protocols.vcube.messages import Cast, Packet, Pub, Publish, Subscribe, Suspect, Unsubscribe

TOPIC = "A"
STEPS_MAX = 100_000


class Net:
    """Messages travel at once, first in first out, except on links that are held."""

    def __init__(
        self, peer: type[Peer] | type[CubeNode], ids: Iterable[int], options: VCubeOptions | None = None
    ) -> None:
        cube = Cube(ids)
        self.machines: dict[int, Machine] = {id: peer(cube, id, options or VCubeOptions()) for id in cube.ids}
        self.told: dict[int, list[Payload]] = {id: [] for id in cube.ids}
        self.links: dict[tuple[int, int], deque[Payload]] = {}
        self.held: dict[tuple[int, int], tuple[type[Any] | str, ...]] = {}

    # ── what a test does ──────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, *ids: int) -> None:
        for id in ids:
            self.tell(id, Subscribe(TOPIC))

    def unsubscribe(self, id: int) -> None:
        self.tell(id, Unsubscribe(TOPIC))

    def publish(self, id: int, *event_ids: str) -> None:
        for event_id in event_ids:
            self.tell(id, Publish(Event(event_id, TOPIC, address_of(id))))

    def tell(self, id: int, command: Payload) -> None:
        """A command, and everything that follows from it on links that are not held."""
        self._carry_out(id, self.machines[id].step(APPLICATION, command, 0.0))
        self.run()

    def hold(self, source: int, target: int, *what: type[Any] | str) -> None:
        """Nothing arrives on this link until it is released; or nothing of these kinds, or with these events."""
        self.held[source, target] = what or (object,)

    def release(self, source: int, target: int) -> None:
        del self.held[source, target]
        self.run()

    def kill(self, id: int, *cut_off: int) -> None:
        """A peer dies. What is under way from it to `cut_off` is lost."""
        del self.machines[id]
        for target in cut_off:
            self.links.pop((id, target), None)

    def suspect(self, id: int) -> None:
        """Everybody's driver notices that a peer is gone. The paper's nodes cannot be told."""
        for other, machine in list(self.machines.items()):
            if isinstance(machine, Peer):
                self.tell(other, Suspect(id))

    def run(self) -> None:
        for _ in range(STEPS_MAX):
            found = next(filter(None, map(self._next_on, self.links)), None)
            if found is None:
                return
            (source, target), message = found
            self.links[source, target].remove(message)
            if target in self.machines:
                self._carry_out(target, self.machines[target].step(address_of(source), message, 0.0))
        raise AssertionError("the peers do not come to rest")

    # ── what a test looks at ──────────────────────────────────────────────────────────────────────────────────────

    def seen(self, id: int) -> list[str]:
        """The events a peer was notified of."""
        return [payload.event.id for payload in self.told[id] if isinstance(payload, Notification)]

    def answers(self, id: int, kind: type[Any]) -> list[Any]:
        return [payload for payload in self.told[id] if isinstance(payload, kind)]

    def under_way(self, source: int, target: int) -> list[Payload]:
        return list(self.links.get((source, target), ()))

    def _next_on(self, link: tuple[int, int]) -> tuple[tuple[int, int], Payload] | None:
        held = self.held.get(link, ())
        for message in self.links[link]:
            content = _content(message)
            pub = getattr(content, "pub", content)
            event_id = pub.event.id if isinstance(pub, Pub) else None
            if not any(event_id == each if isinstance(each, str) else isinstance(content, each) for each in held):
                return link, message
        return None

    def _carry_out(self, id: int, effects: Effects) -> None:
        self.told[id].extend(effects.notify)
        for address, message in effects.send:
            target = id_at(address)
            assert target is not None
            self.links.setdefault((id, target), deque()).append(message)


def _content(message: Payload) -> Payload:
    """What is in a packet."""
    body = message.body if isinstance(message, Packet) else message
    return body.content if isinstance(body, Cast) else body
