"""The journal of a node of the tree: what it was founded with, and rebuilding the node from it.

Replaying a journal gives the same node only with the tree and the options it was written with. When a node starts with
others, the journal is replayed with the old ones, the change is checked, and another `Founded` record marks where the
new ones take effect.

Most options may change at any time. The shape of the tree may not, except by the messages that change it: numbers and
stamps already given out would change their meaning. The tree as it began, and where topics began, is what the first
record says, whatever the configuration says later; from there both change, and the state says how they are. A node that
came later was told by its neighbour how the tree began. The order may become stronger, from pairwise to global: then
topics that one subscription holds together are coupled from that record on. It may not become weaker.
"""

import sys
from collections.abc import Iterable

from msgspec import Struct, structs

from seriatim.live.founding import JournalFormat, Rebuilt
from seriatim.model import InputError, JournalError, Node, Topic, TreeError
from seriatim.order import SequencingTree
from seriatim.protocols.node import Stepped, TookOver
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.confirming import Heard, Resumed
from seriatim.protocols.tree.messages import Input
from seriatim.protocols.tree.node import SequencerNodeState, newcomer_state
from seriatim.protocols.tree.options import TreeOrder
from seriatim.runtime import Recovered

# Options that decide what replaying a record does. Those of the first group promise something to clients.
PROMISED = ("mode", "full_stamps")
REPLAYED = (*PROMISED, "order", "order_log", "lease_ms", "ticket_count_max", "open_tickets_max", "stages_ahead")
# What records mean, apart from the options: a program that replays them differently does not know it, and refuses.
MEANING, MEANS = "ticket_settles", True  # since `Ticket.settled`; older journals lack it
ANY_KEY = b"not the key: only that there was one decides what replaying does"


class Founded(Struct, frozen=True, tag=True, kw_only=True):
    """From here on the journal belongs to this node, with this tree and these options."""

    node: Node
    parents: dict[Node, Node | None]
    homes: dict[Topic, Node]
    default_home: Node | None
    options: dict[str, str | int | float | bool]
    is_proven: bool = False  # whether stamps are proven; the key itself is a secret, and not in the journal
    is_newcomer: bool = False  # it came into a tree that ran

    @property
    def tree(self) -> SequencingTree:
        return SequencingTree(self.parents, self.homes, self.default_home)

    @property
    def order(self) -> TreeOrder:
        """What was promised. Journals of earlier versions say `causal`, which was global order."""
        is_global = self.options.get("order") == "global" or self.options.get("causal") is True
        return "global" if is_global else "pairwise"

    def options_now(self, options: TreeOptions) -> TreeOptions:
        """These options, except that those which affect replaying keep their journaled values."""
        values = dict(self.options)
        values.pop(MEANING, None)
        values.pop("causal", None)
        values["order"] = self.order
        values["own_order"] = options.own_order and self.order == "global"  # nothing to replay; refused when pairwise
        values.setdefault("order_log", False)  # earlier versions had none
        values.setdefault("stages_ahead", sys.maxsize)  # and told stages of everything
        unknown = sorted(values.keys() - set(options.__struct_fields__))
        if unknown:
            raise JournalError(
                f"the journal of {self.node} was written with options this program does not know "
                f"({', '.join(unknown)}); start the version of the program that wrote it"
            )
        return structs.replace(options, **values, stamp_key=ANY_KEY if self.is_proven else None)


UNSTAMPED_EPOCHS = 1_000  # a node may have been taken over this often since its last stamp

JOURNAL = JournalFormat("node", Founded, SequencerNodeState, Stepped[Input] | TookOver | Resumed | Heard)


def found(tree: SequencingTree, node: Node, options: TreeOptions, *, is_newcomer: bool = False) -> Founded:
    """The first record of a new journal."""
    return Founded(
        node=node,
        parents=tree.parents,
        homes=tree.homes,
        default_home=tree.default_home,
        options={name: getattr(options, name) for name in REPLAYED} | {MEANING: MEANS},
        is_proven=options.stamp_key is not None,
        is_newcomer=is_newcomer,
    )


def without_journal(
    tree: SequencingTree, node: Node, options: TreeOptions, epoch: int
) -> Rebuilt[SequencerNode, Founded]:
    """A new node in place of one that had reached this epoch. Its own epoch is later, or others would ignore it."""
    now = found(tree, node, options)
    machine = SequencerNode.take_over(tree, node, options, [], None, epoch + UNSTAMPED_EPOCHS)
    return Rebuilt(machine, 0.0, now, now)


def healed(tree: SequencingTree, node: Node, options: TreeOptions, epoch: int) -> Rebuilt[SequencerNode, Founded]:
    """A node of several that has lost its journal: it has the others begin a new era. Its own epoch is later."""
    now = found(tree, node, options)
    return Rebuilt(SequencerNode.heal(tree, node, options, epoch + UNSTAMPED_EPOCHS), 0.0, now, now)


