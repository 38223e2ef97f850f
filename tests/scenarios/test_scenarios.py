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


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_prose_and_verdict_agree(path: Path) -> None:
    """So that a rewrite cannot turn a failure into a success, or a success into a failure, unnoticed.

    A story of paper 000 that fails says so in its first paragraph. On the tree nothing fails, except that a broker
    that loses events makes gaps.
    """
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# "), "a transcript begins with what the story is"
    assert "\naudit\n" in text, "a transcript ends with a verdict"
    failed = {line.split(":")[0] for line in text.splitlines() if line.endswith(": invalid")}
    if path.stem.startswith("tree_"):
        assert failed == ({"completeness"} if path.stem == "tree_unreliable_broker" else set())
    else:
        first_paragraph = text.split("\n#\n")[0]
        assert bool(failed) == ("FAIL" in first_paragraph)
