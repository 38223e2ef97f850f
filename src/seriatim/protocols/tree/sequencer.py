"""A node of the sequencing tree: the machine that a driver steps.

It handles one input at a time, and talks to its parent and children over FIFO, exactly-once links (node.py makes
them). Giving out numbers is described in numbering.py, starting subscriptions in joining.py, the order log in
ordering.py, moving topics in moving.py, changing the tree in shaping.py, removing topics in removing.py, going on with
another log in accepting.py.

Each correction to paper 000 is one small method, so that the checkers can be checked by replacing it: `_next_stop`
(hop by hop), `_await_announcements` (two-phase start), `_floor` (floor), `_left_topics` (left topics), `_collect`
(closing rule), `_is_repeat` (idempotent tickets), `_void_entries` (a void keeps the stamp). So is each rule of the
order log: `_on_climbing` (order first), `_carried` (order carried), `_hand_on_order` (summaries journaled).
"""

from collections.abc import Callable, Set
from typing import Any

from seriatim.model import APPLICATION, BROKER, Address, Node
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.node import Stepped
from seriatim.protocols.tree import messages as say
from seriatim.protocols.tree.accepting import Accepting
from seriatim.protocols.tree.healing import Healing
from seriatim.protocols.tree.options import TreeOptions
from seriatim.protocols.tree.removing import Removing
from seriatim.protocols.tree.shaping import Shaping
from seriatim.protocols.tree.state import SequencerState
from seriatim.protocols.with_broker import (
    Ceded,
    Discarded,
    Grown,
    Kept,
    OrderKept,
    Renewed,
    Trimmed,
    Unwatched,
    Written,
)

WAITS_FOR_HEALING = frozenset(
    {say.Subscribe, say.Update, say.Refresh, say.Inquire, say.Locate, say.Ticket, say.Add, say.Remove, say.AcceptLog}
)
QUESTIONS = frozenset({say.Inquire, say.Locate})  # they change nothing, so they are not journaled
AWAITED = frozenset({say.Welcome, say.SwitchShape, say.Reign})  # by a node that is not part of the tree yet


