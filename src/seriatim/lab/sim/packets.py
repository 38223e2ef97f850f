"""The delay model of papers 001 and 002 (§4): what one hop of a message takes, in units of time.

A hop is processing + waiting + transmission + propagation. A node has one output queue, a copy for each target waits in
it, and copies are transmitted one after the other. The papers leave some points open. Our choices:

- **Processing is a delay, not a resource.** The papers name one queue, that of the output; a node that gets two
  messages at once processes both at once. It is counted on the way to the receiver, so it is part of every hop.
- **Only publications take a place in the output queue**, not acknowledgements nor SRPT's requests to a root. The
  papers do not say. But in their Table 1 the leaves of SRPT's tree, which send only requests, have empty queues; and
  1,024 peers that all publish have queues of 4 to 16, and a latency that rises by 5.7 %: ours do so only without
  acknowledgements in the queue (experiment `001-acks`). With them every peer has twice as much to send.
- **Links may overtake**: what takes no place in the queue may arrive before what does.
"""

from msgspec import Struct

from seriatim.lab.sim.delays import Constant
from seriatim.lab.sim.network import Link
from seriatim.lab.sim.process import Cost, Waits
from seriatim.model import InputError


class PacketDelays(Struct, frozen=True, kw_only=True):
    """The duration of a hop, without waiting. The papers' numbers; their other setting is a propagation of 1,000."""

    processing: float = 1.0
    transmission: float = 1.0
    propagation: float = 100.0

    def __post_init__(self) -> None:
        for name in ("processing", "transmission", "propagation"):
            if not getattr(self, name) >= 0.0:
                raise InputError(name, f"{getattr(self, name)} is not a duration", "give 0 or more units of time")

    @property
    def after_departure(self) -> float:
        """From the wire to the receiver's machine."""
        return self.processing + self.propagation

    @property
    def hop(self) -> float:
        """One hop of a message that waits for nothing."""
        return self.transmission + self.after_departure

    def link(self) -> Link:
        return Link(Constant(self.after_departure), fifo=False)

    def cost(self, waits: Waits | None = None) -> Cost:
        return Cost(transmission_ms=self.transmission, waits=waits)
