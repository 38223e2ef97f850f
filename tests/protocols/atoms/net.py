"""A small system of atoms in a test: links that can be held back, and all notifications."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from seriatim.lab.explore.atoms.cast import PROPER, Cast
from seriatim.model import APPLICATION, Address, Event, Notification
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions, Plan, check
from seriatim.protocols.atoms.messages import Change, Publish
from seriatim.protocols.machine import Effects, Payload

STEPS_MAX = 10_000


class Net:
    """All machines of a plan. `run` delivers everything on links that are not held."""

    def __init__(
        self,
        plan: Plan,
        receivers: Iterable[Address],
        options: AtomsOptions | None = None,
        cast: Cast = PROPER,
    ) -> None:
        options = options if options is not None else AtomsOptions()
        self.options = options
        self.machines: dict[Address, Any] = {COORDINATOR: cast.coordinator(plan, COORDINATOR, options)}
        self.machines |= {name: cast.ingress(plan, name, options) for name in plan.ingresses}
        self.machines |= {name: cast.host(plan, name, options) for name in plan.hosts}
        self.machines |= {name: cast.receiver(plan, name, options) for name in receivers}
        self.plan = plan
        self.links: dict[tuple[Address, Address], deque[Payload]] = {}
        self.held: set[tuple[Address, Address]] = set()
        self.told: dict[Address, list[Any]] = {name: [] for name in self.machines}

    # ── what a test does ──────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, topic: str, *ids: str) -> None:
        ingress = self.plan.ingress_of(topic)
        for id in ids:
            self.tell(ingress, Publish(Event(id, topic, ingress)))

    def change(self, topic: str, members: str = "") -> None:
        self.tell(COORDINATOR, Change(topic, frozenset(members.split())))

    def tell(self, address: Address, command: Payload) -> None:
        """Give a command, and let happen what follows from it."""
        self._carry_out(address, self.machines[address].step(APPLICATION, command, 0.0))
        self.run()

    def hold(self, *links: tuple[Address, Address]) -> None:
        self.held.update(links)

    def release(self, *links: tuple[Address, Address]) -> None:
        """These links, or all."""
        self.held.difference_update(links or set(self.held))
        self.run()

    def run(self) -> None:
        for _ in range(STEPS_MAX):
            link = next((each for each, waiting in self.links.items() if waiting and each not in self.held), None)
            if link is None:
                return
            source, target = link
            message = self.links[link].popleft()
            self._carry_out(target, self.machines[target].step(source, message, 0.0))
        raise AssertionError("the system does not come to rest")

    # ── what a test looks at ──────────────────────────────────────────────────────────────────────────────────────

    def seen(self, receiver: Address) -> list[str]:
        """The events a receiver was notified of."""
        return [payload.event.id for payload in self.told[receiver] if isinstance(payload, Notification)]

    def answers(self, address: Address, kind: type[Any]) -> list[Any]:
        return [payload for payload in self.told[address] if isinstance(payload, kind)]

    def explain(self, address: Address) -> list[str]:
        found: list[str] = self.machines[address].explain()
        return found

    @property
    def graph(self) -> Any:
        """The coordinator's graph, checked."""
        graph = self.machines[COORDINATOR].state.graph
        check(graph, self.options.threshold)
        return graph

    def _carry_out(self, address: Address, effects: Effects) -> None:
        self.told[address].extend(effects.notify)
        for target, message in effects.send:
            self.links.setdefault((address, target), deque()).append(message)


def members(text: Mapping[str, str]) -> dict[str, list[str]]:
    """Members separated by blanks."""
    return {topic: each.split() for topic, each in text.items()}
