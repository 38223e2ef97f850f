"""The broker machine: numbering, write-once slots, replay, and indifference to repeated messages."""

import msgspec
import pytest

from seriatim.model import APPLICATION, Event, RemoteError
from seriatim.protocols.broker import Broker, Trim
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree.messages import Ticket
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    Delivered,
    Grown,
    Kept,
    Listen,
    Listening,
    Stamped,
    Trimmed,
    Unlisten,
    Watch,
    Write,
    Written,
)


def event(name: str, topic: str = "A") -> Event:
    return Event(name, topic, "p")


def say(broker: Broker, source: str, message: Payload) -> list[tuple[str, Payload]]:
    effects = broker.step(source, message, 0.0)
    assert not effects.persist and not effects.notify and effects.wake_at is None
    return effects.send


def test_a_log_numbers_events_and_tells_watchers_and_listeners() -> None:
    broker = Broker()
    assert say(broker, "n1", Watch(frozenset({"A", "B"}))) == [("n1", Grown("A", 0)), ("n1", Grown("B", 0))]
    assert say(broker, "s", Listen("A", 0)) == [("s", Listening("A"))]
    assert say(broker, "p", Append(event("x"))) == [
        ("n1", Grown("A", 1)),
        ("s", Delivered("A", 1, None, event("x"))),
        ("p", Appended("A", "x", 1)),
    ]
    stamped = Stamped("A", 1, 1, {"B": 3})
    assert say(broker, "n1", stamped) == [("s", stamped), ("n1", Kept("A", 1))]
    assert say(broker, "n2", Watch(frozenset({"B", "A"}))) == [("n2", Grown("A", 1)), ("n2", Grown("B", 0))]


def test_a_repeated_append_gets_the_same_answer_and_nobody_else_hears_of_it() -> None:
    broker = Broker()
    say(broker, "s", Listen("A"))
    say(broker, "p", Append(event("x")))
    say(broker, "p", Append(event("y")))
    assert say(broker, "p", Append(event("x"))) == [("p", Appended("A", "x", 1))]


def test_a_repeated_stamp_changes_nothing() -> None:
    broker = Broker()
    for name in "xyz":
        say(broker, "p", Append(event(name)))
    say(broker, "s", Listen("A"))
    assert ("s", Stamped("A", 2, 3, {})) in say(broker, "n1", Stamped("A", 2, 3, {}))
    assert ("s", Stamped("A", 1, 1, {})) in say(broker, "n1", Stamped("A", 1, 1, {})), "stamps come in any order"
    for first, last in ((1, 1), (2, 3)):
        assert say(broker, "n1", Stamped("A", first, last, {"B": 9})) == [("n1", Kept("A", first))]
    for first, last in ((1, 3), (3, 3)):
        with pytest.raises(RemoteError, match="has its stamp"):
            say(broker, "n1", Stamped("A", first, last, {}))
    assert [stamped.first for stamped in broker.state.topics["A"].stamps] == [1, 2]


def test_listening_after_a_number_replays_events_and_stamps_above_it() -> None:
    broker = Broker()
    for name in "xyz":
        say(broker, "p", Append(event(name)))
    say(broker, "n1", Stamped("A", 1, 2, {"B": 1}))
    replay = [
        ("s", Listening("A")),
        ("s", Delivered("A", 2, None, event("y"))),
        ("s", Delivered("A", 3, None, event("z"))),
        ("s", Stamped("A", 1, 2, {"B": 1})),
    ]
    assert say(broker, "s", Listen("A", 1)) == replay
    assert say(broker, "s", Listen("A", 1)) == replay, "the first answer may have been lost"
    assert say(broker, "s", Listen("A", 2)) == [replay[0], replay[2]]
    assert len(say(broker, "p", Append(event("w")))) == 2, "listening twice is listening once"


