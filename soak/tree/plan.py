"""The plan of faults: which, when, for how long. Made from a seed and a round's number, to be made again."""

import random
from collections.abc import Callable

from msgspec import Struct

from soak.tree.shapes import Shape


class Fault(Struct, frozen=True):
    """At `at_s` seconds of the round, do this to `target`; after `for_s` more, undo it (start again, heal, thaw)."""

    at_s: float
    kind: str
    target: str
    for_s: float


class Kind(Struct, frozen=True):
    """A kind of fault: whom it can strike in a shape, for how long, how often compared with the others."""

    targets: Callable[[Shape], list[str]]
    for_s: tuple[float, float]
    weight: float = 1.0


def _nodes(shape: Shape) -> list[str]:
    return list(shape.parents)


def _children(shape: Shape) -> list[str]:
    return [node for node, parent in shape.parents.items() if parent is not None]


def _publishers(shape: Shape) -> list[str]:
    return [*shape.publishers, *shape.in_turns, *shape.plain]


def _subscribers(shape: Shape) -> list[str]:
    return list(shape.subscribers)


def _guests(shape: Shape) -> list[str]:
    return list(shape.guests)


def _movable(shape: Shape) -> list[str]:
    return list(shape.topics) if len(shape.parents) > 1 else []


def _growing(shape: Shape) -> list[str]:
    return ["tree"] if len(shape.parents) > 1 else []


def _durables(shape: Shape) -> list[str]:
    return [name for name in shape.subscribers if name not in (*shape.visitors, *shape.guests)]


def _file_nodes(shape: Shape) -> list[str]:
    return _nodes(shape) if shape.journal == "file" else []


KINDS: dict[str, Kind] = {
    # kill -9, then start again. With a standby, the killed process comes back as the standby.
    "kill-sequencer": Kind(_nodes, (0.0, 2.0), 3.0),
    "kill-publisher": Kind(_publishers, (0.0, 1.0), 2.0),
    "kill-subscriber": Kind(_subscribers, (0.0, 2.0), 3.0),
    "kill-guest": Kind(_guests, (0.0, 1.0), 2.0),  # who begins with the past, mostly in the middle of it
    "kill-nats": Kind(lambda shape: ["nats"], (0.0, 1.5), 1.5),
    "kill-everything": Kind(lambda shape: ["everything"], (0.0, 1.0), 0.7),
    # SIGSTOP, then SIGCONT. A frozen sequencer with a standby is taken over, and fenced when it thaws.
    "freeze-sequencer": Kind(_nodes, (0.3, 3.0)),
    "freeze-subscriber": Kind(_subscribers, (0.5, 3.0)),
    "freeze-nats": Kind(lambda shape: ["nats"], (0.3, 3.0)),
    "slow-subscriber": Kind(_subscribers, (1.0, 5.0)),
    # Between a child node and its parent, between a node and the broker, between a subscriber and the broker.
    "partition-nodes": Kind(_children, (0.3, 3.0), 1.5),
    "cut-nodes": Kind(_children, (0.0, 0.0)),
    "delay-nodes": Kind(_children, (0.5, 2.0)),
    "partition-sequencer": Kind(_nodes, (0.3, 2.5)),
    "partition-subscriber": Kind(_subscribers, (0.3, 2.5)),
    # A second process claims a node that runs; a crash in the middle of an append; a clock that is wrong afterwards.
    "claim-node": Kind(_file_nodes, (0.0, 0.0), 0.5),
    "second-process": Kind(_nodes, (0.0, 0.0), 0.5),
    "stale-journal": Kind(_file_nodes, (0.5, 2.0), 0.7),
    "tear-journal": Kind(_file_nodes, (0.0, 0.5)),
    "fill-disk": Kind(_file_nodes, (0.0, 0.5), 0.5),
    # A second process with the name of a durable subscription; one that has an old copy of its journal, or none.
    "second-durable": Kind(_durables, (0.0, 0.0), 0.5),
    "stale-durable": Kind(_durables, (0.5, 2.0), 0.5),
    "jump-clock": Kind(_nodes, (0.0, 0.5)),
    # A topic gets another home. Moves go on beside all other faults, and are planned by themselves.
    "move": Kind(_movable, (0.0, 0.0), 0.0),
    # A leaf comes below some node; one that came goes again, after its topics; a new root grows. As moves.
    "node-add": Kind(_growing, (0.0, 0.0), 0.0),
    "node-remove": Kind(_growing, (0.0, 0.0), 0.0),
    "node-root": Kind(_growing, (0.0, 0.0), 0.0),
}
CHANGES = frozenset({"move", "node-add", "node-remove", "node-root"})  # other faults may undo them
MOVE_EVERY_S = (1.5, 4.0)
RESHAPE_EVERY_S = (4.0, 12.0)
RESHAPES = {"node-add": 5.0, "node-remove": 4.0, "node-root": 1.0}

