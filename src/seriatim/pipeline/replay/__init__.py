"""An archive in its order again: what a subscriber saw, or would have seen.

positions.py finds every event's place in the order log, and choosing.py what to do where that has none. sequences.py
has what a subscriber saw, from one bound to another; republish.py publishes that again, and needs a broker's client.
Where there is no order log, merger.py finds the order of the stamps, without Spark, and ordering.py does so for tables.
"""

from seriatim.pipeline.replay.bounds import NO_BOUND, Bound, parse_bound
from seriatim.pipeline.replay.merger import Merger
from seriatim.pipeline.replay.ordering import describe_held, held
from seriatim.pipeline.replay.positions import with_positions
from seriatim.pipeline.replay.sequences import (
    Replay,
    as_text,
    check_subscriber,
    in_sequence,
    never_ordered,
    saw,
    sentence,
    would_have_seen,
)

__all__ = [
    "NO_BOUND",
    "Bound",
    "Merger",
    "Replay",
    "as_text",
    "check_subscriber",
    "describe_held",
    "held",
    "in_sequence",
    "never_ordered",
    "parse_bound",
    "saw",
    "sentence",
    "with_positions",
    "would_have_seen",
]
