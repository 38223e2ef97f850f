"""What /metrics says about the nodes of a process: each number has a series per node."""

from collections.abc import Callable, Mapping

from seriatim.model import Node
from seriatim.server.meters import NodeMeter
from seriatim.server.metrics import Metrics, Values
from seriatim.server.served import ServedNode

ENTRIES_BOUNDS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)


class NodeMetrics:
    """Declares the metrics once; `meter` gives each node the meter that fills its series."""

    def __init__(self, metrics: Metrics, served: Mapping[Node, ServedNode]) -> None:
        self._served = served
        self._metrics = metrics
        self._hops = metrics.histogram(
            "seriatim_hop_ms",
            "From a range's way up the tree until its stamp is back, in milliseconds.",
            labels=["node"],
        )
        self._entries = metrics.histogram(
            "seriatim_stamp_entries", "Entries of stamps.", bounds=ENTRIES_BOUNDS, labels=["node"]
        )
        counter, gauge = self._counter, self._gauge
        counter("stamps_total", "Ranges stamped, repeats included.", lambda node: node.meter.stamps)
        counter("numbers_total", "Numbers in these ranges.", lambda node: node.meter.numbers)
        counter("voids_total", "Numbers that were voided.", lambda node: node.meter.voids)
        asked = "Questions of subscribers after a number that they have long been waiting for, repeats included."
        counter("inquiries_total", asked, lambda node: node.meter.inquiries)
        counter("steps_total", "Inputs handled.", lambda node: node.host.driver.steps if node.host is not None else 0)
        counter("appends_total", "Appends to the journal.", lambda node: node.status().appends)
        gauge("node_active", "Whether the node is active here.", lambda node: node.role == "active")
        gauge("epoch", "Grows by one whenever a process takes the node over.", lambda node: node.status().epoch)
        gauge("stamp_bytes", "Mean size of a stamp's entries, sampled.", lambda node: node.status().bytes_per_stamp)
        gauge("topics", "Topics known here.", lambda node: node.surveyor.last.topics)
        gauge("subscribers", "Subscribers known here.", lambda node: node.surveyor.last.subscribers)
        gauge("joins", "Topics being joined.", lambda node: node.surveyor.last.joins)
        gauge("open_ranges", "Ranges that are not settled.", lambda node: node.surveyor.last.open_ranges)
        gauge("unstamped_ranges", "Open ranges without a stamp.", lambda node: node.surveyor.last.unstamped_ranges)
        oldest = "How long the oldest open range has been open."
        gauge("oldest_open_range_seconds", oldest, lambda node: node.surveyor.last.oldest_open_s)
        backlog = "Steps whose effects wait for the journal."
        gauge("journal_backlog", backlog, lambda node: node.status().journal_backlog)
        gauge("journal_bytes", "Bytes in the journal since its snapshot.", lambda node: node.status().journal_bytes)
        metrics.sample(
            "seriatim_unacknowledged",
            "Messages that a neighbour has not acknowledged.",
            self._unacknowledged,
            labels=["node", "neighbour"],
        )

        metrics.sample(
            "seriatim_link_messages_total",
            "Messages to a neighbour since the link began: passes, stamps, what joins need.",
            self._sent,
            kind="counter",
            labels=["node", "neighbour"],
        )

    def meter(self, node: Node) -> NodeMeter:
        """A meter for this node."""
        hops, entries = self._hops.of(node=node), self._entries.of(node=node)
        return NodeMeter(lambda seconds: hops.observe(seconds * 1000.0), entries.observe)

    def _counter(self, name: str, what: str, read: Callable[[ServedNode], float]) -> None:
        self._metrics.sample(f"seriatim_{name}", what, self._each(read), kind="counter", labels=["node"])

    def _gauge(self, name: str, what: str, read: Callable[[ServedNode], float]) -> None:
        self._metrics.sample(f"seriatim_{name}", what, self._each(read), labels=["node"])

    def _each(self, read: Callable[[ServedNode], float]) -> Callable[[], Values]:
        return lambda: {name: float(read(node)) for name, node in self._served.items()}

    def _sent(self) -> Values:
        return {
            (name, neighbour): float(link.sent)
            for name, node in self._served.items()
            for neighbour, link in node.status().links.items()
        }

    def _unacknowledged(self) -> Values:
        return {
            (name, neighbour): float(link.unacknowledged)
            for name, node in self._served.items()
            for neighbour, link in node.status().links.items()
        }
