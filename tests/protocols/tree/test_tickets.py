"""Ticket mode at one home: numbers are given once, and every one of them becomes an event or a void."""

from random import Random
from typing import Any

import pytest

from seriatim.model import BROKER, Address, Number, Topic
from seriatim.order import SequencingTree
from seriatim.protocols.tree import Sequencer, SequencerNode
from seriatim.protocols.tree.messages import Answer, Granted, Inquire, Pass, Refused, Settled, Ticket, Update
from seriatim.protocols.with_broker import Write, Written
from tests.protocols.tree.net import messages, options_for, single
from tests.snapshot import snapshot

AB = frozenset({"A", "B"})


def home(**options: Any) -> Sequencer:
    """The only node, with A and B coupled: r and s hold both."""
    sequencer = Sequencer(SequencingTree({"root": None}, {"A": "root", "B": "root"}), "root", options_for(**options))
    for subscriber in ("r", "s"):
        sequencer.step(subscriber, Update(1, AB), 0.0)
    sequencer.tick(0.0)
    return sequencer


def ask(
    sequencer: Sequencer | SequencerNode,
    request: int,
    topic: Topic = "A",
    count: int = 1,
    publisher: Address = "p",
    now: float = 0.0,
) -> list[Granted | Refused]:
    effects = sequencer.step(publisher, Ticket(request, topic, count), now)
    assert all(target == publisher for target, _ in effects.send)
    return [message for _, message in effects.send if isinstance(message, Granted | Refused)]


def inquire(sequencer: Sequencer, number: Number) -> Answer:
    (answer,) = messages(sequencer.step("s", Inquire("A", number), 0.0), Answer)
    return answer


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_ticket_is_answered_with_a_consecutive_range_that_shares_its_entries() -> None:
    sequencer = home()
    assert ask(sequencer, 1, "A", count=3) == [Granted(1, "A", 1, 3, {}, epoch=1)]
    assert ask(sequencer, 1, "B", count=2) == [Granted(1, "B", 1, 2, {"A": 3}, epoch=1)]
    assert ask(sequencer, 2, "A") == [Granted(2, "A", 4, 4, {"B": 2}, epoch=1)]


def test_an_entry_is_given_again_only_if_it_rose() -> None:
    sequencer = home()
    ask(sequencer, 1, "A")
    assert [ask(sequencer, request, "B")[0] for request in (1, 2)] == [
        Granted(1, "B", 1, 1, {"A": 1}, epoch=1),
        Granted(2, "B", 2, 2, {}, epoch=1),
    ]


def test_full_stamps_give_every_entry_every_time() -> None:
    sequencer = home(full_stamps=True)
    ask(sequencer, 1, "A")
    assert [ask(sequencer, request, "B")[0] for request in (1, 2)] == [
        Granted(1, "B", 1, 1, {"A": 1}, epoch=1),
        Granted(2, "B", 2, 2, {"A": 1}, epoch=1),
    ]


def test_a_topic_without_a_group_gets_a_bare_counter() -> None:
    sequencer = Sequencer(SequencingTree.single(), "root", options_for())
    for request in (1, 2, 3):
        assert ask(sequencer, request) == [Granted(request, "A", request, request, {}, epoch=1)]


def test_a_repeat_gets_the_same_answer_and_takes_no_number() -> None:
    sequencer = home()
    ask(sequencer, 1, "B")
    first = ask(sequencer, 1, "A", count=2)
    ask(sequencer, 1, "A", publisher="q")
    assert ask(sequencer, 1, "A", count=2) == first
    assert ask(sequencer, 2, "A") == [Granted(2, "A", 4, 4, {}, epoch=1)]


def test_an_older_request_gets_no_answer() -> None:
    sequencer = home()
    ask(sequencer, 1)
    ask(sequencer, 2)
    assert ask(sequencer, 1) == []


def test_requests_are_counted_per_publisher_and_topic() -> None:
    sequencer = home()
    answers = [ask(sequencer, 1, topic, publisher=publisher)[0] for topic in "AB" for publisher in "pq"]
    assert [(each.topic, each.first) for each in answers if isinstance(each, Granted)] == [
        ("A", 1),
        ("A", 2),
        ("B", 1),
        ("B", 2),
    ]


def test_a_repeat_gets_the_same_answer_from_whoever_took_over() -> None:
    net = single()
    net.change("r", "AB")
    net.change("s", "AB")
    net.step("q", "root", Ticket(1, "B", 1))
    net.step("p", "root", Ticket(1, "A", 3))
    node = net.take_over("root")
    assert ask(node, 1, "A", count=3) == [Granted(1, "A", 1, 3, {"B": 1}, epoch=2)]
    assert ask(node, 2, "A") == [Granted(2, "A", 4, 4, {}, epoch=2)]


