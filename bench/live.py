"""Seriatim on a real NATS server against the obvious alternative, end to end, each part in a process of its own.

Ten topics, four subscribers that hold five each, 64-byte events, durable streams. A rate is events divided by the time
from the first publish to the last notification at the slowest subscriber. The rows of a table are measured by turns in
one run on the same server binary, each on a fresh server; the best of `--rounds` counts for every row alike, and every
round is audited from what the subscribers saw.

Run: python -m bench.live [--events 200000] [--rounds 3]
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import seriatim
from bench import one_stream
from bench.servers import (
    HOLDINGS,
    SIZE,
    SPAWN,
    TOPICS,
    WAIT_S,
    Running,
    in_process,
    nats_alone,
    processor_seconds,
    seriatim_up,
)
from seriatim.audit import audit
from seriatim.model import Delivery, History
from seriatim.runtime.loop import run

CHUNK = 10_000
CHUNKS_UNDER_WAY = 3

Seen = list[tuple[str, bytes]]
Taken = tuple[Seen, float, float]  # what was seen, when the last came, processor seconds


class Outcome(NamedTuple):
    """One round of one row. `cost`: processor time of each part, in microseconds per event."""

    rate: float
    verdict: str
    cost: dict[str, float]


def payloads(count: int) -> list[bytes]:
    """Distinct, of one size: a number, and something to fill up."""
    return [index.to_bytes(8, "big") + b"." * (SIZE - 8) for index in range(count)]


# ── Seriatim ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def _publish(url: str, topics: Sequence[str], data: Sequence[bytes]) -> float:
    async with seriatim.connect(url, timeout_s=WAIT_S) as bus:
        for topic in topics:  # streams are made when a topic is first used: not what is measured here
            await bus.publish(topic, b"warm up")
        began = time.monotonic()
        pairs = [(topics[index % len(topics)], each) for index, each in enumerate(data)]
        under_way: set[asyncio.Task[Any]] = set()
        for start in range(0, len(pairs), CHUNK):
            under_way.add(asyncio.create_task(bus.publish_many(pairs[start : start + CHUNK])))
            if len(under_way) == CHUNKS_UNDER_WAY:
                _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*under_way)
        return began


async def _subscribe(url: str, topics: Sequence[str], expected: int, ready: Any, ordered: bool) -> tuple[Seen, float]:
    seen: Seen = []
    async with (
        seriatim.connect(url, timeout_s=WAIT_S) as bus,
        bus.subscribe(*topics, ordered=ordered) as events,
    ):
        ready.set()
        async for batch in events.batches():
            seen.extend([(event.topic, event.data) for event in batch if event.data != b"warm up"])
            if len(seen) >= expected:
                break
        ended = time.monotonic()
    return seen, ended


def publish_ours(url: str, data: Sequence[bytes]) -> tuple[float, float]:
    return run(_publish(url, TOPICS, data)), time.process_time()


def subscribe_ours(url: str, topics: Sequence[str], expected: int, ready: Any, ordered: bool) -> Taken:
    return *run(_subscribe(url, topics, expected, ready, ordered)), time.process_time()


# ── one stream ────────────────────────────────────────────────────────────────────────────────────────────────────


def publish_one_stream(url: str, data: Sequence[bytes]) -> tuple[float, float]:
    return run(one_stream.publish(url, TOPICS, data)), time.process_time()


def subscribe_one_stream(url: str, topics: Sequence[str], expected: int, ready: Any) -> Taken:
    run(one_stream.prepare(url, TOPICS))
    return *run(one_stream.subscribe(url, topics, expected, ready)), time.process_time()


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def measure(
    servers: Callable[[], AbstractContextManager[Running]],
    publish: Callable[..., tuple[float, float]],
    subscribe: Callable[..., Taken],
    events: int,
) -> Outcome:
    """One round: everybody in a process of its own."""
    expected = events // len(TOPICS) * len(HOLDINGS[0])
    with servers() as server:
        subscribers = []
        for topics in HOLDINGS:
            ready = SPAWN.Event()
            subscribers.append((in_process(subscribe, server.url, topics, expected, ready), ready))
        for _, ready in subscribers:
            if not ready.wait(WAIT_S):
                raise TimeoutError("a subscriber is not ready")
        servers_before = [processor_seconds(pid) for pid in server.pids]
        publishing = in_process(publish, server.url, payloads(events))
        results = [answers.get(timeout=WAIT_S) for answers, _ in subscribers]
        began, publisher_s = publishing.get(timeout=WAIT_S)
        rate = events / (max(ended for _, ended, _ in results) - began)
        seconds = dict(zip(("NATS", "sequencer"), map(processor_seconds, server.pids), strict=False))
        seconds = {name: each - before for (name, each), before in zip(seconds.items(), servers_before, strict=True)}
        seconds |= {"publisher": publisher_s, "4 subscribers": sum(each for _, _, each in results)}
    cost = {name: 1e6 * each / events for name, each in seconds.items()}
    return Outcome(rate, verdict([seen for seen, *_ in results], expected), cost)


def verdict(logs: list[Seen], expected: int) -> str:
    """What the auditor says of what all subscribers saw."""
    short = [len(seen) for seen in logs if len(seen) != expected]
    if short:
        return f"{short} of {expected} events"
    rows = [
        Delivery(f"s{which}", position, data[:8].hex(), topic)
        for which, seen in enumerate(logs)
        for position, (topic, data) in enumerate(seen)
    ]
    return audit(History(rows)).verdicts["acyclic"].answer


LOG, TICKET = partial(seriatim_up, "log"), partial(seriatim_up, "ticket")


def rates(events: int, rounds: int) -> None:
    """Against one stream, and against ourselves without order."""
    rows: dict[str, Callable[[], Outcome]] = {
        "one JetStream stream, nats-py": partial(
            measure, nats_alone, publish_one_stream, subscribe_one_stream, max(20_000, events // 10)
        ),
        "Seriatim, log mode": partial(measure, LOG, publish_ours, partial(subscribe_ours, ordered=True), events),
        "the same without order": partial(measure, LOG, publish_ours, partial(subscribe_ours, ordered=False), events),
        "Seriatim, ticket mode": partial(measure, TICKET, publish_ours, partial(subscribe_ours, ordered=True), events),
    }
    outcomes: dict[str, list[Outcome]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, row in rows.items():
            outcomes[name].append(row())
            print(f"  {name}: {outcomes[name][-1].rate:,.0f}/s, acyclic {outcomes[name][-1].verdict}", flush=True)
    peer = max(outcome.rate for outcome in outcomes["one JetStream stream, nats-py"])
    print(f"\n{events:,} events of {SIZE} bytes, {len(TOPICS)} topics, {len(HOLDINGS)} subscribers of 5 topics each\n")
    print("| | events/s | vs one stream | audit (acyclic) | processor time per event |\n|---|---:|---:|---|---|")
    for name, rounds_of in outcomes.items():
        best = max(rounds_of, key=lambda outcome: outcome.rate)
        verdicts = ", ".join(sorted({outcome.verdict for outcome in rounds_of}))
        cost = ", ".join(f"{part} {each:.1f} µs" for part, each in best.cost.items())
        print(f"| {name} | {best.rate:,.0f} | {best.rate / peer:.1f} | {verdicts} | {cost} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rates(options.events, options.rounds)


if __name__ == "__main__":
    main()
