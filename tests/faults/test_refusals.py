"""A process that must not act ends by itself, with the reason and exit code 1: what the check of a round accepts, and
what it does not."""

import asyncio
import random
from pathlib import Path

import pytest
from msgspec import structs

from seriatim.model import SeriatimError
from seriatim.runtime.journal.file_journal import FileJournal
from soak.children import Child
from soak.harm import Harm
from soak.journals import appends_to, copy_journal, replaced, tear
from soak.loop import Judged, Orders, soak_parser
from soak.refusals import Refusal, must_end

REFUSED = Refusal(
    fault="stale-journal", target="B2", expected=("its latest journal",), limit_s=9.0, code=1, seconds=2.5, said=""
)
SAID = structs.replace(REFUSED, said="Error: start it with its latest journal")


def child(tmp_path: Path, *words: str) -> Child:
    return Child("second", "soak.launch", words, tmp_path / "log")


@pytest.mark.parametrize(
    ("refusal", "complaint"),
    [
        (SAID, ""),
        (structs.replace(SAID, code=0), "ended with code 0 after 2.5 s (it must end with 1"),
        (structs.replace(SAID, code=-9), "ended with code -9"),
        (structs.replace(SAID, said="Error: the port is in use"), "and say 'its latest journal'), saying:\nError: the"),
        (structs.replace(SAID, code=None), "was still there after 9 s, saying:\nError"),
    ],
    ids=["as it must", "no error", "killed", "another reason", "still there"],
)
def test_what_is_complained_about(refusal: Refusal, complaint: str) -> None:
    assert complaint in refusal.complaint and bool(complaint) == bool(refusal.complaint)
    verdict = Judged()
    verdict.take_refusals([SAID, refusal])
    assert verdict.violations == ([refusal.complaint] if complaint else [])
    assert (verdict.refused, verdict.refused_s) == (1 if complaint else 2, 2.5)


async def test_a_process_that_ends_otherwise_is_noticed(tmp_path: Path) -> None:
    """What it said in an earlier life does not count."""
    wrong = child(tmp_path, "broker", "--config", str(tmp_path / "none.toml"), "--id", "B1")
    wrong.log.write_text("it needs its latest journal\n")
    found = await must_end(wrong, "stale-journal", "B1", ("latest journal",), 60.0)
    assert found.code == 2 and "latest journal" not in found.said and "none.toml" in found.said
    assert "ended with code 2" in found.complaint and not wrong.died


async def test_a_process_that_stays_is_noticed_and_ended(tmp_path: Path) -> None:
    slow = child(tmp_path, "--version")
    found = await must_end(slow, "second-process", "B1", ("",), 0.001)  # less than it needs to start
    assert found.code is None and "still there" in found.complaint
    assert not slow.running


async def test_a_copy_takes_the_place_of_a_journal_for_a_while(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal", fsync=False)
    await journal.open()
    await journal.append([b"1"])
    copy_journal(tmp_path / "journal", tmp_path / "copy")  # while it is open
    assert not (tmp_path / "copy" / "lock").exists()
    await journal.append([b"2"])
    await journal.append([b"3", b"4"])
    await journal.close()
    assert (appends_to(tmp_path / "copy"), appends_to(tmp_path / "journal"), appends_to(tmp_path)) == (1, 3, 0)
    for older, appends in ((tmp_path / "copy", 1), (None, 0)):
        with pytest.raises(SeriatimError), replaced(tmp_path / "journal", older):
            assert appends_to(tmp_path / "journal") == appends
            if older is not None:
                assert tear(tmp_path / "journal", random.Random(1)) > 0, "it may be written to"
            raise SeriatimError("it was let in")
        assert appends_to(tmp_path / "journal") == 3, "the newest is back"
    assert appends_to(tmp_path / "copy") == 1


async def test_nobody_is_struck_twice_and_a_fault_that_goes_wrong_is_told() -> None:
    harm, over = Harm(), asyncio.Event()

    async def fault(error: SeriatimError | None) -> None:
        await over.wait()
        if error is not None:
            raise error

    harm.strike({"a", "b"}, fault(None))
    harm.strike({"c"}, fault(SeriatimError("it did not come back")))
    assert harm.struck == {"a", "b", "c"}
    harm.check()
    over.set()
    with pytest.raises(SeriatimError, match="it did not come back"):
        await harm.over()
    await harm.stop()
    assert harm.struck == set()


def test_only_the_faults_that_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {"kill": 0.7, "stale-journal": 0.2, "second-process": 0.1}
    parser = soak_parser("soak.atoms", None, 30.0, 20.0, "each", kinds)
    only = parser.parse_args(["--faults", "kill,second-process"]).faults
    orders = Orders(Path(), 1, 30.0, 7, 20.0, only)
    assert orders.weights(kinds) == {"kill": 0.7, "stale-journal": 0.0, "second-process": 0.1}
    assert structs.replace(orders, faults=None).weights(kinds) == kinds
    with pytest.raises(SystemExit):
        parser.parse_args(["--faults", "kill,move"])
    assert "there is no move; give some of kill, stale-journal, second-process" in capsys.readouterr().err
