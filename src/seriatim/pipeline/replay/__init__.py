"""An archive in the order of its stamps again: what a subscriber saw, or would have seen.

merger.py finds the order, without Spark; ordering.py does so for tables; sequences.py has what a subscriber saw, from
one bound to another; republish.py publishes that again, and needs a broker's client.
"""

from seriatim.pipeline.replay.merger import Merger, order_key
from seriatim.pipeline.replay.ordering import describe_held, held, in_order, placed, places, with_order_keys
from seriatim.pipeline.replay.sequences import (
    NO_BOUND,
    Bound,
    Replay,
    as_text,
    in_sequence,
    never_ordered,
    parse_bound,
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
    "describe_held",
    "held",
    "in_order",
    "in_sequence",
    "never_ordered",
    "order_key",
    "parse_bound",
    "placed",
    "places",
    "saw",
    "sentence",
    "with_order_keys",
    "would_have_seen",
]
