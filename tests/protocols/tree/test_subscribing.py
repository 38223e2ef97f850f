"""Changes of a subscription: the cut, its floor, versions, and subscribers that nobody hears of any more."""

from typing import Any

import pytest

from seriatim.model import APPLICATION, BROKER, InputError, Notification, UnknownTopic
from seriatim.order import SequencingTree
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import Sequencer, Subscriber
from seriatim.protocols.tree.messages import (
    Announced,
    Cut,
    Forget,
    Joined,
    Refresh,
    Refreshed,
    Refused,
    Subscribe,
    Update,
    Updated,
)
from seriatim.protocols.with_broker import Change, Changed, Delivered, Listen, Listening, Unlisten
from tests.protocols.tree.net import Net, change, event, messages, options_for, single
from tests.snapshot import snapshot

STAR = SequencingTree.star({"A": 1, "B": 2, "C": 3}, leaves=3)
TREES = {
    "single": SequencingTree.single("ABC"),
    "star": STAR,
    "chain": SequencingTree.chain({"A": 3, "B": 2, "C": 1}, length=3),
}


def joined(net: Net, topic: str) -> Joined:
    return [each for each in net.all_sent(Joined) if each.topic == topic][-1]


# ── joining ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", TREES)
def test_a_join_is_told_where_the_topic_starts_and_what_comes_before(shape: str) -> None:
    net = Net(TREES[shape], options_for())
    net.change("s", "A")
    net.publish("p", "A", "a1", "a2")
    net.publish("p", "B", "b1")
    net.change("s", "B")
    assert joined(net, "B") == Joined(2, "B", start=1, floor={"A": 2}, epoch=1, acquaintance=1)
    assert net.all_told("s", Changed)[-1] == Changed(2, frozenset("AB"), {"B": 1})


@pytest.mark.parametrize("shape", TREES)
def test_the_first_event_after_the_cut_waits_for_the_floor(shape: str) -> None:
    net = Net(TREES[shape], options_for())
    net.change("s", "A")
    net.hold_back(Delivered)
    net.publish("p", "A", "a1")
    net.change("s", "B")
    net.holds_back = lambda source, to, message: isinstance(message, Delivered) and message.topic == "A"
    net.publish("p", "B", "b1")
    assert net.notified("s") == []
    (waiting,) = net.subscriber("s").explain()
    assert (waiting.topic, waiting.number, waiting.waits_for, waiting.home) == ("B", 1, ("A", 1), net.tree.home("A"))
    net.release()
    assert net.notified("s") == ["a1", "b1"]


def test_a_topic_without_others_starts_without_a_floor() -> None:
    net = single()
    net.publish("p", "A", "a1")
    net.change("s", "A")
    assert joined(net, "A") == Joined(1, "A", start=1, floor={}, epoch=1, acquaintance=1)


def test_no_cut_before_every_other_topic_was_announced() -> None:
    net = Net(STAR, options_for())
    net.change("s", "AB")
    net.sent.clear()

    def is_announcement(source: str, target: str, message: Payload) -> bool:
        body = message.body if isinstance(message, Frame) else None
        return target == "n3" and body is not None and isinstance(body.body, Announced) and body.body.topic == "B"

    net.holds_back = is_announcement
    net.change("s", "C")
    assert len(net.held_back) == 1
    assert net.all_sent(Cut) == []
    assert net.node("n3").explain() == ["s joins C: waits for B to be announced"]
    net.release()
    net.wait(20.0)
    assert len(net.all_sent(Cut)) == 1
    assert joined(net, "C").start == 0


def test_ticket_mode_listens_before_it_asks_and_drops_what_lies_before_the_start() -> None:
    subscriber = Subscriber(SequencingTree.single("A"), "s", options_for())
    asked = subscriber.step(APPLICATION, change("A"), 0.0)
    assert asked.send == [(BROKER, Listen("A", version=1))]
    asked = subscriber.step(BROKER, Listening("A", version=1), 0.0)
    assert asked.send == [("root", Subscribe(1, "A", frozenset("A")))]
    for number in (1, 2, 3):
        early = subscriber.step(BROKER, Delivered("A", number, {}, event(f"a{number}")), 0.0)
        assert early.notify == []
    assert [waiting.why for waiting in subscriber.explain()] == ["A is being joined"] * 3
    started = subscriber.step("root", Joined(1, "A", 2, {}), 0.0)
    assert [each.event.id for each in started.notify if isinstance(each, Notification)] == ["a3"]


