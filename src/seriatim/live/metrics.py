"""What /metrics says about the nodes of a process: each number has a series per node."""

from collections.abc import Callable, Mapping
from typing import Any

from seriatim.live.served import Served
from seriatim.model import Node
from seriatim.server.metrics import Metrics, Values
from seriatim.server.status import LinkStatus


class NodeMetrics:
    """Declares the metrics of the nodes in `served`, which may be filled later."""

    def __init__(self, metrics: Metrics, served: Mapping[Node, Served[Any]]) -> None:
        self._served = served
        self._metrics = metrics
        metrics.histogram(
            "seriatim_hop_ms",
            "From a range's way up the tree until its stamp is back, in milliseconds.",
            lambda: {name: node.counters.hops_ms for name, node in served.items()},
            labels=["node"],
        )
        metrics.histogram(
            "seriatim_stamp_entries",
            "Entries of stamps.",
            lambda: {name: node.counters.stamp_entries for name, node in served.items()},
            labels=["node"],
        )
        counter, gauge = self._counter, self._gauge
        counter("stamps_total", "Ranges stamped, repeats included.", lambda node: node.counters.stamps)
        counter("numbers_total", "Numbers in these ranges.", lambda node: node.counters.numbers)
        counter("voids_total", "Numbers that were made void.", lambda node: node.counters.voids)
        asked = "Questions of subscribers about a number that they have waited for too long, repeats included."
        counter("inquiries_total", asked, lambda node: node.counters.inquiries)
        counter("steps_total", "Inputs handled.", lambda node: node.host.driver.steps if node.host is not None else 0)
        counter("appends_total", "Appends to the journal.", lambda node: node.status().appends)
        gauge("node_active", "Whether the node is active here.", lambda node: node.role == "active")
        gauge("epoch", "Grows by one whenever a process takes the node over.", lambda node: node.status().epoch)
        gauge("stamp_bytes", "Mean size of a stamp's entries, sampled.", lambda node: node.status().bytes_per_stamp)
        gauge("topics", "Topics known here.", lambda node: node.status().topics)
        gauge("subscribers", "Subscribers known here.", lambda node: node.status().subscribers)
        gauge("joins", "Joins under way.", lambda node: node.status().joins)
        gauge("open_ranges", "Ranges that are not settled.", lambda node: node.status().open_ranges)
        gauge("unstamped_ranges", "Open ranges without a stamp.", lambda node: node.status().unstamped_ranges)
        oldest = "How long the oldest open range has been open."
        gauge("oldest_open_range_seconds", oldest, lambda node: node.status().oldest_open_s)
        backlog = "Steps whose effects wait for the journal."
        gauge("journal_backlog", backlog, lambda node: node.status().journal_backlog)
        gauge("journal_bytes", "Bytes in the journal since its snapshot.", lambda node: node.status().journal_bytes)
        metrics.sample(
            "seriatim_unacknowledged",
            "Messages that a neighbour has not acknowledged.",
            self._links(lambda link: link.unacknowledged),
            labels=["node", "neighbour"],
        )
        metrics.sample(
            "seriatim_link_messages_total",
            "Messages to a neighbour since the link began: passes, stamps, what joins need.",
            self._links(lambda link: link.sent),
            kind="counter",
            labels=["node", "neighbour"],
        )

    def _counter(self, name: str, what: str, read: Callable[[Served[Any]], float]) -> None:
        self._metrics.sample(f"seriatim_{name}", what, self._each(read), kind="counter", labels=["node"])

    def _gauge(self, name: str, what: str, read: Callable[[Served[Any]], float]) -> None:
        self._metrics.sample(f"seriatim_{name}", what, self._each(read), labels=["node"])

    def _each(self, read: Callable[[Served[Any]], float]) -> Callable[[], Values]:
        return lambda: {name: float(read(node)) for name, node in self._served.items()}

    def _links(self, read: Callable[[LinkStatus], int]) -> Callable[[], Values]:
        return lambda: {
            (name, neighbour): float(read(link))
            for name, node in self._served.items()
            for neighbour, link in node.status().links.items()
        }
