"""A journal belongs to one node of one tree: what it was founded with, and rebuilding the node from it.

Replaying a journal gives the same node only under the tree and the options it was written under. So these are its
first record, `Founded`, and a snapshot carries them too. When a node starts with others, the journal is replayed under
the old ones, the change is checked, and another `Founded` says from where on the new ones count.

Most options may change at any time. The shape of the tree, what order is promised, and the homes of topics that have
been used may not: numbers and stamps that were given out would mean something else.
"""

import msgspec
from msgspec import Struct, structs

from seriatim.model import UNREADABLE, InputError, JournalError, Node, Topic, TreeError
from seriatim.order import SequencingTree
from seriatim.protocols.tree import SequencerNode, TreeOptions
from seriatim.protocols.tree.messages import Stepped, TookOver
from seriatim.protocols.tree.node import NodeState
from seriatim.runtime import Recovered

# Options that decide what replaying a record does. Those of the first group promise something to clients.
PROMISED = ("mode", "causal", "full_stamps")
REPLAYED = (*PROMISED, "lease_ms", "ticket_count_max", "open_tickets_max")
# What records mean, beside the options: a program that would replay them otherwise does not know this and says so.
MEANING, MEANS = "ticket_settles", True  # since `Ticket.settled`; without it: nobody had heard of that
ANY_KEY = b"not the key: only that there was one decides what replaying does"


class Founded(Struct, frozen=True, tag=True, kw_only=True):
    """From here on the journal is of this node, under this tree and these options."""

    node: Node
    parents: dict[Node, Node | None]
    homes: dict[Topic, Node]
    default_home: Node | None
    options: dict[str, str | int | float | bool]
    is_proven: bool = False  # whether stamps are proven; the key itself is a secret, and no business of the journal

    @property
    def tree(self) -> SequencingTree:
        """The tree as it was."""
        return SequencingTree(self.parents, self.homes, self.default_home)

    def options_now(self, options: TreeOptions) -> TreeOptions:
        """These options, but with what decides about replaying as it was."""
        values = dict(self.options)
        values.pop(MEANING, None)
        unknown = sorted(values.keys() - set(options.__struct_fields__))
        if unknown:
            raise JournalError(
                f"the journal of {self.node} was written with options this program does not know "
                f"({', '.join(unknown)}); start the version of the program that wrote it"
            )
        if "stamp_key" in options.__struct_fields__:
            values["stamp_key"] = ANY_KEY if self.is_proven else None  # type: ignore[assignment]
        return structs.replace(options, **values)


class NodeSnapshot(Struct):
    """A node's state, what it was founded with, and the time of the last input it stands for."""

    founded: Founded
    state: NodeState
    now: float


class Rebuilt(Struct):
    """A node as its journal left it. `founded`: to be appended before anything else, if the journal lacks it.

    `is_new`: nobody has written the journal before.
    """

    machine: SequencerNode
    at_least: float
    current: Founded
    founded: Founded | None
    is_new: bool = False


UNSTAMPED_EPOCHS = 1_000  # so often may a node have been taken over since its last stamp

_record: msgspec.msgpack.Decoder[Stepped | TookOver | Founded] = msgspec.msgpack.Decoder(Stepped | TookOver | Founded)
_snapshot = msgspec.msgpack.Decoder(NodeSnapshot)
_encoder = msgspec.msgpack.Encoder()


def found(tree: SequencingTree, node: Node, options: TreeOptions) -> Founded:
    """What a journal begins with."""
    return Founded(
        node=node,
        parents=tree.parents,
        homes=tree.homes,
        default_home=tree.default_home,
        options={name: getattr(options, name) for name in REPLAYED} | {MEANING: MEANS},
        is_proven=getattr(options, "stamp_key", None) is not None,
    )


def encode_founded(founded: Founded) -> bytes:
    """As a record of the journal."""
    return _encoder.encode(founded)


def encode_snapshot(founded: Founded, machine: SequencerNode, now: float) -> bytes:
    """The state of a node, for its journal."""
    return _encoder.encode(NodeSnapshot(founded, machine.state, now))


def without_journal(tree: SequencingTree, node: Node, options: TreeOptions, epoch: int) -> Rebuilt:
    """A new node in place of one that was in this epoch at least. Its own is later, or nobody would listen to it."""
    now = found(tree, node, options)
    machine = SequencerNode.take_over(tree, node, options, [TookOver(epoch + UNSTAMPED_EPOCHS)], None)
    return Rebuilt(machine, 0.0, now, now, is_new=True)


