"""A process of a cluster: runs some nodes of the tree, or all of them, until it is told to stop or none is left.

Everything that can be known to be wrong is found before anything is opened. Then, in this order: the broker, the ports,
the nodes, the answers on the broker, the admin port. Stopping goes the other way round.
"""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from seriatim.brokers import Broker
from seriatim.brokers.urls import open_broker, shown
from seriatim.model import Closed, InputError, Node, SeriatimError
from seriatim.protocols.atoms.written import Written
from seriatim.protocols.tree import TreeOptions
from seriatim.runtime import Journal
from seriatim.runtime.file_journal import FileJournal
from seriatim.runtime.journal import MemoryJournal
from seriatim.runtime.security import SecurityOptions, load_stamp_key
from seriatim.server.admin import AdminServer
from seriatim.server.config import (
    JETSTREAM_SCHEMES,
    LOSSY_SCHEMES,
    ClusterConfig,
    exposed_without_token,
    lacks_node_token,
)
from seriatim.server.discovery import answer_questions, encoded_description
from seriatim.server.machine_check import check_machine
from seriatim.server.metrics import Metrics, add_listeners, add_process
from seriatim.server.node_metrics import NodeMetrics
from seriatim.server.served import ServedNode
from seriatim.server.standby import WatchedJournal
from seriatim.server.status import NodeExplanation, ServerStatus, limited

if TYPE_CHECKING:
    from seriatim.brokers.nats_journals import NatsJournals

logger = logging.getLogger(__name__)

BEATS_PER_TAKEOVER = 6
URL_FILES = ("creds", "nkey", "ca", "cert", "key")


