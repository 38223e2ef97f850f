"""Random worlds of the sequencing tree."""

from dataclasses import replace
from random import Random
from typing import Literal

from msgspec import structs

from seriatim.lab.explore.engine.walk import PATIENCE, TICKS, Walk
from seriatim.lab.explore.engine.world import Budget, Channel, Transition
from seriatim.lab.explore.tree.cast import TreeWorld
from seriatim.lab.explore.tree.random_shapes import budgets_with, reshape_tree
from seriatim.model import BROKER, Address, Event, Node, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.broker import KeepOrder
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import CancelMove, Move, Pass
from seriatim.protocols.with_broker import (
    Change,
    Delivered,
    Grown,
    OrderKept,
    Publish,
    Stamped,
    Start,
    Trimmed,
    Voids,
    Watch,
)

NODES_MAX = 7
TOPICS = "ABCDEF"
SUBSCRIBERS_MAX = 6
PUBLISHERS_MAX = 3

# The broker keeps its promises: what it delivers arrives, and it hears of its watchers. So do the links between nodes,
# over which no bare `Pass` travels. The rest may be lost.
KEPT = (Delivered, Grown, Pass, Stamped, Trimmed, Voids, Watch)


def random_world(random: Random, name: str) -> TreeWorld:
    """A tree, topics, options, clients with something to do, and budgets for faults.

    Half of the worlds are small and busy: most rules are about few topics that the same few subscribers change a lot.
    """
    busy = random.random() < 0.5
    topics = list(TOPICS[: random.randint(2, 3) if busy else random.randint(1, len(TOPICS))])
    tree = _some_unlisted(_tree(random, topics), name)
    mode: Literal["log", "ticket"] = random.choice(["log", "ticket"])
    chance = random.random()
    options = TreeOptions(
        mode=mode,
        order="global" if chance < 0.75 else "pairwise",
        own_order=chance < 0.25,
        full_stamps=random.random() < 0.25,
        durable=random.random() < 0.2,
    )
    options = _staged(_confirming(_suspicious(options, name), name), name)
    subscribers = [f"s{i}" for i in range(1, random.randint(2, 3 if busy else SUBSCRIBERS_MAX) + 1)]
    publishers = [f"p{i}" for i in range(1, random.randint(1, PUBLISHERS_MAX) + 1)]
    scripts: dict[Address, list[Payload]] = {}
    for subscriber in subscribers:
        scripts[subscriber] = _changes(random, topics)
    for publisher in publishers:
        scripts[publisher] = _publications(random, publisher, topics, random.randint(2, 8 if busy else 5))
    options = _with_history(scripts, subscribers, options, name)
    is_cut = _cut_order(scripts, options, name)
    if is_cut and Random(f"lost {name}").random() < 0.5:
        options = structs.replace(options, on_lost="skip")
    _move_topics(scripts, tree, topics, name)
    patient = frozenset(client for client in scripts if random.random() < 0.5)
    budgets = _copies(_budgets(random, tree, options, subscribers, publishers), options, name)
    newcomers = reshape_tree(scripts, tree, topics, name)
    return TreeWorld(
        name=name,
        tree=tree,
        options=options,
        scripts=scripts,
        one_at_a_time=patient,
        budgets=budgets_with(budgets, newcomers, tree, options, name),
        may_lose=may_lose_of_a_cut if is_cut else may_lose,
        readers={publisher: f"s{publisher[1:]}" for publisher in publishers if f"s{publisher[1:]}" in subscribers},
        with_links=True,
        broker_per_topic=False,
        reconnecting=random.random() < 0.25,
        markers=_markers(name),
        compacts=Random(f"compacts {name}").random() < 0.5,
        echoes=Random(f"echoes {name}").choice([0, 0, 1]),
        patience=PATIENCE,
    )


def _copies(budgets: dict[Address, Budget], options: TreeOptions, name: str) -> dict[Address, Budget]:
    """In some worlds of log mode one node starts from an older copy of its journal, or a second process runs it.

    Not where stages are told: those are heard by subscribers and by nobody who could tell a node of them later.
    And not two nodes: older copies that fit each other are an earlier state of the tree, which nobody else has seen.
    """
    random = Random(f"copies {name}")
    if options.mode != "log" or options.tells_stages or random.random() < 0.3:
        return budgets
    nodes = sorted(address for address in budgets if address.startswith("n"))
    if not nodes:
        return budgets
    node = random.choice(nodes)
    return budgets | {node: replace(budgets[node], copies=random.randint(1, 2))}


