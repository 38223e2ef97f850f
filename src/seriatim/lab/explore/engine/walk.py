"""Random walks through a world, whatever the protocol.

World k of seed s is always the same world, walked the same way, on any machine and whatever was walked before it.
"""

from random import Random

from seriatim.lab.explore.engine.process import at
from seriatim.lab.explore.engine.run import Run
from seriatim.lab.explore.engine.world import Budget, Channel, Transition
from seriatim.model import Address

PATIENCE = 400  # rounds of ticks: a lost request costs one, an unpublished number about twenty
STEPS_MAX = 5_000
SLOW = 0.02  # how often a step ignores which channels are slow
HURRIES_MAX = 50
TICKS = 1_000  # more than any walk needs: the walk decides how often time passes


def random_of(seed: int, index: int) -> Random:
    """The source of chance of one world. Seeded by text, so that neighbouring worlds have nothing in common."""
    return Random(f"{seed}/{index}")


def server_budget(random: Random) -> Budget:
    """A server loses messages; it may crash, or be replaced while it still runs."""
    fate = random.random()
    return Budget(
        ticks=TICKS,
        losses=random.randint(0, 2),
        crashes=random.randint(1, 2) if fate < 0.4 else 0,
        takeovers=1 if 0.4 <= fate < 0.6 else 0,
    )


def client_budget(random: Random) -> Budget:
    """A client loses messages; one in ten may die."""
    dies = int(random.random() < 0.1)
    return Budget(ticks=TICKS, losses=random.randint(0, 2), deaths=dies)


class Walk:
    """A random way through a run.

    Some channels are slow, so that one part of a world can run far ahead of another. A calm walk empties the fast
    channels before the next command: stories of many commands, in which only messages on slow channels are late. A
    hasty one mixes everything.
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
        """Safety phase: commands, messages and faults in any order, until every command was issued."""
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
        self._end()

    def _end(self) -> None:
        """End all faults, and deliver what is still under way in random order."""
        self.run.end_faults()
        while self.run.channels and len(self.way) < 2 * STEPS_MAX:
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
        found = [each for each in found if self._may_happen(each)]
        if found:
            self._take(self.random.choice(found))

    def _may_happen(self, fault: Transition) -> bool:
        return True

    def _hurry(self) -> bool:
        """When no message is on its way, advance time to the earliest tick that a process waits for. False: no process
        waits."""
        ticks = [each for process in self.run.processes.values() for each in process.own_transitions()]
        ticks = [each for each in ticks if each.kind == "tick"]
        if ticks:
            self._take(min(ticks, key=lambda each: self.run.processes[each.target].wake_at or 0.0))
        return bool(ticks)

    def _take(self, transition: Transition) -> None:
        self.way.append(transition)
        self.run.take(transition)


class BusyWalk(Walk):
    """A walk on which commands come in bursts while others are under way, and some channels are slow for long."""

    def __init__(self, run: Run, random: Random, calm: bool = False) -> None:
        super().__init__(run, random, calm)
        self._issue_share = random.choice([0.05, 0.1, 0.2])
        self._slow_share = random.choice([0.1, 0.3, 0.5])
        self._bursts = random.choice([[1], [1, 1, 3], [1, 2, 5]])

    def go(self) -> None:
        random, run = self.random, self.run
        faulty = [address for address in run.processes if address in run.world.budgets]
        clients = [process for process in run.processes.values() if process.script]
        for _ in range(STEPS_MAX):
            clients = [each for each in clients if each.machine is not None and each.issued < len(each.script)]
            able = [each.address for each in clients if each.can_issue()]
            draw = random.random()
            if faulty and draw < self._fault_share / 2:
                self._fault(random.choice(faulty))
            elif able and (draw < self._fault_share / 2 + self._issue_share or not run.channels):
                client = random.choice(able)
                for _ in range(random.choice(self._bursts)):
                    if run.processes[client].can_issue():
                        self._take(Transition("issue", client))
                if random.random() < 0.1:
                    self._slow.clear()
            elif run.channels:
                self._deliver(self._fast_channels())
            elif not clients or not self._hurry():
                break
        self._end()
