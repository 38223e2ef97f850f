"""From a broker's URL to a cluster: ask on the broker which nodes order its topics, and connect to them.

Any sequencer of the cluster answers with its description (server/description.py): the tree, the mode, the times and
where the nodes listen. `sequencers` replaces the addresses, for networks in which they are reached in another way.
"""

import asyncio
import contextlib
import logging
from urllib.parse import parse_qsl

from msgspec import structs

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import required
from seriatim.brokers.urls import kind_of, open_broker, shown
from seriatim.client.brokered.cluster import Network
from seriatim.client.settings import Settings
from seriatim.model import Address, ConnectionFailed, InputError, RemoteError, SeriatimError
from seriatim.runtime import Journal, Switchboard
from seriatim.runtime.net.dialer import Dialer, Peer
from seriatim.runtime.net.security import SecurityOptions
from seriatim.runtime.net.wire import Decoders, Welcome
from seriatim.server.description import ClusterDescription, decode_description, describe_subject
from seriatim.server.layout import Disagreement, Layout, choose, difference

logger = logging.getLogger(__name__)

ASK_AGAIN_S = 0.2
ANSWER_S = 2.0
OTHERS_S = 2.0  # how long to wait for all nodes of the tree
REFUSED_S = 0.2  # the same, if each that is missing has refused: it does not run
LOOK_S = 0.01
AWAY_S = 5.0  # how often it is asked where a node is that is away


class TcpNetwork(Network):
    """Connections to every node of a cluster, under one name."""

    def __init__(self, cluster: "RemoteCluster", name: Address) -> None:
        super().__init__(Switchboard())
        self._cluster = cluster
        self._name = name
        self._timeout_s = cluster.settings.timeout_s
        self._dialer = ClientDialer(cluster, self.switchboard, name)

    async def open(self) -> None:
        """Connect to the nodes. One that answers is enough, because this client may not need the others."""
        self._dialer.start()
        self._cluster.networks.add(self)
        loop = asyncio.get_running_loop()
        patience_s = min(OTHERS_S, self._timeout_s)
        patience_ends, refusal_ends = loop.time() + patience_s, loop.time() + min(REFUSED_S, patience_s)
        while missing := self._dialer.problems():
            is_some = len(missing) < self._count
            is_tried = is_some and loop.time() >= refusal_ends and self._dialer.all_failed()
            if is_tried or loop.time() >= patience_ends:
                break
            await asyncio.sleep(LOOK_S)
        for node, story in sorted(missing.items()):
            logger.warning("node not connected: client=%s node=%s tried=%s", self._name, node, story)
        if missing and len(missing) == self._count:
            await self._dialer.wait_connected(min(missing), max(0.0, self._timeout_s - patience_s))

    @property
    def _count(self) -> int:
        return len(self._cluster.description.addresses)

    def follow(self) -> None:
        """The cluster has other nodes now, or they are elsewhere."""
        self._dialer.change(self._cluster.peers())

    def down(self) -> list[str]:
        return [f"node {node} is not connected: {story}" for node, story in sorted(self._dialer.problems().items())]

    async def close(self) -> None:
        self._cluster.networks.discard(self)
        await self._dialer.stop()


class ClientDialer(Dialer):
    """The connections of a client. The nodes say which layout the cluster has."""

    def __init__(self, cluster: "RemoteCluster", switchboard: Switchboard, name: Address) -> None:
        super().__init__(
            switchboard,
            cluster.peers(),
            cluster=cluster.description.cluster,
            name=name,
            role="client",
            security=cluster.settings.security or SecurityOptions(),
            decoders=cluster.decoders,
        )
        self._cluster = cluster

    def welcomed(self, welcome: Welcome) -> None:
        self._cluster.heard(welcome.layout)


