"""A discussion (paper 001 §4.3): somebody asks, everybody answers. How large are barriers, how long does order wait?

The machines of VCube-PS run it in the simulator, so the measurements show the effect of the protocol's own barriers.
"""

from random import Random

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper001.tree_worlds import THE_PAPERS, VCubeWorld
from seriatim.lab.sim import Constant, Link, PacketDelays
from seriatim.lab.sim.process import Cost, Waits
from seriatim.model import InputError, Notification
from seriatim.protocols.machine import Payload

TOPIC = "T"
STATED, ALL_QUEUE = "as stated", "all messages queue"


class OneByOne(PacketDelays, frozen=True):
    """Processing as a resource: a node takes its messages one by one, acknowledgements too."""

    def link(self) -> Link:
        return Link(Constant(self.propagation), fifo=False)

    def cost(self, waits: Waits | None = None) -> Cost:
        return Cost(processing_ms=self.processing, transmission_ms=self.transmission, waits=waits)


class Discussion(VCubeWorld):
    """`asked` peers publish at the beginning; each other one publishes some time after it was notified of all these.

    The papers say that it waits "a random time" and no more; `pause` is `uniform 100` (anything up to 100) or
    `exponential 130` (130 in the mean). That it waits for so many messages of any kind would be the same: causal order
    has every answer come after all questions. Another reading: `all messages queue`, before they are processed and
    before they are sent.
    """

    def __init__(self, size: int, asked: int, pause: str, seed: int, reading: str = STATED) -> None:
        is_queued = reading == ALL_QUEUE
        super().__init__(size, delays=OneByOne() if is_queued else THE_PAPERS, acks_wait=is_queued)
        self.random = Random(f"discussion {seed}")
        kind, _, length = pause.partition(" ")
        if kind not in ("uniform", "exponential"):
            raise InputError("pause", f"{pause!r} is not a distribution", "give uniform or exponential, and a length")
        self._is_exponential, self._length = kind == "exponential", float(length)
        askers = self.random.sample(range(size), asked)
        self.asked = {f"e{id}" for id in askers}
        self._missing = {id: set(self.asked) for id in range(size) if id not in askers}
        for id in askers:
            self.publish(id, f"e{id}", TOPIC, 0.0)

    def on_notification(self, id: int, payload: Payload, now: float) -> None:
        super().on_notification(id, payload, now)
        if type(payload) is Notification and id in self._missing:
            self._missing[id].discard(payload.event.id)
            if not self._missing[id]:
                del self._missing[id]
                self.publish(id, f"e{id}", TOPIC, now + self._pause())

    def _pause(self) -> float:
        if self._is_exponential:
            return self.random.expovariate(1.0 / self._length)
        return self.random.uniform(0.0, self._length)

    def answers(self) -> list[int]:
        """The sizes of the barriers of all that was published after something else."""
        return [seen.barrier for name, seen in self.seen.items() if name not in self.asked]

    def held(self) -> list[float]:
        """From reception to notification, wherever something was received."""
        return [seen.notified[id] - time for seen in self.seen.values() for id, time in seen.received.items()]


def run_discussion(parameters: Parameters, seed: int) -> Measures:
    """`waits`: for how many messages everybody waits before its own."""
    waits = int(parameters["waits"])
    reading = str(parameters.get("reading", STATED))
    world = Discussion(int(parameters["size"]), waits, str(parameters["pause"]), seed, reading)
    world.run()
    barriers, delays = world.answers(), world.held()

    def share(count: int, of: int) -> float:
        return 100.0 * count / of

    return {
        "exactly": share(sum(size == waits for size in barriers), len(barriers)),
        "below": share(sum(size < (5 if waits == 1 else 15) for size in barriers), len(barriers)),
        "barrier_mean": sum(barriers) / len(barriers),
        "barrier_max": float(max(barriers)),
        "receptions": float(len(delays)),
        "none": share(sum(delay == 0.0 for delay in delays), len(delays)),
        "below_10": share(sum(delay < 10.0 for delay in delays), len(delays)),
        "above_50": float(sum(delay > 50.0 for delay in delays)),
        "delay_max": max(delays),
    }
