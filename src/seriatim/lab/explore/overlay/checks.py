"""The promises of the content-based overlay about its logs, and about a world that has come to rest."""

from collections.abc import Iterator, Mapping, Sequence

from seriatim.filters import attributes_of, parse
from seriatim.lab.explore.engine.checks import OrderChecks, Stopped, Violation, first_inversion, ids_of, inner
from seriatim.model import Address, Event, Gap, Notification
from seriatim.protocols.machine import Payload
from seriatim.protocols.overlay import OverlayOptions
from seriatim.protocols.overlay import messages as say


class OverlayChecks(OrderChecks):
    """One order for all (not for `fifo`), each publisher's own order, numbers without holes, nothing twice or lost.

    And nobody waits forever. Clients that are forgotten are promised nothing; where a neighbour is suspected, numbers
    may be missing if that is said.
    """

    def __init__(
        self,
        options: OverlayOptions,
        clients: Mapping[Address, Address],
        setup: Sequence[tuple[Address, Payload]],
        scripts: Mapping[Address, Sequence[Payload]],
    ) -> None:
        self.options = options
        self.clients = clients
        self.setup = setup
        commands = [(address, command) for address, script in scripts.items() for command in script]
        self.commands = [*setup, *commands]
        self.forgotten = frozenset(each.client for _, each in commands if isinstance(each, say.Forget))
        self.suspicious = any(isinstance(each, say.Suspect) for _, each in commands)
        self.published: dict[Address, list[str]] = {}
        self.events: dict[str, Event] = {}
        for address, command in self.commands:
            if isinstance(command, say.Publish):
                self.published.setdefault(address, []).append(command.event.id)
                self.events[command.event.id] = command.event

    def log(self, address: Address, log: Sequence[Payload]) -> Violation | None:
        if address in self.forgotten:
            return None
        if (duplicate := super().log(address, log)) is not None:
            return duplicate
        ids = ids_of(log)
        for publisher, published in self.published.items():
            if (inverted := first_inversion(published, ids)) is not None:
                a, b = inverted
                return Violation("publisher-inversion", f"{address} was notified of {b} before {a} of {publisher}")
        return self._hole(address, log)

    def _hole(self, address: Address, log: Sequence[Payload]) -> Violation | None:
        """Numbers of a subscription have no holes."""
        done: dict[str, int] = {}
        for payload in log:
            match payload:
                case say.Unsubscribed(name):
                    done.pop(name, None)
                case Gap(name, first, last, reason):
                    if not self.suspicious:
                        return Violation("gap", f"{address} was told that {name} {first}..{last} is missing: {reason}")
                    done[name] = last
                case Notification(event, _, entries):
                    for name, number in entries.items():
                        if number != done.get(name, 0) + 1:
                            return Violation("hole", f"{address} was notified of {event.id} as {name} {number}")
                        done[name] = number
                case _:
                    pass
        return None

    def pair(
        self, one: Address, log: Sequence[Payload], other: Address, other_log: Sequence[Payload]
    ) -> Violation | None:
        return None if self.options.order == "fifo" else super().pair(one, log, other, other_log)

    def stopped(self, world: Stopped) -> list[Violation]:
        return list(self._stuck(world)) or list(self._losses(world))

    def _stuck(self, world: Stopped) -> Iterator[Violation]:
        for address in world.addresses:
            machine = inner(world.machine(address))
            if machine is None or address in self.forgotten:
                continue
            reasons = "; ".join(machine.explain())
            if (waiting := world.waiting(address)) > 0:
                yield Violation("stuck", f"{address} waits for {waiting} answers")
            elif reasons:
                yield Violation("stuck", f"{address} is not done: {reasons}")

    def _losses(self, world: Stopped) -> Iterator[Violation]:
        """A client that had a subscription when a matching event was published, and keeps it, is notified of it."""
        accepted = {
            payload.event_id
            for client in self.clients
            for payload in world.log(client)
            if type(payload) is say.EventTaken
        }
        seen = {client: set(ids_of(world.log(client))) for client in self.clients}
        missing: dict[Address, list[str]] = {}
        for client, event in self._owed(world):
            if event.id in accepted and event.id not in seen[client]:
                missing.setdefault(client, []).append(event.id)
        for client, ids in missing.items():  # what was told as a gap is not lost unseen
            told = sum(each.last - each.first + 1 for each in world.log(client) if type(each) is Gap)
            if len(ids) > told:
                yield Violation("loss", f"{client} was not notified of {ids[0]}")

    def _owed(self, world: Stopped) -> Iterator[tuple[Address, Event]]:
        """A search does not keep when commands were issued: there it is about subscriptions that were first."""
        doubtful = {client for client in self.clients if self._is_doubtful(world.log(client))}
        listeners = [
            client
            for client in self.clients
            if world.machine(client) is not None and client not in self.forgotten and client not in doubtful
        ]
        wheres: dict[tuple[Address, str], set[str]] = {}
        for address, command in self.commands:
            if isinstance(command, say.Subscribe):
                wheres.setdefault((address, command.name), set()).add(command.where)
        left = {(address, each.name) for address, each in self.commands if isinstance(each, say.Unsubscribe)}
        issued = [(each.address, each.command, each.notified) for each in world.issued]
        moments = [
            (command.event, notified)
            for address, command, notified in issued
            if isinstance(command, say.Publish) and address not in doubtful
        ]
        if not issued:
            moments = [(each.event, {}) for _, each in self.commands if isinstance(each, say.Publish)]
        for event, notified in moments:
            attributes = attributes_of(event.headers)
            for client in listeners:
                if issued:
                    log = world.log(client)[: notified[client]]
                    names = {payload.name for payload in log if type(payload) is say.Subscribed}
                else:
                    names = {each.name for at, each in self.setup if at == client and isinstance(each, say.Subscribe)}
                for name in names:
                    texts = wheres[client, name]
                    if (client, name) not in left and len(texts) == 1 and parse(min(texts)).matches(attributes):
                        yield client, event
                        break

    def _is_doubtful(self, log: Sequence[Payload]) -> bool:
        """Whether it was told that not everybody has heard of it."""
        return any(isinstance(payload, say.Subscribed | say.Advertised) and payload.unreachable for payload in log)
