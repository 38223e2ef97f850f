"""Random worlds of the overlay: any tree of up to nine brokers, any filters, interests that come and go, crashes."""

from random import Random

from seriatim.filters import Filter, Value, parse
from seriatim.lab.explore.engine.walk import PATIENCE, client_budget, server_budget
from seriatim.lab.explore.engine.world import Budget
from seriatim.lab.explore.overlay.cast import Command, OverlayWorld, publish
from seriatim.model import Address
from seriatim.protocols.overlay import Order, Overlay, OverlayOptions
from seriatim.protocols.overlay.messages import Advertise, Forget, Subscribe, Suspect, Unadvertise, Unsubscribe

BROKERS_MAX = 9
VALUES = 6  # of the attribute x: few, so that filters overlap
TURNED_MAX = (1, 2, 3, 32)


def random_overlay(random: Random, name: str, orders: tuple[Order, ...] = ("rooted",)) -> OverlayWorld:
    """A tree, clients with filters and something to do, and budgets for faults.

    A third of the worlds is about few clients that want nearly the same, and publish nearly the same; a third about
    clients that mostly hear one publisher, and sometimes come to hear another.
    """
    overlay = _tree(random, random.choice([1, 2, 2, 3, 3, 4, 5, 6, 7, 8, BROKERS_MAX]))
    brokers = list(overlay.parents)
    kind = random.choice(["close", "narrow", "any"])
    clients = {f"c{i}": random.choice(brokers) for i in range(1, random.choice([2, 3, 3, 4, 5, 6]) + 1)}
    busy = random.choice([3, 6, 12, 20])
    changes = random.choice([0, 1, 2, 4])
    scripts: dict[Address, list[Command]] = {
        client: _script(random, client, kind, random.randint(1, busy), changes) for client in clients
    }
    faulty = random.random() < 0.4
    options = OverlayOptions(
        order=random.choice(orders), early=random.random() < 0.7, turned_max=random.choice(TURNED_MAX)
    )
    return OverlayWorld(
        name=name,
        overlay=overlay,
        clients=clients,
        options=options,
        scripts=scripts,
        one_at_a_time=frozenset(client for client in clients if random.random() < 0.5),
        budgets=_budgets(random, overlay, clients, scripts) if faulty else {},
        with_links=faulty,
        patience=PATIENCE if faulty else 0,
    )


def random_meeting(random: Random, name: str, orders: tuple[Order, ...] = ("rooted",)) -> OverlayWorld:
    """A world about somebody who hears one publisher and then another, while what was told on the way up is above.

    The rules about that need several things to happen in one order, which larger worlds hardly ever meet.
    """
    overlay = Overlay({"b1": None, "b2": "b1", "b3": "b2", "b4": "b2"})
    clients = {"c1": "b3", "c2": "b3", "c3": "b3", "c4": "b4", "c5": "b4", "c6": "b1"}
    kinds = ["x = 0", "x = 1", "x in (0, 1)", "true"]
    strange = random.choice(kinds), random.choice(kinds)
    first, second = random.choice([strange, ("x = 0", "x = 1"), ("x in (0, 1)", "x = 2")])
    scripts: dict[Address, list[Command]] = {
        "c1": _publications(random, "c1", first, random.randint(3, 8)),
        "c2": _joinings(random),
        "c3": [Subscribe("s", "true")] if random.random() < 0.5 else [],
        "c4": _publications(random, "c4", second, random.randint(1, 5)),
        "c5": [Subscribe("s", "true")],
        "c6": [Subscribe("s", random.choice(["x = 0", "x = 1", "x = 2"]))],
    }
    return OverlayWorld(
        name=name,
        overlay=overlay,
        clients=clients,
        options=OverlayOptions(order=random.choice(orders), turned_max=random.choice(TURNED_MAX)),
        scripts=scripts,
        one_at_a_time=frozenset(client for client in clients if random.random() < 0.5),
    )


def _publications(random: Random, client: Address, where: str, count: int) -> list[Command]:
    """Publish, and sometimes withdraw, or withdraw and advertise again."""
    script: list[Command] = [Advertise("a", where)]
    for i in range(1, count + 1):
        script.append(publish(client, f"{client}.{i}", **random_match(random, parse(where))))
        if random.random() < 0.15:
            script += [Unadvertise("a"), Advertise("a", where)]
    return script + ([Unadvertise("a")] if random.random() < 0.3 else [])


