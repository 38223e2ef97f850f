"""One file says what a cluster is: the broker, the nodes and where they are, which topic lives where.

Every process of a cluster is given the same file (`cluster.toml`) and the names of the nodes to run. The smallest one
has two lines; everything else has a default:

    broker = "nats://127.0.0.1:4222"
    nodes.root = {}

The types below are the reference: a key is a field, its description is both the help in an error and the row in
docs/serving.md. A mistake is reported with the path of its key, its value and what to write instead, before anything
is opened. Relative paths start at the file's folder.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Struct, field

from seriatim.brokers.naming import BUCKETS_MAX, bucket_of, check_topic, is_bucket
from seriatim.brokers.seam import Kind
from seriatim.brokers.urls import kind_of, shown
from seriatim.model import InputError, Node, Topic, TreeError
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions
from seriatim.runtime.net.addresses import is_loopback, split_address
from seriatim.runtime.tables import ByteCount, Count, Milliseconds, about, check_keys, check_table, parse, read_toml
from seriatim.server.orders import OLD_WORD, OldKeyword, Order, read_order
from seriatim.server.schemas import ClusterName, NodeName, SecurityFiles, check_name

DEFAULT_ADDRESS = "127.0.0.1:7411"

Role: TypeAlias = Literal["coordinator", "ingress", "host"]


class Times(Struct, frozen=True, kw_only=True):
    """How long things may take."""

    retry_ms: Annotated[Milliseconds, about("milliseconds after which an unanswered request is repeated")] = 500.0
    lease_ms: Annotated[
        Milliseconds, about("milliseconds after which a granted but unpublished number is void (ticket mode)")
    ] = 10_000.0
    subscriber_lease_ms: Annotated[
        Milliseconds, about("nodes forget a subscriber that is silent for twice this many milliseconds")
    ] = 30_000.0
    patience_ms: Annotated[
        Milliseconds,
        about("milliseconds after which a waiting subscriber asks the home of the topic that it waits for"),
    ] = 2_000.0
    takeover_ms: Annotated[Milliseconds, about("milliseconds of silence after which a standby takes a node over")] = (
        3_000.0
    )


TICKET_LIMITS = ("ticket_count_max", "open_tickets_max")


class Limits(Struct, frozen=True, kw_only=True):
    """What one client may ask for."""

    connections_max: Annotated[Count, about("the largest number of clients connected to one node")] = 10_000
    ticket_count_max: Annotated[Count, about("the most numbers one ticket may ask for")] = 65_536
    open_tickets_max: Annotated[Count, about("the most unsettled tickets one publisher may have at one node")] = 1_024
    jump_max: Annotated[
        int, about("how far a stamp may be ahead of its subscriber (ticket mode), or 0 for any", ge=0, le=10**9)
    ] = 0
    kept_events_max: Annotated[
        Count, about("the most events a node keeps for the broker, or for one other node (atoms)")
    ] = 65_536
    kept_bytes_max: Annotated[ByteCount, about("the same in bytes")] = 64 * 1024 * 1024


class Streams(Struct, frozen=True, kw_only=True):
    """How topics are kept on a JetStream broker."""

    buckets: Annotated[
        int, about("the number of streams that topics share, or 0 for a stream per topic", ge=0, le=BUCKETS_MAX)
    ] = 0
    replicas: Annotated[int, about("the number of servers that keep each stream, 1 to 5", ge=1, le=5)] = 1
    storage: Annotated[Literal["file", "memory"], about('"file" or "memory"')] = "file"
    max_age_s: Annotated[
        float, about("the seconds after which the broker drops events and stamps, or 0 for never", ge=0, le=1e9)
    ] = 0.0
    order_max_age_s: Annotated[
        float, about("the seconds after which the broker drops parts of the order log, or 0 for never", ge=0, le=1e9)
    ] = 0.0


class Security(SecurityFiles, frozen=True, kw_only=True):
    """Who may connect to the nodes. The broker has its own accounts; docs/serving.md says which it needs."""

    node_token_file: Annotated[str, about("the file with the token of nodes, which no client knows")] = ""
    stamp_key_file: Annotated[
        str, about("the file with the key that proves stamps, in hexadecimal digits (ticket mode)")
    ] = ""


class Admin(Struct, frozen=True, kw_only=True):
    """The HTTP port for /health, /ready, /live, /metrics, /status and /explain."""

    address: Annotated[str, about('"host:port" to listen on, or "" for no admin port')] = ""
    token_file: Annotated[str, about("the file with the bearer token that requests must carry")] = ""


class NodeConfig(Struct, frozen=True, kw_only=True):
    """One node of the tree."""

    parent: Annotated[Node | None, about("the name of the parent node; leave it out for the root")] = None
    address: Annotated[
        str | tuple[str, ...], about('"host:port" where clients find the node, or a list: the others are standbys')
    ] = (DEFAULT_ADDRESS,)
    bind: Annotated[str, about('"host:port" to listen on where that is not the address itself (containers)')] = ""
    journal: Annotated[str, about('"file:<folder>" (default: file:journal-<cluster>.<name>), "broker" or "memory"')] = (
        ""
    )
    roles: Annotated[
        tuple[Role, ...],
        about('its roles among atoms: "coordinator" (one node, default: the first), "ingress", "host"'),
    ] = ()
    site: Annotated[str, about("the node's site; plans count hops between sites (default: its name)")] = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The active process's address, then the standbys'."""
        return (self.address,) if isinstance(self.address, str) else self.address


