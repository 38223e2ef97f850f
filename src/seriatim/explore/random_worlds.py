"""Random worlds of the sequencing tree, and the random way through each of them.

World k of seed s is always the same world, walked the same way, on any machine and whatever was walked before it.
"""

from random import Random

from msgspec import structs

from seriatim.explore.process import at
from seriatim.explore.run import Run
from seriatim.explore.tree import TreeWorld
from seriatim.explore.world import Budget, Channel, Transition
from seriatim.model import Address, Event, Node, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Change, Delivered, Grown, Pass, Publish, Stamped, Trimmed, Watch

NODES_MAX = 7
TOPICS = "ABCDEF"
SUBSCRIBERS_MAX = 6
PUBLISHERS_MAX = 3
PATIENCE = 400  # rounds of ticks: a lost request costs one, an unpublished number about twenty
STEPS_MAX = 5_000
SLOW = 0.02  # how often a step does not care which channels are slow
HURRIES_MAX = 50
TICKS = 1_000  # as many as it takes: the walk decides how often time passes

# The broker keeps its promises: what it delivers arrives, and it hears of its watchers. So do the links between nodes,
# over which no bare `Pass` travels. The rest may be lost.
KEPT = (Delivered, Grown, Pass, Stamped, Trimmed, Watch)


def random_of(seed: int, index: int) -> Random:
    """The source of chance of one world. Seeded by text, so that neighbouring worlds have nothing in common."""
    return Random(f"{seed}/{index}")


def random_world(random: Random, name: str) -> TreeWorld:
    """A tree, topics, options, clients with something to do, and budgets for faults.

    Half of the worlds are small and busy: most rules are about few topics that the same few subscribers change a lot.
    """
    busy = random.random() < 0.5
    topics = list(TOPICS[: random.randint(2, 3) if busy else random.randint(1, len(TOPICS))])
    tree = _some_unlisted(_tree(random, topics), name)
    options = TreeOptions(
        mode=random.choice(["log", "ticket"]),
        causal=random.random() < 0.25,
        full_stamps=random.random() < 0.25,
        durable=random.random() < 0.2,
    )
    options = _suspicious(options, name)
    subscribers = [f"s{i}" for i in range(1, random.randint(2, 3 if busy else SUBSCRIBERS_MAX) + 1)]
    publishers = [f"p{i}" for i in range(1, random.randint(1, PUBLISHERS_MAX) + 1)]
    scripts: dict[Address, list[Publish | Change]] = {}
    for subscriber in subscribers:
        scripts[subscriber] = _changes(random, topics)
    for publisher in publishers:
        scripts[publisher] = _publications(random, publisher, topics, random.randint(2, 8 if busy else 5))
    return TreeWorld(
        name=name,
        tree=tree,
        options=options,
        scripts=scripts,
        one_at_a_time=frozenset(client for client in scripts if random.random() < 0.5),
        budgets=_budgets(random, tree, options, subscribers, publishers),
        may_lose=may_lose,
        readers={publisher: f"s{publisher[1:]}" for publisher in publishers if f"s{publisher[1:]}" in subscribers},
        with_links=True,
        broker_per_topic=False,
        reconnecting=random.random() < 0.25,
        patience=PATIENCE,
    )


def random_story(random: Random, name: str) -> TreeWorld:
    """A quiet world about leaving: some keep both of two topics, one comes, sees something, leaves or moves on.

    Nothing fails, and clients wait for answers: what is slow is all there is to go wrong. The rules about leaving need
    several things to happen in one order, which a world where everything happens at once hardly ever meets.
    """
    topics = list(TOPICS[:2])
    options = TreeOptions(mode=random.choice(["log", "ticket"]), full_stamps=random.random() < 0.25)
    both = Change(frozenset(topics))
    scripts: dict[Address, list[Publish | Change]] = {"s1": [both], "s2": _wanderings(random, topics)}
    if random.random() < 0.3:
        scripts["s3"] = [both] if random.random() < 0.5 else _wanderings(random, topics)
    for publisher in ("p1", "p2"):
        scripts[publisher] = _publications(random, publisher, topics, random.randint(2, 5))
    return TreeWorld(
        name=name,
        tree=_tree(random, topics),
        options=options,
        scripts=scripts,
        one_at_a_time=frozenset(scripts),
        with_links=True,
        broker_per_topic=False,
        patience=PATIENCE,
    )


def _wanderings(random: Random, topics: list[Topic]) -> list[Publish | Change]:
    """Hold both or one, then leave one or move to the other, back and forth."""
    script: list[Publish | Change] = []
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


