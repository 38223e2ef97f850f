"""Logs that people and machines can read: one line per record, with the fields of `extra` kept as fields.

    2026-03-01T12:00:00.123Z INFO seriatim.server.host node started node=root epoch=3
    {"time":"2026-03-01T12:00:00.123Z","level":"INFO","logger":"seriatim.server.host","message":"node started",...}

Nothing that somebody else has sent can begin a new line or control a terminal, and nobody can fill the disk by
provoking the same message over and over: what is too frequent is counted instead.
"""

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import IO, Any

from seriatim.model import InputError

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
PACKAGE = "seriatim"
REPEATS_MAX = 100  # of one message, in
WINDOW_S = 10.0

# What every record has; the rest of its attributes were given as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(json: bool = False, level: str = "INFO", stream: IO[str] | None = None) -> None:
    """Send this package's logs to `stream` (standard error). For programs, not for the library; once more replaces."""
    if level.upper() not in LEVELS:
        raise InputError("level", f"{level!r} is no level", f"give one of {', '.join(LEVELS)}")
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
    """One JSON object per record. A field of `extra` never hides one of ours."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _extra(record).items():
            fields[name if name not in fields else f"{name}_"] = value
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str, separators=(",", ":"))


class TextLines(logging.Formatter):
    """`time level logger message key=value ...`, values quoted where they must be."""

    def format(self, record: logging.LogRecord) -> str:
        words = [_time_of(record), record.levelname, record.name, _plain(record.getMessage())]
        words.extend(f"{name}={_value(value)}" for name, value in _extra(record).items())
        if record.exc_info:
            words.append(f"exception={_value(self.formatException(record.exc_info))}")
        return " ".join(words)


class Repeats(logging.Filter):
    """Lets a message through a bounded number of times per while, and tells how many there were beyond that."""

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


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _plain(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _value(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    if text and text.isprintable() and not any(character in ' "=\\' for character in text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
