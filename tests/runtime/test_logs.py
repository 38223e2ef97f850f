"""Logs: one line per record, whatever is in it."""

import io
import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seriatim.model import InputError
from seriatim.runtime.logs import PACKAGE, Repeats, configure_logging

logger = logging.getLogger(f"{PACKAGE}.test")


def logged(*, as_json: bool, level: str = "INFO") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(as_json, level, stream)
    return stream


def test_text() -> None:
    stream = logged(as_json=False)
    logger.info("node %s: node=%s epoch=%d reason=%s empty=%s", "started", "root", 3, 'two words, "quoted"', "")
    logger.debug("not shown")
    line = stream.getvalue()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO seriatim\.test node started: "
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


def test_fields_of_a_message_are_fields_in_json_and_words_in_plain_logging(caplog: pytest.LogCaptureFixture) -> None:
    logger.warning("connection refused: node=%s peer=%s reason=%s", "eu", "127.0.0.1:40112", "bad token")
    assert caplog.messages == ["connection refused: node=eu peer=127.0.0.1:40112 reason=bad token"]
    stream = logged(as_json=True)
    logger.warning("%d of %d left: node=%s holds=%s", 3, 4, "eu", {"a": 1}, extra={"more": True})
    logger.warning("left: holds=%s", {"a": 1})
    logger.warning("100%% node=%s is not a field, since text follows", "eu")
    logger.warning("nothing: node=eu")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line.pop("message") for line in lines] == [
        "3 of 4 left",
        "left",
        "100% node=eu is not a field, since text follows",
        "nothing: node=eu",
    ]
    standard = ("time", "level", "logger")
    fields = [{name: value for name, value in line.items() if name not in standard} for line in lines]
    assert fields == [{"node": "eu", "holds": {"a": 1}, "more": True}, {"holds": {"a": 1}}, {}, {}]


@given(st.text(), st.text(), st.booleans())
def test_nothing_begins_a_new_line_or_controls_a_terminal(message: str, value: str, as_json: bool) -> None:
    stream = logged(as_json=as_json)
    logger.info("%s: reason=%s", message, value)
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