def random_story(random: Random, name: str) -> TreeWorld:
    """A quiet world about leaving: some keep both of two topics, one comes, sees something, leaves or moves on.

    Nothing fails, and clients wait for answers: what is slow is all there is to go wrong. The rules about leaving need
    several things to happen in one order, which a world where everything happens at once hardly ever meets.
    """
    topics = list(TOPICS[:2])
    options = TreeOptions(
        mode=random.choice(["log", "ticket"]), order=_story_order(name), full_stamps=random.random() < 0.25
    )
    both = Change(frozenset(topics))
    scripts: dict[Address, list[Payload]] = {"s1": [both], "s2": _wanderings(random, topics)}
    if random.random() < 0.3:
        scripts["s3"] = [both] if random.random() < 0.5 else _wanderings(random, topics)
    for publisher in ("p1", "p2"):
        scripts[publisher] = _publications(random, publisher, topics, random.randint(2, 5))
    tree = _tree(random, topics)
    _move_topics(scripts, tree, topics, name)
    return TreeWorld(
        name=name,
        tree=tree,
        options=options,
        scripts=scripts,
        one_at_a_time=frozenset(scripts) - {tree.root},
        with_links=True,
        broker_per_topic=False,
        patience=PATIENCE,
    )


def _story_order(name: str) -> Literal["global", "pairwise"]:
    """Mostly pairwise: there the rules about leaving are all that keeps the order."""
    return "global" if Random(f"order {name}").random() < 0.25 else "pairwise"


def _wanderings(random: Random, topics: list[Topic]) -> list[Payload]:
    """Hold both or one, then leave one or move to the other, back and forth."""
    script: list[Payload] = []
    held: set[Topic] = set()
    for _ in range(random.randint(2, 5)):
        if len(held) == 1 and random.random() < 0.5:
            change = Change(frozenset(topics) - held, frozenset(held))
        elif len(held) == 2:
            change = Change(remove=frozenset({random.choice(topics)}))
        else:
            absent = [topic for topic in topics if topic not in held]
            change = Change(frozenset(absent if random.random() < 0.6 else absent[:1]))
        script.append(change)
        held = (held | change.add) - change.remove
    return script


def may_lose(channel: Channel, message: Payload) -> bool:
    return not isinstance(message, KEPT)


def may_lose_of_a_cut(channel: Channel, message: Payload) -> bool:
    """A real broker tells again that the order log is shorter; the reference broker tells once."""
    return not isinstance(message, (*KEPT, OrderKept))


def _cut_order(scripts: dict[Address, list[Payload]], options: TreeOptions, name: str) -> bool:
    """In some worlds with history somebody deletes the order log, restores an older copy, or retention shortens it.

    Changes the scripts: the broker's operator gives the command.
    """
    random = Random(f"cut {name}")
    has_past = any(isinstance(each, Change) and each.start is not None for all_ in scripts.values() for each in all_)
    if not options.keeps_order_log or not has_past or random.random() < 0.7:
        return False
    first, last = random.choice([(0, 0), (1, random.randint(1, 6)), (random.randint(2, 6), 1_000)])
    scripts[BROKER] = [KeepOrder(first, last)]
    return True


def _move_topics(scripts: dict[Address, list[Payload]], tree: SequencingTree, topics: list[Topic], name: str) -> None:
    """In most worlds with several nodes topics move, and sometimes a move is cancelled. Changes the scripts."""
    random = Random(f"moves {name}")
    if len(tree.parents) == 1 or random.random() < 0.3:
        return
    nodes = sorted(tree.parents)
    script: list[Payload] = []
    favourite = random.choice(topics)
    for _ in range(random.choice([1, 1, 2, 3, 5])):
        topic = favourite if random.random() < 0.5 else random.choice(topics)
        script.append(Move(topic, random.choice(nodes)))
        if random.random() < 0.15:
            script.append(CancelMove(topic))
    scripts[tree.root] = script


def _tree(random: Random, topics: list[Topic]) -> SequencingTree:
    size = random.randint(1, NODES_MAX)
    parents: dict[Node, Node | None] = {"n1": None}
    for i in range(2, size + 1):
        parents[f"n{i}"] = f"n{random.randint(1, i - 1)}"
    return SequencingTree(parents, {topic: f"n{random.randint(1, size)}" for topic in topics})


def _some_unlisted(tree: SequencingTree, name: str) -> SequencingTree:
    """In every fourth world the topics of one node live there by default: nobody watches their logs beforehand.

    A chance of its own, so that worlds with the same name stay the same in everything else.
    """
    random = Random(f"unlisted {name}")
    if random.random() >= 0.25:
        return tree
    default_home = tree.homes[random.choice(sorted(tree.homes))]
    homes = {topic: node for topic, node in tree.homes.items() if node != default_home}
    return SequencingTree(tree.parents, homes, default_home)


def _markers(name: str) -> int:
    """In every fourth world voids follow each event in a log, as markers of transactions do."""
    random = Random(f"markers {name}")
    return random.choice([1, 2, 5]) if random.random() < 0.25 else 0