def rebuild(tree: SequencingTree, node: Node, options: TreeOptions, recovered: Recovered) -> Rebuilt:
    """The node as its journal left it; a journal nobody wrote gives a new node.

    JournalError: this is not the journal of a node. InputError: it is, but of another one than is to be started.
    """
    now = found(tree, node, options)
    snapshot, records = _decoded(node, recovered)
    if snapshot is None and not records:
        return Rebuilt(SequencerNode(tree, node, options), 0.0, now, now, is_new=True)
    then = snapshot.founded if snapshot is not None else records[0]
    if not isinstance(then, Founded):
        raise JournalError(f"the journal of {node} does not begin with what it was founded with; it is not of a node")
    last = next((record for record in reversed(records) if isinstance(record, Founded)), then)
    _check_promises(last, now)
    state = snapshot.state if snapshot is not None else None
    steps: list[Stepped | TookOver] = []
    for record in records:
        if isinstance(record, Founded):
            if steps:
                state = _replayed(then, options, steps, state).state
            then, steps = record, []
        else:
            steps.append(record)
    times = [record.now for record in records if isinstance(record, Stepped)]
    at_least = max([snapshot.now if snapshot is not None else 0.0, *times])
    if now == then:
        return Rebuilt(SequencerNode.take_over(tree, node, options, steps, state), at_least, now, None)
    state = _replayed(then, options, steps, state).state
    _check_homes(then.tree, tree, node, state)
    return Rebuilt(SequencerNode.take_over(tree, node, options, [], state), at_least, now, now)


def _decoded(node: Node, recovered: Recovered) -> tuple[NodeSnapshot | None, list[Stepped | TookOver | Founded]]:
    try:
        snapshot = _snapshot.decode(recovered.snapshot) if recovered.snapshot is not None else None
        return snapshot, [_record.decode(record) for record in recovered.records]
    except UNREADABLE as error:
        raise JournalError(f"the journal of {node} holds something else than a node's records: {error}") from None


def _replayed(
    founded: Founded, options: TreeOptions, steps: list[Stepped | TookOver], state: NodeState | None
) -> SequencerNode:
    """What a node that was founded so made of these records.

    Taking over counts an epoch up that nobody uses, unless records of a later one follow: epochs need not be dense.
    """
    return SequencerNode.take_over(founded.tree, founded.node, founded.options_now(options), steps, state)


# ── what may change ───────────────────────────────────────────────────────────────────────────────────────────────


def _check_promises(then: Founded, now: Founded) -> None:
    if then.node != now.node:
        raise InputError(
            "journal", f"it is of node {then.node}, not of {now.node}", "give every node a journal of its own"
        )
    if then.parents != now.parents:
        raise TreeError("parents", _difference(then.parents, now.parents), _fix("the same nodes and parents"))
    for name in PROMISED:
        was, is_now = then.options.get(name), now.options[name]
        if was != is_now:
            raise InputError(name, f"the journal of {now.node} was written with {was!r}, not {is_now!r}", _fix("that"))


def _difference(then: dict[Node, Node | None], now: dict[Node, Node | None]) -> str:
    for node in sorted({*then, *now}):
        if node not in now:
            return f"the journal knows node {node!r}, which is gone"
        if node not in then:
            return f"node {node!r} is new, and the journal does not know it"
        if then[node] != now[node]:
            return f"the journal knows {node!r} below {then[node]!r}, not below {now[node]!r}"
    raise AssertionError("there is no difference")


def _check_homes(then: SequencingTree, now: SequencingTree, node: Node, state: NodeState) -> None:
    for topic in sorted(_known_topics(state)):
        if not then.knows(topic):
            continue  # somebody asked for it and was refused
        was = then.home(topic)
        if not now.knows(topic):
            raise TreeError(f"homes[{topic!r}]", f"the journal of {node} knows it on {was}", _fix("that home"))
        if now.home(topic) != was:
            problem = f"the journal of {node} knows it on {was}, not on {now.home(topic)}"
            raise TreeError(f"homes[{topic!r}]", problem, _fix("that home"))


def _known_topics(state: NodeState) -> set[Topic]:
    sequencer = state.sequencer
    topics = {*sequencer.homes, *sequencer.passages.passages}
    for holder in sequencer.couplings.holders.values():
        topics |= holder.topics
    for topic, regrouping in sequencer.regroupings.items():
        topics |= {topic} | regrouping.couple | regrouping.uncouple | regrouping.once
    for joins in sequencer.joins.values():
        for join in joins.values():
            topics |= join.topics | join.left
    return topics


def _fix(what: str) -> str:
    return f"configure {what}, or start anew: a new cluster name and empty journals"