def test_the_first_writer_of_a_slot_wins() -> None:
    broker = Broker()
    say(broker, "s", Listen("A"))
    assert say(broker, "p", Write("A", 2, {"B": 1}, event("y"))) == [
        ("s", Delivered("A", 2, {"B": 1}, event("y"))),
        ("p", Written("A", 2, "y")),
    ]
    assert say(broker, "n1", Write("A", 2, {"B": 1})) == [("n1", Written("A", 2, "y"))]
    assert say(broker, "n1", Write("A", 1, {})) == [("s", Delivered("A", 1, {}, None)), ("n1", Written("A", 1, None))]
    assert say(broker, "p", Write("A", 1, {}, event("x"))) == [("p", Written("A", 1, None))]
    assert say(broker, "t", Listen("A", 0)) == [
        ("t", Listening("A")),
        ("t", Delivered("A", 1, {}, None)),
        ("t", Delivered("A", 2, {"B": 1}, event("y"))),
    ]


def test_after_unlisten_nothing_more_is_delivered() -> None:
    broker = Broker()
    say(broker, "s", Listen("A"))
    assert say(broker, "s", Unlisten("A")) == []
    assert say(broker, "s", Unlisten("A")) == []
    assert say(broker, "p", Append(event("x"))) == [("p", Appended("A", "x", 1))]


def test_retention_limits_the_replay_and_everybody_concerned_is_told() -> None:
    broker = Broker()
    for name in "xyz":
        say(broker, "p", Append(event(name)))
    say(broker, "n1", Watch(frozenset({"A"})))
    say(broker, "n1", Stamped("A", 1, 2, {}))
    assert say(broker, APPLICATION, Trim("A", 3)) == [("n1", Trimmed("A", 3))]
    assert say(broker, APPLICATION, Trim("A", 2)) == [], "retention never goes back"
    last = [("s", Listening("A")), ("s", Delivered("A", 3, None, event("z")))]
    assert say(broker, "s", Listen("A", 2)) == last
    assert say(broker, "s", Listen("A", 1)) == [last[0], ("s", Trimmed("A", 3)), last[1]]
    assert say(broker, "n2", Watch(frozenset({"A"}))) == [("n2", Trimmed("A", 3)), ("n2", Grown("A", 3))]


def test_what_a_home_calls_kept_and_is_not_there_is_gone() -> None:
    broker = Broker()
    for name in "xy":
        say(broker, "p", Append(event(name)))
    say(broker, "n1", Stamped("A", 1, 1, {}))
    assert ("s", Trimmed("A", 2)) not in say(broker, "s", Listen("A", 0, is_kept=True))
    assert ("s", Trimmed("A", 3)) in say(broker, "s", Listen("A", 1, is_kept=True))
    assert ("s", Trimmed("A", 3)) not in say(broker, "s", Listen("A", 1)), "its stamp may be to come"


def test_plain_publish_subscribe_replays_nothing() -> None:
    broker = Broker(replays=False)
    say(broker, "p", Write("A", 1, {}, event("x")))
    assert say(broker, "s", Listen("A", 0)) == [("s", Listening("A"))]


def test_a_restored_copy_behaves_like_the_original() -> None:
    broker = Broker()
    for name in "zyx":
        say(broker, "p", Append(event(name, topic=name)))
        say(broker, name, Listen("x"))
    say(broker, "p", Write("w", 2, {}, event("two", "w")))
    say(broker, "p", Write("w", 1, {}))
    snapshot = msgspec.msgpack.Encoder(order="deterministic").encode(broker.state)
    copy = Broker()
    copy.state = msgspec.msgpack.decode(snapshot, type=type(broker.state))
    assert copy.state == broker.state
    for source, message in (("n", Watch(frozenset("xyz"))), ("s", Listen("w", 0)), ("p", Append(event("last", "x")))):
        assert say(copy, source, message) == say(broker, source, message)


@pytest.mark.parametrize(
    "message",
    [Ticket(1, "A", 1), Stamped("A", 1, 1, {}), Stamped("A", 0, 0, {}), Write("A", 0, {}), Trim("A", 2)],
)
def test_what_the_protocol_does_not_allow_is_refused(message: Payload) -> None:
    broker = Broker()
    with pytest.raises(RemoteError):
        broker.step("someone", message, 0.0)
    assert all(not topic.stamps and not topic.slots for topic in broker.state.topics.values())
