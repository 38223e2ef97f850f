"""Anomalies put into a history on purpose: a small story of strangers for each name, which the auditor must call so.

The strangers share nobody, no event and no topic with the history, so whatever else is wrong there, their story is
in it; and a sound history with one story has no other anomaly than that of its name.
"""

from random import Random

from seriatim.audit import ANOMALIES
from seriatim.model import Delivery, History, Publication, Subscription

# What each stranger was notified of, in order: a letter is a topic, the digit behind it tells its events apart.
SEEN: dict[str, dict[str, str]] = {
    "topic-inversion": {"u1": "x1 x2", "u2": "x2 x1"},
    "inversion": {"u1": "x1 y1", "u2": "y1 x1"},
    "cycle": {"u1": "x1 y1", "u2": "y1 z1", "u3": "z1 x1"},
    "fifo-inversion": {"u1": "x2 x1"},
    "fifo-inversion-across-topics": {"u1": "y1 x1"},
    "causal-inversion": {"u1": "y1 x1", "u2": "x1"},
    "duplicate": {"u1": "x1 x2 x1"},
    "phantom": {"u1": "x1"},
    "reused-id": {"u1": "x1"},
    "number-mismatch": {"u1": "x1", "u2": "x1"},
    "gap": {"u1": "x1 x3"},
}
assert set(SEEN) == set(ANOMALIES)


def tell(name: str, history: History, random: Random) -> None:
    """Put the story of this anomaly into the history, under names that are new there."""
    mark = f"{random.randrange(10**6)}"
    events = sorted({event for words in SEEN[name].values() for event in words.split()})
    if name == "gap":
        events = ["x1", "x2", "x3"]
    one_publisher = name.startswith("fifo")

    for i, event in enumerate(events):
        publisher = f"p{mark}" if one_publisher else f"p{mark} of {event}"
        sequence, seen = (i if one_publisher else 0), 0
        if name == "causal-inversion" and event == "y1":
            publisher, seen = f"u2 {mark}", 1  # it had been notified of x1
        if name != "phantom":
            row = Publication(
                f"{event} {mark}", f"{event[0]} {mark}", publisher, None, sequence, seen, number=int(event[1])
            )
            history.publications.append(row)
    if name == "reused-id":
        history.publications.append(
            Publication(f"x1 {mark}", f"y {mark}", f"q{mark}", None, sequence=0, seen=0, number=1)
        )

    for subscriber, words in SEEN[name].items():
        for position, event in enumerate(words.split()):
            number = int(event[1]) + (name == "number-mismatch" and subscriber == "u2")
            history.deliveries.append(
                Delivery(f"{subscriber} {mark}", position, f"{event} {mark}", f"{event[0]} {mark}", number)
            )
        for topic in sorted({event[0] for event in words.split()}):
            history.subscriptions.append(Subscription(f"{subscriber} {mark}", f"{topic} {mark}", 0, start=0))
