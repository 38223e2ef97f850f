"""Where `seriatim sub` begins, and how far it has read the past."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any

import click

from seriatim.client.history import Start
from seriatim.model import InputError

EVERY_S = 0.2
CLEAR = "\r\x1b[K"  # the line of a terminal


def read_start(text: str) -> Start:
    """Parse `--start`. InputError: it cannot be understood."""
    if text in ("first", "now"):
        return "first" if text == "first" else "now"
    if text.isascii() and text.isdigit():
        return int(text)
    if "=" in text:
        return _numbers(text)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        fix = 'use "first", a position, a time such as 2026-05-01T09:00:00Z, or orders=17,prices=4'
        raise InputError("--start", f"{text!r} is not a place in the past", fix) from None
    return moment if moment.tzinfo is not None else moment.astimezone()


def _numbers(text: str) -> dict[str, int]:
    numbers = {}
    for part in text.split(","):
        topic, _, number = part.strip().rpartition("=")
        if not topic or not (number.isascii() and number.isdigit()):
            raise InputError("--start", f"{part!r} is not a topic and its number", "write orders=17,prices=4")
        if topic in numbers:
            raise InputError("--start", f"{topic} is named twice", "give each topic one number")
        numbers[topic] = int(number)
    return numbers


@asynccontextmanager
async def showing_progress(events: Any) -> AsyncIterator[str]:
    """While the block runs, tell people at a terminal how far the past is read.

    Gives what to print before each line on stdout: if that is the same terminal, it clears the progress.
    """
    if not sys.stderr.isatty():
        yield ""
        return
    task = asyncio.get_running_loop().create_task(_show(events))
    try:
        yield CLEAR if sys.stdout.isatty() else ""
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _show(events: Any) -> None:
    shown = False
    while not (progress := events.progress()).is_live:
        shown = True
        line = f"reading the past: {progress.share:4.0%}, position {progress.position} of {progress.end}"
        click.echo(f"{CLEAR}{line}", err=True, nl=False)
        await asyncio.sleep(EVERY_S)
    if shown:
        click.echo(f"{CLEAR}live since position {progress.position}", err=True)
