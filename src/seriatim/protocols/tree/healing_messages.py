"""The messages that let a node come back that has lost its journal (healing.py). Part of the tree's (messages.py)."""

from msgspec import Struct

from seriatim.model import Address, Node, Number, Position, Topic
from seriatim.order import Holder, OrderedRange, Place

ERA = 1 << 20  # more than a node forgets subscribers in an era, or a root begins rounds in a life


def known_from_the_start(era: int) -> int:
    """The acquaintance of a subscriber that a healed node knew before it issued anything in this era."""
    return era * ERA + 1


def known_since(acquaintance: int) -> int:
    """The era from whose beginning a healed node has known a subscriber; 0: there is none."""
    era, count = divmod(acquaintance, ERA)
    return era if count == 1 else 0


class JournalLost(Struct, frozen=True, tag=True, omit_defaults=True):
    """A node to itself, before anything else: it has lost its journal, and this is what the broker keeps of it.

    `stamped`: how far the stamps of each topic go, whoever gave them; 0: it has a log. `holes`: numbers without one
    before that. `named`: how far the entries of its own stamps go. `lost`: what was lost earlier, as stamps say.
    `ahead`: how far stages may have been told, if there are stamps; None: the latest does not say. At the root,
    `ordered` and `placed`: how far the order log goes.
    """

    stamped: dict[Topic, Number] = {}
    named: dict[Topic, Number] = {}
    holes: dict[Topic, list[tuple[Number, Number]]] = {}
    ordered: Position = 0
    placed: dict[Topic, Number] = {}
    lost: dict[Topic, list[tuple[Number, Number]]] = {}
    ahead: dict[Topic, Number | None] = {}


class AskToHeal(Struct, frozen=True, tag=True):
    """Child → parent, up to the root: this node has lost its journal. Have everybody begin a new era.

    `epoch`: of its present life. Without a number on the link, to any neighbour: how far is our link?
    """

    node: Node
    epoch: int = 0


class Heal(Struct, frozen=True, tag=True, omit_defaults=True):
    """Parent → child, down to all nodes: one sweep of a round. Answered when all below have answered.

    1. Are you there?
    2. Issue nothing more, and say what you know of moves.
    3. This is the map. Whatever of yours is unfinished now was lost. Say how far numbers are that somebody may know of.
    4. These are the counts of all topics. What is issued from now on comes after them.

    `lost`: the nodes that have lost their journals, and the epochs of their present lives. A blank node takes nothing
    that does not name its own: it may be from an earlier round. `holders`: who holds topics of theirs.
    """

    round: int
    phase: int
    lost: dict[Node, int]
    moves: int = 0
    places: dict[Topic, Place] = {}
    granted: int = 0
    counts: dict[Topic, Number] = {}
    holders: dict[Address, Holder] = {}


class Healed(Struct, frozen=True, tag=True, omit_defaults=True):
    """Child → parent: this node and all below have done it, and together they know this.

    `latest`: the latest round or era. `moves`, `places`, `granted`: the latest moves. `moving`: topics that are on
    their way, so that a root that is lost may have told clients where they live. `counts`: how far each topic is
    known to somebody; `issued`: how far it was issued. `is_blind`: part of the counts is not known, so all that was
    issued counts as known.
    """

    round: int
    phase: int
    latest: int = 0
    moves: int = 0
    places: dict[Topic, Place] = {}
    granted: int = 0
    moving: frozenset[Topic] = frozenset()
    counts: dict[Topic, Number] = {}
    issued: dict[Topic, Number] = {}
    holders: dict[Address, Holder] = {}
    is_blind: bool = False
    order: tuple[OrderedRange, ...] | None = None