class SequencerServer:
    """Runs these nodes (None: all) of a cluster. `place`: which of a node's addresses is ours; above 0: a standby.

    `plan`: where atoms belong, of a cluster of atoms.
    """

    def __init__(
        self,
        config: ClusterConfig,
        nodes: Sequence[Node] | None = None,
        *,
        place: int = 0,
        plan: Written | None = None,
    ) -> None:
        self.config = config
        self.plan = plan
        self.place = place
        self.nodes = check_server(config, nodes, place)
        self.security = _security(config)
        self.options = _options(config)
        self.served: dict[Node, ServedNode] = {}
        self.broker: Broker = _broker(config)
        self.metrics = Metrics()
        self._node_metrics = NodeMetrics(self.metrics, self.served)
        self._admin: AdminServer | None = self._make_admin()
        self._journals: NatsJournals | None = None
        self._started_s = time.monotonic()
        self._stopping = asyncio.Event()

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Everything up, or the reason why not, with nothing left open."""
        for node in exposed_without_token(self.config):
            fix = "set security.token_file, or listen on 127.0.0.1"
            logger.warning("anybody can connect", extra={"node": node, "fix": fix})
        try:
            await self._start()
        except (SeriatimError, OSError, asyncio.CancelledError):
            await self.stop()
            raise

    async def __aenter__(self) -> "SequencerServer":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start(self) -> None:
        self.broker.configure(self.options.mode, self.config.tree.home)
        await self.broker.open()
        await self._open_journals()
        for name in self.nodes:
            self.served[name] = served = self._serving(name)
            await served.listen()
        description = encoded_description(self.broker, self.config, self.options, self.served.values())
        self._connect_nodes()
        for served in self.served.values():
            await served.start()
        await answer_questions(self.broker, self.config.cluster, description, self.served.values())
        add_process(self.metrics)
        add_listeners(self.metrics, {name: served.listener for name, served in self.served.items()})
        if self._admin is not None:
            await self._admin.start()
        broker = shown(self.config.broker)
        logger.info("serving", extra={"cluster": self.config.cluster, "nodes": self.nodes, "broker": broker})

    def _serving(self, name: Node) -> ServedNode:
        served = self._serving_as(name)(
            self.config,
            name,
            place=self.place,
            broker=self.broker,
            security=self.security,
            options=self.options,
            meter=self._node_metrics.meter(name),
            journal=self._journal,
            watched_journal=self._watched_journal,
        )
        served.plan = self.plan
        return served

    def _serving_as(self, name: Node) -> type[ServedNode]:
        """What a node is to this process."""
        if self.config.order == "tree":
            return ServedNode
        from seriatim.server.atoms_served import ServedStation  # only where atoms order

        return ServedStation

    def _connect_nodes(self) -> None:
        for name, served in self.served.items():
            for neighbour in self._dialed(name):
                self._connect(served, neighbour)

    def _dialed(self, name: Node) -> list[Node]:
        """The neighbours a node dials: its parent; among atoms, where all are alike, those before it in the file."""
        if self.config.order == "atoms":
            nodes = list(self.config.nodes)
            return nodes[: nodes.index(name)]
        parent = self.config.nodes[name].parent
        return [parent] if parent is not None else []

    def _connect(self, child: ServedNode, parent: Node) -> None:
        """Directly if both live and die with this process."""
        here = self.served.get(parent)
        nodes = self.config.nodes
        if here is not None and len(nodes[parent].addresses) == len(nodes[child.node].addresses) == 1:
            child.join(here)
        else:
            child.dial(parent)

    def request_stop(self) -> None:
        """End `run` soon."""
        self._stopping.set()

    async def run(self) -> None:
        """Until a stop is requested. Raises the reason if no node is left before."""
        stop = asyncio.ensure_future(self._stopping.wait())
        failures: set[asyncio.Future[Any]] = {served.failed for served in self.served.values()}
        try:
            while failures:
                await asyncio.wait({stop, *failures}, return_when=asyncio.FIRST_COMPLETED)
                if stop.done():
                    return
                failures = {each for each in failures if not each.done()}
            raise self._why_ended()
        finally:
            stop.cancel()

    def _why_ended(self) -> SeriatimError:
        reasons = "; ".join(f"{name}: {served.reason}" for name, served in self.served.items())
        return Closed(f"no node is left: {reasons}")

    async def stop(self) -> None:
        """Orderly, children before parents. May be called twice."""
        logger.info("stopping", extra={"nodes": self.nodes})
        if self._admin is not None:
            await self._admin.stop()
        paths = self.config.tree.paths
        for served in sorted(self.served.values(), key=lambda served: -len(paths[served.node])):
            await served.stop()
        if self._journals is not None:
            await self._journals.close()
        await self.broker.close()

    def _journal(self, node: Node) -> Journal:
        folder = self.config.journal_folder(node)
        if folder is not None:
            return FileJournal(folder)
        if self.config.nodes[node].journal == "memory":
            logger.warning("the journal survives nothing", extra={"node": node, "fix": 'set journal = "file:<folder>"'})
            return MemoryJournal()
        return self._nats_journals().journal(node)

    def _watched_journal(self, node: Node) -> WatchedJournal:
        """Shows life often enough that a beat or two may be late without anybody taking over."""
        return self._nats_journals().journal(node, beat_s=self.config.times.takeover_ms / 1000.0 / BEATS_PER_TAKEOVER)

    def _nats_journals(self) -> "NatsJournals":
        assert self._journals is not None, "opened first, if a node needs it"
        return self._journals

    async def _open_journals(self) -> None:
        if all(self.config.nodes[node].journal != "jetstream" for node in self.nodes):
            return
        from seriatim.brokers.nats_jetstream import JetStreamBroker
        from seriatim.brokers.nats_journals import NatsJournals

        assert isinstance(self.broker, JetStreamBroker), "the configuration was checked"
        link = self.broker.link
        self._journals = NatsJournals(
            link.servers, link.credentials, cluster=self.config.cluster, replicas=self.config.streams.replicas
        )
        await self._journals.open()

    def _make_admin(self) -> AdminServer | None:
        admin = self.config.admin
        if not admin.address:
            return None
        return AdminServer(
            admin.address,
            self.metrics,
            status=lambda: msgspec.to_builtins(self.status()),
            explain=lambda: msgspec.to_builtins(self.explain()),
            problems=self.problems,
            token=_admin_token(self.config),
            context=self.security.server_context() if self.security.certificate is not None else None,
        )

    # ── looking at it ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def addresses(self) -> dict[Node, str]:
        """Where each node of this process listens."""
        return {name: served.address for name, served in self.served.items()}

    @property
    def admin_url(self) -> str | None:
        """Where the admin port answers, if there is one."""
        return self._admin.url if self._admin is not None else None

    def problems(self) -> list[str]:
        """What keeps this process from being well: nodes that neither serve nor stand by."""
        return [
            f"{name} is {served.role}{': ' if served.reason else ''}{served.reason}"
            for name, served in self.served.items()
            if served.role not in ("active", "standby")
        ]

    def status(self) -> ServerStatus:
        """All nodes of this process."""
        return ServerStatus(
            cluster=self.config.cluster,
            mode=self.config.mode,
            order=self.config.order,
            causal=self.config.causal,
            pid=os.getpid(),
            uptime_s=time.monotonic() - self._started_s,
            nodes=[served.status() for served in self.served.values()],
        )

    def explain(self) -> list[NodeExplanation]:
        """What is unfinished at each of them."""
        return [limited(name, served.explain()) for name, served in self.served.items()]


def check_server(config: ClusterConfig, nodes: Sequence[Node] | None = None, place: int = 0) -> list[Node]:
    """The nodes to run, if a process with these arguments can run here. Opens nothing."""
    chosen = list(dict.fromkeys(nodes)) if nodes is not None else list(config.nodes)
    for node in chosen:
        if node not in config.nodes:
            raise InputError("--node", f"there is no node {node!r}", f"use one of {', '.join(config.nodes)}")
        if place >= len(config.nodes[node].addresses):
            fix = "give it a list of addresses, or leave out --standby"
            raise InputError(f"nodes.{node}.address", f"has no standby number {place}", fix)
    free = [node for node, each in config.nodes.items() if any(address.endswith(":0") for address in each.addresses)]
    if free and set(chosen) != set(config.nodes):
        problem = "port 0 is known to no other process"
        raise InputError(f"nodes.{free[0]}.address", problem, "give a port, or run all nodes in one process")
    has_standbys = any(len(each.addresses) > 1 for each in config.nodes.values())
    if lacks_node_token(config) and (has_standbys or set(chosen) != set(config.nodes)):
        problem = "is missing: a client could say that it is a node, so nodes of other processes are not let in"
        fix = "give nodes a token of their own, or run all of them in one process without standbys"
        raise InputError("security.node_token_file", problem, fix)
    binds = [config.nodes[node].bind for node in chosen if config.nodes[node].bind]
    for bind in binds:
        if binds.count(bind) > 1 and not bind.endswith(":0"):
            raise InputError("bind", f"two nodes of this process listen on {bind!r}", "give each its own port")
    check_machine(config, chosen)
    _security(config)
    _admin_token(config)
    _options(config)
    if config.broker.partition("://")[0] != "memory":  # that one would begin to exist
        _broker(config)
    return chosen


def _security(config: ClusterConfig) -> SecurityOptions:
    security = config.security
    try:
        return SecurityOptions.load(
            token_file=security.token_file,
            node_token_file=security.node_token_file,
            certificate=security.certificate,
            key=security.key,
            authority=security.authority,
            require_client_certificate=security.require_client_certificate,
            folder=config.folder,
        )
    except InputError as error:
        raise InputError(f"security.{error.field}", error.problem, error.fix) from None


def _options(config: ClusterConfig) -> TreeOptions:
    if not config.security.stamp_key_file:
        return config.options
    path = config.path(config.security.stamp_key_file)
    return msgspec.structs.replace(config.options, stamp_key=load_stamp_key("security.stamp_key_file", path))


def _admin_token(config: ClusterConfig) -> str:
    if not config.admin.token_file:
        return ""
    try:
        return SecurityOptions.load(token_file=config.admin.token_file, folder=config.folder).token
    except InputError as error:
        raise InputError(f"admin.{error.field}", error.problem, error.fix) from None


def broker_options(config: ClusterConfig) -> dict[str, Any]:
    """What the broker's URL leaves to the cluster's file."""
    scheme = config.broker.partition("://")[0]
    options: dict[str, Any] = {}
    if scheme in JETSTREAM_SCHEMES:
        options = {"cluster": config.cluster, "streams": config.streams.buckets or "topic", **config.broker_options}
    elif scheme in LOSSY_SCHEMES:
        options = {"cluster": config.cluster, "buckets": config.streams.buckets}
    for name, value in parse_qsl(config.broker.partition("?")[2]):
        if name in URL_FILES:  # relative to the cluster's file, as all paths in it
            options[name] = str(config.path(value))
    return options


def _broker(config: ClusterConfig) -> Broker:
    """The broker, not connected."""
    try:
        return open_broker(config.broker, **broker_options(config))
    except InputError as error:
        where = "broker" if error.field == "url" else f"broker ({error.field})"
        raise InputError(where, error.problem, error.fix) from None