def _joinings(random: Random) -> list[Command]:
    """Hear of one kind, then of others, and of one again."""
    script: list[Command] = [Subscribe("s0", "x = 0")]
    for i in range(1, random.randint(1, 4) + 1):
        script.append(Subscribe(f"s{i}", random.choice(["x = 1", "x = 2", "x in (0, 1)"])))
        if random.random() < 0.5:
            script.append(Unsubscribe(f"s{i}"))
    return script


def _tree(random: Random, size: int) -> Overlay:
    deep = random.random() < 0.5
    parents: dict[Address, Address | None] = {"b1": None}
    for i in range(2, size + 1):
        parents[f"b{i}"] = f"b{random.randint(max(1, i - 2) if deep else 1, i - 1)}"
    return Overlay(parents)


def random_filter(random: Random, wide: float, narrow: bool = False) -> str:
    """A filter over two attributes; a wide one matches most events, a narrow one says of which of three kinds."""
    if narrow and random.random() < 0.9:
        return f"x = {random.randrange(3)}"
    if random.random() < wide:
        return "true"
    parts = []
    if random.random() < 0.8:
        low = random.randrange(VALUES)
        parts.append(
            random.choice([f"x >= {low}", f"x <= {low}", f"x = {low}", f"x != {low}", f"x in ({low}, {VALUES - 1})"])
        )
    if not parts or random.random() < 0.3:
        parts.append(random.choice(['y = "a"', 'y = "b"', 'y prefix "a"']))
    return " and ".join(parts)


def random_match(random: Random, filter: Filter) -> dict[str, Value]:
    """The attributes of some event that matches."""
    for _ in range(50):
        attributes: dict[str, Value] = {"x": random.randrange(VALUES), "y": random.choice(["a", "b", "ab"])}
        if filter.matches(attributes):
            return attributes
    return filter.witness()


def _script(random: Random, client: Address, kind: str, count: int, changes: int) -> list[Command]:
    """Subscribe, advertise and publish; then publish on while both change."""
    wide = 0.5 if kind == "close" else 0.15
    narrow = kind == "narrow"
    script: list[Command] = []
    held: list[str] = []
    offered: dict[str, Filter] = {}
    names = 0

    def subscribe() -> None:
        nonlocal names
        names += 1
        held.append(f"s{names}")
        script.append(Subscribe(held[-1], random_filter(random, wide, narrow)))

    def advertise() -> None:
        nonlocal names
        names += 1
        where = random_filter(random, 0.6, narrow)
        offered[f"a{names}"] = parse(where)
        script.append(Advertise(f"a{names}", where))

    role = random.choice(["both", "both", "reader", "writer"])
    if role != "writer":
        subscribe()
    if role != "reader":
        advertise()
    for i in range(1, count + 1):
        change = random.random() < changes / count
        if change and role != "writer" and random.random() < 0.6:
            if held and random.random() < 0.4:
                script.append(Unsubscribe(held.pop(random.randrange(len(held)))))
            else:
                subscribe()
        elif change and role != "reader":
            if offered and random.random() < 0.5:
                gone = random.choice(sorted(offered))
                del offered[gone]
                script.append(Unadvertise(gone))
            else:
                advertise()
        elif offered:
            where = offered[random.choice(sorted(offered))] if random.random() < 0.95 else parse("true")
            script.append(publish(client, f"{client}.{i}", **random_match(random, where)))
    return script


def _budgets(
    random: Random, overlay: Overlay, clients: dict[Address, Address], scripts: dict[Address, list[Command]]
) -> dict[Address, Budget]:
    """Brokers crash or are taken over, messages are lost, some clients die and are forgotten, some are suspected."""
    budgets = {}
    suspicious = random.random() < 0.2
    for broker, place in overlay.places.items():
        budgets[broker] = server_budget(random)
        if suspicious and place.neighbours and random.random() < 0.5:
            scripts.setdefault(broker, []).append(Suspect(random.choice(place.neighbours)))
    for client, broker in clients.items():
        budgets[client] = client_budget(random)
        if budgets[client].deaths:
            scripts.setdefault(broker, []).append(Forget(client))
    return budgets
