"""A process of a cluster: runs some or all of its nodes, until it is told to stop or no node is left.

Everything is checked before anything is opened. Then it opens, in this order: the admin port, which says that the
process is starting; the broker, the ports, the nodes, the answers on the broker.
"""

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec
from msgspec import structs

from seriatim.brokers import Broker
from seriatim.brokers.capabilities import FencedJournal, FencedJournals, required
from seriatim.brokers.urls import open_broker, shown
from seriatim.live.agreement import Agreement
from seriatim.live.describing import Answers
from seriatim.live.metrics import add_nodes
from seriatim.live.roster import Roster
from seriatim.live.served import Served
from seriatim.model import Closed, InputError, Node, SeriatimError
from seriatim.protocols.atoms.written import Written
from seriatim.protocols.tree import TreeOptions
from seriatim.runtime import Journal
from seriatim.runtime.journal.file_journal import FileJournal
from seriatim.runtime.journal.interface import MemoryJournal
from seriatim.runtime.net.security import load_stamp_key
from seriatim.server.admin import AdminServer
from seriatim.server.config import ON_BROKER, ClusterConfig, Limits, exposed_without_token, lacks_node_token
from seriatim.server.health import Ledger, Problem, Trouble
from seriatim.server.machine_check import check_machine, room_for_connections
from seriatim.server.metrics import Metrics, add_listeners, add_process
from seriatim.server.schemas import load_security
from seriatim.server.status import NodeExplanation, ServerStatus, limited

logger = logging.getLogger(__name__)

BEATS_PER_TAKEOVER = 6


