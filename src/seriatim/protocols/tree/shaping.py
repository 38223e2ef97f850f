"""Changing the tree while events flow: a leaf joins, a leaf leaves, a new root grows above the old one.

No change of shape changes where topics meet, since the node in question is home to nothing. So nobody waits, and the
root grants it a number in one sequence with the moves of topics.

1. *Prepare.* The node next to a new one welcomes it: tells it the tree and the moves so far, without a link, until the
   new node has journaled that and says so. A leaf that leaves is asked whether it is there. Until then the change can
   be cancelled.
2. *Switch.* Down the tree every node learns of the new shape, a parent before its child, and the answers climb, as in a
   move. The new leaf and the leaving one answer, too. What climbs in front of a leaf's last answer is all that it owes.
   When the root has all answers, everybody knows the new node, and the next move may bring topics to it.
3. *A new root* is known to the broker first: from `Ceded` on the broker refuses at the order log whatever roots of
   before send. Then the old root hands over (`Reign`): how many positions it has given, and the ranges that the broker
   is not known to keep. In the same step it becomes a child. The order goes on behind that, with the same positions.

Each step is an input that somebody journals, so after a crash of any node the change goes on where it was.

Each rule is one method, so that the checkers can be checked by replacing it: `_topics_of`, `_leaver`, `_cede`,
`_reign`, `_shape_told` (core.py) and `_may_go_on` (moving.py).
"""

from msgspec import structs

from seriatim.model import BROKER, Address, Node
from seriatim.order import SequencingTree, ShapeChange
from seriatim.protocols.machine import Effects
from seriatim.protocols.tree import messages as say
from seriatim.protocols.tree.moving import Moving
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.ordering import Ordering
from seriatim.protocols.tree.state import Founding, MoveUnderWay, SequencerState, Switching, Welcoming, Wish
from seriatim.protocols.with_broker import Cede, Ceded

NAMED_MAX = 5


