"""Worlds of sequencing-tree machines: which machine plays which part, and who can make whom send.

The search explores the inner `Sequencer`, which is given the perfect links it assumes; worlds with faults run the whole
`SequencerNode` with its links and journal. The broker may be played by one machine per topic: its topics have
nothing in common, and the search then need not order what happens on different ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec import structs

from seriatim.lab.explore.engine.plan import Plan, instances_of
from seriatim.lab.explore.engine.world import TIMER, Channel, Role, World
from seriatim.lab.explore.tree.checks import TreeChecks
from seriatim.lab.explore.tree.order_checks import ORDER_BROKER
from seriatim.model import APPLICATION, BROKER, Address, Event, Gap, Node, Notification, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.broker import Broker, KeepOrder
from seriatim.protocols.machine import Payload
from seriatim.protocols.node import Stepped, TookOver
from seriatim.protocols.tree import Publisher, Sequencer, SequencerNode, Subscriber, TreeOptions
from seriatim.protocols.tree.confirming import Outdated
from seriatim.protocols.tree.messages import (
    CancelMove,
    CancelReshape,
    Forget,
    Move,
    MoveEnded,
    NodeLeft,
    Refresh,
    Reshape,
    ReshapeEnded,
    Subscribe,
    Ticket,
    Update,
    Welcome,
)
from seriatim.protocols.tree.node import newcomer_state
from seriatim.protocols.tree.state import state_of_newcomer
from seriatim.protocols.with_broker import (
    Append,
    Begun,
    Cede,
    Ceded,
    Change,
    Changed,
    EventLost,
    EventPlaced,
    EventStored,
    Ordered,
    OrderKept,
    OrderRead,
    Publish,
    ReadOrder,
    Staged,
    Stamped,
    StampedTo,
    Start,
    Watch,
)

ORDER_LOG = (Ordered, OrderKept, Cede, Ceded, ReadOrder, OrderRead)


@dataclass(frozen=True)
class Cast:
    """The classes that play the roles. Variants replace one of them by a broken one."""

    sequencer: type[Sequencer] = Sequencer
    node: type[SequencerNode] = SequencerNode
    publisher: type[Publisher] = Publisher
    subscriber: type[Subscriber] = Subscriber
    broker: type[Broker] = Broker
    fenced: bool = True
    tells_first: bool = False  # stages leave before the journal has the pass


PROPER = Cast()


@dataclass(frozen=True, kw_only=True)
class TreeWorld(Plan[Cast]):
    """One world of the sequencing tree."""

    tree: SequencingTree
    options: TreeOptions
    may_lose: Callable[[Channel, Payload], bool] = lambda channel, message: True
    readers: Mapping[Address, Address] = field(default_factory=dict)  # publisher → the subscriber it reacts to
    with_links: bool = False
    reconnecting: bool = False  # requests of clients to nodes can overtake each other
    broker_per_topic: bool = True
    markers: int = 0  # voids that follow each event in a log
    echoes: int = 0  # how often the broker repeats a plain message
    compacts: bool = False  # a durable subscriber that restarts shortens its journal first

    def build(self, cast: Cast | None = None) -> World:
        parts = Parts(self, cast or PROPER)
        return self.world(
            parts.roles(),
            TreeChecks(
                parts.tree,
                parts.nodes,
                self.options,
                self.readers,
                self.one_at_a_time,
                is_timeless=self.is_timeless(),
                pasts=pasts_of(self.scripts),
                may_lose_order=BROKER in self.scripts or self.loses_journals,
            ),
            route=parts.route,
            seen_as=dict.fromkeys(parts.brokers, BROKER),
            lane=lane_of_reconnecting if self.reconnecting else lane,
            may_lose=self.may_lose,
            answers=answers,
            is_answer=instances_of(
                Changed,
                EventLost,
                EventPlaced if self.options.follows_stamps else EventStored,
                MoveEnded,
                ReshapeEnded,
            ),
            influence=parts.influence,
            passive=is_passive,
            normalise=wipe_timers if self.is_timeless() else leave,
            noted=noted_with_places if self.loses_journals else noted,
            fenced=parts.cast.fenced,
            listens=listens,
            prepared=self.prepared,
            hands_on=self.hands_on,
            aged=parts.aged,
            is_outdated=instances_of(Outdated),
            ends=instances_of(NodeLeft),
            known_apart=lambda channel: channel.source in parts.nodes or channel.source == BROKER,
            leaks=instances_of(Staged) if parts.cast.tells_first else instances_of(),
        )

    def prepared(self, address: Address, command: Payload, machine: Callable[[Address], Any]) -> Payload:
        """A bus publishes behind what its subscriber was notified of early."""
        reader = machine(self.readers[address]) if address in self.readers else None
        if type(command) is not Publish or reader is None or not reader.state.early:
            return command
        return structs.replace(command, behind=dict(reader.state.early))

    def hands_on(self, address: Address, payload: Payload) -> list[Address]:
        """A bus tells its publisher what its subscriber says is final."""
        if type(payload) is not StampedTo:
            return []
        return [publisher for publisher, reader in self.readers.items() if reader == address]

    @property
    def loses_journals(self) -> bool:
        """Whether a node may lose its journal."""
        return any(budget.losses_of_journal for budget in self.budgets.values())

    def is_timeless(self) -> bool:
        """Whether no machine is ever ticked, so that what it would then do cannot matter."""
        return self.patience == 0 and not any(budget.ticks or budget.crashes for budget in self.budgets.values())


def pasts_of(scripts: Mapping[Address, Sequence[Payload]]) -> dict[Address, Change]:
    """The subscribers that begin with the past, and the topics of it that no later change of their script touches."""
    pasts = {}
    for address, script in scripts.items():
        changes = [each for each in script if isinstance(each, Change)]
        if changes and changes[0].start is not None:
            touched = frozenset(topic for each in changes[1:] for topic in each.add | each.remove)
            pasts[address] = structs.replace(changes[0], add=changes[0].add - touched)
    return pasts


def publish(publisher: Address, topic: Topic, *ids: str) -> Publish:
    """The command to publish events with these ids."""
    return Publish(tuple(Event(id, topic, publisher) for id in ids))


def change(add: str = "", remove: str = "", start: Start | None = None) -> Change:
    """The command to change a subscription; topics separated by blanks."""
    return Change(frozenset(add.split()), frozenset(remove.split()), start)


def answers(command: Payload) -> int:
    """One answer per change, per move, and per event. Nobody answers the broker's operator, or who cancels."""
    if type(command) in (KeepOrder, CancelMove, CancelReshape):
        return 0
    return len(command.events) if type(command) is Publish else 1


