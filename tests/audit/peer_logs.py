"""Logs of VCube-PS for the auditors: with a rule switched off, and of the right peers under the same faults."""

from functools import cache, partial
from random import Random

from msgspec import structs

from seriatim.audit import audit
from seriatim.lab.explore.engine.checks import Stopped
from seriatim.lab.explore.engine.run import Run
from seriatim.lab.explore.registry import VCUBE
from seriatim.lab.explore.vcube.plots import PLOTS
from seriatim.lab.explore.vcube.plotting import PlotWalk, plotted_world
from seriatim.lab.explore.vcube.random_worlds import PeerWalk
from seriatim.lab.explore.vcube.stories import JOINING_WHILE_DYING, RETURNING
from seriatim.lab.sim import Simulator, Uniform, reliable_unordered
from seriatim.lab.sim.peer_recorder import PeerRecorder
from seriatim.model import Event, History
from seriatim.protocols.machine import Payload
from seriatim.protocols.vcube import Cube, Peer, VCubeOptions, address_of
from seriatim.protocols.vcube.messages import Publish, Subscribe, Suspect, Unsubscribe

TOPIC = "chat"
DURATION_MS = 6_000.0

IN_PLOTS = {  # rules without which causal order breaks, and the plots in which it does
    "no-known-start": "only joiners are left of those who had it",
    "no-arrival": "what members have of the dead comes late",
    "no-remains": "a leaver hands on events whose causes are lost",
    "no-own-answer": "a leaver returns while it still hands on",
    "no-stable-pruning": "two crashes",
    "no-closed-frontier": "how far, told too early",
    "no-obituary": "left out as dead",
    "no-lasting-remains": "named to a joiner by a leaver",
    "no-full-remains": "notified and handed on by a leaver",
    "no-taking-up": "notified and handed on by a leaver that returned",
    "no-keeping-below": "handed on by a peer that began after it",
    "no-equal-news": "handed on by an earlier life",
}
IN_STORIES = {  # … and stories in which it does on some random way, looked for from this one on
    "no-full-counts": (RETURNING, 0),
    "no-recount": (JOINING_WHILE_DYING, 150),
}
WAYS_MAX = 3_000
BREAKING = (*IN_PLOTS, *IN_STORIES)


def log_of(variant: str, peer: type[Peer]) -> History:
    """The log of the world in which this variant breaks causal order, played by any peers."""
    if variant in IN_PLOTS:
        plot = PLOTS[IN_PLOTS[variant]]
        run = Run(plotted_world("plot", plot).build(peer))
        PlotWalk(run, Random(1), plot.steps).go()
        run.finish()
        return recorded(run)
    return _walked(variant, peer, _breaking_way(variant))


def _walked(variant: str, peer: type[Peer], way: int) -> History:
    run = Run(IN_STORIES[variant][0].build(peer))
    PeerWalk(run, Random(f"20/{way}")).go()
    run.finish()
    return recorded(run)


@cache
def _breaking_way(variant: str) -> int:
    """A way on which the variant is caught. Which one that is changes with every message that a peer sends."""
    first = IN_STORIES[variant][1]
    for way in range(first, first + WAYS_MAX):
        if audit(_walked(variant, VCUBE.cast(variant), way), limit=1).anomalies_against(["causal"]):
            return way
    raise AssertionError(f"{variant} was not caught on {WAYS_MAX} ways")


def recorded(world: Stopped) -> History:
    """The notifications of a world's peers about its one topic."""
    recorder = PeerRecorder()
    for address in world.addresses:
        for payload in world.log(address):
            recorder.notified(address, payload)
    (history,) = recorder.histories().values()
    return history


def chat(seed: int, size: int = 6) -> History:
    """Simulated peers that talk, come, go, crash and restart for some seconds; whoever says something answers what it
    has seen."""
    random = Random(f"chat {seed}")
    cube, options = Cube(range(size)), VCubeOptions()
    recorder = PeerRecorder()
    simulator = Simulator(f"chat {seed}", reliable_unordered(Uniform(1.0, 60.0)), recorder.notified)

    def start(id: int, records: object, epoch: int) -> Peer:
        return Peer.restart(cube, id, options, list(records)) if epoch > 1 else Peer(cube, id, options)  # type: ignore[call-overload]

    def say(id: int, text: str) -> None:
        simulator.command(address_of(id), Publish(Event(text, TOPIC, address_of(id)), join=True))

    def tell(id: int, command: Payload) -> None:
        simulator.command(address_of(id), command)

    for id in cube.ids:
        simulator.add(address_of(id), partial(start, id))
        simulator.at(random.uniform(0.0, 500.0), partial(tell, id, Subscribe(TOPIC)))
    for number in range(60):
        id = random.randrange(size)
        simulator.at(random.uniform(600.0, DURATION_MS - 2_000.0), partial(say, id, f"{seed}.{number}"))
    for number in range(4):
        id, time = random.randrange(size), random.uniform(800.0, DURATION_MS - 3_000.0)
        if number % 2:
            simulator.at(time, partial(tell, id, Unsubscribe(TOPIC)))
            simulator.at(time + 400.0, partial(tell, id, Subscribe(TOPIC)))
        else:
            simulator.at(time, partial(simulator.crash, address_of(id)))
            for other in set(cube.ids) - {id}:
                simulator.at(time + 300.0, partial(tell, other, Suspect(id)))
            simulator.at(time + 700.0, partial(simulator.start, address_of(id)))
            simulator.at(time + 750.0, partial(tell, id, Subscribe(TOPIC)))
    simulator.run()
    return recorder.histories()[TOPIC]


def without_barriers(history: History) -> History:
    rows = [structs.replace(row, stamp=None) for row in history.deliveries]
    return History(rows, history.publications, history.subscriptions)


def without_seen(history: History) -> History:
    rows = [structs.replace(row, seen=None) for row in history.publications]
    return History(history.deliveries, rows, history.subscriptions)


def without_publications(history: History) -> History:
    return History(history.deliveries)


def without_one_peer(history: History) -> History:
    """Somebody's log is lost, and with it what it published and had seen."""
    lost = next(row.publisher for row in history.publications if row.seen)
    return History(
        [row for row in history.deliveries if row.subscriber != lost],
        [row for row in history.publications if row.publisher != lost],
    )


def logs_with_verdicts() -> dict[str, tuple[History, str]]:
    """Logs of all kinds, and what must be said of their causal order."""
    found: dict[str, tuple[History, str]] = {}
    for variant in BREAKING:
        broken = log_of(variant, VCUBE.cast(variant))
        found[variant] = broken, "invalid"
        found[f"{variant}, without barriers"] = without_barriers(broken), "invalid"
        found[f"{variant}, but right"] = log_of(variant, Peer), "valid"
    for seed in range(3):
        found[f"chat {seed}"] = chat(seed), "valid"
    for less in (without_seen, without_publications, without_one_peer):
        found[less.__name__] = less(chat(0)), "unknown"
    return found
