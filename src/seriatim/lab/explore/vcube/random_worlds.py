"""Random worlds of VCube-PS: up to 32 peers with any ids, that come, go, return, publish, crash and are suspected."""

from random import Random

from seriatim.lab.explore.engine.process import at
from seriatim.lab.explore.engine.walk import TICKS, Walk
from seriatim.lab.explore.engine.world import Budget, Channel, Transition
from seriatim.lab.explore.vcube.cast import Command, VCubeWorld, publish
from seriatim.model import Address
from seriatim.protocols.vcube import VCubeOptions, address_of
from seriatim.protocols.vcube.messages import Subscribe, Suspect, Unsubscribe

PEERS_MAX = 32
TICKS_FEW = 4  # so few that no living peer is suspected
HEARTBEAT_MS = 100.0
SUDDEN = 0.03  # how often a step of a peer that may die is its last


def random_peers(random: Random, name: str) -> VCubeWorld:
    """Peers, topics, options, commands and budgets for faults. Most worlds are small: few peers meet most often."""
    size = random.random()
    if size < 0.4:  # three or four that are close to each other: most rules are about so few
        ids = list(range(random.choice([3, 4, 4])))
    else:
        low, high = (2, 6) if size < 0.85 else (7, 12) if size < 0.985 else (13, PEERS_MAX)
        count = random.randint(low, high)
        ids = sorted(random.sample(range(random.choice([count, count + 3, 2 * count, 64])), count))
    topics = "A" if random.random() < 0.8 else "AB"
    fails = random.random() < 0.5
    accurate = not fails or random.random() < 0.75
    options = VCubeOptions(
        window=random.choice([1, 2, 4, 16]),
        pruning="stable" if fails or random.random() < 0.5 else "direct",
        heartbeat_ms=HEARTBEAT_MS if fails else None,
        suspect_after_ms=950.0 if accurate else 450.0,
    )
    setup: list[tuple[Address, Command]] = []
    keen = random.choice([0.4, 0.7, 0.9])  # how many hold a topic at first
    scripts: dict[Address, list[Command]] = {}
    lively = random.choice([0.3, 0.6, 1.0]) if len(ids) <= 12 else 0.3
    for id in ids:
        address = address_of(id)
        held = set()
        for topic in topics:
            if random.random() < keen:
                setup.append((address, Subscribe(topic)))
                held.add(topic)
        if random.random() < lively:
            scripts[address] = _commands(random, id, topics, held)
    if not accurate and random.random() < 0.4:
        scripts.setdefault(address_of(random.choice(ids)), []).append(Suspect(random.choice(ids)))
    return VCubeWorld(
        name=name,
        ids=ids,
        options=options,
        scripts=scripts,
        setup=setup,
        one_at_a_time=frozenset(address for address in scripts if random.random() < 0.3),
        budgets=_budgets(random, ids, TICKS_FEW if accurate else TICKS) if fails else {},
        lanes="kind" if random.random() < 0.3 else "one",
        accurate=accurate,
        patience=40 * len(ids) + 100 if fails else 0,
    )


class PeerWalk(Walk):
    """A way through a run in which what a peer sent is cut off when it dies, and its death is noticed."""

    def _take(self, transition: Transition) -> None:
        super()._take(transition)
        if transition.kind in ("issue", "deliver") and self.random.random() < SUDDEN:  # with all it has just sent
            own = self.run.processes[transition.target].own_transitions()
            for fate in [each for each in own if each.kind in ("die", "crash")][:1]:
                self._take(fate)
        if transition.kind in ("die", "crash"):
            for channel in [each for each in self.run.channels if each.source == transition.target]:
                if self.random.random() < 0.6:
                    self._cut_off(channel)

    def _cut_off(self, channel: Channel) -> None:
        """Deliver only a beginning of what is still under way on a channel, and lose the rest."""
        kept = self.random.choice([0, 0, 1, 2])
        for place in range(len(self.run.channels[channel])):
            transition = Transition("deliver" if place < kept else "lose", *at(channel))
            if channel in self.run.channels and self.run.is_enabled(transition):
                super()._take(transition)

    def _fault(self, address: Address) -> None:
        processes = self.run.processes
        dead = [other for other, process in processes.items() if process.machine is None]
        if dead and processes[address].machine is not None and self.random.random() < 0.5:
            self._take(Transition("suspect", address, lane=self.random.choice(dead)))
            return
        found = [each for each in processes[address].own_transitions() if each.kind != "issue"]
        if found:
            self._take(self.random.choice(found))


def _commands(random: Random, id: int, topics: str, held: set[str]) -> list[Command]:
    """Publications with joins, leaves and rejoins between them."""
    script: list[Command] = []
    restless = random.choice([0.1, 0.3, 0.6])
    for i in range(random.randint(1, 6)):
        topic = random.choice(topics)
        if random.random() < restless:
            script.append(Unsubscribe(topic) if topic in held else Subscribe(topic))
            held ^= {topic}
        elif topic in held or random.random() < 0.3:
            held.add(topic)
            script.extend(publish(id, topic, *(f"{id}.{i}.{j}" for j in range(random.choice([1, 1, 1, 2, 3])))))
        else:
            script.append(Subscribe(topic))
            held.add(topic)
    return script


def _budgets(random: Random, ids: list[int], ticks: int) -> dict[Address, Budget]:
    """All peers hear time pass; a few of them die or restart."""
    losses = 1_000  # of what a dead peer sent, all of it if need be
    budgets = {address_of(id): Budget(ticks=ticks, losses=losses) for id in ids}
    for id in random.sample(ids, random.randint(0, min(3, len(ids) - 1))):
        is_final = random.random() < 0.5
        died, crashed = int(is_final), int(not is_final)
        budgets[address_of(id)] = Budget(ticks=ticks, losses=losses, deaths=died, crashes=crashed)
    return budgets