class ClusterConfig(Struct, frozen=True, kw_only=True):
    """A whole cluster, checked. `folder` is where relative paths start."""

    cluster: ClusterName = "seriatim"
    broker: Annotated[str, about('the URL of the broker, for example "nats://127.0.0.1:4222"')]
    order: Annotated[Order, about('"global", "pairwise" or "atoms": the promised order (atoms replace the tree)')] = (
        "global"
    )
    mode: Annotated[Literal["log", "ticket"], about('"log" or "ticket": who numbers events')] = "log"
    causal: Annotated[
        bool, about("true or false: causal order (atoms); in older files of a tree: publishers keep their own order")
    ] = False
    default_home: Annotated[
        str, about('the node for topics that [homes] does not list (default: the root), or "none"')
    ] = ""
    nodes: dict[NodeName, NodeConfig] = field(default_factory=dict)
    homes: dict[Topic, Annotated[Node, about("the name of a node (quote topics with dots)")]] = field(
        default_factory=dict
    )
    times: Times = Times()
    limits: Limits = Limits()
    streams: Streams = Streams()
    security: Security = Security()
    admin: Admin = Admin()
    folder: Path = Path()
    file: str = ""  # where it was read, for messages
    says_tree: bool = False  # the file has an older word

    def __post_init__(self) -> None:
        _check_order(self)
        _check_tree(self)
        _check_addresses(self)
        _check_journals(self)
        _check_security(self)
        _check_broker(self)
        _check_topics(self)
        self.options  # noqa: B018  its own checks

    @property
    def tree(self) -> SequencingTree:
        return _tree(self)

    @property
    def options(self) -> TreeOptions:
        """The options of all machines of this cluster, except the stamp key, which is read from its file."""
        return TreeOptions(
            mode=self.mode if self.order != "atoms" else "ticket",  # atoms fill slots of the broker, as tickets do
            order="pairwise" if self.order == "pairwise" else "global",
            order_log=self.kind.has_order_log and self.order != "atoms",
            own_order=self.causal and self.order != "atoms",
            full_stamps=self.kind.lossy,
            retry_ms=self.times.retry_ms,
            lease_ms=self.times.lease_ms,
            subscriber_lease_ms=self.times.subscriber_lease_ms,
            patience_ms=self.times.patience_ms,
            ticket_count_max=self.limits.ticket_count_max,
            open_tickets_max=self.limits.open_tickets_max,
            jump_max=self.limits.jump_max or None,
        )

    @property
    def notices(self) -> tuple[OldKeyword, ...]:
        """What to tell about older words in the file, when a process starts."""
        return read_order(OLD_WORD if self.says_tree else self.order, self.causal).notices

    @property
    def coordinator(self) -> Node:
        """Atoms: the node that subscribers join topics at."""
        named = [name for name, node in self.nodes.items() if "coordinator" in node.roles]
        return named[0] if named else next(iter(self.nodes))

    def playing(self, role: Role) -> tuple[Node, ...]:
        """Atoms: the nodes with this role. A node without roles is an ingress and a host."""
        return tuple(name for name, node in self.nodes.items() if not node.roles or role in node.roles)

    @property
    def kind(self) -> Kind:
        try:
            return kind_of(self.broker)
        except InputError as error:
            raise InputError("broker", error.problem, error.fix) from None

    @property
    def broker_options(self) -> dict[str, str | int | float]:
        """How streams are created, for nodes and for clients that are the first to use a topic.

        Only values that differ from the defaults, because a client that gets any must connect twice.
        """
        usual = Streams()
        chosen = {name: getattr(self.streams, name) for name in self.kind.layout_options}
        return {name: value for name, value in chosen.items() if value != getattr(usual, name)}

    def path(self, text: str) -> Path:
        """A path of the file, relative to its folder."""
        return self.folder / text

    def journal(self, node: Node) -> str:
        """The journal in the file, or the default. Names hold no dot, so two clusters never share one."""
        return self.nodes[node].journal or f"file:journal-{self.cluster}.{node}"

    def journal_folder(self, node: Node) -> Path | None:
        """Where a node's file journal is; None: its journal is not a file."""
        text = self.journal(node)
        return self.path(text.removeprefix("file:")) if text.startswith("file:") else None


