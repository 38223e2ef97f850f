"""What a server counts, in the text format that Prometheus reads (version 0.0.4).

Three kinds: a counter only grows, a gauge is what it is now, a histogram counts values per bucket. A family has a
series per combination of label values. What already is a number somewhere else is not counted twice: `sample` asks for
it when somebody reads the metrics.
"""

import os
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from seriatim.model import InputError, Node
from seriatim.runtime.listener import Listener

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# Milliseconds, from a step in memory to a wide-area round trip that went wrong.
LATENCY_BUCKETS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 10_000.0)

# One number; or one per value of the label, or per tuple of values of the labels.
Values: TypeAlias = float | Mapping[Any, float]
Kind: TypeAlias = Literal["counter", "gauge"]
AnySeries = TypeVar("AnySeries")


class Series:
    """One number."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        """It is this much more."""
        self.value += amount

    def set(self, value: float) -> None:
        """It is this now (gauges)."""
        self.value = value


class Buckets:
    """How many values there were up to each bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """There was this value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


class Family(Generic[AnySeries]):
    """All series of one name."""

    def __init__(self, labels: tuple[str, ...], make: Callable[[], AnySeries]) -> None:
        self._labels = labels
        self._make = make
        self.series: dict[tuple[str, ...], AnySeries] = {}
        if not labels:
            self.of()  # a series without labels exists from the start, at 0

    def of(self, **labels: str) -> AnySeries:
        """The series with these label values. Keep it, where it is used often."""
        if set(labels) != set(self._labels):
            problem = f"{sorted(labels)} given, {sorted(self._labels)} declared"
            raise InputError("labels", problem, "name exactly the labels the metric was declared with")
        key = tuple(labels[name] for name in self._labels)
        found = self.series.get(key)
        if found is None:
            found = self.series[key] = self._make()
        return found


class Metrics:
    """All families of one server."""

    def __init__(self) -> None:
        self._written: dict[str, Callable[[], Iterator[str]]] = {}

    def counter(self, name: str, what: str, labels: Sequence[str] = ()) -> Family[Series]:
        """Something that only grows. Its name ends with `_total`."""
        return self._family(name, what, "counter", labels)

    def gauge(self, name: str, what: str, labels: Sequence[str] = ()) -> Family[Series]:
        """Something that goes up and down."""
        return self._family(name, what, "gauge", labels)

    def histogram(
        self, name: str, what: str, bounds: Sequence[float] = LATENCY_BUCKETS_MS, labels: Sequence[str] = ()
    ) -> Family[Buckets]:
        """How values are spread."""
        if not bounds or any(low >= high for low, high in pairwise(bounds)):
            raise InputError("bounds", f"{list(bounds)} do not rise", "give one or more numbers, the smallest first")
        family = Family(tuple(labels), lambda: Buckets(tuple(bounds)))

        def write() -> Iterator[str]:
            for key, buckets in family.series.items():
                counts = list(accumulate(buckets.counts))
                for bound, count in zip((*map(_number, bounds), "+Inf"), counts, strict=True):
                    yield f"{name}_bucket{_labels((*labels, 'le'), (*key, bound))} {count}"
                yield f"{name}_sum{_labels(labels, key)} {_number(buckets.total)}"
                yield f"{name}_count{_labels(labels, key)} {counts[-1]}"

        self._register(name, what, "histogram", labels, write)
        return family

    def sample(
        self,
        name: str,
        what: str,
        read: Callable[[], Values],
        *,
        kind: Kind = "gauge",
        labels: Sequence[str] = (),
    ) -> None:
        """Numbers that are asked for when they are read: one, or (with labels) one per combination of values."""

        def write() -> Iterator[str]:
            values = read()
            if not isinstance(values, Mapping):
                yield f"{name}{_labels(labels, ())} {_number(values)}"
                return
            for key, value in values.items():
                yield f"{name}{_labels(labels, (key,) if isinstance(key, str) else key)} {_number(value)}"

        self._register(name, what, kind, labels, write)

    def text(self) -> str:
        """Everything, as it is now."""
        lines: list[str] = []
        for write in self._written.values():
            lines.extend(write())
        return "\n".join(lines) + "\n"

    def _family(self, name: str, what: str, kind: str, labels: Sequence[str]) -> Family[Series]:
        family = Family(tuple(labels), Series)

        def write() -> Iterator[str]:
            for key, series in family.series.items():
                yield f"{name}{_labels(labels, key)} {_number(series.value)}"

        self._register(name, what, kind, labels, write)
        return family

    def _register(
        self, name: str, what: str, kind: str, labels: Sequence[str], write: Callable[[], Iterator[str]]
    ) -> None:
        if not NAME.fullmatch(name):
            raise InputError("name", f"{name!r} is not a metric's name", "use letters, digits and _")
        if (kind == "counter") != name.endswith("_total"):
            raise InputError("name", f"{name!r} is a {kind}", "counters, and nothing else, end with _total")
        if name in self._written:
            raise InputError("name", f"{name!r} exists already", "give each metric a name of its own")
        for label in labels:
            if not LABEL.fullmatch(label) or label == "le":
                raise InputError(
                    "labels", f"{label!r} is not a label's name", 'use letters, digits and _, but not "le"'
                )
        head = [f"# HELP {name} {_escape(what)}", f"# TYPE {name} {kind}"]

        def write_all() -> Iterator[str]:
            yield from head
            yield from write()

        self._written[name] = write_all


def add_process(metrics: Metrics) -> None:
    """What every process has, under the names that dashboards know."""
    started_at = time.time()
    metrics.sample("process_cpu_seconds_total", "Processor time used, in seconds.", time.process_time, kind="counter")
    metrics.sample("process_start_time_seconds", "When the process started, since 1970.", lambda: started_at)
    if Path("/proc/self/statm").exists():
        page_bytes = os.sysconf("SC_PAGE_SIZE")

        def resident_bytes() -> float:
            return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * page_bytes

        metrics.sample("process_resident_memory_bytes", "Memory in use.", resident_bytes)
        metrics.sample("process_open_fds", "Open files and sockets.", lambda: len(os.listdir("/proc/self/fd")))


def add_listeners(metrics: Metrics, listeners: Mapping[Node, Listener]) -> None:
    """What happens at the ports of the nodes; every series names its node."""

    def sample(
        name: str, what: str, read: Callable[[Listener], Mapping[str, float]], kind: Kind, label: str | None = None
    ) -> None:
        def values() -> Values:
            found = ((node, key, value) for node, each in listeners.items() for key, value in read(each).items())
            return {(node, key) if label is not None else (node,): value for node, key, value in found}

        labels = ["node", label] if label is not None else ["node"]
        metrics.sample(f"seriatim_{name}", what, values, kind=kind, labels=labels)

    def connections(each: Listener) -> Mapping[str, float]:
        return {"client": each.clients, "node": len(each.neighbours)}

    def frames(each: Listener) -> Mapping[str, float]:
        received = each.received + sum(guest.received for guest in each.guests)
        return {"in": received, "out": each.sent + sum(guest.sent for guest in each.guests)}

    sample("connections", "Open connections, by role.", connections, "gauge", "role")
    sample("accepted_total", "Connections accepted.", lambda each: {"": each.accepted}, "counter")
    refused = "Connections that were not let in, or sent away, by reason."
    sample("refused_total", refused, lambda each: each.refused, "counter", "reason")
    violations = "Connections closed because the other side broke the protocol, by role."
    sample("violations_total", violations, lambda each: each.violations, "counter", "role")
    sample("frames_total", "Frames on connections, by direction.", frames, "counter", "direction")
    stops = "How often reading stopped because the node was behind."
    sample("throttled_total", stops, lambda each: {"": each.throttle.stops}, "counter")
    dropped = "Messages for somebody who is not connected."
    sample("dropped_total", dropped, lambda each: {"": each.switchboard.dropped}, "counter")
    unsent = "Bytes that wait for clients and nodes to fetch them."
    sample("unsent_bytes", unsent, lambda each: {"": sum(guest.unsent for guest in each.guests)}, "gauge")


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
