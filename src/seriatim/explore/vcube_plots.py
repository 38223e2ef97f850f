"""Plots: worlds of VCube-PS in which several things happen at the right moments, told step by step.

Random walks hardly ever meet what takes four deaths and three slow links. A plot says which links are slow for what,
who is told what, and who dies; everything else arrives at once, in random order. The swarm plays plots with other ids
(the cube looks the same from everywhere), with steps left out and with more steps between them.

In most plots `middle` comes after `cause`, is received by every member and so stands for it in the barrier of `effect`;
then everybody dies who could tell that `cause` comes first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

from seriatim.explore.process import at
from seriatim.explore.random_worlds import Walk
from seriatim.explore.run import Run
from seriatim.explore.vcube import Command, VCubeWorld, publish
from seriatim.explore.world import Budget, Channel, Transition
from seriatim.model import Address
from seriatim.protocols.vcube import VCubeOptions, address_of
from seriatim.protocols.vcube.messages import Publish, Subscribe, Suspect, Unsubscribe

TOPIC = "A"
PATIENCE = 80  # heartbeats; all clocks of a plot run together, so ten of them find out who is dead
LOSSES = 1_000  # of what a dead peer sent, all of it
LEFT_OUT = 0.03  # of the steps of a plot
INSERTED = 0.08  # after a step: somebody publishes, joins or leaves
HURRIED = 0.02  # after a step: something slow arrives


@dataclass(frozen=True)
class Hold:
    """From here on, on this link, these events (or messages of these kinds) are slow; without any: everything."""

    source: int
    target: int
    what: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Release:
    """What was slow on this link arrives."""

    source: int
    target: int


@dataclass(frozen=True)
class Tell:
    """A peer's application gives it a command."""

    peer: int
    command: Command


@dataclass(frozen=True)
class Die:
    """These die, with everything of theirs that is still under way."""

    peers: tuple[int, ...]


@dataclass(frozen=True)
class Notice:
    """These deaths are noticed: by all who live, or by one of them."""

    peers: tuple[int, ...]
    by: int | None = None


Step: TypeAlias = Hold | Release | Tell | Die | Notice


@dataclass(frozen=True)
class Plot:
    """Who holds the topic at first, and what happens."""

    ids: Sequence[int]
    members: Sequence[int]
    steps: Sequence[Step]
    accurate: bool = True  # nobody is suspected who lives


def hold(source: int, target: int, *what: str) -> Step:
    return Hold(source, target, frozenset(what))


def events(peer: int, *ids: str) -> list[Step]:
    """It publishes these."""
    return [Tell(peer, command) for command in publish(peer, TOPIC, *ids)]


def join(*peers: int) -> list[Step]:
    return [Tell(peer, Subscribe(TOPIC)) for peer in peers]


def leave(peer: int) -> Step:
    return Tell(peer, Unsubscribe(TOPIC))


def die(*peers: int) -> list[Step]:
    """They die, and all notice."""
    return [Die(peers), Notice(peers)]


def _only_joiners() -> Plot:
    """4 and 6 are joining. 0 was held up and sends them `cause` when `middle` has long been received by all."""
    return Plot(
        range(7),
        [0, 1, 2, 3, 5],
        [
            *events(3, "first"),
            hold(0, 5, "cause"),
            *events(0, "cause"),
            *events(2, "middle", "all have middle"),
            hold(4, 6, "Census"),
            hold(6, 2, "Census"),
            *join(4, 6),
            hold(0, 4, "cause"),
            *die(5),
            hold(6, 4, "Ack"),
            *events(1, "effect"),
            hold(4, 6, "Census", "cause"),
            Release(0, 4),
            *die(0, 1, 2, 3),
            Release(4, 6),
            Release(6, 4),
            *events(4, "new"),
        ],
    )


def _late_spares() -> Plot:
    """4 joins; the two who have `middle` cannot notify it yet, and what they send 4 of it is slow."""
    return Plot(
        range(5),
        [0, 1, 2, 3],
        [
            hold(1, 0, "first"),
            *events(1, "first"),
            hold(0, 1, "cause"),
            *events(2, "cause"),
            *events(3, "middle", "all have middle"),
            hold(4, 0, "Census"),
            *join(4),
            hold(0, 4, "cause", "middle"),
            hold(1, 4, "middle"),
            *die(2, 3),
            Release(4, 0),
            hold(4, 0, "Census"),
            *die(1),
            Release(4, 0),
            *events(0, "effect"),
            Release(0, 4),
        ],
    )


