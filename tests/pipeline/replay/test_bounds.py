"""The values of --from and --to."""

import pytest

from seriatim.model import InputError
from seriatim.pipeline.replay import Bound, parse_bound


def test_times_positions_and_numbers() -> None:
    assert parse_bound("1970-01-01T00:00:01Z") == Bound(time_ms=1000.0)
    assert parse_bound("1970-01-01T01:00:01.5+01:00") == Bound(time_ms=1500.0)
    assert parse_bound("1970-01-02") == Bound(time_ms=86_400_000.0)  # without a zone it is UTC
    assert parse_bound("20260714") == Bound(position=20_260_714)  # digits alone
    assert parse_bound("orders=3,pay.ments=12") == Bound(numbers={"orders": 3, "pay.ments": 12})


@pytest.mark.parametrize("text", ["", "soon", "orders", "orders=x", "orders=1,", "=1", "orders=-1", "-3", "1" * 19])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"--from: .* is neither a time, a position nor numbers of topics; give a time"
    ):
        parse_bound(text, "--from")


def test_a_topic_is_named_once() -> None:
    with pytest.raises(InputError, match="names a topic twice"):
        parse_bound("a=1,a=2")