def rebuild(
    tree: SequencingTree, node: Node, options: TreeOptions, recovered: Recovered, *, is_newcomer: bool = False
) -> Rebuilt[SequencerNode, Founded]:
    """The node as its journal left it; an empty journal gives a new node, `is_newcomer`: of a tree that runs.

    JournalError: this is not the journal of a node. InputError: it belongs to another node.
    """
    content = JOURNAL.read(node, recovered)
    then, state, records = content.founded, content.state, content.records
    if then is None:
        now = found(tree, node, options, is_newcomer=is_newcomer)
        return Rebuilt(SequencerNode(tree, node, options, _beginning(now, options)), 0.0, now, now)
    healed = max((index for index, record in enumerate(records) if isinstance(record, Resumed)), default=-1)
    if healed >= 0:  # the operator has said that nothing before it counts
        then = next((each for each in reversed(records[:healed]) if isinstance(each, Founded)), then)
        state, records = None, records[healed:]
    last = next((record for record in reversed(records) if isinstance(record, Founded)), then)
    tree = where_it_began(last, tree)
    now = found(tree, node, options, is_newcomer=last.is_newcomer)
    _check_promises(last, now)
    if state is None:
        state = _beginning(last, options)
    steps: list[Stepped[Input] | TookOver | Resumed | Heard] = []
    for record in records:
        if isinstance(record, Founded):
            if steps:
                state = _replayed(then, options, steps, state).state
            state = _reordered(then, record, options, state)
            then, steps = record, []
        else:
            steps.append(record)
    if now == then:
        return Rebuilt(SequencerNode.take_over(tree, node, options, steps, state), content.at_least, now)
    state = _replayed(then, options, steps, state).state
    state = _reordered(then, now, options, state)
    return Rebuilt(SequencerNode.take_over(tree, node, options, [], state), content.at_least, now, now)


def _beginning(founded: Founded, options: TreeOptions) -> SequencerNodeState | None:
    """The state before the first record."""
    return newcomer_state(founded.options_now(options)) if founded.is_newcomer else None


def where_it_began(founded: Founded, configured: SequencingTree) -> SequencingTree:
    """The tree as it began, with the homes that topics began with.

    A topic that had no home cannot have been used, so it may get one.
    """
    homes, default_home = founded.homes, founded.default_home
    if default_home is None and not founded.is_newcomer:
        later = {topic: node for topic, node in configured.homes.items() if node in founded.parents}
        homes, default_home = {**later, **homes}, configured.default_home
    return SequencingTree(founded.parents, homes, default_home if default_home in founded.parents else None)


def differences(configured: SequencingTree, current: SequencingTree) -> dict[Topic, tuple[Node, Node]]:
    """The topics whose home is another one than the configured one: (where they live, what is configured)."""

    def home(tree: SequencingTree, topic: Topic) -> Node:
        return tree.home(topic) if tree.knows(topic) else "none"

    topics = sorted({*configured.homes, *current.homes})
    homes = {topic: (home(current, topic), home(configured, topic)) for topic in topics}
    return {topic: (lives, said) for topic, (lives, said) in homes.items() if lives != said}


def _replayed(
    founded: Founded,
    options: TreeOptions,
    steps: list[Stepped[Input] | TookOver | Resumed | Heard],
    state: SequencerNodeState | None,
) -> SequencerNode:
    """Replay these records with the options of their time.

    Taking over adds an epoch that stays unused unless records of a later one follow: epochs may have holes.
    """
    return SequencerNode.take_over(founded.tree, founded.node, founded.options_now(options), steps, state)


def _reordered(
    then: Founded, now: Founded, options: TreeOptions, state: SequencerNodeState | None
) -> SequencerNodeState | None:
    """The state when this record takes effect: a stronger order couples topics that were not coupled before."""
    if then.order == now.order or state is None:
        return state
    node = SequencerNode(now.tree, now.node, now.options_now(options), state)
    node.inner.recouple(then.options_now(options).threshold)
    return node.state


# ── what may change ───────────────────────────────────────────────────────────────────────────────────────────────


def _check_promises(then: Founded, now: Founded) -> None:
    if then.node != now.node:
        problem = f"it belongs to node {then.node}, not to {now.node}"
        raise InputError("journal", problem, "give every node a journal of its own")
    if then.order == "global" and now.order == "pairwise":
        problem = f"the journal of {now.node} was written with global order, which everybody was promised"
        raise InputError("order", problem, _fix('order = "global"'))
    for name in PROMISED:
        was, is_now = then.options.get(name), now.options[name]
        if was != is_now:
            raise InputError(name, f"the journal of {now.node} was written with {was!r}, not {is_now!r}", _fix("that"))


def check_shape(knows: dict[Node, Node | None], configured: Iterable[dict[Node, Node | None]]) -> None:
    """TreeError: the tree, as the journal of a node knows it, is none of these."""
    given = list(configured)
    if knows not in given:
        raise TreeError("parents", _difference(knows, given[0]), _fix("the same nodes and parents"))


def _difference(then: dict[Node, Node | None], now: dict[Node, Node | None]) -> str:
    for node in sorted({*then, *now}):
        if node not in now:
            return f"the journal knows node {node!r}, which is not configured"
        if node not in then:
            return f"node {node!r} is new, and the journal does not know it"
        if then[node] != now[node]:
            return f"the journal knows {node!r} below {then[node]!r}, not below {now[node]!r}"
    raise AssertionError("there is no difference")


def _fix(what: str) -> str:
    return f"configure {what}, or start anew: a new cluster name and empty journals"