def test_the_answer_to_an_earlier_listen_is_not_taken_for_this_one() -> None:
    """The broker may still have an Unlisten to read between the two."""
    subscriber = Subscriber(SequencingTree.single("A"), "s", options_for())
    subscriber.step(APPLICATION, change("A"), 0.0)
    subscriber.step(BROKER, Listening("A", version=1), 0.0)
    subscriber.step("root", Joined(1, "A", 0, {}), 0.0)
    subscriber.step(APPLICATION, Change(remove=frozenset("A")), 0.0)
    subscriber.step("root", Updated(2, "root"), 0.0)
    subscriber.step(APPLICATION, change("A"), 0.0)
    assert subscriber.step(BROKER, Listening("A", version=1), 0.0).send == []
    asked = subscriber.step(BROKER, Listening("A", version=3), 0.0)
    assert asked.send == [("root", Subscribe(3, "A", frozenset("A")))]


@pytest.mark.parametrize("shape", TREES)
def test_many_topics_in_one_change(shape: str) -> None:
    net = Net(TREES[shape], options_for())
    for topic in "ABC":
        net.publish("p", topic, f"{topic}1")
    net.change("s", "ABC")
    assert net.all_told("s", Changed) == [Changed(1, frozenset("ABC"), {"A": 1, "B": 1, "C": 1})]
    for topic in "CAB":
        net.publish("p", topic, f"{topic}2")
    assert net.notified("s") == ["C2", "A2", "B2"]
    assert net.subscriber("s").explain() == []


def test_changes_are_made_one_after_the_other() -> None:
    net = single()
    net.hold_back(Joined)
    net.change("s", "A")
    net.change("s", "B")
    net.change("s", remove="A")
    assert [each.version for each in net.all_sent(Subscribe)] == [1]
    net.release()
    assert [(each.version, set(each.topics)) for each in net.all_told("s", Changed)] == [
        (1, {"A"}),
        (2, {"A", "B"}),
        (3, {"B"}),
    ]


def test_a_change_that_changes_nothing_is_answered_at_once() -> None:
    net = single()
    net.change("s", "A")
    net.sent.clear()
    net.change("s", "A")
    net.change("s", remove="B")
    assert net.all_told("s", Changed)[1:] == [Changed(1, frozenset("A"), {})] * 2
    assert net.sent == []


def test_lost_requests_and_answers_are_repeated() -> None:
    for kind in (Listen, Listening, Subscribe, Joined):
        net = single()
        net.hold_back(kind)
        net.change("s", "A")
        net.lose()
        net.wait(20.0)
        net.publish("p", "A", "a1")
        assert net.notified("s") == ["a1"], kind
    for update in (Update, Updated):
        net = single()
        net.change("s", "AB")
        net.hold_back(update)
        net.change("s", remove="A")
        net.lose()
        net.wait(20.0)
        assert len(net.all_told("s", Changed)) == 2, update


def test_a_repeated_subscribe_gets_the_same_answer() -> None:
    net = single()
    net.publish("p", "A", "a1")
    ask = Subscribe(1, "B", frozenset("AB"))
    net.step("s", "root", ask)
    net.publish("p", "B", "b1")
    net.step("s", "root", ask)
    first, second = net.all_sent(Joined)
    assert first == second == Joined(1, "B", 0, {"A": 1}, epoch=1, acquaintance=1)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Subscribe(1, "Z", frozenset("Z")), "no node is home to it"),
        (Subscribe(1, "B", frozenset("B")), "its home is n2, not n1"),
        (Subscribe(1, "A", frozenset("C")), "topics must include the topic"),
        (Subscribe(1, "A", frozenset("AZ")), "no node is home to Z"),
        (Subscribe(1, "A", frozenset("A"), frozenset("Y")), "no node is home to Y"),
    ],
)
def test_a_refused_join_says_why_and_changes_nothing(message: Subscribe, reason: str) -> None:
    sequencer = Sequencer(STAR, "n1", options_for())
    before = snapshot(sequencer.state)
    (refused,) = messages(sequencer.step("s", message, 0.0), Refused)
    assert reason in refused.reason
    assert snapshot(sequencer.state) == before


# ── leaving ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_removed_topic_is_silent_at_once() -> None:
    net = single()
    net.change("s", "AB")
    net.hold_back(Update, Delivered)
    net.publish("p", "A", "a1")
    net.publish("p", "B", "b1")
    net.change("s", remove="A")
    net.release()
    assert net.notified("s") == ["b1"]
    assert net.all_sent(Unlisten) == [Unlisten("A")]


def test_leaving_frees_what_waited_for_the_topic() -> None:
    net = single()
    for subscriber in ("r", "s"):
        net.change(subscriber, "AB")
    net.holds_back = lambda source, to, message: isinstance(message, Delivered) and message.topic == "A"
    net.publish("p", "A", "a1")
    net.publish("p", "B", "b1")
    assert net.notified("s") == []
    net.change("s", remove="A")
    assert net.notified("s") == ["b1"]


def test_the_nodes_of_all_topics_are_told_also_of_the_one_that_was_left() -> None:
    net = Net(STAR, options_for())
    net.change("s", "AB")
    net.change("s", remove="A")
    told = sorted(target for _, target, sent in net.sent if isinstance(sent, Update))
    assert told == ["n1", "n2"]