def listens(machine: Any) -> bool:
    """Whether a machine takes commands now. A node that comes back, or is not part of the tree yet, takes none."""
    if isinstance(machine, SequencerNode):
        return machine.is_acting and machine.inner.is_member
    return not isinstance(machine, Sequencer) or machine.is_member


def is_passive(machine: Any) -> bool:
    """A subscriber with nothing to change and a publisher with nothing to publish only listen."""
    if isinstance(machine, Subscriber):
        state = machine.state
        return state.changing is None and not state.waiting and state.reading is None
    if isinstance(machine, Publisher):
        return not machine.state.reacting.queue and all(
            lane.is_idle() and not lane.events for lane in machine.state.lanes.values()
        )
    return False


def noted(payload: Payload) -> Payload | None:
    """Checks look at which events came, in which order; not at stamps, and answers are counted."""
    if type(payload) is not Notification:
        return payload if type(payload) is Gap else None
    return structs.replace(payload, entries={}, early=False) if payload.entries or payload.early else payload


def noted_with_places(payload: Payload) -> Payload | None:
    """Where numbers may be lost, checks also look at what publishers are told."""
    return payload if type(payload) is EventPlaced else noted(payload)


def leave(machine: Any) -> None:
    """Wipe nothing."""


def wipe_timers(machine: Any) -> None:
    """Forget when things are due, and of a node's moments all but their order."""
    state = machine.state
    if isinstance(machine, Subscriber):
        state.retry_due = state.patience_due = state.refresh_due = None
    elif isinstance(machine, Publisher):
        state.retry_due = None
    elif isinstance(machine, Sequencer):
        passages = state.passages.passages.values()
        moments = {0} | {each.raised for each in passages} | {each.collected for each in passages}
        rank = {moment: position for position, moment in enumerate(sorted(moments))}
        for passage in passages:
            passage.raised, passage.collected = rank[passage.raised], rank[passage.collected]
        state.passages.moment = len(rank) - 1