def _suspicious(options: TreeOptions, name: str) -> TreeOptions:
    """In some worlds of ticket mode stamps are proven, or may not lie far ahead: so near that real ones are dropped."""
    random = Random(f"suspicious {name}")
    key = bytes(16) if random.random() < 0.3 else None
    jump_max = random.choice([1, 2, 3, 5]) if random.random() < 0.3 else None
    return structs.replace(options, stamp_key=key, jump_max=jump_max) if options.mode == "ticket" else options


def _changes(random: Random, topics: list[Topic]) -> list[Publish | Change]:
    """Joins, leaves, moves and mixtures of them."""
    script: list[Publish | Change] = []
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


def _publications(random: Random, publisher: Address, topics: list[Topic], count: int) -> list[Publish | Change]:
    script: list[Publish | Change] = []
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


class Walk:
    """A random way through a run.

    Some channels are slow, so that one part of a world can run far ahead of another. A calm walk lets the fast ones
    run dry before the next command: stories of many commands, in which only what is slow is late. A hasty one mixes
    everything.
    """

    def __init__(self, run: Run, random: Random, calm: bool = False) -> None:
        self.run = run
        self.random = random
        self.way: list[Transition] = []
        self._slow: dict[Channel, bool] = {}
        self._slow_share = random.choice([0.1, 0.3] if calm else [0.0, 0.1, 0.3])
        self._calm = calm or random.random() < 0.5
        self._issue_share = 0.0 if self._calm else random.choice([0.03, 0.1, 0.3])
        self._fault_share = random.choice([0.02, 0.1, 0.25])

    def go(self) -> None:
        """Safety phase: commands, messages and faults in any order, until there is nothing left to ask for.

        What is still on its way then arrives in random order too, but nothing fails any more.
        """
        random, run = self.random, self.run
        clients = [process for process in run.processes.values() if process.script]
        faulty = [process for process in run.processes.values() if process.address in run.world.budgets]
        hurries = 0
        for _ in range(STEPS_MAX):
            clients = [each for each in clients if each.machine is not None and each.issued < len(each.script)]
            if not clients:
                break
            draw = random.random()
            if faulty and draw < self._fault_share:
                self._fault(random.choice(faulty).address)
                continue
            fast = self._fast_channels()
            if draw < self._fault_share + self._issue_share or (not fast and random.random() < 0.9):
                able = [each for each in clients if each.can_issue()]
                if able:
                    self._take(Transition("issue", random.choice(able).address))
                    if random.random() < 0.2:
                        self._slow.clear()  # other channels are slow from now on
                    continue
            if run.channels:
                self._deliver(fast)
            elif hurries == HURRIES_MAX or not self._hurry():  # all wait for an answer that was lost
                break
            else:
                hurries += 1
        run.end_faults()
        while run.channels and len(self.way) < 2 * STEPS_MAX:
            self._deliver(self._fast_channels())

    def _fast_channels(self) -> list[Channel]:
        slow = self._slow
        for channel in self.run.channels:
            if channel not in slow:
                slow[channel] = self.random.random() < self._slow_share
        return [channel for channel in self.run.channels if not slow[channel]]

    def _deliver(self, fast: list[Channel]) -> None:
        """Take a message from a fast channel; from a slow one seldom, or if there is nothing else."""
        random = self.random
        channels = fast if fast and random.random() >= SLOW else list(self.run.channels)
        self._take(Transition("deliver", *at(random.choice(channels))))

    def _fault(self, address: Address) -> None:
        """One of the things that may go wrong with this machine."""
        run, process = self.run, self.run.processes[address]
        found = [each for each in process.own_transitions() if each.kind != "issue"]
        inbox = [channel for channel in run.channels if channel.target == address]
        if inbox:
            channel = self.random.choice(inbox)
            found += process.channel_transitions(channel, run.channels[channel][0])[1:]
        if address.startswith("s"):  # what a subscriber journalled it has notified: it crashes between two steps only
            found = [each for each in found if each.kind != "crash" or not each.source]
        if found:
            self._take(self.random.choice(found))

    def _hurry(self) -> bool:
        """Nothing moves: let the time come that somebody waits for. False: nobody waits for any."""
        ticks = [each for process in self.run.processes.values() for each in process.own_transitions()]
        ticks = [each for each in ticks if each.kind == "tick"]
        if ticks:
            self._take(min(ticks, key=lambda each: self.run.processes[each.target].wake_at or 0.0))
        return bool(ticks)

    def _take(self, transition: Transition) -> None:
        self.way.append(transition)
        self.run.take(transition)
