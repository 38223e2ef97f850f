"""The common part of `seriatim backup` and `seriatim restore`: where the cluster is, and where journals are."""

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec import Struct

from seriatim.backup.making import Source
from seriatim.backup.manifest import KeptJournal, Manifest
from seriatim.backup.restoring import Target
from seriatim.brokers import Broker
from seriatim.brokers.capabilities import BROKER, FencedJournal, required
from seriatim.brokers.urls import open_broker, shown
from seriatim.cli.common import (
    DEFAULT_CLUSTER,
    DEFAULT_TIMEOUT_S,
    DEFAULT_URL,
    add_options,
    check_outlives,
    default_journals,
    is_direct,
    opened,
)
from seriatim.live.agreement import as_registered
from seriatim.live.server import broker_options
from seriatim.model import ConnectionFailed, InputError, Node
from seriatim.runtime.journal.copying import has_journal
from seriatim.runtime.tables import read_toml
from seriatim.server.config import ON_BROKER, ClusterConfig, parse_config

if TYPE_CHECKING:
    from seriatim.live.overlay.config import OverlayConfig

place_options = add_options(
    click.option("--config", type=click.Path(path_type=Path), help="The cluster's file, or the overlay's."),
    click.option(
        "--url", envvar="SERIATIM_URL", help="URL of the broker, without --config (environment: SERIATIM_URL)."
    ),
    click.option("--cluster", envvar="SERIATIM_CLUSTER", help="Name of the cluster, without --config."),
    click.option("--offline", is_flag=True, help="Do not ask the broker."),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=DEFAULT_TIMEOUT_S,
        help="Seconds to wait for the broker before giving up.",
    ),
)

journals_option = click.option(
    "--journals",
    metavar="FOLDER",
    help='Where the journals of durable subscriptions are; "broker:" for the broker. [default: as in `seriatim sub`]',
)


class BackupOptions(NamedTuple):
    """The options that `backup` and `restore` share: which journals are meant, and where the cluster is."""

    nodes: tuple[str, ...]
    durables: tuple[str, ...]
    journals: str | None
    with_streams: bool
    config: Path | None
    url: str | None
    cluster: str | None
    offline: bool
    timeout_s: float

    @property
    def access(self) -> "ClusterAccess":
        """InputError: the cluster's file cannot be used."""
        return ClusterAccess.of(self.config, self.url, self.cluster, self.offline, self.timeout_s)


