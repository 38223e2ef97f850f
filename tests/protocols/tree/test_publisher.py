"""The publisher: one request of a topic at a time, in the order of the commands, repeated until it is answered."""

from typing import Any

import pytest

from seriatim.model import APPLICATION, BROKER, Entries, InputError, UnknownTopic
from seriatim.order import SequencingTree
from seriatim.protocols.machine import Effects, Payload
from seriatim.protocols.tree import Publisher
from seriatim.protocols.tree.messages import Granted, Refused, Settled, Ticket
from seriatim.protocols.with_broker import (
    Append,
    Appended,
    EventStored,
    Publish,
    StampedTo,
    Withdraw,
    Write,
    Written,
)
from tests.protocols.tree.net import event, messages, options_for, publish, single
from tests.snapshot import copy_of, snapshot

TREE = SequencingTree({"root": None}, {"A": "root", "B": "root"})


class Asked:
    """One publisher, and what it sent last."""

    def __init__(self, mode: str = "ticket", **options: Any) -> None:
        self.machine = Publisher(TREE, "p", options_for(mode, **options))

    def publish(self, *ids: str, topic: str = "A", now: float = 0.0) -> list[Payload]:
        return self.say(APPLICATION, publish(*ids, topic=topic), now)

    def say(self, source: str, message: Payload, now: float = 0.0) -> list[Payload]:
        self.effects = self.machine.step(source, message, now)
        return [sent for _, sent in self.effects.send]

    def tick(self, now: float) -> Effects:
        return self.machine.tick(now)


# ── ticket mode ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_ask_write_settle() -> None:
    p = Asked()
    assert p.publish("x") == [Ticket(1, "A", 1)]
    assert p.say("root", Granted(1, "A", 7, 7, {"B": 2})) == [Write("A", 7, {"B": 2}, event("x"))]
    assert p.say(BROKER, Written("A", 7, "x")) == [Settled("A", 7)]
    assert p.effects.notify == [EventStored(event("x"), 7, {"B": 2})]
    assert p.effects.wake_at is None


def test_a_settled_range_goes_with_the_next_ticket_and_with_its_repeats() -> None:
    p = Asked(retry_ms=10.0)
    p.publish("x")
    p.say("root", Granted(1, "A", 1, 1, {}))
    assert p.publish("y") == [Ticket(2, "A", 1)]
    p.publish("z")
    p.say("root", Granted(2, "A", 2, 2, {}))
    assert p.say(BROKER, Written("A", 1, "x"), 1.0) == [Write("A", 2, {}, event("y")), Ticket(3, "A", 1, settled=1)]
    assert messages(p.tick(20.0), Ticket) == [Ticket(3, "A", 1, settled=1)]
    assert p.say(BROKER, Written("A", 2, "y")) == [Settled("A", 2)], "a ticket is under way already: told apart"
    assert messages(p.tick(40.0), Ticket) == [Ticket(3, "A", 1, settled=1)]


def test_commands_that_wait_for_a_request_go_one_after_the_other() -> None:
    """The machine gathers nothing: events share a request only if one command brought them."""
    p = Asked()
    p.publish("x")
    assert p.publish("y", "z") == [] and p.publish("w") == []
    assert p.publish("a", topic="B") == [Ticket(1, "B", 1)], "another topic need not wait"
    assert p.say("root", Granted(1, "A", 1, 1, {})) == [Write("A", 1, {}, event("x")), Ticket(2, "A", 2)]
    p.say("root", Granted(2, "A", 2, 3, {}))
    assert p.say(BROKER, Written("A", 1, "x"))[-1] == Ticket(3, "A", 1, settled=1)


def test_the_events_of_one_command_share_a_request_by_topic() -> None:
    p = Asked()
    command = Publish((event("x"), event("a", "B"), event("y")))
    assert p.say(APPLICATION, command) == [Ticket(1, "A", 2), Ticket(1, "B", 1)]


def entries(sent: list[Payload]) -> list[Entries]:
    return [write.entries for write in sent if isinstance(write, Write)]


def test_the_first_of_a_range_carries_the_entries_the_others_need_none() -> None:
    p = Asked()
    p.publish("x", "y")
    assert entries(p.say("root", Granted(1, "A", 1, 2, {"B": 1}))) == [{"B": 1}, {}]
    full = Asked(full_stamps=True)
    full.publish("x", "y")
    assert entries(full.say("root", Granted(1, "A", 1, 2, {"B": 1}))) == [{"B": 1}, {"B": 1}]


def test_a_range_is_settled_when_its_last_slot_is_filled() -> None:
    p = Asked()
    p.publish("x", "y")
    p.say("root", Granted(1, "A", 1, 2, {}))
    assert p.say(BROKER, Written("A", 2, "y")) == []
    assert p.say(BROKER, Written("A", 1, "x")) == [Settled("A", 1)]


