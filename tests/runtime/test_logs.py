"""Logs: one line per record, whatever is in it."""

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.model import InputError
from seriatim.runtime.logs import PACKAGE, Repeats, configure_logging

logger = logging.getLogger(f"{PACKAGE}.test")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    package = logging.getLogger(PACKAGE)
    before = (list(package.handlers), package.level, package.propagate)
    yield
    package.handlers[:], package.propagate = before[0], before[2]
    package.setLevel(before[1])


def logged(*, as_json: bool, level: str = "INFO") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(as_json, level, stream)
    return stream


def test_text() -> None:
    stream = logged(as_json=False)
    logger.info("node started", extra={"node": "root", "epoch": 3, "reason": 'two words, "quoted"', "empty": ""})
    logger.debug("not shown")
    line = stream.getvalue()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO seriatim\.test node started "
        r'node=root epoch=3 reason="two words, \\"quoted\\"" empty=""\n',
        line,
    )


def test_json() -> None:
    stream = logged(as_json=True, level="debug")
    try:
        raise KeyError("x")
    except KeyError:
        logger.exception("failed", extra={"at": {"root"}, "level": "mine", "bytes": b"\xff"})
    fields = json.loads(stream.getvalue())
    assert fields["message"] == "failed" and fields["level"] == "ERROR" and fields["level_"] == "mine"
    assert fields["at"] == "{'root'}" and fields["bytes"] == "b'\\xff'"
    assert "KeyError: 'x'" in fields["exception"] and stream.getvalue().count("\n") == 1


@given(st.text(), st.text(), st.booleans())
def test_nothing_begins_a_new_line_or_controls_a_terminal(message: str, value: str, as_json: bool) -> None:
    stream = logged(as_json=as_json)
    logger.info("%s", message, extra={"reason": value})
    text = stream.getvalue()
    assert text.endswith("\n") and len(text.splitlines()) == 1
    assert text[:-1].isprintable()
    if as_json:
        fields = json.loads(text)
        assert (fields["message"], fields["reason"]) == (message, value)


def test_configuring_again_replaces() -> None:
    first, second = logged(as_json=False), logged(as_json=True)
    logger.warning("once")
    assert first.getvalue() == "" and json.loads(second.getvalue())["message"] == "once"
    with pytest.raises(InputError, match="level"):
        configure_logging(level="LOUD")


def test_a_message_provoked_over_and_over_is_counted_instead() -> None:
    stream = io.StringIO()
    configure_logging(True, "INFO", stream)
    handler = logging.getLogger(PACKAGE).handlers[-1]
    handler.filters[:] = [repeats := Repeats(repeats_max=3, window_s=3600)]
    for number in range(10):
        logger.warning("refused", extra={"number": number})
    logger.warning("something else")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.get("number") for line in lines] == [0, 1, 2, None]
    repeats._window_ends = 0.0  # time passes
    logger.warning("refused")
    logger.warning("refused")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()][4:]
    assert [line.get("left_out_before") for line in lines] == [7, None]