def test_a_repeat_while_the_stamp_is_on_its_way_waits_for_it() -> None:
    sequencer = Sequencer(SequencingTree.chain({"A": 2, "B": 1}, length=2), "n2", options_for())
    for subscriber in ("r", "s"):
        sequencer.step(subscriber, Update(1, AB), 0.0)
    assert len(messages(sequencer.step("p", Ticket(1, "A", 1), 0.0), Pass)) == 1
    assert sequencer.step("p", Ticket(1, "A", 1), 0.0).send == []


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ticket", "reason"),
    [
        (Ticket(1, "A", 0), "count 0 is not between 1 and 8"),
        (Ticket(1, "A", 9), "count 9 is not between 1 and 8"),
        (Ticket(1, "Z", 1), "no node is home to it"),
        (Ticket(1, "X", 1), "its home is other, not root"),
    ],
)
def test_a_refusal_says_why_and_changes_nothing(ticket: Ticket, reason: str) -> None:
    tree = SequencingTree({"root": None, "other": "root"}, {"A": "root", "X": "other"})
    sequencer = Sequencer(tree, "root", options_for(ticket_count_max=8))
    before = snapshot(sequencer.state)
    (refused,) = messages(sequencer.step("p", ticket, 0.0), Refused)
    assert (refused.request, refused.topic) == (ticket.request, ticket.topic)
    assert reason in refused.reason
    assert snapshot(sequencer.state) == before


def test_open_tickets_are_capped_per_publisher_and_settling_makes_room() -> None:
    sequencer = home(open_tickets_max=2)
    ask(sequencer, 1, "A")
    ask(sequencer, 1, "B")
    before = snapshot(sequencer.state)
    (refused,) = ask(sequencer, 2, "A")
    assert isinstance(refused, Refused)
    assert refused.reason == "2 tickets are unsettled"
    assert snapshot(sequencer.state) == before
    assert isinstance(ask(sequencer, 1, "A")[0], Granted), "a repeat is not a new ticket"
    assert isinstance(ask(sequencer, 1, "A", publisher="q")[0], Granted), "others are not concerned"
    sequencer.step("p", Settled("B", 1), 0.0)
    assert isinstance(ask(sequencer, 2, "A")[0], Granted)


# ── settling ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_settled_range_is_left_alone() -> None:
    sequencer = home()
    ask(sequencer, 1, count=2)
    assert inquire(sequencer, 2).state == "coming"
    assert sequencer.step("q", Settled("A", 1), 0.0).wake_at == 100.0, "only its publisher may settle it"
    assert sequencer.step("p", Settled("A", 1), 0.0).wake_at is None
    assert sequencer.tick(100.0).send == []
    assert inquire(sequencer, 2).state == "published"


def test_a_ticket_may_settle_the_range_before_it() -> None:
    sequencer = home(open_tickets_max=1)
    ask(sequencer, 1, count=2)
    (other,) = messages(sequencer.step("q", Ticket(1, "A", 1, settled=1), 0.0), Granted)
    assert inquire(sequencer, 2).state == "coming", "only its publisher may settle it"
    ticket = Ticket(2, "A", 1, settled=1)
    (granted,) = messages(sequencer.step("p", ticket, 0.0), Granted)
    assert (other.first, granted.first) == (3, 4), "what is settled counts as open no more"
    assert inquire(sequencer, 2).state == "published"
    assert messages(sequencer.step("p", ticket, 0.0), Granted) == [granted], "a repeat is a repeat"
    assert messages(sequencer.step("p", Ticket(3, "A", 0, settled=4), 0.0), Refused)
    assert inquire(sequencer, 4).state == "published", "what was settled is settled, also if the rest is refused"


def test_a_number_past_its_lease_is_voided_with_the_entries_of_its_event() -> None:
    sequencer = home()
    ask(sequencer, 1, "B")
    sequencer.step("p", Settled("B", 1), 0.0)
    ask(sequencer, 1, "A", count=2)
    assert messages(sequencer.tick(99.0), Write) == []
    assert sequencer.tick(100.0).send == [
        (BROKER, Write("A", 2, {}, None)),
        (BROKER, Write("A", 1, {"B": 1}, None)),
    ], "from the last one down"


def test_with_full_stamps_every_void_of_a_range_carries_them() -> None:
    sequencer = home(full_stamps=True)
    ask(sequencer, 1, "B")
    sequencer.step("p", Settled("B", 1), 0.0)
    ask(sequencer, 1, "A", count=2)
    assert [write.entries for write in messages(sequencer.tick(100.0), Write)] == [{"B": 1}, {"B": 1}]


def test_voids_are_repeated_until_the_broker_says_what_each_slot_holds() -> None:
    sequencer = home()
    ask(sequencer, 1, count=3)
    sequencer.tick(100.0)
    sequencer.step(BROKER, Written("A", 2, None), 101.0)
    assert [write.number for write in messages(sequencer.tick(110.0), Write)] == [3, 1]
    sequencer.step(BROKER, Written("A", 1, "x"), 111.0)
    assert sequencer.step(BROKER, Written("A", 3, None), 111.0).wake_at is None
    assert sequencer.tick(120.0).send == []


