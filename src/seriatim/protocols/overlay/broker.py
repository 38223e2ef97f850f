"""A broker: its clients' commands, the tables, and the questions that go round; publications it leaves to its order.

It knows its neighbours and nothing else of the overlay. One input is handled at a time. Whatever a client says, only
that client can be refused. Links are assumed to neither lose, repeat nor reorder; `node.py` makes them so.
"""

from collections.abc import Iterable
from typing import ClassVar

from seriatim.filters import FilterError, attributes_of
from seriatim.model import APPLICATION, Address, Event, InputError, RemoteError
from seriatim.protocols.machine import Effects, Machine, Payload
from seriatim.protocols.overlay import messages as say
from seriatim.protocols.overlay.bounds import forged, too_much
from seriatim.protocols.overlay.messages import Id, Key, Name, Publication, Where
from seriatim.protocols.overlay.options import Order, OverlayOptions
from seriatim.protocols.overlay.ordering import Ordering
from seriatim.protocols.overlay.resolution import ResolutionOrder
from seriatim.protocols.overlay.rooted import CentralOrder, RootedOrder
from seriatim.protocols.overlay.state import Advertised, BrokerState, ClientSide, Climbing, Echo, Held, Offer
from seriatim.protocols.overlay.tables import Tables, filter_of
from seriatim.protocols.overlay.topology import Place

CARRYING = (say.Climb, say.Descend, say.Spread)


