"""`seriatim sub --start`: what it may say."""

from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from seriatim.cli.start import read_start
from seriatim.cli.sub import command
from seriatim.model import InputError


def test_places_in_the_past() -> None:
    assert read_start("first") == "first"
    assert read_start("17") == 17
    assert read_start("2026-05-01T09:00:00Z") == datetime(2026, 5, 1, 9, tzinfo=UTC)
    local = read_start("2026-05-01T09:00:00")
    assert isinstance(local, datetime) and local.tzinfo is not None
    assert read_start("orders=17, prices=4") == {"orders": 17, "prices": 4}


@pytest.mark.parametrize("text", ["last", "-3", "orders=", "=3", "orders=x", ""])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(InputError, match="--start"):
        read_start(text)


def test_seek_needs_a_durable_subscriber_and_a_place() -> None:
    refused = CliRunner().invoke(command, ["orders", "--seek"])
    assert isinstance(refused.exception, InputError)
    assert "--seek: it moves a durable subscriber to --start" in str(refused.exception)