ON_BROKER = ("broker", "jetstream")  # journals that the broker keeps; the second is the older word


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────


def load_config(path: Path, plan: Path | None = None) -> ClusterConfig:
    """The cluster described by a file. `plan`: a second file, whose parents and homes take precedence."""
    raw = read_toml(path)
    if plan is not None:
        _apply_plan(raw, read_plan(plan), str(plan))
    return parse_config(raw, path.resolve().parent, str(path))


def parse_config(raw: Mapping[str, Any], folder: Path = Path(), file: str = "") -> ClusterConfig:
    """Like `load_config`, from parsed TOML. `raw` is not changed. `file`: its name, for messages."""
    says_tree = raw.get("order") == OLD_WORD
    if says_tree:
        raw = {key: value for key, value in raw.items() if key != "order"}
    return parse(ClusterConfig, raw, folder=folder, file=file, says_tree=says_tree)


def read_plan(path: Path) -> dict[str, Any]:
    """A plan: the parents of `nodes`, `homes` and `default_home`, where the file has them."""
    plan = read_toml(path)
    check_keys(plan, {"nodes", "homes", "default_home"}, "", str(path))
    for node, shape in check_table(plan.setdefault("nodes", {}), "nodes").items():
        check_keys(check_table(shape, f"nodes.{node}"), {"parent"}, f"nodes.{node}", str(path))
    check_table(plan.setdefault("homes", {}), "homes")
    return plan


def _apply_plan(raw: dict[str, Any], plan: dict[str, Any], name: str) -> None:
    """Parents and homes of the plan replace those of the file."""
    nodes = dict(check_table(raw.get("nodes", {}), "nodes"))
    for node, shape in plan["nodes"].items():
        if node not in nodes:
            fix = f"add [nodes.{node}] with its address to the cluster's file, or plan without it"
            raise InputError(f"nodes.{node}", f"only {name} lists this node", fix)
        known = check_table(nodes[node], f"nodes.{node}")
        nodes[node] = {key: value for key, value in known.items() if key != "parent"} | shape
    raw["nodes"] = nodes
    raw["homes"] = {**check_table(raw.get("homes", {}), "homes"), **plan["homes"]}
    if "default_home" in plan:
        raw["default_home"] = plan["default_home"]


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _tree(config: ClusterConfig) -> SequencingTree:
    """The tree of the nodes; for atoms a star, which only names them."""
    parents = {name: node.parent for name, node in config.nodes.items()}
    if config.order == "atoms":
        parents = {name: None if name == config.coordinator else config.coordinator for name in config.nodes}
    default = config.default_home or next(name for name, parent in parents.items() if parent is None)
    return SequencingTree(parents, config.homes, None if default == "none" else default)