def test_no_request_is_larger_than_a_ticket_may_be() -> None:
    p = Asked(ticket_count_max=2)
    assert p.publish("x", "y", "z") == [Ticket(1, "A", 2)]
    assert p.say("root", Granted(1, "A", 1, 2, {}))[-1] == Ticket(2, "A", 1)


def test_unanswered_requests_are_repeated_as_they_were() -> None:
    p = Asked()
    p.publish("x")
    assert p.effects.wake_at == 10.0
    assert p.tick(9.0).send == []
    assert p.tick(10.0).send == [("root", Ticket(1, "A", 1))]
    p.publish("y", now=11.0)
    assert p.tick(20.0).send == [("root", Ticket(1, "A", 1))], "not a larger one"
    p.say("root", Granted(1, "A", 1, 1, {}), 21.0)
    assert p.tick(30.0).send == [("root", Ticket(2, "A", 1)), (BROKER, Write("A", 1, {}, event("x")))]


def test_a_repeated_answer_changes_nothing() -> None:
    p = Asked()
    p.publish("x")
    granted = Granted(1, "A", 1, 1, {})
    p.say("root", granted)
    before = snapshot(p.machine.state.lanes)
    assert p.say("root", granted) == []
    assert snapshot(p.machine.state.lanes) == before
    p.say(BROKER, Written("A", 1, "x"))
    for repeat in (granted, Written("A", 1, "x")):
        assert p.say("root" if repeat is granted else BROKER, repeat) == []
        assert p.effects.notify == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("q", Granted(1, "A", 1, 1, {})),
        ("root", Granted(2, "A", 1, 1, {})),
        ("root", Granted(1, "B", 1, 1, {})),
        ("root", Granted(1, "Z", 1, 1, {})),
        ("root", Written("A", 1, "x")),
        (BROKER, Appended("A", "x", 1)),
        ("root", Publish((event("y"),))),
    ],
)
def test_what_was_not_asked_for_is_ignored(source: str, message: Payload) -> None:
    p = Asked()
    p.publish("x")
    if isinstance(message, Appended):
        p = Asked("log")
        p.publish("other")
    before = snapshot(p.machine.state.lanes)
    assert p.say(source, message) == []
    assert snapshot(p.machine.state.lanes) == before


def test_an_answer_of_an_earlier_epoch_is_refused() -> None:
    p = Asked()
    p.publish("x")
    p.say("root", Granted(1, "A", 1, 1, {}, epoch=2))
    p.publish("y")
    p.say(BROKER, Written("A", 1, "x"))
    assert p.say("root", Granted(2, "A", 1, 1, {}, epoch=1)) == []
    assert p.say("root", Granted(2, "A", 2, 2, {}, epoch=2)) == [Write("A", 2, {}, event("y"))]


def test_a_batch_is_written_when_the_one_before_is_on_the_broker_and_what_that_one_lost_goes_first() -> None:
    p = Asked()
    p.publish("x", "y")
    p.say("root", Granted(1, "A", 1, 2, {}))
    p.publish("z")
    assert p.say("root", Granted(2, "A", 3, 3, {})) == []
    assert p.say(BROKER, Written("A", 1, "x")) == []
    assert p.say(BROKER, Written("A", 2, None)) == [Write("A", 3, {}, event("y")), Ticket(3, "A", 1, settled=1)]


def test_an_event_that_lost_its_slot_asks_for_a_new_number() -> None:
    p = Asked()
    p.publish("x")
    p.say("root", Granted(1, "A", 1, 1, {}))
    assert p.say(BROKER, Written("A", 1, None)) == [Ticket(2, "A", 1, settled=1)]
    assert p.effects.notify == []
    assert p.machine.state.lost_slots == 1


@pytest.mark.parametrize("arrivals", [(1, 2, 3), (3, 2, 1)])
def test_events_that_lost_their_slots_keep_their_order_and_go_first(arrivals: tuple[int, ...]) -> None:
    p = Asked()
    p.publish("x", "y", "z")
    p.say("root", Granted(1, "A", 1, 3, {}))
    p.publish("later")
    for number in arrivals:
        p.say(BROKER, Written("A", number, None))
    # Request 2 is under way, for `later`: for a count, not for certain events.
    assert p.machine.state.lanes["A"].asked == 1
    sent = p.say("root", Granted(2, "A", 4, 4, {}))
    written = [message.event.id for message in sent if isinstance(message, Write) and message.event is not None]
    waiting = [each.id for each in p.machine.state.lanes["A"].events]
    assert written + waiting == ["x", "y", "z", "later"]
    assert sent[-1] == Ticket(3, "A", 3)