def _with_history(
    scripts: dict[Address, list[Payload]], subscribers: list[Address], options: TreeOptions, name: str
) -> TreeOptions:
    """In half of the worlds with an order log, half of the subscribers begin with the past. Changes the scripts."""
    random = Random(f"history {name}")
    if not options.keeps_order_log or random.random() < 0.5:
        return options
    for subscriber in subscribers:
        first = scripts[subscriber][0]
        if isinstance(first, Change) and random.random() < 0.5:
            is_place = Random(f"place {subscriber} {name}").random() < 0.5
            start = structs.replace(_start(random, sorted(first.add)), is_place=is_place)
            scripts[subscriber][0] = structs.replace(first, start=start)
    return structs.replace(options, history_window=random.choice([1, 2, 3, 5]))


def _start(random: Random, topics: list[Topic]) -> Start:
    fate = random.random()
    if fate < 0.5:
        return Start()
    if fate < 0.75:
        return Start(after=random.randint(1, 4))
    return Start(numbers={topic: random.randint(1, 4) for topic in topics if random.random() < 0.6})


def _suspicious(options: TreeOptions, name: str) -> TreeOptions:
    """In some worlds of ticket mode stamps are proven, or may not lie far ahead: so near that real ones are dropped."""
    random = Random(f"suspicious {name}")
    key = bytes(16) if random.random() < 0.3 else None
    jump_max = random.choice([1, 2, 3, 5]) if random.random() < 0.3 else None
    return structs.replace(options, stamp_key=key, jump_max=jump_max) if options.mode == "ticket" else options


def _confirming(options: TreeOptions, name: str) -> TreeOptions:
    """In half of the worlds publishers are told when their events have their place, and some then await them instead of
    having `own_order`."""
    random = Random(f"confirming {name}")
    if random.random() < 0.5:
        return options
    return structs.replace(options, confirm="placed", own_order=options.own_order and random.random() < 0.5)


def _staged(options: TreeOptions, name: str) -> TreeOptions:
    """In most worlds of log mode stamps are told in stages."""
    return structs.replace(options, stages=options.mode == "log" and Random(f"stages {name}").random() < 0.7)


def _changes(random: Random, topics: list[Topic]) -> list[Payload]:
    """Joins, leaves, moves and mixtures of them."""
    script: list[Payload] = []
    held: set[Topic] = set()
    eager = random.choice([0.4, 0.8])
    for _ in range(random.randint(1, 5)):
        kind = random.choice(["join", "join", "leave", "leave", "move", "mixed"]) if held else "join"
        add = [topic for topic in topics if kind != "leave" and topic not in held and random.random() < eager]
        share = 1.0 if kind == "move" else 0.4
        remove = [topic for topic in topics if kind != "join" and topic in held and random.random() < share]
        if not add and not remove:
            add = [random.choice(topics)]
        script.append(Change(frozenset(add), frozenset(remove)))
        held = (held | set(add)) - set(remove)
    return script


def _publications(random: Random, publisher: Address, topics: list[Topic], count: int) -> list[Payload]:
    script: list[Payload] = []
    for i in range(1, count + 1):
        chosen = [random.choice(topics) for _ in range(random.choice([1, 1, 1, 2, 3]))]
        events = [Event(f"{publisher}.{i}.{j}", topic, publisher) for j, topic in enumerate(chosen, 1)]
        script.append(Publish(tuple(events)))
    return script


def _budgets(
    random: Random, tree: SequencingTree, options: TreeOptions, subscribers: list[Address], publishers: list[Address]
) -> dict[Address, Budget]:
    """A third of the worlds is without faults, so that plain mistakes are not drowned in them."""
    if random.random() < 0.33:
        return {}
    budgets = {}
    for node in tree.parents:
        fate = random.random()
        budgets[node] = Budget(
            ticks=TICKS,
            losses=random.randint(0, 2),
            crashes=1 if fate < 0.3 else 0,
            takeovers=1 if 0.3 <= fate < 0.5 else 0,
        )
    for publisher in publishers:
        dies = int(random.random() < 0.3)
        budgets[publisher] = Budget(ticks=TICKS, losses=random.randint(0, 2), deaths=dies)
    for subscriber in subscribers:
        fate = random.random()
        budgets[subscriber] = Budget(
            ticks=TICKS,
            losses=random.randint(0, 2),
            deaths=int(fate < 0.1),
            crashes=int(options.durable and fate > 0.5),
        )
    budgets["broker"] = Budget(losses=random.randint(0, 2))
    return budgets


class TreeWalk(Walk):
    """A walk on which a subscriber crashes only between two steps: it has notified what it has journalled."""

    def _may_happen(self, fault: Transition) -> bool:
        return fault.kind != "crash" or not fault.source or not fault.target.startswith("s")
