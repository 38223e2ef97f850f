"""The status of nodes: what `seriatim status`, /status and /explain show."""

from typing import Literal

from msgspec import Struct, field

from seriatim.model import Node
from seriatim.server.health import Problem

Role = Literal["active", "standby", "starting", "failed", "stopped"]
INVENTORY = ("topics", "durables", "add", "remove", "forget")  # what else a node of a tree answers: holdings.py
EXPLAIN_LINES_MAX = 1_000  # an answer must fit into one message of the broker


class LinkStatus(Struct, frozen=True, kw_only=True):
    """The link to a neighbouring node."""

    connected: bool
    unacknowledged: int = 0
    sent: int = 0  # messages to it since the link began, without repeats and acknowledgements


class NodeStatus(Struct, frozen=True, kw_only=True):
    """One node, as the process that runs it (or stands by for it) sees it."""

    node: Node
    role: Role
    address: str
    parent: Node | None = None
    reason: str = ""
    epoch: int = 0
    uptime_s: float = 0.0
    stamps: int = 0
    stamps_per_s: float = 0.0
    numbers: int = 0
    entries_per_stamp: float = 0.0
    bytes_per_stamp: float = 0.0
    hop_ms: float | None = None
    topics: int = 0
    issued: int = 0
    open_ranges: int = 0
    unstamped_ranges: int = 0
    oldest_open_s: float = 0.0
    voids: int = 0
    subscribers: int = 0
    joins: int = 0
    journal: str = ""
    journal_backlog: int = 0
    journal_bytes: int = 0
    appends: int = 0
    connections: int = 0
    dropped: int = 0
    roles: list[str] = field(default_factory=list)  # these and the following: of sequencing atoms
    atoms: int = 0
    groups: int = 0
    strays: int = 0
    links: dict[Node, LinkStatus] = field(default_factory=dict)
    order_position: int = 0  # of a root that keeps the order log: positions given, and those that the broker keeps
    order_kept: int = 0
    order_lost: int = 0  # the order log was found cut short: some positions up to this one are lost
    waiting: int = 0  # subscribers that have told this home that they wait for longer than `patience_ms`
    longest_wait_s: float = 0.0
    problems: list[Problem] = field(default_factory=list)  # what does not work now; earlier programs report none


class ServerStatus(Struct, frozen=True, kw_only=True):
    """One process with its nodes."""

    cluster: str
    mode: str
    order: str  # "global", "pairwise" or "atoms"
    causal: bool = False  # atoms: causal order too
    own_order: bool = False  # tree: publishers keep their own order across topics
    pid: int
    uptime_s: float
    nodes: list[NodeStatus]


class NodeExplanation(Struct, frozen=True, kw_only=True):
    """What is unfinished at one node, one sentence each. `left_out`: how many more there are."""

    node: Node
    waits: list[str]
    left_out: int = 0


def node_subject(cluster: str, what: str, node: Node, place: int | None = None) -> str:
    """Where on the broker to ask: "status", "explain", "accept", or one of INVENTORY.

    Without a place the active process answers; with one, the process at that address of the node, active or not.
    """
    return f"_{cluster}.{what}.{node}" + (f".{place}" if place is not None else "")


def limited(node: Node, lines: list[str]) -> NodeExplanation:
    """The lines that fit into one answer."""
    return NodeExplanation(node=node, waits=lines[:EXPLAIN_LINES_MAX], left_out=max(0, len(lines) - EXPLAIN_LINES_MAX))