def _leaver(*then: Step) -> Plot:
    """4 has left and still hands on `cause` and `effect` to 5, which is joining. It had received `middle`, but not
    notified it, for want of what came before. All others die."""
    return Plot(
        range(6),
        [0, 1, 2, 3, 4],
        [
            hold(3, 4, "first"),
            *events(3, "first"),
            hold(0, 4, "cause"),
            *events(0, "cause"),
            *events(2, "middle", "all have middle"),
            hold(5, 1, "Census"),
            *join(5),
            hold(5, 4, "Census"),
            hold(4, 5, "cause", "effect"),
            *events(1, "effect"),
            Release(0, 4),
            leave(4),
            *die(0, 1, 2, 3),
            *then,
            Release(5, 4),
            Release(4, 5),
        ],
    )


def _two_crashes() -> Plot:
    """Nobody who lives has `middle`, and 3 has nothing but `effect`."""
    return Plot(
        [0, 1, 3, 4],
        [0, 1, 3, 4],
        [
            hold(0, 3, "cause", "middle"),
            hold(0, 4, "middle"),
            hold(1, 4, "effect"),
            hold(4, 3, "cause"),
            *events(4, "cause"),
            *events(0, "middle"),
            *events(1, "effect"),
            *die(0, 1),
            Release(4, 3),
        ],
    )


def _had_by_all() -> Plot:
    """Everybody received `late` before 4 came, and nobody could notify it yet; its source will not send it again."""
    return Plot(
        range(5),
        [0, 1, 2, 3],
        [
            hold(3, 0, "lost"),
            hold(3, 1, "lost"),
            *events(3, "lost"),
            hold(2, 0, "Ack"),
            *events(2, "late"),
            Die((3, 2)),
            Notice((2,)),
            *join(4),
            Notice((3,), by=4),
            *events(0, "new"),
        ],
    )


def _early_answer() -> Plot:
    """1 tells the joiner how far it is before it publishes `cause`, 0 after it published `middle`."""
    return Plot(
        range(4),
        [0, 1, 2],
        [
            hold(1, 0, "Census"),
            *join(3),
            hold(2, 3, "cause"),
            *events(1, "cause"),
            *events(0, "middle", "all have middle"),
            Release(1, 0),
            *events(2, "effect"),
            Release(2, 3),
        ],
    )


def _overtaken_spares() -> Plot:
    """What 0 sends 4 to join with is slow; 4 has to ask again, and 0, the only one who had it, has left by then."""
    return Plot(
        range(5),
        [0, 1, 2, 3],
        [
            hold(1, 0, "first"),
            *events(1, "first"),
            hold(0, 1, "cause"),
            *events(2, "cause"),
            *events(3, "middle"),
            *die(2, 3),
            hold(0, 4, "cause", "middle"),
            hold(1, 4, "middle"),
            *join(4),
            leave(0),
            *die(1),
            hold(0, 4, "cause"),
            Release(0, 4),
            *join(0),
        ],
    )


def _left_out() -> Plot:
    """0 holds 4 and 5 for dead, so `middle` is received by all without them; they hear of both only from others."""
    return Plot(
        [0, 1, 2, 4, 5],
        [0, 1, 2, 4, 5],
        [
            hold(4, 5, "cause"),
            *events(2, "cause"),
            *(hold(0, other, "News") for other in (1, 2, 4, 5)),
            Tell(0, Suspect(4)),
            Tell(0, Suspect(5)),
            *events(0, "middle", "all have middle"),
            *events(1, "effect"),
            *die(0, 1, 2),
            Release(4, 5),
        ],
        accurate=False,
    )


PLOTS: dict[str, Plot] = {
    "only joiners are left of those who had it": _only_joiners(),
    "what members have of the dead comes late": _late_spares(),
    "who left hands on what its past is lost of": _leaver(),
    "who returns while it still hands on": _leaver(*join(4)),
    "two crashes": _two_crashes(),
    "all had it before somebody joined": _had_by_all(),
    "how far, told too early": _early_answer(),
    "spares of an earlier census": _overtaken_spares(),
    "left out as dead": _left_out(),
}


