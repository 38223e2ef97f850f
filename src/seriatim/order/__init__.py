"""Pure arithmetic of ordering, shared by protocols, simulator and auditors."""

from seriatim.order.coupling import CouplingState, CouplingTable, Holder, Shift
from seriatim.order.guarantees import GUARANTEES, implied_by, implies
from seriatim.order.holdback import Held, HoldBack, Lane, Released
from seriatim.order.levels import LevelTable, level
from seriatim.order.order_log import OrderedRange, OrderState, PassingOrder, count_of, from_position
from seriatim.order.passage import PassageState, PassageTable
from seriatim.order.stamp import TopicIds, TopicNames, decode_entries, encode_entries, topic_id
from seriatim.order.tree import Moves, Place, SequencingTree, ShapeChange, ShapeKind

__all__ = [
    "GUARANTEES",
    "CouplingState",
    "CouplingTable",
    "Held",
    "HoldBack",
    "Holder",
    "Lane",
    "LevelTable",
    "Moves",
    "OrderState",
    "OrderedRange",
    "PassageState",
    "PassageTable",
    "PassingOrder",
    "Place",
    "Released",
    "SequencingTree",
    "ShapeChange",
    "ShapeKind",
    "Shift",
    "TopicIds",
    "TopicNames",
    "count_of",
    "decode_entries",
    "encode_entries",
    "from_position",
    "implied_by",
    "implies",
    "level",
    "topic_id",
]
