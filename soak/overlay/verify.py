"""What is promised of a round of an overlay, checked from its logs: by the auditor, and by who was always there."""

from pathlib import Path

import msgspec

from seriatim.audit import read_history
from soak.loop import Judged
from soak.overlay.child import Stream, count_gaps, matching, read_sent

GUARANTEES = ("fifo", "per-topic", "tno", "integrity")


class OverlayVerdict(Judged):
    """What the logs of a round of an overlay show."""

    confirmed: int = 0
    subscriptions: int = 0
    owed: int = 0
    """Notifications that the subscriptions which were there all the time must have got."""

    gaps: int = 0
    """What they were told of besides: publishers that had begun while a broker was down."""

    def numbers(self) -> dict[str, int]:
        """What was owed, and what became of it."""
        return {"subscriptions": self.subscriptions, "owed": self.owed, "told as gaps": self.gaps}


def read_streams(folder: Path) -> list[Stream]:
    """The subscriptions that were there all the time; none, if their clients did not finish."""
    path = folder / "streams.json"
    return msgspec.json.decode(path.read_bytes(), type=list[Stream]) if path.exists() else []


def verify_overlay(folder: Path) -> OverlayVerdict:
    """Order of everything, and completeness for the steady subscriptions."""
    history = read_history(folder / "log")
    sent = read_sent(folder)
    verdict = OverlayVerdict(confirmed=len(sent), subscriptions=len({row.subscriber for row in history.deliveries}))
    verdict.take(history, GUARANTEES)
    streams = read_streams(folder)
    if not streams:
        verdict.violations.append("nothing is shown: the steady clients did not finish")
        return verdict
    seen: dict[str, set[str]] = {}
    for row in history.deliveries:
        seen.setdefault(row.subscriber, set()).add(row.event_id)
    for stream in streams:
        owed = matching(stream.where, sent)
        got = seen.get(stream.subscriber, set())
        told = count_gaps(stream.gaps)
        verdict.owed += len(owed)
        verdict.gaps += told
        lost = sorted(owed - got)
        if lost:
            verdict.violations.append(
                f"lost: {stream.subscriber} ({stream.where}) was not notified of {lost[0]} and {len(lost) - 1} more"
            )
        if any(first == 0 for first, _, _ in stream.gaps):
            verdict.violations.append(f"started again: {stream.subscriber}, which nobody harmed: {stream.gaps[0][2]}")
    if verdict.owed == 0:
        verdict.violations.append("nothing is shown: nothing was owed")
    return verdict