def topic_of(message: Any) -> Topic:
    """The topic of what goes to or comes from the broker, `Watch` aside."""
    topic: Topic = message.event.topic if type(message) is Append else message.topic
    return topic


def lane(source: Address, target: Address, message: Payload) -> str:
    """Topics overtake each other on the way from the broker, and so do a topic's log, its stamps, and the order log."""
    if not source.startswith(BROKER):
        return ""
    if type(message) is Staged:  # plain messages overtake each other
        return f"{message.topic} {message.first} of {message.node}"
    if isinstance(message, ORDER_LOG):
        return "order log"
    if type(message) is Begun:
        return "begun"
    return f"{topic_of(message)} stamps" if isinstance(message, Stamped | StampedTo) else topic_of(message)


def lane_of_reconnecting(source: Address, target: Address, message: Payload) -> str:
    """A client that reconnects can have its repeated requests arrive after newer ones."""
    if isinstance(message, Subscribe | Update | Refresh):
        return f"version {message.version}"
    return f"{message.topic} {message.request}" if type(message) is Ticket else lane(source, target, message)


def resume_whole(
    kind: type[Subscriber], tree: SequencingTree, name: Address, options: TreeOptions, journal: list[Payload]
) -> Subscriber:
    """A durable subscriber as its journal left it."""
    return kind.resume(tree, name, options, journal)


def resume_compacted(
    kind: type[Subscriber], tree: SequencingTree, name: Address, options: TreeOptions, journal: list[Payload]
) -> Subscriber:
    """Resume from the shortened journal, which replaces the other one."""
    if (records := kind.resume(tree, name, options, journal).compact()) is not None:
        journal[:] = records
    return kind.resume(tree, name, options, journal)