def test_when_the_event_was_first_the_number_is_published() -> None:
    sequencer = home()
    ask(sequencer, 1)
    sequencer.tick(100.0)
    sequencer.step(BROKER, Written("A", 1, "x"), 101.0)
    assert inquire(sequencer, 1) == Answer("A", 1, "published", {}, epoch=1)


def test_when_the_void_was_first_the_number_is_void_and_its_entries_are_remembered() -> None:
    sequencer = home()
    ask(sequencer, 1, "B")
    ask(sequencer, 1, "A")
    sequencer.tick(100.0)
    sequencer.step(BROKER, Written("A", 1, None), 101.0)
    assert inquire(sequencer, 1) == Answer("A", 1, "void", {"B": 1}, epoch=1)


def test_a_void_that_comes_too_late_changes_nothing() -> None:
    net = single()
    for subscriber in ("r", "s"):
        net.change(subscriber, "AB")
    net.hold_back(Settled)
    net.publish("p", "A", "x")
    net.lose()
    net.wait(200.0)
    assert len(net.all_sent(Write)) == 2, "the event, and a void for the same slot"
    assert net.published("p") == [("x", 1)]
    assert net.notified("r") == net.notified("s") == ["x"]
    assert net.node().explain() == []


def test_an_event_that_comes_too_late_is_published_under_a_new_number() -> None:
    net = single()
    for subscriber in ("r", "s"):
        net.change(subscriber, "AB")
    net.holds_back = lambda source, target, message: source == "p" and isinstance(message, Write)
    net.publish("p", "A", "x")
    net.wait(100.0)
    net.release()
    assert net.published("p") == [("x", 2)]
    assert net.notified("r") == net.notified("s") == ["x"]
    assert net.node().explain() == []


def test_a_publisher_that_missed_its_answer_and_its_lease_gets_new_numbers() -> None:
    sequencer = home()
    ask(sequencer, 1)
    sequencer.tick(100.0)
    sequencer.step(BROKER, Written("A", 1, None), 101.0)
    assert ask(sequencer, 1, now=200.0) == [], "a repeat that was long on its way"
    assert ask(sequencer, 1, now=201.0) == [Granted(1, "A", 2, 2, {}, epoch=1)]


def test_a_desk_is_forgotten_by_the_time_of_the_inputs_so_that_a_replay_gives_the_same_numbers() -> None:
    for ticks in (True, False):
        net = single()
        net.step("p", "root", Ticket(1, "A", 1))
        net.step("p", "root", Settled("A", 1))
        net.now = 500.0
        if ticks:
            net.step("q", "root", Ticket(1, "B", 1))
            net.node().tick(500.0)
        net.step("p", "root", Ticket(1, "A", 1))
        issued = net.node().state.sequencer.homes["A"].issued
        assert issued == 2
        assert net.take_over("root").state.sequencer.homes["A"].issued == issued


def test_idle_desks_do_not_pile_up() -> None:
    sequencer = home()
    for index in range(50):
        ask(sequencer, 1, publisher=f"p{index}")
        sequencer.step(f"p{index}", Settled("A", index + 1), 0.0)
    sequencer.tick(99.0)
    assert len(sequencer.state.desks["A"]) == 50
    ask(sequencer, 2, publisher="p7", now=99.0)
    sequencer.step("p7", Settled("A", 51), 99.0)
    sequencer.tick(100.0)
    assert list(sequencer.state.desks["A"]) == ["p7"]
    sequencer.tick(199.0)
    assert not sequencer.state.desks


def test_a_number_is_found_in_its_range_however_many_are_open() -> None:
    random = Random(7)
    sequencer = Sequencer(SequencingTree.single("A"), "root", options_for(open_tickets_max=10_000))
    open_ranges: dict[int, Granted] = {}
    for request in range(1, 600):
        (granted,) = ask(sequencer, request, count=random.randint(1, 4), publisher=f"p{request}")
        assert isinstance(granted, Granted)
        open_ranges[granted.first] = granted
        while open_ranges and random.random() < 0.45:
            settled = open_ranges.pop(random.choice(list(open_ranges)))
            sequencer.step(f"p{settled.request}", Settled("A", settled.first), 0.0)
        number = random.randint(1, granted.last + 2)
        (answer,) = messages(sequencer.step("s", Inquire("A", number), 0.0), Answer)
        is_open = any(each.first <= number <= each.last for each in open_ranges.values())
        expected = "unissued" if number > granted.last else "coming" if is_open else "published"
        assert answer.state == expected, f"request {request}, number {number}"
    assert len(open_ranges) > 20


@pytest.mark.parametrize("request_number", [0, -1])
def test_requests_are_numbered_from_1(request_number: int) -> None:
    (refused,) = ask(home(), request_number)
    assert isinstance(refused, Refused) and "numbered from 1" in refused.reason