class SequencerServer:
    """Runs these nodes (None: all) of a cluster. `place`: which of a node's addresses to use; above 0: a standby.

    `plan`: the hosts of atoms, in a cluster of atoms. `heals`: a node that has lost its journal goes on as a new one.
    """

    def __init__(
        self,
        config: ClusterConfig,
        nodes: Sequence[Node] | None = None,
        *,
        place: int = 0,
        plan: Written | None = None,
        heals: bool = False,
    ) -> None:
        self.config = config
        self.plan = plan
        self.place = place
        self.heals = heals
        self.nodes = check_server(config, nodes, place)
        self.security = config.security.load(config.folder)
        self.options = _options(config)
        self.served: dict[Node, Served[Any]] = {}
        self.broker: Broker = _broker(config)
        self.runs_all = nodes is None
        self.agreement = Agreement(self.broker, config, () if self.runs_all else self.nodes)
        self._answers: Answers | None = None
        self._watching: asyncio.Task[None] | None = None
        self.metrics = Metrics()
        add_nodes(self.metrics, self.served)
        self._ledger = Ledger()
        self._stage: Literal["starting", "serving", "stopped"] = "starting"
        self._admin: AdminServer | None = self._make_admin()
        self._journals: FencedJournals | None = None
        self._started_s = time.monotonic()
        self._stopping = asyncio.Event()
        self.roster = Roster(self)

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Start everything. If that fails, closes everything and raises the reason."""
        for notice in self.config.notices:
            context = (notice.keyword, self.config.file or "configuration", notice.meaning)
            logger.warning("older keyword: keyword=%s file=%s meaning=%s", *context)
        for node in exposed_without_token(self.config):
            fix = "set security.token_file, or listen on 127.0.0.1"
            logger.warning("port is open to every machine: node=%s fix=%s", node, fix)
        if (lack := room_for_connections(self.config, self.nodes)) is not None:
            fix = "raise the limit of open files (ulimit -n, LimitNOFILE), or lower limits.connections_max"
            level = logging.INFO if self.config.limits == Limits() else logging.WARNING  # somebody relies on it
            logger.log(level, "fewer clients can connect than limits.connections_max says: reason=%s fix=%s", lack, fix)
        try:
            await self._start()
        except (SeriatimError, OSError, asyncio.CancelledError):
            await self.stop()
            raise

    async def __aenter__(self) -> "SequencerServer":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def _start(self) -> None:
        self.broker.configure(self.options.mode, lambda topic: self.config.tree.home(topic))
        if self._admin is not None:  # first: it says that the process starts
            await self._admin.start()
        await self.broker.open()
        if self.options.mode == "log" and not self.broker.knows_repeats:
            consequence = "an event that is sent again may be in the log twice"
            logger.warning(
                "broker does not recognise repeats: broker=%s reason=%s", shown(self.config.broker), consequence
            )
        await self._agree()
        for name in self.nodes:
            await (await self.new_node(name)).listen()
        self._answers = Answers(self)
        for served in self.served.values():
            served.connect(self.served)
        for served in self.served.values():
            await served.start()
        await self._answers.begin()
        self.agreement.on_change.append(self._follow)
        self.roster.start(self._answers)
        self._watching = asyncio.get_running_loop().create_task(self.agreement.watch())
        add_process(self.metrics)
        add_listeners(self.metrics, lambda: {name: served.listener for name, served in self.served.items()})
        self._stage = "serving"
        nodes, broker = ",".join(self.nodes), shown(self.config.broker)
        logger.info("serving: cluster=%s nodes=%s broker=%s", self.config.cluster, nodes, broker)

    def _kind(self) -> type[Served[Any]]:
        """The class of this cluster's nodes. Imports only the product that is used."""
        if self.config.order == "atoms":
            from seriatim.live.atoms.served import ServedStation

            return ServedStation
        from seriatim.live.tree.served import ServedNode

        return ServedNode

    # ── the layout ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _agree(self) -> None:
        """Go by the layout of the cluster, as far as it says something else than the file."""
        file = self.config
        await self.agreement.reach(self.roster.tell_waiting)
        self.config = config = self.agreement.config
        if config is file:
            return
        if self.runs_all:
            self.nodes = list(config.nodes)
        for node in self.nodes:
            self.roster.place_of(node)
        check_machine(config, self.nodes)

    def _follow(self) -> None:
        """Called when another layout is in force."""
        self.config = self.agreement.config
        for served in self.served.values():
            served.follow()

    async def new_node(self, node: Node) -> Served[Any]:
        """One more node of this process, not started."""
        await self._open_journals()
        self.served[node] = served = self._kind()(self, node)
        return served

    # ── its end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def request_stop(self) -> None:
        """End `run` soon."""
        self._stopping.set()

    async def run(self) -> None:
        """Wait until a stop is requested, or the cluster has no node for this process any more. Raises the reason if
        none is left before that."""
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            while failures := {each.failed for each in self.served.values() if not each.failed.done()}:
                changed = asyncio.ensure_future(self.roster.changed.wait())
                ends: set[asyncio.Future[Any]] = {stop, changed, *failures}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                self.roster.changed.clear()
                if stop.done():
                    return
            if self.served:
                raise self._why_ended()
            if self.roster.undone is not None:
                raise self.roster.undone
        finally:
            stop.cancel()

    def _why_ended(self) -> SeriatimError:
        reasons = "; ".join(f"{name}: {served.reason}" for name, served in self.served.items())
        return Closed(f"no node is left: {reasons}")

    async def stop(self) -> None:
        """Stop the nodes, children before parents, then the rest. May be called twice."""
        logger.info("stopping: cluster=%s nodes=%s", self.config.cluster, ",".join(self.nodes))
        self._stage = "stopped"
        if self._admin is not None:
            await self._admin.stop()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        paths = self.config.tree.paths
        await self.roster.stop()
        if self._answers is not None:
            await self._answers.stop()
        for served in sorted(self.served.values(), key=lambda served: -len(paths.get(served.node, ()))):
            await served.stop()
        if self._journals is not None:
            await self._journals.close()
        await self.broker.close()

    def journal(self, node: Node) -> Journal:
        """The journal that the cluster's file gives this node."""
        folder = self.config.journal_folder(node)
        if folder is not None:
            return FileJournal(folder)
        if self.config.nodes[node].journal == "memory":
            logger.warning("journal is kept in memory only: node=%s fix=%s", node, 'set journal = "file:<folder>"')
            return MemoryJournal()
        return self._broker_journals().journal(node)

    def watched_journal(self, node: Node) -> FencedJournal:
        """A journal that standbys can watch. Its beat is short, so that one late beat causes no takeover."""
        return self._broker_journals().journal(node, beat_s=self.config.times.takeover_ms / 1000.0 / BEATS_PER_TAKEOVER)

    def _broker_journals(self) -> FencedJournals:
        assert self._journals is not None, "opened first, if a node needs it"
        return self._journals

    async def _open_journals(self) -> None:
        nodes = self.config.nodes if self.runs_all else self.nodes
        if self._journals is not None or all(self.config.nodes[node].journal not in ON_BROKER for node in nodes):
            return
        journals = self.broker.journals(self.config.cluster, self.config.streams.replicas)
        self._journals = required(journals, "journal", "has no journals", 'give "file:<folder>"')
        await self._journals.open()

    def _make_admin(self) -> AdminServer | None:
        admin = self.config.admin
        if not admin.address:
            return None
        return AdminServer(
            admin.address,
            self.metrics.text,
            status=lambda: msgspec.to_builtins(self.status()),
            explain=lambda: msgspec.to_builtins(self.explain()),
            problems=self.problems,
            token=_admin_token(self.config),
            context=self.security.server_context() if self.security.certificate is not None else None,
        )

    # ── looking at it ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def addresses(self) -> dict[Node, str]:
        return {name: served.address for name, served in self.served.items()}

    @property
    def admin_url(self) -> str | None:
        return self._admin.url if self._admin is not None else None

    def problems(self) -> list[Problem]:
        """The current problems of this process."""
        own = self._ledger.update(self._troubles())
        return own + [problem for served in self.served.values() for problem in served.problems()]

    def _troubles(self) -> Iterator[Trouble]:
        if self._stage != "serving":
            yield Trouble("starting" if self._stage == "starting" else "stopped", "", f"the process is {self._stage}")
        elif (problem := self.broker.problem) is not None:
            yield Trouble("broker", "", problem)
        yield from self.agreement.troubles()

    def status(self) -> ServerStatus:
        return ServerStatus(
            cluster=self.config.cluster,
            mode=self.config.mode,
            order=self.config.order,
            causal=self.config.causal and self.config.order == "atoms",
            own_order=self.config.options.own_order,
            pid=os.getpid(),
            uptime_s=time.monotonic() - self._started_s,
            nodes=[served.status() for served in self.served.values()],
        )

    def explain(self) -> list[NodeExplanation]:
        """The unfinished work at each node."""
        return [limited(name, served.explain()) for name, served in self.served.items()]