class Sequencer(Shaping, Healing, Removing, Accepting):
    """One node. `state` is all it knows; everything else here is derived from it."""

    def __init__(
        self, tree: SequencingTree, node: Node, options: TreeOptions, state: SequencerState | None = None
    ) -> None:
        super().__init__(tree, node, options, state)
        self._started = False
        self._expiry_due = 0.0
        neighbours = self._neighbours
        welcomers = frozenset(tree.neighbours(node))
        broker, itself, operator = frozenset({BROKER}), frozenset({node}), frozenset({APPLICATION})
        # What each message is handled by, and who may send it; None: any client.
        self._handlers: dict[type, tuple[Callable[[Address, Any, float, Effects], None], Set[Address] | None]] = {
            say.AcceptLog: (self._on_accept_log, itself),
            say.Add: (self._on_add, itself),
            say.Announce: (self._on_climbing, neighbours),
            say.Arrived: (self._on_arrived, self._expected),
            say.AskToHeal: (self._on_ask_to_heal, neighbours),
            say.BeginOrder: (self._on_begin_order, itself),
            say.CancelMove: (self._on_cancel_move, operator),
            say.CancelReshape: (self._on_cancel_reshape, operator),
            Ceded: (self._on_ceded, broker),
            say.Cut: (self._on_climbing, neighbours),
            Discarded: (self._on_discarded, broker),
            say.Forget: (self._on_forget, itself),
            Grown: (self._on_grown, broker),
            say.Heal: (self._on_heal, neighbours),
            say.Healed: (self._on_climbing, neighbours),
            say.Inquire: (self._on_inquire, None),
            say.JournalLost: (self._on_journal_lost, itself),
            Kept: (self._on_kept, broker),
            say.Locate: (self._on_locate, None),
            say.Move: (self._on_move, operator),
            say.MovesFound: (self._on_moves_found, itself),
            say.OrderFound: (self._on_order_found, itself),
            OrderKept: (self._on_order_kept, broker),
            say.Pass: (self._on_climbing, neighbours),
            say.Refresh: (self._on_refresh, None),
            say.Reign: (self._on_reign, neighbours),
            say.Remove: (self._on_remove, itself),
            Renewed: (self._on_renewed, broker),
            say.Reshape: (self._on_reshape, operator),
            say.Routed: (self._on_routed, neighbours),
            say.Settled: (self._on_settled, None),
            say.Subscribe: (self._on_subscribe, None),
            say.Summarise: (self._on_summarise, itself),
            say.Summary: (self._on_summary, neighbours),
            say.Switch: (self._on_switch, neighbours),
            say.SwitchShape: (self._on_switch_shape, neighbours),
            say.Switched: (self._on_climbing, neighbours),
            say.Ticket: (self._on_ticket, None),
            Trimmed: (self._on_trimmed, broker),
            Unwatched: (self._on_unwatched, broker),
            say.Update: (self._on_update, None),
            say.Vouch: (self._on_climbing, neighbours),
            say.Welcome: (self._on_welcome, welcomers),
            Written: (self._on_written, broker),
        }

    def step(self, source: Address, message: Payload, now: float) -> Effects:
        effects = Effects()
        handler, sources = self._handlers.get(type(message), (None, None))
        if handler is None or (sources is not None and source not in sources):
            return self.idle()  # not for a node, or not for this sender to say
        if self.state.moving.awaits_welcome and type(message) not in AWAITED:
            return self.idle()
        if self.state.healing.is_frozen and type(message) in WAITS_FOR_HEALING:
            return self.idle()  # whoever asks, asks again
        if type(message) not in QUESTIONS:
            effects.persist.append(Stepped(source, message, now))
        handler(source, message, now, effects)
        if self.state.moving.leaving and not self.state.healing.is_frozen:
            self._leave(now, effects)
        self._wish(effects)
        return effects

    def tick(self, now: float) -> Effects:
        """Void what outlived its lease, repeat what was not confirmed, forget silent subscribers."""
        effects = Effects()
        if not self._started:
            self._started = True
            if self.is_member:
                self._start(now, effects)
        self._settle_due(now, effects)
        self._watch_again(now, effects)
        self._expire(now, effects)
        self._hand_on_order(now, effects)
        self._remove_due(now, effects)
        self._renew_due(now, effects)
        self._invite(now, effects)
        self._wish(effects)
        return effects

    def idle(self) -> Effects:
        """The effects of a step in which nothing happened; the wish for a tick still stands."""
        effects = Effects()
        self._wish(effects)
        return effects

    def explain(self) -> list[str]:
        """What is unfinished here, and what each of it waits for."""
        lines = []
        for subscriber, joins in sorted(self.state.joins.items()):
            for topic, join in sorted(joins.items()):
                if join.start is None:
                    others = [f"{other} to be announced" for other in sorted(join.unannounced - {topic})]
                    length = [f"the broker to tell the length of {topic}"] if topic in join.unannounced else []
                    waits = ", ".join(length + others) or "its cut to return"
                    lines.append(f"{subscriber} joins {topic}: waits for {waits}")
        for topic, ranges in sorted(self.state.ranges.items()):
            for range_ in ranges.values():
                owner = f" of {range_.publisher}" if range_.publisher else ""
                stage = "its stamp" if range_.entries is None else "its slots" if range_.publisher else "the broker"
                lines.append(f"{topic} {range_.first}..{range_.last}{owner}: waits for {stage}")
        return [
            *lines,
            *self._explain_moves(),
            *self._explain_shape(),
            *self._explain_removals(),
            *self._explain_renewals(),
            *self._explain_healing(),
            *self._explain_order(),
        ]

    def _start(self, now: float, effects: Effects) -> None:
        self._start_order(now, effects)
        self._start_shaping(now)
        self._settle_again(now, effects)
        self._start_removals(now)
        self._start_renewals(now)
        for holder in self.state.couplings.holders.values():
            holder.heard_at = now
        if self.options.mode == "log":
            self._unwatch_again(effects)
            self._watch_everything(now, effects)

    def _expire(self, now: float, effects: Effects) -> None:
        lease = self.options.subscriber_lease_ms
        if lease is None or now < self._expiry_due:
            return
        self._expiry_due = now + lease
        long_ago = now - 2 * lease
        holders = self.state.couplings.holders.items()
        arriving = self.state.moving.arriving.keys()  # who holds these may still ask their former home
        silent = [
            name
            for name, holder in holders
            if holder.heard_at <= long_ago and not holder.lasts and not arriving & holder.topics
        ]
        for subscriber in sorted(silent):
            forgotten = self.step(self.node, say.Forget(subscriber), now)
            effects.persist.extend(forgotten.persist)

    def _wish(self, effects: Effects) -> None:
        wish = self._settle_wish()
        if self._watch_due is not None and (wish is None or self._watch_due < wish):
            wish = self._watch_due
        if self._order_due is not None and (wish is None or self._order_due < wish):
            wish = self._order_due
        if self._removal_due is not None and (wish is None or self._removal_due < wish):
            wish = self._removal_due
        if self._renewal_due is not None and (wish is None or self._renewal_due < wish):
            wish = self._renewal_due
        if self._invite_due is not None and (wish is None or self._invite_due < wish):
            wish = self._invite_due
        if self.options.subscriber_lease_ms is not None and (wish is None or self._expiry_due < wish):
            wish = self._expiry_due
        effects.wake_at = wish

    def _on_locate(self, source: Address, message: say.Locate, now: float, effects: Effects) -> None:
        moves = self.state.moves
        after = message.after
        located = say.Located(after, moves.number, moves.after(after), self._shape_told(after))
        effects.send.append((source, located))

    def _handle_climbing(self, source: Address, message: say.Climbing, now: float, effects: Effects) -> None:
        if type(message) is say.Healed:
            self._on_healed(source, message, now, effects)
            return
        if self.state.healing.is_blank:
            return  # unfinished at its home, so it is lost or issued anew
        match message:
            case say.Pass():
                self._on_pass(source, message, now, effects)
            case say.Announce():
                self._on_announce(source, message, now, effects)
            case say.Cut():
                self._on_cut(source, message, now, effects)
            case say.Vouch():
                self._on_vouch(source, message, now, effects)
            case say.Switched():
                self._on_switched(source, message, now, effects)

    def _take(self, body: say.Body, now: float, effects: Effects) -> None:
        if self._is_passed_over(body):
            return
        match body:
            case say.Finished():
                self._on_finished(body, now, effects)
            case say.Tell():
                self._on_tell(body, now, effects)
            case say.Announced():
                self._wait_no_longer(body.join, body.topic, now, effects)
            case say.CutDone():
                self._on_cut_done(body, now, effects)
            case say.Quiesce():
                self._on_quiesce(body, now, effects)
            case say.HandOver():
                self._on_hand_over(body, now, effects)
            case say.GoOn():
                self._on_go_on(body, now, effects)
            case say.Resume():
                self._on_resume(body, now, effects)
            case say.Prepare():
                self._on_prepare(body, now, effects)
            case say.Prepared():
                self._on_prepared(body, now, effects)
            case say.Abandon():
                self._on_abandon(body, now, effects)
