"""A publisher in log mode is told when its events have their place in the order, and can wait for it."""

from typing import Any

import pytest

from seriatim.model import APPLICATION, BROKER
from seriatim.protocols.tree import Publisher, placing
from seriatim.protocols.tree.messages import Answer, Inquire
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    EventPlaced,
    EventStored,
    Follow,
    StampedTo,
    Unfollow,
    Withdraw,
)
from tests.protocols.tree.net import event, options_for
from tests.protocols.tree.test_publisher import TREE, Asked
from tests.snapshot import copy_of, snapshot


def confirming(**options: Any) -> Asked:
    return Asked("log", confirm="placed", retry_ms=10.0, **options)


def test_an_event_has_its_place_when_its_stamp_is_out() -> None:
    p = confirming()
    assert p.publish("x") == [Follow("A"), Inquire("A", 1, is_mine=True), Append(event("x"))]
    assert p.say(BROKER, Appended("A", "x", 4)) == []
    assert p.effects.notify == [EventStored(event("x"), 4, {})]
    p.say(BROKER, StampedTo("A", 3))
    assert p.effects.notify == []
    p.say(BROKER, StampedTo("A", 6))
    assert p.effects.notify == [EventPlaced("A", 4)]
    assert p.effects.wake_at is None, "nothing is to be repeated"
    assert p.publish("y") == [Append(event("y"))], "it follows the topic already"


def test_the_next_event_of_a_topic_does_not_wait_for_the_place_of_the_one_before() -> None:
    p = confirming()
    p.publish("x", "y", "z")
    assert p.say(BROKER, Appended("A", "x", 1)) == [Append(event("y"))]
    assert p.say(BROKER, Appended("A", "y", 2)) == [Append(event("z"))]
    p.say(BROKER, StampedTo("A", 2))
    assert p.effects.notify == [EventPlaced("A", 1), EventPlaced("A", 2)]


def test_a_stamp_may_be_out_before_the_broker_has_said_that_the_event_is_stored() -> None:
    p = confirming()
    p.publish("x")
    p.say(BROKER, StampedTo("A", 1))
    p.say(BROKER, Appended("A", "x", 1))
    assert p.effects.notify == [EventStored(event("x"), 1, {}), EventPlaced("A", 1)]


def test_a_place_that_does_not_come_is_asked_for_again_at_broker_and_home() -> None:
    p = confirming()
    p.publish("x")
    p.say(BROKER, Appended("A", "x", 1))
    assert p.tick(20.0).send == [(BROKER, Follow("A")), ("root", Inquire("A", 1, is_mine=True))]
    assert p.machine.explain() == [
        "A 1: stored, waits for its place in the order; node root has not answered",
    ]
    p.say("root", Answer("A", 1, "coming", {}, 1))
    assert "its stamp is on its way" in p.machine.why_unplaced("A")
    assert p.tick(40.0).wake_at == 50.0
    p.say(BROKER, StampedTo("A", 1))
    assert p.effects.wake_at is None and p.machine.why_unplaced("A") == "" and p.machine.explain() == []


def test_an_answer_of_the_home_confirms_nothing() -> None:
    """It may know the number from another log of the same name."""
    p = confirming()
    p.publish("x")
    p.say(BROKER, Appended("A", "x", 1))
    p.say("root", Answer("A", 1, "published", {}, 1))
    assert p.effects.notify == [] and p.machine.why_unplaced("A")


def test_what_was_stamped_before_an_event_was_sent_does_not_place_it() -> None:
    """The log was deleted and made anew, or the event is a repeat: only the broker can tell, so it is asked."""
    p = confirming()
    p.publish("x")
    p.say(BROKER, Appended("A", "x", 100))
    p.say(BROKER, StampedTo("A", 100))
    p.publish("y")
    assert p.say(BROKER, Appended("A", "y", 1)) == [Follow("A")]
    assert p.effects.notify == [EventStored(event("y"), 1, {})]
    p.say(BROKER, StampedTo("A", 0))
    assert p.effects.notify == []
    p.say(BROKER, StampedTo("A", 1))
    assert p.effects.notify == [EventPlaced("A", 1)]