class Broker(Machine):
    """The machine of one broker."""

    orderings: ClassVar[dict[Order, type[Ordering]]] = {
        "rooted": RootedOrder,
        "central": CentralOrder,
        "resolution": ResolutionOrder,
        "fifo": Ordering,
    }

    def __init__(self, place: Place, options: OverlayOptions, state: BrokerState | None = None) -> None:
        self.place = place
        self.neighbours = frozenset(place.neighbours)
        self.options = options
        self.state = state if state is not None else BrokerState()
        self.tables = Tables(place.neighbours, self.state.routes)
        self.ordering = self.orderings[options.order](self)

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        if source == APPLICATION:
            self._told(message, effects)
        elif source in self.neighbours:
            self.state.suspected.discard(source)
            self._from_neighbour(source, message, effects)
        else:
            self._from_client(source, message, effects)
        return effects

    def explain(self) -> list[str]:
        lines = []
        for token, echo in sorted(self.state.echoes.items()):
            waits = sorted(echo.waits_for | echo.keys)
            lines.append(f"{token} of {echo.source}: waits for an answer from {', '.join(waits)}")
        for client, side in sorted(self.state.clients.items()):
            if side.joining:
                lines.append(f"{len(side.joining)} subscriptions of {client}: wait for what it got early to come back")
            if side.queue:
                lines.append(f"{len(side.queue)} commands of {client}: the first is {type(side.queue[0]).__name__}")
        return lines + self.ordering.explain()

    # ── clients ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _from_client(self, client: Address, message: Payload, effects: Effects) -> None:
        if client in self.state.forgotten:  # it was not gone after all: it needs another name
            return
        side = self.state.clients.setdefault(client, ClientSide())
        if isinstance(message, say.Command) and (problem := too_much(side, message, self.options)) is not None:
            name = message.event.id if isinstance(message, say.Publish) else message.name
            self._refuse(client, message, name, *problem, effects)
            return
        match message:
            case say.Unsubscribe(name):
                self._unsubscribe(client, side, name, effects)
            case say.Subscribe():
                side.joining.append(message)
                self._join(client, side, effects)
            case say.Advertise() | say.Unadvertise() | say.Publish():
                side.queue.append(message)
                self._serve(client, side, effects)
            case _:
                raise RemoteError(f"{client} sent {self.place.name} an unknown message: {message!r}")

    def _serve(self, client: Address, side: ClientSide, effects: Effects) -> None:
        """Carry out what the client asks for, in order, up to the first that has to wait."""
        while side.queue:
            message = side.queue.pop(0)
            match message:
                case say.Publish(event):
                    done = self._publish(client, side, event, effects)
                case say.Advertise(name, where):
                    done = self._advertise(client, side, name, where, effects)
                case say.Unadvertise(name):
                    done = self._unadvertise(client, side, name, effects)
            if not done:
                side.queue.insert(0, message)
                return
        if side.forgotten and not side.offers:
            self.state.clients.pop(client, None)

    def _join(self, client: Address, side: ClientSide, effects: Effects) -> None:
        """Begin the subscriptions that can begin now."""
        while side.joining and self.ordering.may_subscribe(client):
            command = side.joining.pop(0)
            if self._is_new(client, command, side.names, effects):
                self._subscribe(client, side, command.name, command.where, effects)
        if side.joining:
            self.ordering.ask_above(effects)

    def _subscribe(self, client: Address, side: ClientSide, name: Name, where: Where, effects: Effects) -> None:
        id = self._id(client, name)
        side.names[name] = id
        side.held[id] = Held(name)
        self.ordering.begin(client, effects)
        effects.send.extend(self.tables.want(client, id, where))
        asked = {each for each in self.place.neighbours if self.tables.offers(each, where)}
        self._ask(say.Sound(id, where), Echo(client, asked, False, name), effects)
        self.ordering.wants_changed(client, effects)

    def _unsubscribe(self, client: Address, side: ClientSide, name: Name, effects: Effects) -> None:
        for command in side.joining:
            if command.name == name and name not in side.names:  # it had not begun
                side.joining.remove(command)
                effects.send += [(client, say.Subscribed(name)), (client, say.Unsubscribed(name))]
                return
        id = side.names.pop(name, None)
        if id is None:
            self._refuse(client, say.Unsubscribe(name), name, "UnknownName", "there is no such subscription", effects)
            return
        if self.state.echoes.pop(id, None) is not None:  # nobody asks any more whether everybody has heard
            effects.send.append((client, say.Subscribed(name)))
        effects.send.append((client, say.Unsubscribed(name, side.held.pop(id).number)))
        effects.send.extend(self.tables.unwant(client, id))
        self.ordering.wants_changed(client, effects)

    def _advertise(self, client: Address, side: ClientSide, name: Name, where: Where, effects: Effects) -> bool:
        if not self._is_new(client, say.Advertise(name, where), side.offers, effects):
            return True
        id = self._id(client, name)
        side.offers[name] = Offer(id)
        self._offer(client, say.Advertisement(id, self._origin(client), where), name, effects)
        return True

    def _unadvertise(self, client: Address, side: ClientSide, name: Name, effects: Effects) -> bool:
        """Withdraw an advertisement after everything that the client has published, so that it does not overtake what
        it is about."""
        offer = side.offers.get(name)
        if offer is None:
            self._refuse(client, say.Unadvertise(name), name, "UnknownName", "there is no such advertisement", effects)
            return True
        if not offer.heard:
            return False
        if self._is_under_way(client):
            self.ordering.ask_above(effects)
            return False
        del side.offers[name]
        if not side.forgotten:
            effects.send.append((client, say.Unadvertised(name)))
        self._withdraw(client, offer.id, effects)
        return True

    def _is_under_way(self, client: Address) -> bool:
        return self.ordering.is_under_way(self._origin(client))

    def _publish(self, client: Address, side: ClientSide, event: Event, effects: Effects) -> bool:
        """Publish an event, if it matches what its client has advertised and all brokers know of that advertisement."""
        problems: list[InputError] = []
        attributes = attributes_of(event.headers, problems)
        if problems:
            self._refuse(client, say.Publish(event), event.id, type(problems[0]).__name__, str(problems[0]), effects)
            return True
        if (problem := forged(client, event, attributes)) is not None:
            self._refuse(client, say.Publish(event), event.id, *problem, effects)
            return True
        offered = self.state.routes.offered.get(client, {})
        fitting = [offer for offer in side.offers.values() if filter_of(offered[offer.id].where).matches(attributes)]
        if not fitting:
            reason = "none of the client's advertisements matches it; advertise it first"
            self._refuse(client, say.Publish(event), event.id, "OutsideAdvertisement", reason, effects)
            return True
        if not self._may_publish(fitting):
            return False
        self.state.serial += 1
        key = f"{self.place.name}.{self.state.serial}"
        effects.send.append((client, say.EventTaken(event.id)))
        publication = Publication(key, self._origin(client), event, self.ordering.stamp())
        self.ordering.accept(client, publication, self.tables.matching(attributes), effects)
        return True

    def _may_publish(self, fitting: list[Offer]) -> bool:
        """An advertisement is acknowledged by all before its first publication."""
        return any(offer.heard for offer in fitting)

    def _is_new(
        self, client: Address, command: say.Subscribe | say.Advertise, known: Iterable[Name], effects: Effects
    ) -> bool:
        """Whether a command's name is new and its filter valid. If not, it is refused, and the client is told."""
        if command.name in known:
            self._refuse(client, command, command.name, "NameInUse", "there is one of this name already", effects)
            return False
        try:
            filter_of(command.where)
        except FilterError as error:
            self._refuse(client, command, command.name, type(error).__name__, str(error), effects)
            return False
        return True

    def _refuse(
        self, client: Address, command: say.Command, name: str, error: str, reason: str, effects: Effects
    ) -> None:
        effects.send.append((client, say.Refused(type(command).__name__, name, error, reason)))

    def _id(self, client: Address, name: Name) -> Id:
        self.state.serial += 1
        return f"{self._origin(client)}/{name}.{self.state.serial}"

    def _origin(self, client: Address) -> Address:
        """The name of a client among all brokers: clients name themselves, so two brokers may have clients of the same
        name."""
        return f"{self.place.name}/{client}"

    # ── neighbours ────────────────────────────────────────────────────────────────────────────────────────────────

    def _from_neighbour(self, source: Address, message: Payload, effects: Effects) -> None:
        if isinstance(message, CARRYING):  # by far most of all
            self.ordering.receive(source, message, effects)
            return
        match message:
            case say.Interest(id, where):
                effects.send.extend(self.tables.want(source, id, where))
                self.ordering.wants_changed(source, effects)
            case say.Disinterest(id):
                effects.send.extend(self.tables.unwant(source, id))
                self.ordering.wants_changed(source, effects)
            case say.Advertisement():
                self._offer(source, message, "", effects)
            case say.Late(id):
                self._late(source, id, effects)
            case say.Withdrawal(id):
                self._withdraw(source, id, effects)
            case say.Sound(token, where, clock):
                self.ordering.hear(clock)
                others = [each for each in self.place.neighbours if each != source]
                asked = {each for each in others if self.tables.offers(each, where)}
                self._ask(message, Echo(source, asked, False), effects)
            case say.Heard(token, clock, unreachable):
                self.ordering.hear(clock)
                echo = self.state.echoes.get(token)
                if echo is not None:
                    echo.clock = max(echo.clock, clock)
                    echo.unreachable.update(unreachable)
                    echo.waits_for.discard(source)
                    self._answer(token, echo, effects)
            case _:
                self.ordering.receive(source, message, effects)

    def _offer(self, direction: Address, message: say.Advertisement, name: Name, effects: Effects) -> None:
        """Pull the subscriptions that it can match, and flood it. The acknowledgement follows behind both."""
        effects.send.extend(self.tables.offer(direction, message.id, Advertised(message.owner, message.where)))
        others = {each for each in self.place.neighbours if each != direction}
        echo = Echo(direction, others, True, name, keys=self.ordering.unanswered())
        if echo.keys:
            self.ordering.ask_above(effects)
        self._ask(message, echo, effects)
        self.ordering.changed(effects)

    def _late(self, direction: Address, id: Id, effects: Effects) -> None:
        """Something may have been published that nobody here could ask for: tell those that would have asked of a gap.

        Not before everybody in that direction knows what is wanted here: until then more can pass by.
        """
        advertised = self.state.routes.offered.get(direction, {}).get(id)
        if advertised is None:
            return
        others = [each for each in self.place.neighbours if each != direction]
        effects.send.extend((neighbour, say.Late(id)) for neighbour in others)
        if any(client not in self.place.neighbours for client in self.tables.wanting(advertised.where)):
            token = self._id(self.place.name, "late")
            echo = Echo(self.place.name, {direction}, False, advertised.owner, where=advertised.where)
            self._ask(say.Sound(token, advertised.where), echo, effects)

    def _tell_late(self, echo: Echo, effects: Effects) -> None:
        reason = f"{echo.name} may have published before {self.place.name} had heard of its advertisement"
        for client, ids in sorted(self.tables.wanting(echo.where).items()):
            if client not in self.place.neighbours:
                self.miss(client, ids, reason, effects)

    def _withdraw(self, direction: Address, id: Id, effects: Effects) -> None:
        if (advertised := self.state.routes.offered.get(direction, {}).get(id)) is not None:
            self.state.uneven.discard(advertised.owner)
        effects.send.extend(self.tables.unoffer(direction, id))
        others = [each for each in self.place.neighbours if each != direction]
        effects.send.extend((neighbour, say.Withdrawal(id)) for neighbour in others)
        self.ordering.changed(effects)

    # ── questions that go round ───────────────────────────────────────────────────────────────────────────────────

    def _ask(self, message: say.Advertisement | say.Sound, echo: Echo, effects: Effects) -> None:
        """Send it on to all it concerns, and answer when all have answered. Those who do not answer are told of."""
        effects.send.extend((neighbour, message) for neighbour in sorted(echo.waits_for))
        silent = echo.waits_for & self.state.suspected
        echo.waits_for -= silent
        echo.unreachable |= silent
        token = message.id if isinstance(message, say.Advertisement) else message.token
        if echo.is_advertisement:
            effects.send.extend((neighbour, say.Late(token)) for neighbour in sorted(silent))
        self.state.echoes[token] = echo
        self._answer(token, echo, effects)

    def _answer(self, token: Id, echo: Echo, effects: Effects) -> None:
        if echo.waits_for or echo.keys:
            return
        del self.state.echoes[token]
        unreachable = tuple(sorted(echo.unreachable))
        if echo.source in self.place.neighbours:
            clock = max(echo.clock, self.state.clock)
            effects.send.append((echo.source, say.Heard(token, clock, unreachable)))
            return
        if echo.source == self.place.name:
            self._tell_late(echo, effects)
            return
        side = self.state.clients.get(echo.source)
        if side is None or (side.forgotten and not echo.is_advertisement):
            return
        if not echo.is_advertisement:
            if not self._begin(token, echo, side, effects):
                effects.send.append((echo.source, say.Subscribed(echo.name, unreachable)))
            return
        side.offers[echo.name].heard = True
        if not side.forgotten:
            effects.send.append((echo.source, say.Advertised(echo.name, unreachable)))
        self._serve(echo.source, side, effects)

    def _begin(self, id: Id, echo: Echo, side: ClientSide, effects: Effects) -> bool:
        """Let a subscription begin, in an order by clocks, after everything that it met. Then ask all brokers to be
        beyond that clock, too."""
        held = side.held[id]
        if self.ordering.begins_at_once() or held.after is not None:
            return False
        held.after = max(echo.clock, self.state.clock)
        where = self.state.routes.wanted[echo.source][id]
        asked = {each for each in self.place.neighbours if self.tables.offers(each, where)}
        again = Echo(echo.source, asked, False, echo.name, unreachable=echo.unreachable)
        self._ask(say.Sound(id, where, held.after), again, effects)
        return True

    # ── what an order uses ────────────────────────────────────────────────────────────────────────────────────────

    def deliver(self, client: Address, ids: Iterable[Id], publication: Publication, effects: Effects) -> None:
        """Number it in these subscriptions of the client and send it."""
        effects.send.append((client, say.Deliver(publication.event, self._numbered(client, ids))))

    def miss(self, client: Address, ids: Iterable[Id], reason: str, effects: Effects) -> None:
        """Number something in these subscriptions that will never come."""
        effects.send.append((client, say.Deliver(None, self._numbered(client, ids), reason)))

    def _numbered(self, client: Address, ids: Iterable[Id]) -> dict[Name, int]:
        """Every subscription counts what it was sent, without holes: a gap is seen under any filter."""
        held, numbers = self.state.clients[client].held, {}
        for id in sorted(ids):
            held[id].number += 1
            numbers[held[id].name] = held[id].number
        return numbers

    def returned(self, key: Key, climbing: Climbing, effects: Effects) -> None:
        """A publication has come back from above: let go what waited for it."""
        clients = self.state.clients
        if climbing.told:
            for token, echo in list(self.state.echoes.items()):
                if key in echo.keys:
                    echo.keys.discard(key)
                    self._answer(token, echo, effects)
            for client in sorted(climbing.told):
                if (side := clients.get(client)) is not None and side.joining:
                    self._join(client, side, effects)
        if (side := clients.get(climbing.direction)) is not None and (side.queue or side.forgotten):
            self._serve(climbing.direction, side, effects)

    # ── what the driver says ──────────────────────────────────────────────────────────────────────────────────────

    def _told(self, message: Payload, effects: Effects) -> None:
        match message:
            case say.Suspect(neighbour) if neighbour in self.place.neighbours:
                self._suspect(neighbour, effects)
            case say.Answers(neighbour):
                self.state.suspected.discard(neighbour)
            case say.Forget(client):
                self._forget(client, effects)
            case _:
                raise RemoteError(f"{self.place.name} was told something unknown: {message!r}")

    def _suspect(self, neighbour: Address, effects: Effects) -> None:
        """Treat a neighbour that does not answer as unreachable, and answer those that wait for it. Messages for it
        stay in its link."""
        self.state.suspected.add(neighbour)
        for token, echo in list(self.state.echoes.items()):
            if neighbour in echo.waits_for:
                echo.waits_for.discard(neighbour)
                echo.unreachable.add(neighbour)
                if echo.is_advertisement:
                    effects.send.append((neighbour, say.Late(token)))
                self._answer(token, echo, effects)
        self.ordering.changed(effects)

    def _forget(self, client: Address, effects: Effects) -> None:
        """A client is gone: its subscriptions end now, its advertisements behind what it has published."""
        side = self.state.clients.get(client)
        self.state.forgotten.add(client)
        if side is None or side.forgotten:
            return
        side.forgotten = True
        for id in side.names.values():
            self.state.echoes.pop(id, None)
            effects.send.extend(self.tables.unwant(client, id))
        side.names.clear()
        side.held.clear()
        side.joining.clear()
        published = [each for each in side.queue if isinstance(each, say.Publish)]
        side.queue = [*published, *(say.Unadvertise(name) for name in side.offers)]
        self.ordering.wants_changed(client, effects)
        self._serve(client, side, effects)
