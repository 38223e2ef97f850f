"""The publisher's machine on sequencing atoms, where an ingress takes nothing for a while."""

from seriatim.model import APPLICATION, Event
from seriatim.protocols.atoms.live_messages import Full, Numbered, Room
from seriatim.protocols.atoms.publisher import AtomsPublisher
from seriatim.protocols.link import RESENT_AT_ONCE, Frame
from seriatim.protocols.machine import Effects
from seriatim.protocols.with_broker import Publish

NEVER = 1e9


def publishing(*topics: str) -> AtomsPublisher:
    """One that has sent an event of each topic to its only ingress."""
    publisher = AtomsPublisher(["n"], retry_ms=500.0, alive_ms=NEVER)
    for number, topic in enumerate(topics, start=1):
        publisher.step(APPLICATION, Publish((Event(f"e{number}", topic, "p", b"x"),)), 0.0)
    return publisher


def numbers(effects: Effects) -> list[int]:
    return [
        frame.number
        for target, frame in effects.send
        if target == "n" and isinstance(frame, Frame) and frame.body is not None
    ]


def test_why_it_waits_is_known_until_something_is_taken() -> None:
    """The ingress answers what comes behind the event it keeps out, too: that is no sign of room."""
    publisher = publishing("a", "c")
    publisher.step("n", Full(frozenset({"a"}), "the broker is away"), 1.0)
    publisher.step("n", Frame(1, 0, 0), 2.0)
    assert "the broker is away" in publisher.why_not("a")
    assert any("the broker is away" in line for line in publisher.explain())
    publisher.step("n", Frame(1, 1, 1, Numbered("e1", 1)), 3.0)
    assert publisher.why_not("a") == ""


def test_when_there_is_room_all_that_was_not_taken_follows_at_once() -> None:
    """In portions: what is behind the first one was dropped by the ingress, since it came out of turn."""
    count = 2 * RESENT_AT_ONCE + 10
    publisher = publishing(*(f"t{number}" for number in range(count)))
    publisher.step("n", Full(frozenset({"t0"}), "the broker is away"), 1.0)
    sent = numbers(publisher.step("n", Room(), 2.0))
    while sent[-1] < count:
        half = len(sent) - RESENT_AT_ONCE // 2
        assert numbers(publisher.step("n", Frame(1, 0, sent[half]), 3.0)) == [], "the rest of it is under way"
        sent += numbers(publisher.step("n", Frame(1, 0, sent[-1]), 3.0))
    assert sent == list(range(1, count + 1)), "each once"
    assert numbers(publisher.step("n", Frame(1, 0, count), 4.0)) == []