class Shaping(Moving, Ordering):
    """The part of a sequencer that changes the tree: as the root, as a neighbour, as who comes or goes."""

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerState | None = None
    ) -> None:
        super().__init__(tree, node, options, state)
        self._expected: set[Address] = set()  # who may say that it has arrived
        self._invite_due: float | None = None  # when to welcome a node, or to tell the broker of the new root, again
        self._expect()
        self._look_around()

    @property
    def is_member(self) -> bool:
        """Whether this node is part of the tree: not before it was welcomed and has all that goes with it."""
        return not self.state.moving.awaits_welcome

    @property
    def is_welcomed(self) -> bool:
        """Whether it is part of the tree, or knows the tree that it is to be part of."""
        return self.is_member or self.state.moving.founding is not None

    @property
    def has_left(self) -> bool:
        """Whether this node was part of the tree, and is no longer."""
        return self.state.moving.gone_since > 0

    @property
    def ceded_at(self) -> int:
        """The root: the change of shape for which it hands over to another one; 0: it does not."""
        move = self.state.moving.move
        return move.number if move is not None and self._is_crowning(move) else 0

    @property
    def successor(self) -> Node | None:
        """The root that hands over: the new root, which it is linked with."""
        move = self.state.moving.move
        return move.to if move is not None and self._is_crowning(move) and move.to != self.node else None

    def neighbours(self) -> set[Node]:
        """The nodes that this one has links with: those in the tree, and those on their way in or out."""
        moving = self.state.moving
        if not self.is_welcomed:
            return set()
        found = set(self.tree.neighbours(self.node))
        if moving.switching is not None:
            found |= moving.switching.children
        if (successor := self.successor) is not None:
            found.add(successor)
        return found

    # ── the root ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_to_come(self, node: Node) -> bool:
        """Whether this node is on its way into the tree, or waits for its turn."""
        moving = self.state.moving
        coming = [wish.reshape.node for wish in moving.wishes if wish.reshape.kind != "leave"]
        if moving.move is not None and moving.move.change is not None:
            coming.append(moving.move.to)
        return node in coming

    def _on_reshape(self, source: Address, message: say.Reshape, now: float, effects: Effects) -> None:
        change = self._change_of(message)
        if self._is_repeat_of_change(change):
            return
        if self._parent is None:
            self.state.moving.wishes.append(Wish(len(self.state.moving.wanted), message))
            self._next_move(now, effects)
        elif (done := self._done_before(change)) is not None:
            effects.notify.append(say.ReshapeEnded(done))
        else:
            effects.notify.append(say.ReshapeEnded(change, self._why_not_root()))

    def _is_repeat_of_change(self, change: ShapeChange) -> bool:
        """Whether this waits or is under way: whoever asks again is answered at its end."""
        moving = self.state.moving
        known = [self._change_of(wish.reshape) for wish in moving.wishes]
        known += [moving.move.change] if moving.move is not None and moving.move.change is not None else []
        if moving.switching is not None and moving.switching.crowned is not None:
            known.append(moving.switching.crowned)
        return (change.kind, change.node) in [(each.kind, each.node) for each in known]

    def _begin_reshape(self, wish: say.Reshape, now: float, effects: Effects) -> None:
        moving, change = self.state.moving, self._change_of(wish)
        if (done := self._done_before(change)) is not None:
            effects.notify.append(say.ReshapeEnded(done))
            return
        problem = self._problem_with_change(change)
        if problem is not None:
            effects.notify.append(say.ReshapeEnded(change, problem))
            return
        moving.granted += 1
        change = structs.replace(change, move=moving.granted)
        moving.move = MoveUnderWay(change.move, "", change.at, change.node, change=change)
        effects.notify.append(say.ReshapeStep(change, "prepare"))
        self._route(_who_prepares(change), say.Prepare(change), now, effects)

    def _change_of(self, wish: say.Reshape) -> ShapeChange:
        at = wish.at
        if not at and wish.kind == "root":
            at = self.node
        elif not at and wish.kind == "leave":
            at = self.tree.parents.get(wish.node) or ""
        return ShapeChange(wish.kind, wish.node, at)

    def _done_before(self, change: ShapeChange) -> ShapeChange | None:
        """The change that has made it so already."""
        latest = next((each for each in reversed(self.tree.moves.shape) if each.node == change.node), None)
        if latest is None or latest.kind != change.kind:
            return None
        return latest if change.kind != "join" or latest.at == change.at else None

    def _problem_with_change(self, change: ShapeChange) -> str | None:
        """Why the tree cannot be changed so, and what to do."""
        parents, node, at = self.tree.parents, change.node, change.at
        if self.state.healing.era:
            return "a node of this tree has lost its journal and was healed; since then its nodes stay as they are"
        if change.kind == "leave":
            return self._problem_with_leaving(node)
        if not node:
            return "the new node has no name; give it one"
        if self.tree.has_left(node):
            return f"there was a node {node} before, and names of nodes are not used again; choose another name"
        if node in parents:
            place = f"below {parents[node]}" if parents[node] is not None else "the root"
            return f"there is a node {node} already, {place}; choose another name"
        if at not in parents:
            return f"there is no node {at}; use one of {', '.join(sorted(parents))}"
        if change.kind == "root" and at != self.node:
            return f"a new root grows above the root, which is {self.node}, not {at}"
        return None

    def _problem_with_leaving(self, node: Node) -> str | None:
        if node not in self.tree.parents:
            return f"there is no node {node}; use one of {', '.join(sorted(self.tree.parents))}"
        if node == self.node:
            return f"{node} is the root, and the root does not leave; only leaves do"
        below = sorted(self.tree.children(node))
        if below:
            return f"{_some(below)} {'is' if len(below) == 1 else 'are'} below {node}; only leaves leave"
        if node == self.tree.default_home:
            return f"topics that no node lists live on {node}; a default home does not leave"
        topics = self._topics_of(node)
        if topics:
            return f"{_some(topics)} {'lives' if len(topics) == 1 else 'live'} on {node}; move topics elsewhere first"
        return None

    def _topics_of(self, node: Node) -> list[str]:
        return sorted(topic for topic, home in self.tree.homes.items() if home == node)

    def _why_not_root(self) -> str:
        return f"{self.node} is not the root; ask {self.tree.root}"

    def _on_cancel_reshape(self, source: Address, message: say.CancelReshape, now: float, effects: Effects) -> None:
        moving, reason = self.state.moving, "cancelled"
        for wish in [each for each in moving.wishes if each.reshape.node == message.node]:
            effects.notify.append(say.ReshapeEnded(self._change_of(wish.reshape), reason))
        moving.wishes = [each for each in moving.wishes if each.reshape.node != message.node]
        move = moving.move
        if move is not None and move.change is not None and move.to == message.node and not move.is_switching:
            moving.move = None
            self._route(_who_prepares(move.change), say.Abandon(move.number), now, effects)
            effects.notify.append(say.ReshapeEnded(move.change, reason))
            self._next_move(now, effects)

    def _on_prepared(self, message: say.Prepared, now: float, effects: Effects) -> None:
        move = self.state.moving.move
        if move is not None and move.number == message.move and not move.is_switching:
            self._switch_shape(move, now, effects)

    def _switch_shape(self, move: MoveUnderWay, now: float, effects: Effects) -> None:
        """Begin the switch, because everybody is ready. It can no longer be cancelled."""
        assert move.change is not None, "only changes of shape are prepared"
        move.is_switching = True
        effects.notify.append(say.ReshapeStep(move.change, "switch"))
        if move.change.kind != "root":
            self._on_switch_shape(self.node, say.SwitchShape(move.change), now, effects)
            return
        self._look_around()  # from here on the new root is asked too whether our journal is the last one
        self._cede(move, now, effects)

    def _cede(self, move: MoveUnderWay, now: float, effects: Effects) -> None:
        """The broker must know of the new root before anybody else does: an older journal of ours asks it first."""
        if self.options.keeps_order_log:
            self._invite_due = now + self.options.retry_ms
            effects.send.append((BROKER, Cede(self.state.epoch, move.number)))
        else:
            self._crown(move, now, effects)

    def _on_ceded(self, source: Address, message: Ceded, now: float, effects: Effects) -> None:
        move = self.state.moving.move
        if move is None or not self._is_crowning(move) or move.home != self.node:
            return
        if message.since == move.number and message.epoch == self.state.epoch:
            self._crown(move, now, effects)

    def _is_crowning(self, move: MoveUnderWay) -> bool:
        return move.change is not None and move.change.kind == "root" and move.is_switching

    def _crown(self, move: MoveUnderWay, now: float, effects: Effects) -> None:
        """Hand over to another root, and be its child from now on."""
        moving, change = self.state.moving, move.change
        assert change is not None, "a change of shape is under way"
        reign = self._reign(change)
        moving.move = self._invite_due = None
        self._reshape(change, effects)
        effects.send.append((change.node, reign))
        for topic, to in moving.wanted:
            effects.notify.append(say.MoveEnded(topic, to, 0, self._why_not_root()))
        for wish in moving.wishes:
            effects.notify.append(say.ReshapeEnded(self._change_of(wish.reshape), self._why_not_root()))
        moving.wanted, moving.wishes = [], []
        below = set(self.tree.children(self.node))
        self._tell_children(say.SwitchShape(change), below, {}, now, effects, crowned=change)
        self._look_around()

    def _reign(self, change: ShapeChange) -> say.Reign:
        """What the new root goes on with. This node gives no more positions."""
        order = self.state.order
        if not order.begun:
            return say.Reign(change)
        end, told, lost = order.end, order.told, order.lost
        self._order_due = self._order_ends = None
        return say.Reign(change, end, told, lost, self._order.take())

    # ── the node next to the new one ──────────────────────────────────────────────────────────────────────────────

    def _on_prepare(self, message: say.Prepare, now: float, effects: Effects) -> None:
        change, moving = message.change, self.state.moving
        if change.kind == "leave":
            self._route(self.tree.root, say.Prepared(change.move), now, effects)
            return
        moving.welcoming = Welcoming(change)
        self._expect()
        effects.notify.append(say.NodeExpected(change.node, change.move))
        self._welcome(now, effects)
        self._say_prepared(now, effects)

    def _say_prepared(self, now: float, effects: Effects) -> None:
        welcoming = self.state.moving.welcoming
        if welcoming is not None and welcoming.has_arrived:
            self._route(self.tree.root, say.Prepared(welcoming.change.move), now, effects)

    def _expect(self) -> None:
        welcoming = self.state.moving.welcoming
        self._expected.clear()
        if welcoming is not None:
            self._expected.add(welcoming.change.node)

    def _welcome(self, now: float, effects: Effects) -> None:
        welcoming = self.state.moving.welcoming
        if welcoming is not None and not welcoming.has_arrived:
            self.welcome_again(welcoming.change.node, effects)
            self._invite_due = now + self.options.retry_ms

    def welcome_again(self, node: Node, effects: Effects) -> None:
        """If this is the node that was welcomed last, tell it again."""
        welcoming = self.state.moving.welcoming
        if welcoming is None or welcoming.change.node != node:
            return
        began, change = self.tree.began, welcoming.change
        moves = self.state.moves.copy()
        if change.move > moves.number:
            moves.number, moves.last, moves.former = change.move, "", ""
            moves.shape.append(change)
        told = say.Welcome(change, began.parents, began.homes, began.default_home, moves)
        effects.send.append((node, told))

    def _on_arrived(self, source: Address, message: say.Arrived, now: float, effects: Effects) -> None:
        welcoming = self.state.moving.welcoming
        if welcoming is None or welcoming.has_arrived or message.move != welcoming.change.move:
            return
        welcoming.has_arrived, self._invite_due = True, None
        self._say_prepared(now, effects)

    def _on_abandon(self, message: say.Abandon, now: float, effects: Effects) -> None:
        welcoming = self.state.moving.welcoming
        if welcoming is not None and welcoming.change.move == message.move:
            self.state.moving.welcoming = self._invite_due = None
            self._expect()

    # ── the new node ──────────────────────────────────────────────────────────────────────────────────────────────

    def _on_welcome(self, source: Address, message: say.Welcome, now: float, effects: Effects) -> None:
        moving, change = self.state.moving, message.change
        if change.node != self.node or change.move < self.state.moves.number:
            return  # of a change that was cancelled
        if change.move > self.state.moves.number:
            moving.founding = Founding(message.parents, message.homes, message.default_home)
            self.state.moves = message.moves.copy()
            self.tree = self._view()
            self._parent = self.tree.parents[self.node]
            self._levels, self._is_restless = self._level_table(), self._topics_move()
            self._look_around()
        effects.send.append((source, say.Arrived(change.move, self.state.epoch)))

    def _on_reign(self, source: Address, message: say.Reign, now: float, effects: Effects) -> None:
        """Be the root. It is as if this node had begun the switch, and waited for the one below it."""
        moving, order, change = self.state.moving, self.state.order, message.change
        moving.awaits_welcome = False
        moving.since = moving.granted = change.move
        if message.order is not None:
            order.end, order.told, order.lost = message.end, message.told, message.lost
            order.ranges[:] = message.order
        self._order_due = now if self.options.keeps_order_log else None
        moving.move = MoveUnderWay(change.move, "", change.at, change.node, is_switching=True, change=change)
        moving.switching = Switching(change.move, {change.at})
        effects.notify.append(say.ShapeChanged(change))
        self._look_around()

    # ── every node ────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_switch_shape(self, source: Address, message: say.SwitchShape, now: float, effects: Effects) -> None:
        """Take the new shape, tell those below, and answer when they have answered."""
        moving, change = self.state.moving, message.change
        told: set[Node] = set()
        if change.node != self.node:
            told |= self._leaver(change)
            self._reshape(change, effects)
        else:
            effects.notify.append(say.ShapeChanged(change))
            if change.kind == "leave":
                moving.gone_since = change.move
            else:  # the welcome has told the rest
                moving.awaits_welcome = False
        told |= set(self.tree.children(self.node))
        self._tell_children(message, told, {}, now, effects)
        self._look_around()

    def _leaver(self, change: ShapeChange) -> set[Node]:
        """A leaf that leaves is told, too, and has the last word: all that it owes climbs in front of that."""
        return {change.node} if change.kind == "leave" and change.at == self.node else set()

    def _reshape(self, change: ShapeChange, effects: Effects) -> None:
        self.tree.reshape(change)
        self._parent = self.tree.parents[self.node]
        if self._levels is None:  # it may have become a child
            self._levels = self._level_table()
        effects.notify.append(say.ShapeChanged(change))

    def _hand_on_order(self, now: float, effects: Effects) -> None:
        """Hand on the order log, but not while the broker is told of another root: it may refuse this one already."""
        move = self.state.moving.move
        if move is not None and self._is_crowning(move) and move.home == self.node:
            if self._order_due is not None and now >= self._order_due:
                self._order_due = now + self.options.retry_ms
            return
        super()._hand_on_order(now, effects)

    def _start_shaping(self, now: float) -> None:
        """A process starts: nobody knows what of it arrived."""
        move = self.state.moving.move
        if self.state.moving.welcoming is not None or (move is not None and self._is_crowning(move)):
            self._invite_due = now

    def _invite(self, now: float, effects: Effects) -> None:
        """A tick: the new node is welcomed again until it answers, and the broker is told of the new root again."""
        if self._invite_due is None or now < self._invite_due:
            return
        self._invite_due = None
        self._welcome(now, effects)
        move = self.state.moving.move
        if move is not None and self._is_crowning(move) and move.home == self.node:
            self._invite_due = now + self.options.retry_ms
            effects.send.append((BROKER, Cede(self.state.epoch, move.number)))

    def _explain_shape(self) -> list[str]:
        moving, lines = self.state.moving, []
        if moving.awaits_welcome:
            lines.append(f"{self.node} is not part of the tree yet: waits to be welcomed")
        if moving.gone_since and self.state.order.ranges:
            lines.append(f"{self.node} has left the tree, and owes {len(self.state.order.ranges)} ranges of the order")
        if moving.move is not None and (change := moving.move.change) is not None:
            waits = f"{change.node} to be ready"
            if moving.move.is_switching:
                waits = "all nodes to know it" if moving.switching is not None else "the broker to know it"
            lines.append(f"change {change.move} ({_said(change)}): waits for {waits}")
        welcoming = moving.welcoming
        if welcoming is not None and not welcoming.has_arrived:
            lines.append(f"{welcoming.change.node} is welcomed: waits for its answer")
        return lines


def _who_prepares(change: ShapeChange) -> Node:
    return change.node if change.kind == "leave" else change.at


def _said(change: ShapeChange) -> str:
    if change.kind == "root":
        return f"{change.node} becomes the root above {change.at}"
    return f"{change.node} joins below {change.at}" if change.kind == "join" else f"{change.node} leaves {change.at}"


def _some(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
