"""Numbers of a process, in the text format that Prometheus reads (version 0.0.4).

A counter only grows, a gauge is a present value, a histogram counts values per bucket. Nothing is counted here: each
metric has a function that reads its value when the text is requested.
"""

import os
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeAlias

from seriatim.model import InputError, Node
from seriatim.runtime.net.listener import Listener

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# Milliseconds, from a step in memory to a wide-area round trip that went wrong.
LATENCY_BUCKETS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 10_000.0)

# One number; or one per value of the label, or per tuple of values of the labels.
Values: TypeAlias = float | Mapping[Any, float]


class Buckets:
    """A histogram: how many values there were up to each bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        if not bounds or any(low >= high for low, high in pairwise(bounds)):
            raise InputError("bounds", f"{list(bounds)} do not rise", "give one or more numbers, the smallest first")
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Metrics:
    """All metrics of one process."""

    def __init__(self) -> None:
        self._written: dict[str, Callable[[], Iterator[str]]] = {}

    def sample(self, name: str, what: str, read: Callable[[], Values], *, labels: Sequence[str] = ()) -> None:
        """One number, or (with labels) one per combination of their values. It is a counter if its name ends with
        `_total`, otherwise a gauge."""

        def write() -> Iterator[str]:
            values = read()
            if not isinstance(values, Mapping):
                yield f"{name}{_labels(labels, ())} {_number(values)}"
                return
            for key, value in values.items():
                yield f"{name}{_labels(labels, _key(key))} {_number(value)}"

        self._register(name, what, "counter" if name.endswith("_total") else "gauge", labels, write)

    def histogram(
        self, name: str, what: str, read: Callable[[], Mapping[Any, Buckets]], *, labels: Sequence[str]
    ) -> None:
        """How values are spread, for each combination of label values."""

        def write() -> Iterator[str]:
            for labelled, buckets in read().items():
                key, counts = _key(labelled), list(accumulate(buckets.counts))
                for bound, count in zip((*map(_number, buckets.bounds), "+Inf"), counts, strict=True):
                    yield f"{name}_bucket{_labels((*labels, 'le'), (*key, bound))} {count}"
                yield f"{name}_sum{_labels(labels, key)} {_number(buckets.total)}"
                yield f"{name}_count{_labels(labels, key)} {counts[-1]}"

        self._register(name, what, "histogram", labels, write)

    def text(self) -> str:
        lines: list[str] = []
        for write in self._written.values():
            lines.extend(write())
        return "\n".join(lines) + "\n"

    def _register(
        self, name: str, what: str, kind: str, labels: Sequence[str], write: Callable[[], Iterator[str]]
    ) -> None:
        if not NAME.fullmatch(name):
            raise InputError("name", f"{name!r} is not a metric's name", "use letters, digits and _")
        if kind == "histogram" and name.endswith("_total"):
            raise InputError("name", f"{name!r} is a histogram", "counters, and nothing else, end with _total")
        if name in self._written:
            raise InputError("name", f"{name!r} exists already", "give each metric a name of its own")
        for label in labels:
            if not LABEL.fullmatch(label) or label == "le":
                fix = 'use letters, digits and _, but not "le"'
                raise InputError("labels", f"{label!r} is not a label's name", fix)
        head = [f"# HELP {name} {_escape(what)}", f"# TYPE {name} {kind}"]

        def write_all() -> Iterator[str]:
            yield from head
            yield from write()

        self._written[name] = write_all


def add_process(metrics: Metrics) -> None:
    """Processor time, memory and open files, under their usual names."""
    started_at = time.time()
    metrics.sample("process_cpu_seconds_total", "Processor time used, in seconds.", time.process_time)
    metrics.sample("process_start_time_seconds", "When the process started, since 1970.", lambda: started_at)
    if Path("/proc/self/statm").exists():
        page_bytes = os.sysconf("SC_PAGE_SIZE")

        def resident_bytes() -> float:
            return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * page_bytes

        metrics.sample("process_resident_memory_bytes", "Memory in use.", resident_bytes)
        metrics.sample("process_open_fds", "Open files and sockets.", lambda: len(os.listdir("/proc/self/fd")))


def add_listeners(metrics: Metrics, listeners: Callable[[], Mapping[Node, Listener]]) -> None:
    """Metrics of the ports of the nodes, by node. Nodes may come and go."""

    def sample(name: str, what: str, read: Callable[[Listener], Mapping[str, float]], label: str | None = None) -> None:
        def values() -> Values:
            found = ((node, key, value) for node, each in listeners().items() for key, value in read(each).items())
            return {(node, key) if label is not None else (node,): value for node, key, value in found}

        labels = ["node", label] if label is not None else ["node"]
        metrics.sample(f"seriatim_{name}", what, values, labels=labels)

    def connections(each: Listener) -> Mapping[str, float]:
        return {"client": each.clients, "node": len(each.neighbours)}

    def frames(each: Listener) -> Mapping[str, float]:
        received = each.received + sum(guest.received for guest in each.guests)
        return {"in": received, "out": each.sent + sum(guest.sent for guest in each.guests)}

    sample("connections", "Open connections, by role.", connections, "role")
    sample("accepted_total", "Connections accepted.", lambda each: {"": each.accepted})
    refused = "Connections that were refused or closed, by reason."
    sample("refused_total", refused, lambda each: each.refused, "reason")
    violations = "Connections closed because the other side violated the protocol, by role."
    sample("violations_total", violations, lambda each: each.violations, "role")
    sample("frames_total", "Frames on connections, by direction.", frames, "direction")
    stops = "How often reading stopped because the node was behind."
    sample("throttled_total", stops, lambda each: {"": each.throttle.stops})
    dropped = "Messages for addresses that are not connected."
    sample("dropped_total", dropped, lambda each: {"": each.switchboard.dropped})
    unsent = "Bytes that clients and nodes have not read yet."
    sample("unsent_bytes", unsent, lambda each: {"": sum(guest.unsent for guest in each.guests)})


def _key(labels: str | tuple[str, ...]) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else labels


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{_escape(value, quotes=True)}"' for name, value in pairs) + "}"


def _escape(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
