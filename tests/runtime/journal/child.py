"""A process that appends until it is told to stop, dies or is refused, and says on stdout what was acknowledged.

    python -m tests.runtime.journal.child FOLDER SEED [SNAPSHOT_EVERY] [FILE_BYTES_MAX]

Record i is `i` and as many filling bytes as the seed gives; "ack i" is printed after the append that held it returned.
The snapshot is the number of records it stands for.
"""

import asyncio
import resource
import sys
from pathlib import Path
from random import Random

from seriatim.model import JournalError
from seriatim.runtime.journal.file_journal import FileJournal


async def main(folder: Path, seed: int, snapshot_every: int, file_bytes_max: int) -> None:
    if file_bytes_max:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
    random = Random(seed)
    journal = FileJournal(folder)
    recovered = await journal.open()
    count = int(recovered.snapshot or b"0") + len(recovered.records)
    appends = 0
    while True:
        records = [b"%d " % (count + i) + b"x" * random.randrange(3000) for i in range(random.randint(1, 4))]
        try:
            await journal.append(records)
        except JournalError as error:
            print(f"error {error}", flush=True)
            break
        count += len(records)
        appends += 1
        print(f"ack {count - 1}", flush=True)
        if snapshot_every and appends % snapshot_every == 0:
            await journal.snapshot(b"%d" % count)
    try:
        await journal.append([b"after a failure"])
    except JournalError as error:
        print(f"refused {error}", flush=True)
    await journal.close()


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    seed, snapshot_every, file_bytes_max = (*map(int, numbers), 0, 0)[:3]
    asyncio.run(main(Path(folder), seed, snapshot_every, file_bytes_max))
