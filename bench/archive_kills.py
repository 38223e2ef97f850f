"""Kill the archive job again and again while events are published; then compare, by count and by digest.

Publishers fill streams all the time. The job (`seriatim archive --follow`) is killed (SIGKILL, the Python process and
its Java together) at random moments, `--kills` times, and started again. At the end it runs once more to the end, and
count and digest of (log, number, index, id, data) in the archive are compared with what was published. Whatever was
lost or is there twice changes one of them. Every number of a log must be there exactly once.

Run: python -m bench.archive_kills [--kills 10] [--rate 2000] [--streams 4] [--seed 1]
Exit code: 0 nothing lost and nothing twice, 1 otherwise.
"""

import argparse
import asyncio
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import nats

from seriatim.brokers.naming import Names
from seriatim.brokers.nats.server import NatsServer
from seriatim.brokers.packs import BATCH_HEADER, BATCH_VERSION, pack

CLUSTER = "kills"
FIRST_BATCH_S = 600.0


def digest_of(log: str, number: int, index: int, event_id: str, data: bytes) -> int:
    """Of one event; those of all are added up, so that their order does not matter and no pair cancels out."""
    text = f"{log}\0{number}\0{index}\0{event_id}\0".encode() + data
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big")


class Publisher(threading.Thread):
    """Publishes until told to stop; knows what it has published."""

    def __init__(self, url: str, streams: int, rate: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.digest = 0
        self._url, self._streams, self._rate = url, streams, rate
        self._random = random.Random(seed)
        self._ending = threading.Event()

    def run(self) -> None:
        asyncio.run(self._publish())

    def end(self) -> None:
        self._ending.set()
        self.join(60)
        assert not self.is_alive(), "the publisher does not end"

    async def _publish(self) -> None:
        client = await nats.connect(self._url)
        jetstream = client.jetstream(timeout=60)
        names = Names(CLUSTER)
        topics = [f"t{place}" for place in range(self._streams)]
        for topic in topics:
            await jetstream.add_stream(name=names.log_stream(topic), subjects=[topic], allow_direct=True)
        counter = 0
        while not self._ending.is_set():
            topic, events = self._random.choice(topics), self._random.choice((1, 1, 3, 20))
            data = [self._random.randbytes(self._random.randrange(1, 100)) for _ in range(events)]
            headers = {"Nats-Msg-Id": f"p-{counter}", "Seriatim-Publisher": "p"}
            body = data[0]
            if events > 1:
                headers[BATCH_HEADER], body = BATCH_VERSION, pack(counter, data)
            ack = await jetstream.publish(topic, body, headers=headers)
            for index, each in enumerate(data):
                self.digest += digest_of(topic, ack.seq, index, f"p-{counter + index}", each)
            self.count += events
            counter += events
            await asyncio.sleep(events / self._rate)
        await client.close()


def job(url: str, folder: str, *more: str) -> "subprocess.Popen[bytes]":
    """The archive job as a user runs it, in a process group of its own."""
    command = [
        sys.executable,
        "-m",
        "seriatim.cli",
        "archive",
        "--url",
        url,
        "--cluster",
        CLUSTER,
        "--tables",
        "events",
    ]
    command += ["--out", f"{folder}/archive", "--checkpoint", f"{folder}/checkpoint", "--master", "local[1]"]
    return subprocess.Popen([*command, "--max-rows", "400", *more], start_new_session=True, stdout=subprocess.DEVNULL)


def kill_at_random(url: str, folder: str, dice: random.Random) -> int:
    """Run until there is at least one batch more, a random moment longer, and kill. How many batches there are then."""
    records = Path(folder) / "archive" / "_records" / "events"
    before = len(list(records.glob("batch-*.json")))
    process = job(url, folder, "--follow", "--trigger", "0")
    deadline = time.monotonic() + FIRST_BATCH_S
    try:
        while len(list(records.glob("batch-*.json"))) == before:
            assert process.poll() is None, "the job has ended by itself"
            assert time.monotonic() < deadline, "the job writes nothing"
            time.sleep(0.02)
        time.sleep(dice.uniform(0.0, 3.0))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
    return len(list(records.glob("batch-*.json")))


def found_in(folder: str) -> tuple[int, int, int]:
    """Rows, their digest, and how many distinct places they have."""
    from pyspark.sql import functions as F

    from seriatim.pipeline.archive import read_archive
    from seriatim.pipeline.spark.session import SparkOptions, open_session

    spark = open_session(SparkOptions(master="local[2]", memory="2g"), "kills")
    events = read_archive(spark, f"{folder}/archive", "events")
    hashed = events.select("log", "number", "index", "event_id", "data").mapInArrow(_digests, "digest decimal(38,0)")
    total = hashed.agg(F.count("digest"), F.sum("digest")).first()
    places = events.select("log", "number", "index").distinct().count()
    spark.stop()
    assert total is not None
    return total[0], int(total[1] or 0), places


def _digests(batches: Any) -> Any:
    from decimal import Decimal

    import pyarrow as pa

    for batch in batches:
        digests = [Decimal(digest_of(*row.values())) for row in batch.to_pylist()]
        yield pa.record_batch([pa.array(digests, pa.decimal128(38, 0))], names=["digest"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=int, default=2_000, help="events per second")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="archive-kills-") as folder, NatsServer(Path(folder) / "nats") as server:
        publisher = Publisher(server.url, arguments.streams, arguments.rate, arguments.seed)
        publisher.start()
        for number in range(1, arguments.kills + 1):
            batches = kill_at_random(server.url, folder, dice)
            print(f"kill {number}: {batches} batches archived, {publisher.count:,} events published", flush=True)
        publisher.end()
        last = job(server.url, folder, "--once", "--max-rows", "100000")
        assert last.wait(FIRST_BATCH_S) == 0, "the last run failed"
        rows, digest, places = found_in(folder)
        print(f"published {publisher.count:,} events, digest {publisher.digest:x}")
        print(f"archived  {rows:,} events, digest {digest:x}, {places:,} distinct places")
        good = (rows, digest, places) == (publisher.count, publisher.digest, publisher.count)
        print("nothing lost, nothing twice" if good else "LOST OR REPEATED")
        return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