def test_old_news_is_refused_and_ignored() -> None:
    sequencer = Sequencer(SequencingTree.single("AB"), "root", options_for(order="global"))
    sequencer.step("s", Update(2, frozenset("A")), 0.0)
    before = snapshot(sequencer.state)
    effects = sequencer.step("s", Update(1, frozenset("AB")), 0.0)
    assert messages(effects, Updated) == []
    [refused] = messages(effects, Refused)
    assert "s asks for change 1, and has made change 2 already: two processes have this name" in refused.reason
    asked = sequencer.step("s", Subscribe(1, "B", frozenset("AB")), 0.0)
    assert [(message.request, message.topic) for message in messages(asked, Refused)] == [(1, "B")]
    assert snapshot(sequencer.state) == before


def test_a_refusal_of_an_earlier_change_is_no_news() -> None:
    net = Net(STAR, options_for())
    net.change("s", "A")
    machine = net.machines["s"]
    assert isinstance(machine, Subscriber)
    assert machine.step("n1", Refused(machine.state.version - 1, "A", "late"), 0.0).notify == []
    now = Refused(machine.state.version, "A", "now")
    assert machine.step("n1", now, 0.0).notify == [now]


def test_changes_of_a_later_life_come_after_all_of_the_ones_before() -> None:
    lives = [Subscriber(STAR, "s", options_for()) for _ in range(3)]
    for epoch, life in enumerate(lives):
        life.begin_life(epoch)
    assert [life.state.version for life in lives] == [0, 1 << 20, 2 << 20]


# ── being known ───────────────────────────────────────────────────────────────────────────────────────────────────

LEASE_MS = 300.0


def leased() -> Net:
    net = single(subscriber_lease_ms=LEASE_MS)
    net.change("s", "A")
    return net


def test_a_subscriber_that_is_confirmed_goes_on_for_ever() -> None:
    net = leased()
    net.wait(10 * LEASE_MS)
    net.publish("p", "A", "a1")
    assert net.notified("s") == ["a1"]
    assert len(net.all_told("s", Changed)) == 1


def test_a_subscriber_that_nobody_confirms_holds_its_notifications() -> None:
    net = leased()
    net.hold_back(Refreshed)
    net.wait(LEASE_MS + 1)
    net.publish("p", "A", "a1")
    assert net.notified("s") == []
    net.lose()
    net.wait(LEASE_MS / 3)
    assert net.notified("s") == ["a1"]


def test_a_node_forgets_who_was_silent_for_twice_the_lease() -> None:
    net = leased()
    net.hold_back(Refresh)
    net.wait(2 * LEASE_MS - 1)
    assert "s" in net.node().state.sequencer.couplings.holders
    net.wait(LEASE_MS + 1)
    assert "s" not in net.node().state.sequencer.couplings.holders
    assert [record.message for record in net.journals["root"] if isinstance(getattr(record, "message", None), Forget)]


def test_who_was_forgotten_drops_what_may_be_wrongly_ordered_and_joins_again() -> None:
    net = leased()
    net.hold_back(Refresh)
    net.wait(3 * LEASE_MS)
    net.publish("p", "A", "a1")
    net.lose()
    net.wait(LEASE_MS)
    net.publish("p", "A", "a2")
    assert net.notified("s") == ["a2"]
    assert net.all_told("s", Changed)[-1] == Changed(2, frozenset("A"), {"A": 1}), "the gap is visible in its start"


def test_nobody_but_the_node_itself_makes_it_forget() -> None:
    net = leased()
    net.step("hostile", "root", Forget("s"))
    assert "s" in net.node().state.sequencer.couplings.holders


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "error", "names"),
    [
        (Change(), InputError, "change: it neither adds nor removes"),
        (Change(frozenset("AZ"), frozenset("B")), UnknownTopic, "topic 'Z'"),
    ],
)
def test_bad_input_is_refused_before_anything_changes(command: Any, error: type[InputError], names: str) -> None:
    subscriber = Subscriber(STAR, "s", options_for())
    subscriber.step(APPLICATION, change("B"), 0.0)
    before = snapshot(subscriber.state)
    with pytest.raises(error, match=names):
        subscriber.step(APPLICATION, command, 0.0)
    assert snapshot(subscriber.state) == before


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"retry_ms": 0.0}, "retry_ms"),
        ({"lease_ms": -1.0}, "lease_ms"),
        ({"ticket_count_max": 0}, "ticket_count_max"),
        ({"buffer_max": 0, "full_stamps": True}, "buffer_max"),
        ({"time_to_live_ms": 5.0}, "full_stamps"),
        ({"buffer_max": 5}, "full_stamps"),
        ({"subscriber_lease_ms": 0.0}, "subscriber_lease_ms"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(options: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        options_for(**options)
    assert caught.value.field == field
