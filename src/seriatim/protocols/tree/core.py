"""What all parts of a sequencer share: its state, its place in the tree, and the way to other nodes.

The sequencer is one machine written in six parts, each of which can be read alone: numbers (numbering.py),
subscriptions (joining.py), the order log (ordering.py), topics that move (moving.py) or are removed (removing.py), and
the seam to the driver (sequencer.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TypeAlias

from seriatim.model import Address, Entries, Node, Number, Position, Topic
from seriatim.order import CouplingTable, LevelTable, OrderedRange, PassageTable, SequencingTree, ShapeChange
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.tree.estate import Home, KnownAs, Regrouping
from seriatim.protocols.tree.messages import Body, Climbing, Moved, Refused, Routed, Subscribe, Tell, Ticket, Update
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.shaping_messages import Reshape
from seriatim.protocols.tree.state import SequencerState, new_state

Asked: TypeAlias = Ticket | Subscribe | Update | Tell


class SequencerCore(ABC):
    """One node. `state` is all it knows; everything else here is derived from it."""

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerState | None = None
    ) -> None:
        self.node = node
        self.options = options
        self.state = state if state is not None else new_state(options)
        self._configured = tree
        self.tree = self._view()
        self._neighbours: set[Address] = set()  # who may speak as one
        self.shape_version = 0  # grows when they may have changed
        self._is_restless = self._topics_move()
        self._passages = PassageTable(self.state.passages, full=options.full_stamps)
        self._couplings = CouplingTable(self.state.couplings, self._is_home, options.threshold)
        self._parent = self.tree.parents[node]
        self._has_neighbours = len(self.tree.parents) > 1
        self._levels = self._level_table()
        self._removal_due: float | None = None  # when to ask the broker about removed topics, or again
        self._passing_at: Position = 0  # the position of the pass that is being handled; 0: not known

    def _view(self) -> SequencingTree:
        founding = self.state.moving.founding
        return (self._configured if founding is None else founding.tree).view(self.state.moves)

    @abstractmethod
    def neighbours(self) -> set[Node]:
        """The nodes that this one has links with: those in the tree, and those on their way in or out."""

    def _look_around(self) -> None:
        """The neighbours may have changed."""
        self._neighbours.clear()
        self._neighbours |= self.neighbours()
        self.shape_version += 1

    def _level_table(self) -> LevelTable | None:
        """Who waits at which node. None: every stamp given out here is finished here, or there are no stages."""
        if not self.options.tells_stages or self._parent is None:
            return None
        levels = LevelTable(self.tree, self.node, self._is_home)
        for holder in self.state.couplings.holders.values():
            levels.change(frozenset(), holder.topics)
        return levels

    @abstractmethod
    def step(self, source: Address, message: Payload, now: float) -> Effects:
        """Take one input."""

    @abstractmethod
    def _take(self, body: Body, now: float, effects: Effects) -> None:
        """Handle what was routed to this node."""

    @abstractmethod
    def _is_elsewhere(self, source: Address, message: Asked, topic: Topic, effects: Effects) -> bool:
        """Whether this is not for us to answer: the topic has moved, or is about to. Only asked if some topic has."""

    @abstractmethod
    def _measure(self, topic: Topic, home: Home, now: float, effects: Effects) -> None:
        """The broker told how long the log of a topic homed here is."""

    @abstractmethod
    def _watch(self, topics: Iterable[Topic], now: float, effects: Effects) -> None:
        """Have these logs watched, unless that is known, or asked already."""

    @abstractmethod
    def _forget_measure(self, topic: Topic) -> None:
        """The length of this log is asked for no longer."""

    @abstractmethod
    def _problem_with_removed(self, topic: Topic) -> str | None:
        """Why a topic takes no requests because of its removal. One that is removed is in use again from now on."""

    @abstractmethod
    def _handle_climbing(self, source: Address, message: Climbing, now: float, effects: Effects) -> None:
        """Handle what a child sends up, after its order was merged."""

    @abstractmethod
    def _place(self, topic: Topic, first: Number, last: Number, now: float) -> Position:
        """These numbers pass here now; returns the position of the first, 0: not known."""

    @abstractmethod
    def _carried(self, first: Number | None = None) -> tuple[OrderedRange, ...] | None:
        """The order that goes up with a message; with `first`, without the numbers of the pass itself."""

    @abstractmethod
    def _must_wait(self, source: Address, message: Asked, topic: Topic) -> bool:
        """Whether the topic is on its way from here or to here. Then whoever asks waits, and is answered later."""

    @abstractmethod
    def _is_to_come(self, node: Node) -> bool:
        """The root: whether this node will be part of the tree when what waits now has had its turn."""

    @abstractmethod
    def _begin_reshape(self, wish: Reshape, now: float, effects: Effects) -> None:
        """The root: it is the turn of this change of shape."""

    @abstractmethod
    def _inherited(self, subscriber: Address, about: dict[Topic, KnownAs]) -> frozenset[Topic]:
        """Those of these topics at whose former homes the subscriber was known without a break until they moved here,
        and has been since."""

    @abstractmethod
    def _forget_inherited(self, topic: Topic, subscriber: Address) -> None:
        """Note that the subscriber is no longer known without a break."""

    @abstractmethod
    def _remember_named(self, entries: Entries) -> None:
        """These numbers are named by what is given out here."""

    @abstractmethod
    def _base(self, topic: Topic, home: Home) -> Entries:
        """What the next stamp of a topic names once, because an era has begun."""

    @abstractmethod
    def _report_healed(self, now: float, effects: Effects) -> None:
        """If a sweep waits for nothing more here, answer it."""

    def _topics_move(self) -> bool:
        """Whether there was ever a move that this node knows of."""
        moving = self.state.moving
        return bool(self.state.moves.places or moving.leaving or moving.arriving)

    def _route(self, to: Node, body: Body, now: float, effects: Effects) -> None:
        if to == self.node:
            self._take(body, now, effects)
        elif to in self.tree.parents:  # else it has left, and this belongs to a move that was cancelled
            effects.send.append((self.tree.next_hop(self.node, to), Routed(to, body)))

    def _on_routed(self, source: Address, message: Routed, now: float, effects: Effects) -> None:
        self._route(message.to, message.body, now, effects)

    def _refuse(self, target: Address, request: int, topic: Topic, reason: str, effects: Effects) -> None:
        effects.send.append((target, Refused(request, topic, reason)))

    def _send_on(self, source: Address, topic: Topic, effects: Effects) -> None:
        """To where the topic lives."""
        shape = self._shape_told(0)
        effects.send.append((source, Moved(topic, self.tree.home(topic), self.tree.moved(topic), shape)))

    def _shape_told(self, after: int) -> tuple[ShapeChange, ...]:
        """What clients are told of the shape: a topic may live on a node that is new to them."""
        return self.state.moves.shape_after(after)

    def _is_home(self, topic: Topic) -> bool:
        return self.tree.knows(topic) and self.tree.home(topic) == self.node

    def _why_not_home(self, topic: Topic) -> str:
        if not self.tree.knows(topic):
            return "no node is home to it; add it to the tree's homes"
        return f"its home is {self.tree.home(topic)}, not {self.node}"

    def _home(self, topic: Topic) -> Home:
        home = self.state.homes.get(topic)
        if home is None:
            home = self.state.homes[topic] = Home()
        return home

    def _regrouping(self, topic: Topic) -> Regrouping:
        regrouping = self.state.regroupings.get(topic)
        if regrouping is None:
            regrouping = self.state.regroupings[topic] = Regrouping()
        return regrouping

    def _top(self, topic: Topic, others: set[Topic]) -> Node:
        return self.tree.highest({self.tree.meet(topic, other) for other in others}, self.node)

    def _meeting_here(self, topic: Topic, others: Iterable[Topic], moves: int) -> list[Topic]:
        """The topics that met this one here when `moves` was the latest move: what climbs refers to the map of its
        home."""
        tree, home = self.tree, self.tree.home(topic)
        if moves == tree.moves.number:
            return [other for other in others if tree.meet_nodes(home, tree.home(other)) == self.node]
        return [other for other in others if tree.meet_nodes(home, tree.home_at(other, moves)) == self.node]
