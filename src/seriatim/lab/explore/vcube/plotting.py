"""A plot of VCube-PS, and how it is played: slow links, commands and deaths, step by step.

The plots themselves are in plots.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

from seriatim.lab.explore.engine.process import at
from seriatim.lab.explore.engine.run import Run
from seriatim.lab.explore.engine.walk import Walk
from seriatim.lab.explore.engine.world import Budget, Channel, Transition
from seriatim.lab.explore.vcube.cast import Command, VCubeWorld, publish
from seriatim.model import Address
from seriatim.protocols.vcube import VCubeOptions, address_of
from seriatim.protocols.vcube.messages import Publish, Subscribe, Suspect, Unsubscribe

TOPIC = "A"
PATIENCE = 80  # heartbeats; all clocks of a plot run together, so ten of them find the dead peers
LOSSES = 1_000  # of what a dead peer sent, all of it
HURRIED = 0.02  # after a step: something slow arrives


@dataclass(frozen=True)
class Hold:
    """From here on, on this link, these events (or messages of these kinds) are slow; without any: everything."""

    source: int
    target: int
    what: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Release:
    """The delayed messages on this link arrive."""

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
    """The initial holders of the topic, and the steps."""

    ids: Sequence[int]
    members: Sequence[int]
    steps: Sequence[Step]
    accurate: bool = True  # no living peer is suspected


def events(peer: int, *ids: str) -> list[Step]:
    """Let a peer publish these events."""
    return [Tell(peer, command) for command in publish(peer, TOPIC, *ids)]


def join(*peers: int) -> list[Step]:
    return [Tell(peer, Subscribe(TOPIC)) for peer in peers]


def leave(peer: int) -> Step:
    return Tell(peer, Unsubscribe(TOPIC))


def plot(ids: str, members: str, story: str, accurate: bool = True) -> Plot:
    """A plot from its story: steps separated by semicolons or line ends; ids and names separated by blanks.

    `slow 0>5 cause Census`: on the link from 0 to 5, the event `cause` and messages of the kind `Census` are slow from
    here on; `release 0>5`: what was slow there arrives. `3 publishes a, b`; `4 6 join`; `4 leaves`; `0 suspects 4`.
    `0 1 die`: and all notice; `0 1 die unnoticed`; `all notice 1`; `4 notices 0`.
    """
    clauses = [clause.split() for clause in story.replace("\n", ";").split(";")]
    steps = [step for words in clauses if words for step in _steps(words)]
    return Plot(_numbers(ids.split()), _numbers(members.split()), steps, accurate)


def _steps(words: list[str]) -> list[Step]:
    match words:
        case ["slow", link, *what]:
            source, target = _numbers(link.split(">"))
            return [Hold(source, target, frozenset(what))]
        case ["release", link]:
            source, target = _numbers(link.split(">"))
            return [Release(source, target)]
        case [peer, "publishes", *ids]:
            return events(int(peer), *" ".join(ids).split(", "))
        case [peer, "leaves"]:
            return [leave(int(peer))]
        case [peer, "suspects", other]:
            return [Tell(int(peer), Suspect(int(other)))]
        case ["all", "notice", *peers]:
            return [Notice(_numbers(peers))]
        case [by, "notices", *peers]:
            return [Notice(_numbers(peers), int(by))]
        case [*peers, "join" | "joins"]:
            return join(*_numbers(peers))
        case [*peers, "die" | "dies", "unnoticed"]:
            return [Die(_numbers(peers))]
        case [*peers, "die" | "dies"]:
            return [Die(_numbers(peers)), Notice(_numbers(peers))]
    raise ValueError(f"not a step of a plot: {' '.join(words)}")


def _numbers(words: Sequence[str]) -> tuple[int, ...]:
    return tuple(map(int, words))


def scripts_of(steps: Iterable[Step]) -> dict[Address, list[Command]]:
    """What each peer is told, one after the other."""
    scripts: dict[Address, list[Command]] = {}
    for step in steps:
        if isinstance(step, Tell):
            scripts.setdefault(address_of(step.peer), []).append(step.command)
    return scripts


def founded_by(members: Iterable[int]) -> list[tuple[Address, Command]]:
    """Let these peers hold the topic before anything else happens."""
    return [(address_of(id), Subscribe(TOPIC)) for id in members]


def plotted_world(name: str, plot: Plot) -> VCubeWorld:
    """The world of a plot: commands become scripts, and whoever dies in it may."""
    dying = {peer for step in plot.steps if isinstance(step, Die) for peer in step.peers}
    return VCubeWorld(
        name=name,
        ids=sorted(plot.ids),
        options=VCubeOptions(window=4, heartbeat_ms=100.0, suspect_after_ms=950.0),
        scripts=scripts_of(plot.steps),
        setup=founded_by(sorted(plot.members)),
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


def mirrored(plot: Plot, mask: int, steps: Iterable[Step]) -> Plot:
    """A plot seen from another corner of the cube, with these steps."""
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