FIRST_S = 1.0
LAST_S = 4.0  # what the load goes on after the last fault, so that recovery shows
PAUSE_S = (1.0, 3.0)
OVERLAP = 0.2  # how often a fault strikes while the one before it lasts


def make_plan(
    seed: int, round_number: int, shape: Shape, seconds: float, kinds: list[str] | None = None
) -> list[Fault]:
    """The faults of one round, in order of time. The same arguments give the same plan."""
    source = random.Random(f"{seed}/{round_number}")
    possible = {
        name: (kind, kind.targets(shape))
        for name, kind in KINDS.items()
        if kind.weight and (kinds is None or name in kinds)
    }
    names = [name for name, (_, targets) in possible.items() if targets]
    weights = [possible[name][0].weight for name in names]
    plan: list[Fault] = []
    at_s = FIRST_S
    while names:
        name = source.choices(names, weights)[0]
        kind, targets = possible[name]
        fault = Fault(round(at_s, 3), name, source.choice(targets), round(source.uniform(*kind.for_s), 3))
        if fault.at_s + fault.for_s + LAST_S > seconds:
            break
        plan.append(fault)
        if source.random() < OVERLAP:
            at_s += source.uniform(0.0, max(fault.for_s, 0.2))
        else:
            at_s = max(each.at_s + each.for_s for each in plan) + source.uniform(*PAUSE_S)
    moves = make_moves(f"{seed}/{round_number}/moves", shape, seconds) if kinds is None or "move" in kinds else []
    reshapes = make_reshapes(f"{seed}/{round_number}/reshapes", shape, seconds, kinds)
    return sorted([*plan, *moves, *reshapes], key=lambda fault: fault.at_s)


def make_reshapes(seed: str, shape: Shape, seconds: float, kinds: list[str] | None) -> list[Fault]:
    """A node comes or goes now and then, whatever else happens. Which one follows when it begins."""
    source, reshapes = random.Random(seed), list[Fault]()
    weights = {kind: weight for kind, weight in RESHAPES.items() if kinds is None or kind in kinds}
    at_s = FIRST_S + source.uniform(0.0, RESHAPE_EVERY_S[0])
    while weights and _growing(shape) and at_s + LAST_S <= seconds:
        (kind,) = source.choices(list(weights), list(weights.values()))
        reshapes.append(Fault(round(at_s, 3), kind, "tree", 0.0))
        at_s += source.uniform(*RESHAPE_EVERY_S)
    return reshapes


def make_moves(seed: str, shape: Shape, seconds: float) -> list[Fault]:
    """A topic moves every few seconds, whatever else happens. Where to follows when it begins."""
    source, topics = random.Random(seed), _movable(shape)
    moves: list[Fault] = []
    at_s = FIRST_S
    while topics and at_s + LAST_S <= seconds:
        moves.append(Fault(round(at_s, 3), "move", source.choice(topics), 0.0))
        at_s += source.uniform(*MOVE_EVERY_S)
    return moves