class RemoteCluster:
    """A cluster of server processes, as it was when it was found, and as it is now. `decoders`: how its nodes are
    understood."""

    def __init__(self, broker: Broker, description: ClusterDescription, settings: Settings, decoders: Decoders) -> None:
        self.broker = broker
        self.description = description
        self.settings = settings
        self.decoders = decoders
        self.networks: set[TcpNetwork] = set()
        self._heard = description.layout_version
        self._news = asyncio.Event()
        self._set(description)
        self._watching = asyncio.get_running_loop().create_task(self.watch())

    def _set(self, description: ClusterDescription) -> None:
        if self.settings.sequencers is not None:
            addresses = {node: list(self.settings.sequencers) for node in description.addresses}
            description = structs.replace(description, addresses=addresses)
        self.description = description
        self.broker.configure(description.mode, description.tree.home)

    def peers(self) -> list[Peer]:
        """The nodes, and where they are."""
        return [Peer(node, tuple(each)) for node, each in sorted(self.description.addresses.items())]

    def network(self, name: Address) -> Network:
        return TcpNetwork(self, name)

    def journal(self, durable: str) -> Journal | None:
        """The journal of a durable subscription on the broker, with the replicas of the cluster's streams. None: the
        broker keeps no journals."""
        replicas = int(self.description.broker_options.get("replicas", 1))
        return self.broker.durable_journal(durable, cluster=self.description.cluster, replicas=replicas)

    def heard(self, layout: int) -> None:
        """A node says that this is the version of the layout."""
        self._heard = max(self._heard, layout)
        if self._heard > self.description.layout_version:
            self._news.set()

    async def watch(self) -> None:
        """Follow the cluster, whose nodes say when it has changed. If some are away, they may have gone elsewhere."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AWAY_S):
                    await self._news.wait()
            self._news.clear()
            if self._heard > self.description.layout_version or any(network.down() for network in self.networks):
                try:
                    found = await ask_for_description(self.broker, self.description.cluster, ANSWER_S)
                except SeriatimError as error:
                    logger.debug("cluster not asked for its layout: reason=%s", error)
                    found = None
                if found is not None and found.layout_version > self.description.layout_version:
                    self._set(found)
                    for network in list(self.networks):
                        network.follow()
                    nodes = ",".join(found.addresses)
                    logger.info("cluster has changed: layout=%s nodes=%s", found.layout_version, nodes)
            if self._heard > self.description.layout_version:  # whoever has answered does not know it yet
                await asyncio.sleep(ASK_AGAIN_S)
                self._news.set()

    async def close(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self.broker.close()


async def open_remote(settings: Settings, decoders: Decoders) -> RemoteCluster:
    """Connect to the broker and find the sequencers. ConnectionFailed says what was tried."""
    kind = kind_of(settings.url)
    broker = open_broker(settings.url, **kind.cluster_options(settings.cluster, None, {}))
    try:
        await _connect(broker, settings)
        description = await find_description(broker, settings)
        check_description(description, settings)
        options = broker_options(description, settings)
        if options:  # how the cluster lays out its topics is known only now: connect again
            await broker.close()
            broker = open_broker(settings.url, **kind.cluster_options(settings.cluster, None, options))
            await _connect(broker, settings)
        return RemoteCluster(broker, description, settings, decoders)
    except BaseException:
        await broker.close()
        raise


async def _connect(broker: Broker, settings: Settings) -> None:
    try:
        async with asyncio.timeout(settings.timeout_s):
            await broker.open()
    except TimeoutError:
        where, waited = without_password(settings.url), f"within {settings.timeout_s:g} s"
        raise ConnectionFailed(f"no broker answers at {where} {waited}; is it running?") from None


def broker_options(description: ClusterDescription, settings: Settings) -> dict[str, str | int | float]:
    """The options of the broker that all processes must agree on. An option in the URL that says something else is a
    mistake."""
    layout, buckets = description.broker_options, description.buckets or None
    shared = kind_of(settings.url).cluster_options(description.cluster, buckets, layout)
    shared.pop("cluster", None)  # the application has named it
    given = dict(parse_qsl(settings.url.partition("?")[2]))
    for name, value in given.items():
        if name in shared and str(shared[name]) != value:
            problem = f"cluster {description.cluster} uses {name}={shared[name]}, the URL says {value}"
            raise InputError("url", problem, "leave it out: the cluster says it")
    return {name: value for name, value in shared.items() if name not in given}


async def ask_for_description(broker: Broker, cluster: str, timeout_s: float) -> ClusterDescription | None:
    """What the sequencers answer, or have left as a record where the broker has no request and reply. None: nothing.

    RemoteError: the answer cannot be read, or two processes do not agree about the cluster.
    """
    subject = describe_subject(cluster)
    if broker.requests is None:
        fix = "use a broker with request and reply, or with records"
        kept = await required(broker.records, "url", "has no way to find the sequencers", fix).kept(subject)
        return decode_description(kept) if kept is not None else None
    answers = await broker.requests.request_all(subject, b"", timeout_s, _are_all)
    if not answers:
        return None
    told, unread = _read(answers)
    if unread is not None:
        if not told:
            raise unread
        logger.warning("description ignored: cluster=%s reason=%s", cluster, unread)
    chosen, strangers = choose(told)
    for each in strangers:
        nodes = ",".join(each.by) or "not told"
        text = "another process describes the cluster differently, and is ignored: cluster=%s nodes=%s difference=%s"
        logger.warning(text, cluster, nodes, difference(Layout.of(chosen), Layout.of(each)))
    return chosen


def _read(answers: list[bytes]) -> tuple[list[ClusterDescription], RemoteError | None]:
    """The descriptions among the answers, and why another one cannot be read."""
    told: list[ClusterDescription] = []
    problem: RemoteError | None = None
    for each in answers:
        try:
            told.append(decode_description(each))
        except RemoteError as error:
            problem = error
    return told, problem


def _are_all(answers: list[bytes]) -> bool:
    """Whether every node of the cluster has answered, so that nobody else is to be waited for."""
    told, _ = _read(answers)
    return bool(told) and set(told[0].addresses or told[0].parents) <= {node for each in told for node in each.by}


async def find_description(broker: Broker, settings: Settings) -> ClusterDescription:
    """Ask until somebody answers, or the time is over: sequencers may just be starting."""
    subject = describe_subject(settings.cluster)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + settings.timeout_s
    problem: Disagreement | None = None
    while (left_s := deadline - loop.time()) > 0:
        try:
            found = await ask_for_description(broker, settings.cluster, min(ANSWER_S, left_s))
        except Disagreement as error:
            found, problem = None, error
        if found is not None:
            return found
        await asyncio.sleep(min(ASK_AGAIN_S, max(0.0, deadline - loop.time())))
    if problem is not None:
        raise problem
    raise ConnectionFailed(
        f"no sequencer answers for cluster {settings.cluster!r} on {without_password(settings.url)} "
        f"(asked on {subject} for {settings.timeout_s:g} s); start one with `seriatim serve` or `seriatim up`"
    )


def check_description(description: ClusterDescription, settings: Settings) -> None:
    """Check that the cluster is what the application asked for."""
    if settings.order != description.order and (settings.order is not None or description.order == "atoms"):
        keeps = {"global": "keeps global order", "pairwise": "keeps pairwise order", "atoms": "orders by atoms"}
        fix = f'connect(order="{description.order}") (commands: --order {description.order}), or use another cluster'
        raise InputError("order", f"cluster {description.cluster} {keeps[description.order]}", fix)
    if description.mode == "log" and not kind_of(settings.url).keeps_log:
        problem = f"cluster {description.cluster} runs in log mode, and this kind of URL reads no logs"
        raise InputError("url", problem, "use nats:// with the same host and port")
    if settings.mode is not None and settings.mode != description.mode:
        problem = f"cluster {description.cluster} runs in {description.mode} mode"
        raise InputError("mode", problem, "leave it out, or use another cluster")
    if settings.causal is not None and settings.causal != description.causal:
        what = "causal order" if description.order == "atoms" else "each publisher's own order across topics"
        kind = "keeps" if description.causal else "does not keep"
        problem = f"cluster {description.cluster} {kind} {what}"
        instead = "" if description.order == "atoms" or not settings.causal else "; own_order=True keeps it for one bus"
        raise InputError("causal", problem, f"leave it out, or use another cluster{instead}")
    if description.token_needed and settings.token is None:
        raise InputError("token", f"the sequencers of {description.cluster} require one", "connect(token=...)")


def without_password(url: str) -> str:
    """A URL as it may stand in an error."""
    return shown(url).partition("?")[0]
