"""A torn journal is one that a crash can leave: its unfinished end is cut off, and nothing else is lost."""

import random
from pathlib import Path

from seriatim.runtime.journal.file_journal import FileJournal
from soak.journals import tear


async def test_what_tear_leaves_behind_is_cut_off_at_the_next_start(tmp_path: Path) -> None:
    source = random.Random(5)
    expected: list[bytes] = []
    for life in range(30):
        journal = FileJournal(tmp_path / "journal", fsync=False)
        assert (await journal.open()).records == expected
        expected.append(f"record {life}".encode())
        await journal.append(expected[-1:])
        await journal.close()
        assert tear(tmp_path / "journal", source) > 0
        assert tear(tmp_path / "journal", source) == 0, "a second crash finds a journal that nobody has opened since"