def _check_no_effect(config: ClusterConfig, limits: Iterable[str], where: str, fix: str) -> None:
    for limit in limits:
        if getattr(config.limits, limit) != getattr(Limits(), limit):
            raise InputError(f"limits.{limit}", f"has no effect {where}", f"leave it out, or set {fix}")


def _check_order(config: ClusterConfig) -> None:
    """Refuse options that have no effect with this order."""
    read_order(config.order, config.causal)
    if config.order != "atoms":
        for name, node in config.nodes.items():
            if node.roles:
                raise InputError(f"nodes.{name}.roles", "only atoms have roles", 'leave it out, or set order = "atoms"')
        _check_no_effect(config, ("kept_events_max", "kept_bytes_max"), "in a tree", 'order = "atoms"')
        if config.mode == "log":
            _check_no_effect(config, TICKET_LIMITS, "in log mode, which has no tickets", 'mode = "ticket"')
        return
    _check_no_effect(config, TICKET_LIMITS, "with atoms", 'order = "global" and mode = "ticket"')
    if config.kind.lossy:
        raise InputError("broker", "atoms need a broker that loses nothing", "use nats:// with JetStream, or tls://")
    for path, given in (
        ("mode", config.mode != "log"),
        ("default_home", bool(config.default_home)),
        ("homes", bool(config.homes)),
        ("streams.buckets", bool(config.streams.buckets)),
    ):
        if given:
            raise InputError(path, "has no effect with atoms", 'leave it out, or set order = "global"')
    for name, node in config.nodes.items():
        if node.parent is not None:
            raise InputError(f"nodes.{name}.parent", "atoms have no parents", 'leave it out, or set order = "global"')
        if len(node.addresses) > 1:
            raise InputError(f"nodes.{name}.address", "nodes of atoms have no standbys", "give one address")
    named = [name for name, node in config.nodes.items() if "coordinator" in node.roles]
    if len(named) > 1:
        raise InputError(f"nodes.{named[1]}.roles", f"{named[0]} is the coordinator already", "there can be only one")
    roles: tuple[Role, ...] = ("ingress", "host")
    for role in roles:
        if config.nodes and not config.playing(role):
            raise InputError("nodes", f"no node has the role {role!r}", "give it to at least one node")


def _check_tree(config: ClusterConfig) -> None:
    if not config.nodes:
        raise InputError("nodes", "the cluster has no node", "add one: nodes.root = {}")
    if "none" in config.nodes:
        raise InputError("nodes.none", "'none' means no node", "choose another name")
    for name in config.nodes:
        check_name(f"nodes.{name}", name)
    try:
        if config.order != "atoms":
            SequencingTree({name: node.parent for name, node in config.nodes.items()}, {})
        _tree(config)
    except TreeError as error:  # says parents['x'] where the file says nodes.x.parent
        where = error.field.replace("parents['", "nodes.").replace("homes['", "homes.").replace("']", "")
        is_parent = error.field.startswith("parents[")
        raise TreeError(f"{where}.parent" if is_parent else where, error.problem, error.fix) from None