def test_a_refusal_is_told_and_the_request_is_repeated() -> None:
    p = Asked()
    p.publish("x")
    refused = Refused(1, "A", "9 tickets are unsettled")
    p.say("root", refused)
    assert p.effects.notify == [refused]
    assert p.tick(10.0).send == [("root", Ticket(1, "A", 1))]


def test_own_order_has_one_event_under_way_over_all_topics() -> None:
    p = Asked(own_order=True)
    assert p.say(APPLICATION, Publish((event("x"), event("y"), event("a", "B")))) == [Ticket(1, "A", 1)]
    p.say("root", Granted(1, "A", 1, 1, {}))
    assert p.say(BROKER, Written("A", 1, "x")) == [Ticket(2, "A", 1, settled=1)]
    p.say("root", Granted(2, "A", 2, 2, {}))
    assert p.say(BROKER, Written("A", 2, "y")) == [Settled("A", 2), Ticket(3, "B", 1)]


def test_with_own_order_an_event_that_lost_its_slot_goes_again_before_any_other() -> None:
    p = Asked(own_order=True)
    p.say(APPLICATION, Publish((event("x"), event("a", "B"))))
    p.say("root", Granted(1, "A", 1, 1, {}))
    assert p.say(BROKER, Written("A", 1, None)) == [Ticket(2, "A", 1, settled=1)]
    p.say("root", Granted(2, "A", 2, 2, {}))
    assert p.say(BROKER, Written("A", 2, "x")) == [Settled("A", 2), Ticket(3, "B", 1)]


def test_a_publisher_restored_from_its_state_goes_on() -> None:
    p = Asked()
    p.publish("x")
    copy = Publisher(TREE, "p", p.machine.options, copy_of(p.machine.state))
    assert messages(copy.tick(10.0), Ticket) == [Ticket(1, "A", 1)]
    assert messages(copy.step("root", Granted(1, "A", 1, 1, {}), 11.0), Write) == [Write("A", 1, {}, event("x"))]


def test_lost_requests_and_answers_cost_time_and_nothing_else() -> None:
    for kind in (Ticket, Granted, Write, Written, Settled):
        net = single()
        net.change("s", "A")
        net.hold_back(kind)
        net.publish("p", "A", "x", "y")
        net.lose()
        net.wait(300.0)
        assert net.published("p") == [("x", 1), ("y", 2)], kind
        assert net.notified("s") == ["x", "y"], kind
        assert net.node().explain() == net.publisher("p").explain() == [], kind


def test_who_was_cut_off_for_longer_than_its_lease_publishes_in_the_end() -> None:
    net = single()
    net.change("s", "A")
    net.hold_back(Granted)
    net.publish("p", "A", "x")
    net.wait(150.0)
    net.lose()
    net.wait(500.0)
    assert net.notified("s") == ["x"]
    assert net.published("p") == [("x", 2)]


# ── log mode ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_log_mode_appends_one_event_at_a_time_and_repeats_it() -> None:
    p = Asked("log")
    assert p.publish("x", "y") == [Append(event("x"))]
    assert p.tick(10.0).send == [(BROKER, Append(event("x")))]
    assert p.say(BROKER, Appended("A", "x", 4), 11.0) == [Append(event("y"))]
    assert p.effects.notify == [EventStored(event("x"), 4, {})]
    assert p.say(BROKER, Appended("A", "x", 4), 12.0) == [], "the answer to the repeat"
    assert p.say(BROKER, Appended("A", "y", 5), 13.0) == []
    assert p.effects.wake_at is None


# ── explain, bad input ────────────────────────────────────────────────────────────────────────────────────────────


def test_explain_says_who_has_to_answer() -> None:
    p = Asked()
    p.publish("x")
    p.publish("y", "z")
    assert p.machine.explain() == [
        "1 events of A: request 1 waits for root",
        "2 events of A: wait for the request under way",
    ]
    p.say("root", Granted(1, "A", 3, 3, {}))
    assert "A 3: waits for the broker to take it" in p.machine.explain()


@pytest.mark.parametrize(
    ("events", "error", "names"),
    [
        ((event("x"), event("y", "Z")), UnknownTopic, "topic 'Z'"),
        ((event("x"), event("y", publisher="q")), InputError, "event.publisher"),
        ((event("x"), event("x")), InputError, "'x' is used twice"),
        ((event("x"), event("before")), InputError, "'before' is used twice"),
    ],
)
def test_bad_input_is_refused_before_anything_changes(events: Any, error: type[InputError], names: str) -> None:
    p = Asked()
    p.publish("before")
    before = snapshot(p.machine.state)
    with pytest.raises(error, match=names):
        p.machine.step(APPLICATION, Publish(events), 0.0)
    assert snapshot(p.machine.state) == before


