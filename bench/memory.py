"""What a topic costs a node in memory, what a held event costs a subscriber, and how large and slow a snapshot is.

Every row is measured in a process of its own: the most memory it ever had resident, minus what it had before the
first topic or event. Messages are decoded from bytes, as they are in a running system, so that no two of them share
their strings. A topic within its lease costs more: its home still remembers whose request it answered.

Run: python bench/memory.py
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from time import process_time
from typing import NamedTuple

import msgspec

from seriatim.model import APPLICATION, BROKER, Event
from seriatim.order import SequencingTree
from seriatim.protocols.tree import SequencerNode, SequencerNodeState, Subscriber, TreeOptions
from seriatim.protocols.tree.messages import Granted, Joined, Settled, Ticket, Update
from seriatim.protocols.with_broker import Change, Delivered, Listening, Stamped

TICKETS_PER_MS = 20
MEBIBYTE = 1 << 20


class Figures(NamedTuple):
    """The result of one child process."""

    size: int
    bytes_peak: int
    snapshot_bytes: int = 0
    encode_s: float = 0.0
    decode_s: float = 0.0


def peak_bytes() -> int:
    """The most memory this process ever had resident."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def again(message: msgspec.Struct) -> msgspec.Struct:
    """The message as the other side of a connection gets it."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))


def node(count: int, coupled: bool) -> Figures:
    """One node; each topic is ticketed once and settled. Coupled: in groups of five, each held by two subscribers."""
    machine = SequencerNode(SequencingTree.single(), "root", TreeOptions(mode="ticket"))
    machine.tick(0.0)
    before = peak_bytes()
    for index in range(count):
        topic, now = f"topic.{index}", index / TICKETS_PER_MS
        if coupled and index % 5 == 0:
            group = frozenset(f"topic.{index + place}" for place in range(5))
            for twin in "ab":
                machine.step(f"s{index}{twin}", again(Update(1, group)), now)
        _, granted = machine.step("p", again(Ticket(1, topic, 1)), now).send[0]
        assert isinstance(granted, Granted), granted
        machine.step("p", again(Settled(topic, granted.first)), now)
        if index % 1_000 == 0:
            machine.tick(now)
    machine.tick(now + 2 * machine.options.lease_ms)
    bytes_peak = peak_bytes() - before
    began = process_time()
    snapshot = msgspec.msgpack.encode(machine.state)
    encode_s = process_time() - began
    began = process_time()
    copy = msgspec.msgpack.decode(snapshot, type=SequencerNodeState)
    decode_s = process_time() - began
    assert copy == machine.state
    return Figures(count, bytes_peak, len(snapshot), encode_s, decode_s)


def subscriber(count: int, mode: str) -> Figures:
    """Events of 64 bytes that wait for one that does not come."""
    options = TreeOptions(mode=mode)  # type: ignore[arg-type]
    machine = Subscriber(SequencingTree.single(), "s", options)
    machine.step(APPLICATION, Change(frozenset({"held", "other"})), 0.0)
    for topic in ("held", "other"):
        machine.step(BROKER, Listening(topic, 1), 0.0)
        machine.step("root", Joined(1, topic, 0, {}), 0.0)
    before = peak_bytes()
    for number in range(2, count + 2):
        event = Event(f"publisher-{number}", "held", "publisher", number.to_bytes(64, "big"))
        entries = {"other": number} if mode == "ticket" else None
        machine.step(BROKER, again(Delivered("held", number, entries, event)), 0.0)
        if mode == "log":
            machine.step(BROKER, again(Stamped("held", number, number, {"other": number})), 0.0)
    bytes_peak = peak_bytes() - before
    held = len(machine.state.lanes["held"].held) + len(machine.state.holdings["held"].unstamped)
    assert held == count
    return Figures(count, bytes_peak)


Measure = Callable[[int], Figures]

# What is measured, and at which sizes. The largest ones of the first and of the last two are the goal's.
KINDS: dict[str, tuple[Measure, tuple[int, ...]]] = {
    "topics": (lambda count: node(count, coupled=False), (10_000, 100_000, 1_000_000)),
    "topics coupled in fives, two holders each": (lambda count: node(count, coupled=True), (1_000, 10_000, 100_000)),
    "held events of 64 bytes, ticket mode": (lambda count: subscriber(count, "ticket"), (1_000, 10_000, 100_000)),
    "held events of 64 bytes, log mode": (lambda count: subscriber(count, "log"), (1_000, 10_000, 100_000)),
}


def in_child(kind: str, count: int) -> Figures:
    """Measure in a fresh interpreter."""
    done = subprocess.run([sys.executable, __file__, kind, str(count)], capture_output=True, text=True, check=True)
    return Figures(*json.loads(done.stdout))


def main() -> None:
    for kind, (_, sizes) in KINDS.items():
        print(f"\n{kind:<44} {'memory':>10} {'each':>8} {'growth':>7} {'snapshot':>10} {'encode':>8} {'decode':>8}")
        first: Figures | None = None
        for count in sizes:
            figures = in_child(kind, count)
            first = first or figures
            growth = figures.bytes_peak / first.bytes_peak
            memory, each = figures.bytes_peak / MEBIBYTE, figures.bytes_peak / count
            print(f"{count:>44,} {memory:>6.0f} MiB {each:>6.0f} B {growth:>6.1f}x", end="")
            if snapshot := figures.snapshot_bytes:
                print(f" {snapshot / MEBIBYTE:>6.1f} MiB {figures.encode_s:>6.2f} s {figures.decode_s:>6.2f} s", end="")
            print(flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(KINDS[sys.argv[1]][0](int(sys.argv[2]))))
    else:
        main()