def check_server(config: ClusterConfig, nodes: Sequence[Node] | None = None, place: int = 0) -> list[Node]:
    """The nodes to run. InputError: a process with these arguments cannot run here. Opens nothing."""
    chosen = list(dict.fromkeys(nodes)) if nodes is not None else list(config.nodes)
    for node in chosen:
        if node not in config.nodes:
            raise InputError("--node", f"there is no node {node!r}", f"use one of {', '.join(config.nodes)}")
        if place >= len(config.nodes[node].addresses):
            fix = "give it a list of addresses, or leave out --standby"
            raise InputError(f"nodes.{node}.address", f"there is no standby number {place}", fix)
    free = [node for node, each in config.nodes.items() if any(address.endswith(":0") for address in each.addresses)]
    if free and set(chosen) != set(config.nodes):
        problem = "other processes cannot know port 0"
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
    config.security.load(config.folder)
    _admin_token(config)
    _options(config)
    if not config.kind.in_process:  # opening would create it
        _broker(config)
    return chosen


def _options(config: ClusterConfig) -> TreeOptions:
    if not config.security.stamp_key_file:
        return config.options
    path = config.path(config.security.stamp_key_file)
    return structs.replace(config.options, stamp_key=load_stamp_key("security.stamp_key_file", path))


def _admin_token(config: ClusterConfig) -> str:
    return load_security({"token_file": config.admin.token_file}, config.folder, "admin").token


def broker_options(config: ClusterConfig) -> dict[str, Any]:
    """The broker options that come from the cluster's file, not from the URL."""
    options = config.kind.cluster_options(config.cluster, config.streams.buckets, config.broker_options)
    for name, value in parse_qsl(config.broker.partition("?")[2]):
        if name in config.kind.file_options:  # relative to the cluster's file, as all paths in it
            options[name] = str(config.path(value))
    return options


def _broker(config: ClusterConfig) -> Broker:
    """The broker, not connected."""
    try:
        return open_broker(config.broker, **broker_options(config))
    except InputError as error:
        where = "broker" if error.field == "url" else f"broker ({error.field})"
        raise InputError(where, error.problem, error.fix) from None
