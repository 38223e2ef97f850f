"""Telling a stream from another one of the same name.

A remembered position is of use only in the same stream. A stream that was deleted and created again counts from 1. It
may have grown past the position before anybody looks; then its events up to there would be missed silently. So the
*time of creation* is remembered with the position; every answer about a stream's state has it.

Another time is not always another stream. A cluster gives a restored stream a new one; servers before August 2026 did
the same when somebody created a stream again that was there. Two things tell, both by the server's clock. A stream with
messages from before its creation is an old one. And so is one that was seen under its earlier time *after* its
creation.

Somebody may delete a stream on purpose, and accept the new one (renewal.py). It then continues after the last number,
and says in its metadata which streams it continues.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from seriatim.brokers.nats.api import StreamAnswer

INSTEAD = "restore it, accept that it is another one (`seriatim accept`), or use another topic"
ADVICE = f"it was deleted and created again; {INSTEAD}"
GONE = f"was deleted; {INSTEAD}"


CONTINUES = "seriatim.continues"  # metadata of a stream: when those that it continues were created
CONTINUED_MAX = 16


class Sighting(Struct, frozen=True):
    """A stream as it was seen: when it was created, and a moment at which it was this one. Empty: not known."""

    created: str = ""
    at: str = ""


def difference(answer: StreamAnswer, seen: int, known: Sighting) -> str | None:
    """Why a stream is not the one of which `seen` positions are remembered. None: it is, as far as can be known."""
    if answer.state.last_seq < seen:
        return f"ends at {answer.state.last_seq}, but {seen} positions of it were seen already: {ADVICE}"
    if seen and is_another(answer, known):
        return f"was created {answer.created}, but {seen} positions of one created {known.created} were seen: {ADVICE}"
    return None


def is_another(answer: StreamAnswer, known: Sighting) -> bool:
    """Whether a stream was created again since that sighting, however far it has grown."""
    if not known.created or not answer.created or answer.created == known.created:
        return False
    if known.created in continued(answer):
        return False
    created = datetime.fromisoformat(answer.created)
    if known.at and datetime.fromisoformat(known.at) >= created:
        return False
    return datetime.fromisoformat(answer.state.first_ts) >= created


def continued(answer: StreamAnswer) -> list[str]:
    """When the streams were created that this one continues."""
    return (answer.config.metadata or {}).get(CONTINUES, "").split(",")


def continuing(metadata: Mapping[str, str] | None, created: Iterable[str]) -> dict[str, str]:
    """The metadata of a stream that continues those created then, and what they continued."""
    before = (metadata or {}).get(CONTINUES, "").split(",")
    names = [each for each in dict.fromkeys([*before, *created]) if each]
    return {**(metadata or {}), CONTINUES: ",".join(names[-CONTINUED_MAX:])}


def stored_at(nanoseconds: str) -> str:
    """The time of a message as its reply subject tells it, in the form of the server's answers."""
    return datetime.fromtimestamp(int(nanoseconds) / 1e9, UTC).isoformat() if nanoseconds else ""


def earlier(time: str, seconds: float) -> str:
    """The time that many seconds before."""
    return (datetime.fromisoformat(time) - timedelta(seconds=seconds)).isoformat() if time else ""
