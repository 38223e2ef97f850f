"""`seriatim sub --start`: what it may say."""

import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from seriatim.cli.output import Output
from seriatim.cli.start import CLEAR, read_start, showing_progress
from seriatim.cli.sub import Shown, command, print_events
from seriatim.client.history import Progress
from seriatim.model import Gap, InputError
from tests.waiting import until


def test_places_in_the_past() -> None:
    assert read_start("first") == "first"
    assert read_start("now") == "now"
    assert read_start("17") == 17
    assert read_start("2026-05-01T09:00:00Z") == datetime(2026, 5, 1, 9, tzinfo=UTC)
    local = read_start("2026-05-01T09:00:00")
    assert isinstance(local, datetime) and local.tzinfo is not None
    assert read_start("orders=17, prices=4") == {"orders": 17, "prices": 4}


@pytest.mark.parametrize("text", ["last", "-3", "orders=", "=3", "orders=x", "orders=1,orders=2", ""])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(InputError, match="--start"):
        read_start(text)


def test_seek_needs_a_durable_subscriber_and_a_place() -> None:
    refused = CliRunner().invoke(command, ["orders", "--seek"])
    assert isinstance(refused.exception, InputError)
    assert "--seek: it moves a durable subscriber to --start" in str(refused.exception)


async def test_gaps_are_told_and_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    async def events() -> AsyncIterator[Gap]:
        yield Gap("orders", 1, 300, "the order log does not have it")
        yield Gap("prices", 7, 7, "the log no longer has it")

    await print_events(Output(events()), 1, None, Shown(stamps=False, positions=False, as_json=False))
    told = capsys.readouterr()
    assert (told.out, told.err.splitlines()) == (
        "",
        [
            "gap: orders 1…300 will not come: the order log does not have it",
            "gap: prices 7 will not come: the log no longer has it",
        ],
    )


async def test_at_a_terminal_an_event_replaces_the_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are on one screen: without clearing, the position of the event reads as a digit of the progress."""

    class Reading:
        def progress(self) -> Progress:
            return Progress(514, 2110, is_live=False)

    for screen in (sys.stdout, sys.stderr):
        monkeypatch.setattr(screen, "isatty", lambda: True)
    async with showing_progress(Reading()) as before:
        await until(lambda: "position 514 of 2110" in capsys.readouterr().err, "progress is shown")
        assert before == CLEAR
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    async with showing_progress(Reading()) as before:
        assert before == ""