class Parts:
    """The machines of one world, and who can make which of them send."""

    def __init__(self, plan: TreeWorld, cast: Cast) -> None:
        self.plan, self.cast, self.tree = plan, cast, plan.tree
        commands = [*plan.setup, *((address, each) for address, script in plan.scripts.items() for each in script)]
        self.layout = layout_of(plan.tree, [each for _, each in commands])
        self.newcomers = [node for node in self.layout.parents if node not in self.tree.parents]
        self.nodes = list(self.layout.parents)
        self.reshapes = any(isinstance(command, Reshape) for _, command in commands)
        self.homes: dict[Topic, set[Node]] = {}  # of topics that move: all that they ever have
        self.wants: dict[Address, set[Topic]] = {}  # topics each client ever publishes to or subscribes to
        self.moves: dict[Address, set[Topic]] = {  # topics each subscriber still adds or removes
            address: {topic for each in script if isinstance(each, Change) for topic in each.add | each.remove}
            for address, script in plan.scripts.items()
        }
        self.past = pasts_of(plan.scripts)  # who reads the past, and asks brokers for it
        self.publishers: list[Address] = []
        for address, command in commands:
            if isinstance(command, Move):
                self.homes.setdefault(command.topic, {self.tree.home(command.topic)}).add(command.to)
            if address == BROKER or address in self.nodes:
                continue
            wanted = self.wants.setdefault(address, set())
            if isinstance(command, Publish):
                wanted.update(event.topic for event in command.events)
                if address not in self.publishers:
                    self.publishers.append(address)
            elif isinstance(command, Change):
                wanted.update(command.add)
        self.subscribers = [address for address in self.wants if address not in self.publishers]
        self.topics = sorted(self.tree.homes)
        self.brokers = [self.broker(topic) for topic in self.topics] if plan.broker_per_topic else [BROKER]
        if plan.broker_per_topic and plan.options.keeps_order_log:
            self.brokers.append(ORDER_BROKER)
        self.neighbours = {node: self._neighbours(node) for node in self.tree.parents}

    def broker(self, topic: Topic) -> Address:
        return f"{BROKER} {topic}" if self.plan.broker_per_topic else BROKER

    def roles(self) -> dict[Address, Role]:
        options, tree, cast = self.plan.options, self.tree, self.cast
        roles: dict[Address, Role] = {}
        for node in tree.parents:
            machine: Any = partial(cast.sequencer, tree, node, options)
            restore: Any = None
            come_back: Any = None
            heal: Any = None
            if self.plan.with_links:
                node_type = node_with(cast.sequencer, cast.node)
                machine = partial(node_type, tree, node, options)
                restore = partial(node_type.take_over, tree, node, options)
                if not self.plan.broker_per_topic:
                    come_back = partial(node_type.come_back, tree, node, options)
                    heal = partial(node_type.heal, tree, node, options)
            roles[node] = Role(machine, machine, restore, come_back, heal)
        for node in self.newcomers:
            roles[node] = self._newcomer(node)
        for broker in self.brokers:
            roles[broker] = Role(
                partial(cast.broker, markers=self.plan.markers, echoes=self.plan.echoes),
                partial(_thaw_broker, cast.broker),
            )
        for publisher in self.publishers:
            machine = partial(cast.publisher, tree, publisher, options)
            roles[publisher] = Role(machine, machine)
        for subscriber in self.subscribers:
            machine = partial(cast.subscriber, tree, subscriber, options)
            resume = resume_compacted if self.plan.compacts else resume_whole
            restore = partial(resume, cast.subscriber, tree, subscriber, options) if options.durable else None
            roles[subscriber] = Role(machine, machine, restore)
        return roles

    def _newcomer(self, node: Node) -> Role:
        """A node that is not in the tree at first. It begins as one that waits, also when its journal is replayed."""
        options, layout = self.plan.options, self.layout
        if not self.plan.with_links:
            machine = partial(self.cast.sequencer, layout, node, options)
            return Role(lambda: machine(state_of_newcomer(options)), machine)
        node_type = node_with(self.cast.sequencer, self.cast.node)

        def restore(journal: Sequence[Payload]) -> SequencerNode:
            return node_type.take_over(layout, node, options, journal, newcomer_state(options))

        def come_back(journal: Sequence[Payload], epoch: int) -> SequencerNode:
            return node_type.come_back(layout, node, options, journal, epoch, newcomer_state(options))

        create = partial(node_type, layout, node, options)
        is_confirmed = not self.plan.broker_per_topic
        return Role(lambda: create(newcomer_state(options)), create, restore, come_back if is_confirmed else None)

    def aged(self, journal: Sequence[Payload]) -> int:
        """An older copy may lack what came from other nodes and from the broker, and nothing that clients said: what
        that led to is between the node and the client, and only the registered count of records can tell. That of a
        node that was welcomed may be from before that, and then it has nothing."""
        lacks = 0
        for record in reversed(journal):
            if isinstance(record, Stepped):
                is_heard = record.source in self.nodes or record.source == BROKER
                if not is_heard or isinstance(record.message, Forget):
                    break
            elif not isinstance(record, TookOver):
                break
            lacks += 1
        came_later = any(isinstance(record, Stepped) and type(record.message) is Welcome for record in journal)
        return lacks if came_later else min(lacks, max(0, len(journal) - 1))

    def route(self, target: Address, message: Payload) -> Sequence[tuple[Address, Payload]]:
        if target != BROKER or not self.plan.broker_per_topic:
            return [(target, message)]
        if isinstance(message, ORDER_LOG):
            return [(ORDER_BROKER, message)]
        if type(message) is Watch:
            return [(self.broker(topic), Watch(frozenset({topic}))) for topic in sorted(message.topics)]
        return [(self.broker(topic_of(message)), message)]

    def influence(self, target: Address, source: Address) -> frozenset[Address] | None:
        """To whom `target` may send because of something from `source`."""
        if source == TIMER or self.reshapes:
            return None
        if target in self.tree.parents:
            return frozenset(self._influence_at_node(target, source)) if not self.homes else None
        if target in self.brokers:
            if source in self.subscribers:
                return frozenset({source})
            homes = self._homes_of(self._topics_of(target))
            listeners = {each for each in self.subscribers if self._topics_of(target) & self.wants[each]}
            if self.plan.options.follows_stamps:
                listeners |= {each for each in self.publishers if self._topics_of(target) & self.wants[each]}
            listeners |= self.past.keys() if target == ORDER_BROKER else set()
            return frozenset({source} | listeners | homes)
        topics = self.wants[target]
        if target in self.subscribers:
            moves, homes = self.moves.get(target, set()), self._homes_of(topics)
            if self.homes and source not in self.brokers:
                homes |= {self.tree.root}
            if target in self.past:
                return frozenset({self.broker(topic) for topic in topics} | homes | {ORDER_BROKER} & set(self.brokers))
            if source not in self.brokers:
                heard = topics if self.plan.options.tells_stages and moves else moves
                return frozenset({self.broker(topic) for topic in heard} | homes)
            joining = self._topics_of(source) & moves if self.plan.options.mode == "ticket" else set()
            return frozenset(self._homes_of(joining))
        if target in self.publishers and not self.plan.options.own_order and source != APPLICATION:
            topics = {topic for topic in topics if source in {self.broker(topic), *self._homes_of({topic})}}
        return frozenset({self.broker(topic) for topic in topics} | self._homes_of(topics))

    def _homes_of(self, topics: Iterable[Topic]) -> set[Node]:
        """All homes that these topics ever have."""
        return {home for topic in topics for home in self.homes.get(topic, {self.tree.home(topic)})}

    def _influence_at_node(self, node: Address, source: Address) -> set[Address]:
        if source in self.publishers and self.plan.options.follows_stamps:  # it asks: the node looks at the log
            asked = {topic for topic in self.wants[source] if self.tree.home(topic) == node}
            return {source, *(self.broker(topic) for topic in asked)}
        if source in self.subscribers or source in self.publishers:
            return self.neighbours[node] | {source}
        if source in self.brokers:  # a node that restarted has joins wait for the length of a log
            waiting = self._topics_of(source) if self._restarts(node) else set()
            return {*self.neighbours[node], source, *(each for each in self.subscribers if self.wants[each] & waiting)}
        if source == APPLICATION:
            return set(self.neighbours[node])
        here = {topic for topic in self.topics if self.tree.home(topic) == node}
        below = {topic for topic in self.topics if node in self.tree.paths[self.tree.home(topic)]}
        told = below if self.plan.options.tells_stages else here
        publishers = {each for each in self.publishers if self.wants[each] & here}
        subscribers = {each for each in self.subscribers if self.wants[each] & here}
        return self.neighbours[node] | publishers | subscribers | {self.broker(topic) for topic in told}

    def _restarts(self, node: Address) -> bool:
        budget = self.plan.budgets.get(node)
        return self.plan.options.mode == "log" and budget is not None and budget.crashes > 0

    def _topics_of(self, broker: Address) -> set[Topic]:
        return {topic for topic in self.topics if self.broker(topic) == broker}

    def _neighbours(self, node: Address) -> set[Address]:
        parent = self.tree.parents[node]
        children = {child for child, above in self.tree.parents.items() if above == node}
        return children if parent is None else children | {parent}


def layout_of(tree: SequencingTree, commands: Iterable[Payload]) -> SequencingTree:
    """The tree with all nodes that these commands ever bring into it, each at its place."""
    parents, root = dict(tree.parents), tree.root
    for command in commands:
        if not isinstance(command, Reshape) or command.kind == "leave" or command.node in parents:
            continue
        if command.kind == "join":
            parents[command.node] = command.at
        else:
            parents[command.node], parents[root] = None, command.node
            root = command.node
    return SequencingTree(parents, tree.homes, tree.default_home)


def node_with(sequencer: type[Sequencer], node: type[SequencerNode]) -> type[SequencerNode]:
    """A node of this type whose inner sequencer is of that one."""

    class PlayedNode(node):  # type: ignore[misc,valid-type]
        sequencer_type = sequencer

    return PlayedNode


def _thaw_broker(broker_type: type[Broker], state: Any) -> Broker:
    broker = broker_type()
    broker.state = state
    return broker
