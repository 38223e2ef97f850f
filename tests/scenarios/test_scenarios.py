"""Every transcript beside this file is run from its first line and must say what it says now.

A changed transcript is a changed behaviour: rewrite it with `--rewrite`, then read the difference.
"""

from pathlib import Path

import pytest

from tests.scenarios.harness import play
from tests.scenarios.transcript import Transcript

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text(encoding="utf-8")
    happened = play(Transcript.parse(written)).text()
    if request.config.getoption("--rewrite", default=False):
        path.write_text(happened, encoding="utf-8")
    else:
        assert happened.splitlines() == written.splitlines()
