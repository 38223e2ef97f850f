"""The metrics of the nodes of a process, for /metrics: each number has a series per node."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from seriatim.live.served import Served
from seriatim.model import Node
from seriatim.server.metrics import Buckets, Metrics, Values
from seriatim.server.status import LinkStatus

HISTOGRAMS: dict[str, tuple[str, Callable[[Served[Any]], Buckets]]] = {
    "hop_ms": (
        "From a range's way up the tree until its stamp is back, in milliseconds.",
        lambda node: node.counters.hops_ms,
    ),
    "stamp_entries": ("Entries of stamps.", lambda node: node.counters.stamp_entries),
}
NUMBERS: dict[str, tuple[str, Callable[[Served[Any]], float]]] = {
    "stamps_total": ("Ranges stamped, repeats included.", lambda node: node.counters.stamps),
    "numbers_total": ("Numbers in these ranges.", lambda node: node.counters.numbers),
    "voids_total": ("Numbers that were made void.", lambda node: node.counters.voids),
    "inquiries_total": (
        "Questions of subscribers about a number that they have waited for too long, repeats included.",
        lambda node: node.counters.inquiries,
    ),
    "steps_total": ("Inputs handled.", lambda node: node.host.driver.steps if node.host is not None else 0),
    "appends_total": ("Appends to the journal.", lambda node: node.status().appends),
    "node_active": ("Whether the node is active here.", lambda node: node.role == "active"),
    "epoch": ("Grows by one whenever a process takes the node over.", lambda node: node.status().epoch),
    "stamp_bytes": ("Mean size of a stamp's entries, sampled.", lambda node: node.status().bytes_per_stamp),
    "topics": ("Topics known here.", lambda node: node.status().topics),
    "subscribers": ("Subscribers known here.", lambda node: node.status().subscribers),
    "joins": ("Joins under way.", lambda node: node.status().joins),
    "open_ranges": ("Ranges that are not settled.", lambda node: node.status().open_ranges),
    "unstamped_ranges": ("Open ranges without a stamp.", lambda node: node.status().unstamped_ranges),
    "oldest_open_range_seconds": (
        "How long the oldest open range has been open.",
        lambda node: node.status().oldest_open_s,
    ),
    "problems": ("What does not work now.", lambda node: len(node.problems())),
    "waiting_subscribers": (
        "Subscribers that have told this home that they wait for longer than their patience.",
        lambda node: node.status().waiting,
    ),
    "longest_wait_seconds": ("How long one of these has waited.", lambda node: node.status().longest_wait_s),
    "order_position": ("Positions given in the order of all events (root).", lambda node: node.status().order_position),
    "order_lag": (
        "Positions that the order log on the broker is not known to hold yet (root).",
        lambda node: node.status().order_position - node.status().order_kept,
    ),
    "journal_backlog": ("Steps whose effects wait for the journal.", lambda node: node.status().journal_backlog),
    "journal_bytes": ("Bytes in the journal since its snapshot.", lambda node: node.status().journal_bytes),
}
LINKS: dict[str, tuple[str, Callable[[LinkStatus], int]]] = {
    "unacknowledged": ("Messages that a neighbour has not acknowledged.", lambda link: link.unacknowledged),
    "link_messages_total": (
        "Messages to a neighbour since the link began: passes, stamps, what joins need.",
        lambda link: link.sent,
    ),
}


def add_nodes(metrics: Metrics, served: Mapping[Node, Served[Any]]) -> None:
    """Metrics of the nodes in `served`, which may be filled later."""

    def each(read: Callable[[Served[Any]], Any]) -> dict[Node, Any]:
        return {name: read(node) for name, node in served.items()}

    def links(read: Callable[[LinkStatus], int]) -> Values:
        status = each(lambda node: node.status().links)
        return {(name, neighbour): read(link) for name, found in status.items() for neighbour, link in found.items()}

    for name, (what, buckets) in HISTOGRAMS.items():
        metrics.histogram(f"seriatim_{name}", what, partial(each, buckets), labels=["node"])
    for name, (what, number) in NUMBERS.items():
        metrics.sample(f"seriatim_{name}", what, partial(each, number), labels=["node"])
    for name, (what, count) in LINKS.items():
        metrics.sample(f"seriatim_{name}", what, partial(links, count), labels=["node", "neighbour"])