def backup_options(
    *, of_nodes: str, of_durables: str, of_streams: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the shared options, with these help texts; the command gets them as one `options`."""
    add = add_options(
        click.option("--node", "nodes", multiple=True, metavar="NAME", help=of_nodes),
        click.option("--durable", "durables", multiple=True, metavar="NAME", help=of_durables),
        journals_option,
        click.option("--streams", "with_streams", is_flag=True, help=of_streams),
        place_options,
    )

    def added(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def call(**given: Any) -> None:
            options = BackupOptions(**{name: given.pop(name) for name in BackupOptions._fields})
            function(options=options, **given)

        return add(call)

    return added


class ClusterAccess(Struct, kw_only=True):
    """Where the cluster is: its broker and its file, as far as they were given."""

    cluster: str
    url: str
    options: dict[str, Any]
    timeout_s: float
    config: ClusterConfig | None = None
    overlay: "OverlayConfig | None" = None
    is_offline: bool = False
    says_cluster: bool = True
    not_asked: str = ""

    @classmethod
    def of(
        cls, path: Path | None, url: str | None, cluster: str | None, offline: bool, timeout_s: float
    ) -> "ClusterAccess":
        """InputError: the file cannot be used."""
        not_asked = "no broker was to be asked (--offline)" if offline else ""
        if path is None:
            where, name = url or DEFAULT_URL, cluster or DEFAULT_CLUSTER
            if is_direct(where):
                raise InputError("--url", "overlays and peers have no broker", "name the overlay's file: --config")
            check_outlives(where)
            return cls(
                cluster=name,
                url=where,
                options={"cluster": name},
                timeout_s=timeout_s,
                is_offline=offline,
                says_cluster=cluster is not None,
                not_asked=not_asked,
            )
        raw = read_toml(path)
        if "peers" in raw:
            problem = "peers keep nothing that could be copied: each start is a new life"
            raise InputError(
                "--config", problem, "start a peer with an empty folder; docs/peers.md says what it misses"
            )
        if "brokers" in raw:
            from seriatim.live.overlay import load_overlay

            overlay = load_overlay(path)
            return cls(
                cluster=overlay.cluster, url="", options={}, timeout_s=timeout_s, overlay=overlay, is_offline=True
            )
        config = parse_config(raw, path.resolve().parent)
        check_outlives(config.broker, "broker")
        return cls(
            cluster=config.cluster,
            url=config.broker,
            options=broker_options(config),
            timeout_s=timeout_s,
            config=config,
            is_offline=offline,
            not_asked=not_asked,
        )

    def must_be_of(self, manifest: Manifest) -> None:
        """InputError: the backup is of another cluster."""
        if self.config is None and self.overlay is None and not self.says_cluster:
            self.cluster = self.options["cluster"] = manifest.cluster
        if self.cluster != manifest.cluster:
            problem = f"the backup is of cluster {manifest.cluster!r}, and this is {self.cluster!r}"
            raise InputError("--config" if self.config or self.overlay else "--cluster", problem, "name the right one")

    @contextlib.asynccontextmanager
    async def opened(self, *, is_needed: bool) -> AsyncIterator[Broker | None]:
        """The broker. None: it is not to be asked, or does not answer and is not needed."""
        if self.is_offline:
            if is_needed:
                raise InputError("--offline", "the broker is needed for this", "leave it out")
            yield None
            return
        open_broker(self.url, **self.options)  # a wrong URL is no broker that does not answer
        async with contextlib.AsyncExitStack() as stack:
            try:
                broker = await stack.enter_async_context(opened(self.url, self.timeout_s, **self.options))
            except ConnectionFailed as error:
                if is_needed:
                    raise ConnectionFailed(f"{error} (--offline works without it)") from None
                self.not_asked = f"no broker answers at {shown(self.url)}"
                yield None
                return
            if self.config is not None:  # commands may have given the cluster other nodes since
                self.config = await as_registered(self.config, broker)
            yield broker

    def durable(
        self, broker: Broker | None, name: str, journals: str | None
    ) -> tuple[Path | None, Callable[[], FencedJournal] | None]:
        """Where the journal of a durable subscription is: a folder, or the broker."""
        if journals != BROKER:
            folder = Path(journals) if journals is not None else default_journals() / self.cluster
            return folder / name, None
        if broker is None:
            raise InputError("--journals", "the broker does not answer, and the journal is on it", "start it first")
        replicas = self.config.streams.replicas if self.config is not None else 1

        def journal() -> FencedJournal:
            found = broker.durable_journal(name, cluster=self.cluster, replicas=replicas)
            return required(found, "--journals", "keeps no journals", "name the folder")

        return None, journal


async def sources_of(
    place: ClusterAccess,
    broker: Broker | None,
    nodes: tuple[str, ...],
    durables: tuple[str, ...],
    journals: str | None,
    *,
    everything: bool = False,
) -> tuple[list[Source], list[str]]:
    """The journals to copy, and what is said about those that are elsewhere. `everything`: all nodes, if not some."""
    sources: list[Source] = []
    away: list[str] = []
    if place.overlay is not None:
        sources = _of_overlay(place.overlay, nodes)
    elif place.config is not None and (nodes or everything or not durables):
        for node in _chosen(place.config, nodes):
            found = await _of_node(place.config, broker, node)
            if isinstance(found, Source):
                sources.append(found)
            elif nodes:
                raise InputError("--node", found, "run this on the machine where it is, as the user who runs the node")
            else:
                away.append(found)
    elif nodes:
        raise InputError("--node", "the file says where its journal is", "name it: --config")
    elif not durables:
        raise InputError("--config", "is missing", "name the cluster's file; --durable for a durable subscription")
    for name in durables:
        folder, journal = place.durable(broker, name, journals)
        sources.append(Source(system="durable", name=name, folder=folder, journal=journal))
    return sources, away


def _chosen(config: ClusterConfig, nodes: tuple[str, ...]) -> list[Node]:
    for node in nodes:
        if node not in config.nodes:
            raise InputError("--node", f"there is no node {node!r}", f"use one of {', '.join(config.nodes)}")
    return list(dict.fromkeys(nodes)) or list(config.nodes)


async def _of_node(config: ClusterConfig, broker: Broker | None, node: Node) -> Source | str:
    """Where the journal of a node is, or a sentence that says why it cannot be copied here."""
    folder = config.journal_folder(node)
    if folder is not None:
        if not has_journal(folder):
            return f"node {node} has no journal in {folder} on this machine"
        return Source(system="atoms" if config.order == "atoms" else "tree", name=node, folder=folder)
    if config.nodes[node].journal not in ON_BROKER:
        return f"node {node} keeps its journal in memory"
    if broker is None:
        return f"node {node} keeps its journal on the broker, which does not answer"
    system = "atoms" if config.order == "atoms" else "tree"
    return Source(system=system, name=node, journal=journal_on(broker, config, node))  # type: ignore[arg-type]


def journal_on(broker: Broker, config: ClusterConfig, node: Node) -> Callable[[], FencedJournal]:
    """The journal of a node on the broker, each time with a connection of its own."""

    def journal() -> FencedJournal:
        journals = broker.journals(config.cluster, config.streams.replicas)
        return required(journals, "journal", "keeps no journals", "name a folder").journal(node, connects=True)

    return journal


def _of_overlay(overlay: "OverlayConfig", nodes: tuple[str, ...]) -> list[Source]:
    found = []
    for name in nodes or sorted(overlay.brokers):
        overlay.check_member(name)
        folder = overlay.journal(name)
        if has_journal(folder):
            found.append(Source(system="overlay", name=name, folder=folder))
        elif nodes:
            problem = f"broker {name} has no journal in {folder} on this machine"
            raise InputError("--node", problem, "run this on the machine where it is")
    return found


def targets_of(
    place: ClusterAccess,
    broker: Broker | None,
    manifest: Manifest,
    nodes: tuple[str, ...],
    durables: tuple[str, ...],
    journals: str | None,
    to: Path | None,
) -> list[Target]:
    """The journals to put back, and where. InputError: the backup does not have them, or nobody says where."""
    chosen = _in_backup(manifest, nodes, durables)
    if to is not None:
        if len(chosen) != 1:
            problem = f"the backup has {len(chosen)} journals, and this is one folder"
            raise InputError("--to", problem, "choose one: --node or --durable; or name the file: --config")
        return [Target(kept=chosen[0], folder=to)]
    is_chosen = bool(nodes or durables)
    targets = []
    for kept in chosen:
        if kept.system == "durable" and not is_chosen and journals is None:
            continue
        targets.append(_target(place, broker, kept, journals))
    return targets


def _in_backup(manifest: Manifest, nodes: tuple[str, ...], durables: tuple[str, ...]) -> list[KeptJournal]:
    wanted = [("--node", False, name) for name in nodes] + [("--durable", True, name) for name in durables]
    found = []
    for option, is_durable, name in wanted:
        fitting = [each for each in manifest.journals if each.name == name and (each.system == "durable") == is_durable]
        if not fitting:
            has = ", ".join(each.what for each in manifest.journals) or "no journals"
            raise InputError(option, f"the backup has none of {name!r}", f"it has {has}")
        found += fitting
    return found if wanted else list(manifest.journals)


def _target(place: ClusterAccess, broker: Broker | None, kept: KeptJournal, journals: str | None) -> Target:
    if kept.system == "durable":
        folder, journal = place.durable(broker, kept.name, journals)
        return Target(kept=kept, folder=folder, journal=journal)
    if kept.system == "overlay" and place.overlay is not None:
        place.overlay.check_member(kept.name)
        return Target(kept=kept, folder=place.overlay.journal(kept.name))
    config = place.config
    if config is None:
        fix = "name a folder (--to), or the file that says where journals are (--config)"
        raise InputError("--to", f"where the journal of {kept.what} belongs is not known", fix)
    if kept.name not in config.nodes or (kept.system == "atoms") != (config.order == "atoms"):
        problem = f"the backup has {kept.what}, which this file does not have"
        raise InputError("--config", problem, "name the right file, or choose with --node")
    if (found := config.journal_folder(kept.name)) is not None:
        return Target(kept=kept, folder=found)
    if config.nodes[kept.name].journal not in ON_BROKER:
        raise InputError("--config", f"node {kept.name} keeps its journal in memory there", "name a folder (--to)")
    if broker is None:
        raise InputError("--offline", f"the journal of {kept.name} belongs on the broker", "leave it out")
    return Target(kept=kept, journal=journal_on(broker, config, kept.name))
