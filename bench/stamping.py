"""Log mode at the broker's own speed: does stamping keep up with plain NATS clients, and what does it cost?

Plain `nats-py` clients publish 64-byte messages to ten topics as fast as the broker takes them, without waiting for
acknowledgements. First with no sequencer (the broker's own maximum), then with one that stamps everything. Shown: the
rate, processor time of broker and sequencer, and how long after the last message was stored the last stamp was kept.

Run: python -m bench.stamping [--events 300000] [--rounds 3]
"""

import argparse
import time
from typing import Any, NamedTuple

import nats

import seriatim
from bench.servers import SIZE, TOPICS, WAIT_S, Running, in_process, nats_alone, processor_seconds, seriatim_up, until
from seriatim.runtime.loop import run

PUBLISHERS = 2


class Round(NamedTuple):
    """One round. Times in seconds."""

    rate: float
    broker_s: float
    sequencer_s: float = 0.0
    lag_s: float = 0.0
    ranges: int = 0


async def _blast(url: str, count: int) -> float:
    client = await nats.connect(url)
    payload = b"." * SIZE
    began = time.monotonic()
    for index in range(count):
        await client.publish(TOPICS[index % len(TOPICS)], payload)
        if index % 2_000 == 0:
            await client.flush(timeout=int(WAIT_S))
    await client.flush(timeout=int(WAIT_S))
    await client.close()
    return began


def blast(url: str, count: int) -> float:
    """Run one plain publisher in its own process. Returns the start."""
    return run(_blast(url, count))


async def _prepare(url: str) -> None:
    """Create the streams and let the home watch them, which needs a subscriber that once held the topics."""
    async with seriatim.connect(url) as bus:
        for topic in TOPICS:
            await bus.publish(topic, b"warm up")
        async with bus.subscribe(*TOPICS):
            pass


async def _prepare_alone(url: str) -> None:
    client = await nats.connect(url)
    for topic in TOPICS:
        await client.jetstream().add_stream(name=f"alone-{topic}", subjects=[topic])
    await client.close()


async def _stored(url: str) -> int:
    client = await nats.connect(url)
    streams = await client.jetstream().streams_info()
    await client.close()
    return sum(stream.state.messages for stream in streams if set(stream.config.subjects or []) <= set(TOPICS))


def measure(server: Running, events: int) -> Round:
    """Blast, and wait until all is stored (and stamped)."""
    before = run(_stored(server.url))
    cpu = processor_seconds(server.nats_pid)
    sequencer_cpu = processor_seconds(server.sequencer_pid) if server.sequencer_pid is not None else 0.0
    began = [in_process(blast, server.url, events // PUBLISHERS) for _ in range(PUBLISHERS)]
    start = min(answers.get(timeout=WAIT_S) for answers in began)
    until(lambda: run(_stored(server.url)) >= before + events, "the broker to store everything", WAIT_S)
    stored = time.monotonic()
    broker_s = processor_seconds(server.nats_pid) - cpu
    if server.sequencer_pid is None:
        return Round(events / (stored - start), broker_s)

    def is_stamped() -> bool:
        status = server.status()
        return bool(status["issued"] >= before + events and status["open_ranges"] == 0)

    until(is_stamped, "everything to be stamped", WAIT_S, every_s=0.2)  # asking costs the sequencer, too
    lag_s = time.monotonic() - stored
    sequencer_s = processor_seconds(server.sequencer_pid) - sequencer_cpu
    return Round(events / (stored - start), broker_s, sequencer_s, lag_s, server.status()["stamps"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows: dict[str, list[Round]] = {"NATS alone": [], "with stamping": []}
    for _ in range(options.rounds):
        with nats_alone() as server:
            run(_prepare_alone(server.url))
            rows["NATS alone"].append(measure(server, options.events))
        with seriatim_up("log") as server:
            run(_prepare(server.url))
            rows["with stamping"].append(measure(server, options.events))
    print(f"{options.events:,} messages of {SIZE} bytes, {len(TOPICS)} topics, {PUBLISHERS} plain publishers\n")
    print("| | stored/s | broker µs each | sequencer µs each | sequencer / broker | stamped after | stamps |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, rounds in rows.items():
        best = max(rounds)
        each = 1e6 / options.events
        cells: list[Any] = [f"{best.rate:,.0f}", f"{best.broker_s * each:.1f}", f"{best.sequencer_s * each:.2f}"]
        cells += [f"{best.sequencer_s / best.broker_s:.1%}", f"{best.lag_s * 1000:.0f} ms", f"{best.ranges:,}"]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