def plotted_world(name: str, plot: Plot) -> VCubeWorld:
    """The world of a plot: commands become scripts, and whoever dies in it may."""
    scripts: dict[Address, list[Command]] = {}
    dying: set[int] = set()
    for step in plot.steps:
        match step:
            case Tell(peer, command):
                scripts.setdefault(address_of(peer), []).append(command)
            case Die(peers):
                dying |= set(peers)
    return VCubeWorld(
        name=name,
        ids=sorted(plot.ids),
        options=VCubeOptions(window=4, heartbeat_ms=100.0, suspect_after_ms=950.0),
        scripts=scripts,
        setup=[(address_of(id), Subscribe(TOPIC)) for id in sorted(plot.members)],
        budgets={address_of(id): Budget(losses=LOSSES, deaths=int(id in dying)) for id in plot.ids},
        lanes="content",
        accurate=plot.accurate,
        patience=PATIENCE,
    )


class PlotWalk(Walk):
    """The way of a plot: after each step everything arrives that is not slow, in random order."""

    def __init__(self, run: Run, random: Random, steps: Iterable[Step], hurried: float = 0.0) -> None:
        super().__init__(run, random)
        self._steps = steps
        self._hurried = hurried
        self._held: dict[tuple[Address, Address], frozenset[str]] = {}

    def go(self) -> None:
        for step in self._steps:
            self._follow(step)
            self._arrive()
            if self.run.channels and self.random.random() < self._hurried:
                self._take(Transition("deliver", *at(self.random.choice(list(self.run.channels)))))
                self._arrive()
        self._held.clear()
        self.run.end_faults()
        self._arrive()

    def _follow(self, step: Step) -> None:
        match step:
            case Hold(source, target, what):
                self._held[address_of(source), address_of(target)] = what
            case Release(source, target):
                self._held.pop((address_of(source), address_of(target)), None)
            case Tell(peer):
                self._take_if_possible(Transition("issue", address_of(peer)))
            case Die(peers):
                for peer in peers:
                    self._take_if_possible(Transition("die", address_of(peer)))
                for channel in [each for each in self.run.channels if each.source in map(address_of, peers)]:
                    for _ in range(len(self.run.channels[channel])):
                        self._take_if_possible(Transition("lose", *at(channel)))
            case Notice(peers, by):
                for peer in peers:
                    for address in self.run.processes if by is None else [address_of(by)]:
                        self._take_if_possible(Transition("suspect", address, lane=address_of(peer)))
                        self._arrive()

    def _take_if_possible(self, transition: Transition) -> None:
        if self.run.is_enabled(transition):
            self._take(transition)

    def _arrive(self) -> None:
        """Deliver all that is not slow."""
        while fast := [channel for channel in self.run.channels if not self._is_held(channel)]:
            self._take(Transition("deliver", *at(self.random.choice(fast))))

    def _is_held(self, channel: Channel) -> bool:
        what = self._held.get((channel.source, channel.target))
        return what is not None and (not what or channel.lane in what)


def random_plot(random: Random) -> Plot:
    """One of the plots, seen from another corner of the cube, and not quite as it is told."""
    plot = random.choice(list(PLOTS.values()))
    mask = random.choice([0, 0, random.randrange(8)])
    steps: list[Step] = []
    for number, step in enumerate(plot.steps):
        if random.random() >= LEFT_OUT:
            steps.append(step)
        if random.random() < INSERTED:
            peer = random.choice(plot.ids)
            steps.extend(random.choice([events(peer, f"{peer}.{number}"), join(peer), [leave(peer)]]))
    return replace(
        plot,
        ids=[id ^ mask for id in plot.ids],
        members=[id ^ mask for id in plot.members],
        steps=[_masked(mask, step) for step in steps],
    )


def _masked(mask: int, step: Step) -> Step:
    match step:
        case Hold(source, target) | Release(source, target):
            return replace(step, source=source ^ mask, target=target ^ mask)
        case Tell(peer, Publish(event)):
            return Tell(peer ^ mask, publish(peer ^ mask, TOPIC, event.id)[0])
        case Tell(peer, Suspect(other)):
            return Tell(peer ^ mask, Suspect(other ^ mask))
        case Tell(peer, command):
            return Tell(peer ^ mask, command)
        case Die(peers):
            return Die(tuple(peer ^ mask for peer in peers))
        case Notice(peers, by):
            return Notice(tuple(peer ^ mask for peer in peers), None if by is None else by ^ mask)