def _check_addresses(config: ClusterConfig) -> None:
    taken: dict[str, str] = {}
    places = [(f"nodes.{name}.address", each) for name, node in config.nodes.items() for each in node.addresses]
    if config.admin.address:
        places.append(("admin.address", config.admin.address))
    for path, address in places:
        _, port = split_address(path, address)
        if port == 0:
            continue
        if address in taken:
            raise InputError(path, f"{address!r} is also {taken[address]}", "give each its own port")
        taken[address] = path
    for name, node in config.nodes.items():
        if not node.addresses:
            raise InputError(f"nodes.{name}.address", "the list is empty", "give at least one address")
        if node.bind:
            split_address(f"nodes.{name}.bind", node.bind)
        ports = {split_address("address", each)[1] for each in node.addresses}
        if 0 in ports and len(ports) > 1:
            raise InputError(f"nodes.{name}.address", "others cannot know port 0", "give every standby a port")


def _check_journals(config: ClusterConfig) -> None:
    folders: dict[Path, Node] = {}
    for name, node in config.nodes.items():
        path = f"nodes.{name}.journal"
        folder = config.journal_folder(name)
        if folder is None and node.journal not in (*ON_BROKER, "memory"):
            raise InputError(path, f"{node.journal!r} is not a journal", 'use "file:<folder>", "broker" or "memory"')
        if node.journal == "file:":
            raise InputError(path, "the folder is missing", f'give one: "file:journal-{name}"')
        if folder is not None:
            other = folders.setdefault(folder, name)
            if other != name:
                raise InputError(path, f"{str(folder)!r} is also the journal of {other}", "give each node its own")
        if node.journal in ON_BROKER and not config.kind.has_journals:
            raise InputError(path, f"{shown(config.broker)!r} has no journals", f'give "file:journal-{name}"')
        if len(node.addresses) > 1 and node.journal not in ON_BROKER:
            problem = f"a standby elsewhere cannot take over {node.journal or 'a file'!r}"
            raise InputError(path, problem, 'set journal = "broker", or give one address')


def _check_security(config: ClusterConfig) -> None:
    security = config.security
    if config.mode == "log":
        for path, given in (
            ("security.stamp_key_file", security.stamp_key_file),
            ("limits.jump_max", config.limits.jump_max),
        ):
            if given:
                problem = "in log mode only sequencers write stamps, and the broker's permissions protect them"
                raise InputError(path, problem, 'leave it out, or set mode = "ticket"')


def _check_broker(config: ClusterConfig) -> None:
    scheme, separator, _ = config.broker.partition("://")
    if not separator:
        fix = 'give the broker as a URL, for example "nats://127.0.0.1:4222"'
        raise InputError("broker", f"{shown(config.broker)!r} is not a URL", fix)
    for name in ("max_age_s", "order_max_age_s"):
        if 0 < (age_s := getattr(config.streams, name)) < 1:
            raise InputError(f"streams.{name}", f"{age_s} is below one second", "give 1 or more, or 0 for never")
    if config.mode == "log" and not config.kind.keeps_log:
        raise InputError("mode", f"'log' needs a broker that keeps a log, and {scheme} does not", 'set mode = "ticket"')


def _check_topics(config: ClusterConfig) -> None:
    buckets = config.streams.buckets
    for topic in config.homes:
        if buckets and not is_bucket(topic, buckets):
            fix = f'give its bucket a home, "{bucket_of(topic, buckets)}", or set streams.buckets = 0'
            raise InputError(f"homes.{topic}", "topics share buckets, and each bucket has one home", fix)
        try:
            check_topic(topic)
        except InputError as error:
            raise InputError(f"homes.{topic}", error.problem, error.fix) from None


def exposed_without_token(config: ClusterConfig) -> list[Node]:
    """The nodes that other machines can reach and that ask for no token."""
    if _asks_clients(config):
        return []
    return [
        name
        for name, node in config.nodes.items()
        if not all(map(is_loopback, [node.bind] if node.bind else node.addresses))
    ]


def lacks_node_token(config: ClusterConfig) -> bool:
    """Whether all nodes must run in one process, because they could not prove to each other that they are nodes."""
    return len(config.nodes) > 1 and _asks_clients(config) and not config.security.node_token_file


def _asks_clients(config: ClusterConfig) -> bool:
    return bool(config.security.token_file) or config.security.require_client_certificate