def test_where_places_cannot_be_known_nobody_waits_for_them() -> None:
    p = confirming()
    p.publish("x")
    p.say(BROKER, Appended("A", "x", 1))
    assert p.say(APPLICATION, Unfollow("A")) == [Unfollow("A")]
    assert p.effects.wake_at is None and p.machine.explain() == []
    assert p.publish("y")[0] == Follow("A"), "the next event tries again"


def test_stored_is_enough_unless_somebody_asks_for_more() -> None:
    p = Asked("log")
    assert p.publish("x") == [Append(event("x"))]
    p.say(BROKER, Appended("A", "x", 1))
    assert p.effects.wake_at is None
    ticket = Asked("ticket", confirm="placed", own_order=True)
    assert not any(isinstance(sent, Follow) for sent in ticket.publish("x")), "a granted number is a place"


def test_own_order_an_event_of_another_topic_waits_for_the_places_of_all_before_it() -> None:
    p = confirming(own_order=True)
    p.publish("x", "y")
    p.publish("b", topic="B")
    p.publish("z")
    assert p.say(BROKER, Appended("A", "x", 1)) == [Append(event("y"))], "the same topic need not wait"
    assert p.say(BROKER, Appended("A", "y", 2)) == []
    assert "B: waits until A before it has its place in the order" in p.machine.explain()
    assert p.say(BROKER, StampedTo("A", 1)) == []
    assert p.say(BROKER, StampedTo("A", 2)) == [Follow("B"), Inquire("B", 1, is_mine=True), Append(event("b", "B"))]
    p.say(BROKER, Appended("B", "b", 1))
    assert p.say(BROKER, StampedTo("B", 1)) == [Append(event("z"))]


def test_own_order_goes_on_when_the_next_event_is_withdrawn_or_places_cannot_be_known() -> None:
    p = confirming(own_order=True)
    p.publish("x")
    p.publish("b", topic="B")
    p.publish("c", topic="B")
    p.say(BROKER, Appended("A", "x", 1))
    assert p.say(APPLICATION, Withdraw("B", "b")) == []
    assert p.say(APPLICATION, Unfollow("A")) == [
        Unfollow("A"),
        Follow("B"),
        Inquire("B", 1, is_mine=True),
        Append(event("c", "B")),
    ]


def test_a_copy_made_of_its_state_goes_on_in_the_same_way() -> None:
    p = confirming(own_order=True)
    p.publish("x")
    p.publish("b", topic="B")
    p.say(BROKER, Appended("A", "x", 1))
    copy = Publisher(
        TREE, "p", options_for("log", confirm="placed", retry_ms=10.0, own_order=True), copy_of(p.machine.state)
    )
    assert copy.tick(20.0) == p.tick(20.0)
    assert copy.step(BROKER, StampedTo("A", 1), 21.0) == p.machine.step(BROKER, StampedTo("A", 1), 21.0)
    assert snapshot(copy.state) == snapshot(p.machine.state)


def test_it_follows_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "FOLLOWED_MAX", 1)
    p = confirming()
    p.publish("x")
    p.say(BROKER, Appended("A", "x", 1))
    assert p.publish("y", topic="B") == [Follow("B"), Inquire("B", 1, is_mine=True), Append(event("y", "B"))], (
        "A waits for a place"
    )
    p.say(BROKER, Appended("B", "y", 1))
    p.say(APPLICATION, Unfollow("B"))
    p.say(BROKER, StampedTo("A", 1))
    assert p.effects.notify == [EventPlaced("A", 1)]
    in_b = [Follow("B"), Inquire("B", 1, is_mine=True)]
    assert p.publish("z", topic="B") == [Unfollow("A"), *in_b, Append(event("z", "B"))], "A waits for nothing"
    assert p.publish("w") == [Unfollow("B"), Follow("A"), Inquire("A", 1, is_mine=True), Append(event("w"))]
    assert p.say(BROKER, Appended("B", "z", 2)) == [Unfollow("A"), *in_b], "it was under way, and is followed again"
    p.say(BROKER, StampedTo("B", 2))
    assert p.effects.notify == [EventPlaced("B", 2)]
