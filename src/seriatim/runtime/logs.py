"""Logs that people and machines can read: one line per record, with its context as fields.

A record is written with plain `logging`, and its message ends with its fields:

    logger.info("node started: node=%s epoch=%s", node, epoch)

So a program with its own logging finds the context in the text. The lines that `configure_logging` writes keep the
fields apart:

    2026-03-01T12:00:00.123Z INFO seriatim.live.tree.host node started: node=root epoch=3
    {"time":"…","level":"INFO","logger":"seriatim.live.tree.host","message":"node started","node":"root","epoch":3}

Values from other machines cannot begin a new line or control a terminal. A message that is too frequent is counted
instead of written, so that nobody can fill the disk by provoking it.
"""

import json
import logging
import re
import sys
import time
from datetime import UTC, datetime
from typing import IO, Any

from seriatim.model import InputError

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
PACKAGE = "seriatim"
REPEATS_MAX = 100  # of one message, in
WINDOW_S = 10.0

# The fields at the end of a message: "… : node=%s epoch=%s".
_FIELDS = re.compile(r"(?:: |^)((?:\w+=%[a-z](?: |$))+)$")

# What every record has; the rest of its attributes were given as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(json: bool = False, level: str = "INFO", stream: IO[str] | None = None) -> None:
    """Send this package's logs to `stream` (standard error). For programs, not libraries. A second call replaces it."""
    if level.upper() not in LEVELS:
        raise InputError("level", f"{level!r} is not a level", f"give one of {', '.join(LEVELS)}")
    handler = _Handler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines() if json else TextLines())
    handler.addFilter(Repeats())
    logger = logging.getLogger(PACKAGE)
    for old in [old for old in logger.handlers if isinstance(old, _Handler)]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False


class JsonLines(logging.Formatter):
    """One JSON object per record. A field of a message never hides one of ours."""

    def format(self, record: logging.LogRecord) -> str:
        text, more = _parts(record)
        fields: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": text,
        }
        for name, value in more.items():
            fields[name if name not in fields else f"{name}_"] = value
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, separators=(",", ":"))


class TextLines(logging.Formatter):
    """`time level logger text: key=value ...`, values quoted where they must be."""

    def format(self, record: logging.LogRecord) -> str:
        text, fields = _parts(record)
        words = [_time_of(record), record.levelname, record.name, _plain(text) + (":" if fields else "")]
        words.extend(f"{name}={_value(value)}" for name, value in fields.items())
        if record.exc_info:
            words.append(f"exception={_value(self.formatException(record.exc_info))}")
        return " ".join(words)


class Repeats(logging.Filter):
    """Limits how often a message is written in a window of time. The next one tells how many were left out."""

    def __init__(self, repeats_max: int = REPEATS_MAX, window_s: float = WINDOW_S) -> None:
        super().__init__()
        self._repeats_max = repeats_max
        self._window_s = window_s
        self._seen: dict[tuple[str, str], int] = {}
        self._window_ends = 0.0
        self._left_out: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now >= self._window_ends:
            self._left_out = {
                key: count - self._repeats_max for key, count in self._seen.items() if count > self._repeats_max
            }
            self._seen.clear()
            self._window_ends = now + self._window_s
        key = (record.name, str(record.msg))
        count = self._seen[key] = self._seen.get(key, 0) + 1
        if count > self._repeats_max and record.levelno < logging.CRITICAL:
            return False
        if (left_out := self._left_out.pop(key, 0)) > 0:
            record.left_out_before = left_out
        return True


class _Handler(logging.StreamHandler[IO[str]]):
    """A type of our own, so that configuring again replaces it and nothing else."""


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _parts(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """The text of a record, and its fields: those of the message, then those given as `extra`."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    found = _FIELDS.search(record.msg) if isinstance(record.msg, str) and record.args else None
    if found is None:
        return record.getMessage(), extra
    names = [field.partition("=")[0] for field in found[1].split()]
    args = record.args if isinstance(record.args, tuple) else (record.args,)
    before = len(args) - len(names)
    text = record.msg[: found.start()] % args[:before]
    return text, {**dict(zip(names, args[before:], strict=True)), **extra}


def _plain(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _value(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    if text and text.isprintable() and not any(character in ' "=\\' for character in text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