# ── giving up ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_event_that_is_withdrawn_is_not_appended_again() -> None:
    p = Asked("log")
    assert p.publish("x", "y") == [Append(event("x"))]
    assert p.say(APPLICATION, Withdraw("A", "x")) == [Append(event("y"))]
    assert p.say(BROKER, Appended("A", "x", 1)) == [], "it was on its way; nobody waits for it"
    assert p.effects.notify == []
    p.publish("z")
    assert p.say(APPLICATION, Withdraw("A", "z")) == []
    p.say(BROKER, Appended("A", "y", 2))
    assert p.effects.notify == [EventStored(event("y"), 2, {})]
    assert p.machine.explain() == []
    assert p.publish("x") == [Append(event("x"))], "its id is free again"


def test_a_range_with_a_withdrawn_event_is_never_settled() -> None:
    """Its home voids the empty slot after the lease: what is settled is believed."""
    p = Asked()
    p.publish("x", "y")
    p.say("root", Granted(1, "A", 1, 2, {}))
    assert p.say(APPLICATION, Withdraw("A", "x")) == []
    assert p.say(BROKER, Written("A", 2, "y")) == []
    assert p.effects.notify == [EventStored(event("y"), 2, {})]
    assert p.effects.wake_at is None, "nothing is repeated"
    assert p.say(BROKER, Written("A", 1, "x")) == []


def test_numbers_that_were_asked_for_a_withdrawn_event_stay_empty() -> None:
    p = Asked()
    p.publish("x", "y", "z")
    assert p.say(APPLICATION, Withdraw("A", "y")) == []
    writes = p.say("root", Granted(1, "A", 1, 3, {"B": 1}))
    assert writes == [Write("A", 1, {"B": 1}, event("x")), Write("A", 2, {}, event("z"))]
    assert p.say(BROKER, Written("A", 1, "x")) == []
    assert p.say(BROKER, Written("A", 2, "z")) == []


def test_a_grant_for_nothing_is_left_to_its_home() -> None:
    p = Asked()
    p.publish("x")
    p.say(APPLICATION, Withdraw("A", "x"))
    assert p.say("root", Granted(1, "A", 1, 1, {})) == []
    assert p.effects.wake_at is None
    assert p.publish("y") == [Ticket(2, "A", 1)]


def test_what_is_published_after_a_withdrawn_event_waits_for_its_grant() -> None:
    p = Asked()
    p.publish("x")
    p.say(APPLICATION, Withdraw("A", "x"))
    assert p.publish("y") == []
    assert p.tick(10.0).send == [("root", Ticket(1, "A", 1))]
    assert p.say("root", Granted(1, "A", 1, 1, {})) == [Ticket(2, "A", 1)], "number 1 is never settled"


def test_an_event_of_a_command_that_waits_can_be_withdrawn() -> None:
    p = Asked()
    p.publish("x")
    p.publish("y", "z")
    p.publish("w")
    for id in ("y", "w"):
        assert p.say(APPLICATION, Withdraw("A", id)) == []
    assert p.say("root", Granted(1, "A", 1, 1, {})) == [Write("A", 1, {}, event("x")), Ticket(2, "A", 1)]
    p.say(BROKER, Written("A", 1, "x"))
    assert p.say("root", Granted(2, "A", 2, 2, {})) == [Write("A", 2, {}, event("z"))]
    assert p.say(BROKER, Written("A", 2, "z")) == [Settled("A", 2)]


def test_an_event_that_lost_its_slot_can_be_withdrawn() -> None:
    p = Asked()
    p.publish("x", "y")
    p.say("root", Granted(1, "A", 1, 2, {}))
    p.say(BROKER, Written("A", 2, None))
    p.say(APPLICATION, Withdraw("A", "y"))
    assert p.say(BROKER, Written("A", 1, "x")) == []
    assert p.effects.wake_at is None


def test_withdrawing_keeps_the_line_of_a_publisher_with_own_order() -> None:
    p = Asked("log", own_order=True)
    p.publish("a")
    p.publish("b")
    p.publish("c", topic="B")
    p.publish("d")
    assert p.say(APPLICATION, Withdraw("A", "d")) == []
    assert p.say(BROKER, Appended("A", "a", 1)) == [Append(event("b"))]
    assert p.say(BROKER, Appended("A", "b", 2)) == []
    assert p.say(BROKER, StampedTo("A", 2))[-1] == Append(event("c", "B"))
    assert p.say(BROKER, Appended("B", "c", 1)) == []


def test_withdrawing_what_is_not_there_changes_nothing() -> None:
    p = Asked()
    assert p.say(APPLICATION, Withdraw("A", "x")) == []
    p.publish("x")
    p.publish("z", topic="B")
    before = snapshot(p.machine.state)
    assert p.say("root", Withdraw("A", "x")) == [], "only the application may"
    assert p.say(APPLICATION, Withdraw("A", "y")) == []
    assert p.say(APPLICATION, Withdraw("B", "x")) == []
    assert snapshot(p.machine.state) == before
