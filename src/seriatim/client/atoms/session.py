"""A session with a cluster of sequencing atoms: `connect(..., order="atoms")`.

A topic's members are its subscribers: a new subscriber becomes a member of the topic's next group, and gets everything
that is published from then on. An event on a topic without members is refused.
"""

from msgspec import structs

from seriatim.brokers.urls import open_broker
from seriatim.client.brokered.cluster import Cluster
from seriatim.client.brokered.embedded import EmbeddedCluster, embedded_options
from seriatim.client.brokered.machines import PublisherView, SubscriberView
from seriatim.client.brokered.session import BrokerSession
from seriatim.client.brokered.source import BrokerSource
from seriatim.client.options import Limits
from seriatim.client.session import Wishes
from seriatim.client.settings import Settings
from seriatim.live.atoms.founding import Founded
from seriatim.live.atoms.host import LiveStation
from seriatim.model import Address, InputError, Notification, Number, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.atoms import AtomsOptions
from seriatim.protocols.atoms.publisher import AtomsPublisher
from seriatim.protocols.atoms.subscriber import AtomsSubscriber, Depart, Placed
from seriatim.runtime import Switchboard
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.runtime.net.wire import Decoders
from seriatim.server.description import ClusterDescription

STAMP_BYTES = 128 * 1024  # room in a message for an item's stamp: some thousand atoms
ALIVE_PER_LEASE = 3
LEASE_MS = 30_000.0  # for memory://, and for clusters that do not set it
STATION = "root"  # the one station of memory://, with all roles


class AtomsView(SubscriberView):
    """A subscriber of atoms, as the feed sees it."""

    knows_ages = False
    farewell = Depart()

    def __init__(self, subscriber: AtomsSubscriber) -> None:
        super().__init__(subscriber)
        self._subscriber = subscriber
        self._inner = subscriber.inner

    @property
    def topics(self) -> frozenset[Topic]:
        return self._inner.topics

    @property
    def waiting(self) -> int:
        return self._inner.waiting

    def share(self, limits: Limits) -> float:
        return max(super().share(limits), self._inner.waiting_bytes / limits.unread_bytes)

    def blocked_topics(self) -> frozenset[Topic]:
        return self._inner.blocked_topics()

    def explain(self) -> list[str]:
        return self._inner.explain()

    def unanswered(self) -> list[str]:
        return self._inner.explain()

    def slot_of(self, notification: Notification) -> Number:
        return notification.slot if isinstance(notification, Placed) else notification.number

    @property
    def is_heard(self) -> bool:
        return self._subscriber.is_heard


class AtomsSource(BrokerSource):
    """A member of its topics, until it departs."""

    substrate = "atoms"

    def _view(self) -> AtomsView:
        description = self.connection.cluster.description
        options = AtomsOptions(causal=description.causal, retry_ms=description.retry_ms)
        alive_ms = _alive_ms(description)
        return AtomsView(AtomsSubscriber(self.name, description.coordinator, options, alive_ms=alive_ms))


class AtomsSession(BrokerSession):
    """Made by `connect(..., order="atoms")`."""

    substrate = "atoms"

    def _embedded(self) -> EmbeddedCluster[LiveStation]:
        return embedded_atoms(self.settings)

    def _decoders(self) -> Decoders:
        from seriatim.live.atoms.wire import ATOMS

        return ATOMS

    def _publisher(self, cluster: Cluster) -> PublisherView:
        description = cluster.description
        if not description.causal:
            _refuse_what_needs_causal(self.settings)
        machine = AtomsPublisher(description.ingresses, description.retry_ms, _alive_ms(description))
        return PublisherView(
            machine,
            machine.explain,
            given_up=machine.given_up,
            why_not=machine.why_not,
            reserve_bytes=STAMP_BYTES,
            own_order=description.causal,
        )

    def _source(self, address: Address, wishes: Wishes, log_name: str) -> AtomsSource:
        return AtomsSource(self.connection, address, wishes, log_name)


def _refuse_what_needs_causal(settings: Settings) -> None:
    """Refuse `confirm` and `own_order`: without causal order, an event is confirmed when it has its number, which is
    too early for them."""
    wishes = {"confirm": settings.confirm == "placed", "own_order": settings.own_order}
    for option in [name for name, is_wished in wishes.items() if is_wished]:
        problem = 'without causal order an event is confirmed when it has its number in its topic (order="atoms")'
        raise InputError(option, problem, "leave it out, or use a cluster with causal order")


def _alive_ms(description: ClusterDescription) -> float:
    return (description.subscriber_lease_ms or LEASE_MS) / ALIVE_PER_LEASE


def embedded_atoms(settings: Settings) -> EmbeddedCluster[LiveStation]:
    """`memory://`: one station with all roles, not started yet."""
    broker, causal = open_broker(settings.url), bool(settings.causal)
    if broker.lossy or not broker.keeps_log:
        raise InputError("url", "atoms need a broker that loses nothing", "leave out loss and keeps_log")
    options = embedded_options(broker, "ticket", "pairwise", causal=False)
    described = ClusterDescription.of("memory", SequencingTree.single(node=STATION), options)
    description = structs.replace(
        described, sequenced_by="atoms", tree_order=None, causal=causal, coordinator=STATION, ingresses=[STATION]
    )
    switchboard = Switchboard()
    station = LiveStation(
        Founded(node=STATION, coordinator=STATION, ingresses=(STATION,), hosts=(STATION,), causal=causal),
        AtomsOptions(causal=causal, retry_ms=options.retry_ms),
        broker=broker,
        switchboard=switchboard,
        journal=MemoryJournal(),
        lease_ms=LEASE_MS,
    )
    return EmbeddedCluster(broker, description, switchboard, [station])
