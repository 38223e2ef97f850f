"""Ticket mode among clients that lie: stamps are proven by their home, and nothing far ahead is believed."""

from typing import Any

import msgspec
import pytest

from seriatim.model import BROKER, Entries, Event, InputError, Notification
from seriatim.order import SequencingTree
from seriatim.protocols.proofs import Proof, is_proven, prove
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import Answer, Granted, Inquire, Settled, Ticket
from seriatim.protocols.with_broker import Delivered, Rejected, Write
from tests.protocols.tree.net import Net, event, options_for, single

KEY = b"sixteen or more bytes"
FORGED = Event("forged", "A", "mallory")


def proven(**options: Any) -> Net:
    return single(stamp_key=KEY, **options)


def coupled(net: Net) -> Net:
    """r and s hold A and B; one event of each has passed, so that stamps name the other topic."""
    for subscriber in ("r", "s"):
        net.change(subscriber, "AB")
    net.publish("p", "A", "a1")
    net.publish("q", "B", "b1")
    return net


def slots(net: Net, topic: str = "A") -> list[Any]:
    return net.broker.state.topics[topic].slots


def rejected(net: Net, subscriber: str = "s") -> list[tuple[str, int, str | None]]:
    return [(each.topic, each.number, each.publisher) for each in net.all_told(subscriber, Rejected)]


# ── a proof ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_proof_holds_for_what_it_was_made_for_and_for_nothing_else() -> None:
    entries: Entries = {"B": 3, "C": 4}
    proof = prove(KEY, 2, "A", 5, 7, "p", entries)
    assert len(proof.mac) == 16
    for number in (5, 6, 7):
        assert is_proven(KEY, proof, "A", number, "p", {"C": 4, "B": 3})
    for number in (4, 8):
        assert not is_proven(KEY, proof, "A", number, "p", entries)
    assert not is_proven(b"another key, as long", proof, "A", 5, "p", entries)
    assert not is_proven(KEY, proof, "B", 5, "p", entries)
    assert not is_proven(KEY, proof, "A", 5, "q", entries)
    assert not is_proven(KEY, proof, "A", 5, None, entries), "it is not a void's"
    for other in ({"B": 3}, {"B": 3, "C": 5}, {"B": 3, "D": 4}, {"B": 3, "C": 4, "D": 0}):
        assert not is_proven(KEY, proof, "A", 5, "p", other)
    for epoch, first, last, mac in [(3, 5, 7, proof.mac), (2, 5, 8, proof.mac), (2, 4, 7, proof.mac), (2, 5, 7, b"")]:
        assert not is_proven(KEY, Proof(epoch, first, last, mac), "A", 5, "p", entries)
    assert not is_proven(KEY, Proof(1 << 70, 5, 7, proof.mac), "A", 5, "p", entries), "not an error either"


def test_the_encoding_leaves_no_room_for_two_readings() -> None:
    macs = {
        prove(KEY, 1, topic, 1, 1, publisher, entries).mac
        for topic, publisher, entries in [
            ("A", "Bp", {}),
            ("AB", "p", {}),
            ("A", None, {}),
            ("A", "", {}),
            ("A", "p", {"B": 11}),
            ("A", "p", {"B1": 1}),
            ("A", "p", {"B": 1, "1": 1}),
        ]
    }
    assert len(macs) == 7


def test_messages_with_proofs_survive_the_wire() -> None:
    proof = prove(KEY, 1, "A", 1, 1, "p", {"B": 1})
    for message in (
        Granted(1, "A", 1, 2, {"B": 1}, 1, proof, prove(KEY, 1, "A", 2, 2, "p", {})),
        Write("A", 1, {"B": 1}, event("x"), proof),
        Delivered("A", 1, {"B": 1}, event("x"), proof),
    ):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)) == message


# ── among honest clients ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("full_stamps", [False, True])
def test_honest_events_are_proven(full_stamps: bool) -> None:
    net = coupled(proven(full_stamps=full_stamps))
    net.publish("p", "A", "a2", "a3", "a4")
    net.publish("q", "B", "b2")
    assert net.notified("s") == net.notified("r") == ["a1", "b1", "a2", "a3", "a4", "b2"]
    assert net.subscriber("s").state.rejected == 0
    assert [bool(slot.entries) for slot in slots(net)] == [False, True, full_stamps, full_stamps]


def test_a_void_is_proven_by_the_home_also_after_a_restart() -> None:
    net = coupled(proven())
    net.step("p", "root", Ticket(2, "A", 2))  # p never writes
    net.run()
    net.crash("root")
    net.take_over("root")
    net.wait(200.0)
    net.publish("q", "A", "a4")
    assert [slot.event is None for slot in slots(net)] == [False, True, True, False]
    assert net.notified("s") == ["a1", "b1", "a4"]
    assert net.subscriber("s").state.rejected == 0


def test_without_a_key_there_are_no_proofs() -> None:
    net = coupled(single())
    assert [(each.proof, each.rest) for each in net.all_sent(Granted)] == [(None, None)] * 2
    assert [each.proof for each in net.all_sent(Delivered)] == [None] * 4


# ── among liars ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_forged_stamp_stops_nobody() -> None:
    net = coupled(proven())
    forged = Delivered("A", 2, {"B": 10**9}, FORGED)
    net.step(BROKER, "s", forged)
    assert rejected(net) == [("A", 2, "mallory")]
    assert net.subscriber("s").state.rejected == 1
    net.publish("p", "A", "a2")
    net.publish("q", "B", "b2")
    assert net.notified("s") == net.notified("r") == ["a1", "b1", "a2", "b2"]


def test_nothing_else_than_what_was_granted_is_believed() -> None:
    net = coupled(proven())
    net.hold_back(Delivered)
    net.publish("p", "A", "a2", "a3")
    first, rest = slots(net)[1:]
    assert first.entries == {"B": 1} and not rest.entries
    net.lose()
    mine = event("mine", "A", "p")
    lies = [
        Delivered("A", 3, first.entries, mine, first.proof),  # replayed on another number
        Delivered("A", 4, {}, mine, rest.proof),
        Delivered("A", 2, {}, mine, rest.proof),  # without the entries
        Delivered("A", 2, {}, mine, first.proof),
        Delivered("A", 2, {"B": 10**9}, mine, first.proof),
        Delivered("A", 2, first.entries, FORGED, first.proof),  # under another name
        Delivered("A", 2, first.entries, None, first.proof),  # a void that no home wrote
        Delivered("B", 2, {}, event("mine", "B", "p"), rest.proof),  # of another topic
        Delivered("A", 2, None, mine, first.proof),
        Delivered("A", 2, first.entries, mine),
    ]
    for lie in lies:
        net.step(BROKER, "s", lie)
    assert net.subscriber("s").state.rejected == len(lies)
    assert net.notified("s") == ["a1", "b1"]
    net.step(BROKER, "s", Delivered("A", 2, first.entries, first.event, first.proof))
    net.step(BROKER, "s", Delivered("A", 3, rest.entries, rest.event, rest.proof))
    assert net.notified("s") == ["a1", "b1", "a2", "a3"]


def test_a_position_that_a_publisher_wrote_is_not_believed() -> None:
    for options, expected in ((proven(), None), (single(), 10**9)):
        net = coupled(options)
        net.hold_back(Delivered)
        net.publish("p", "A", "a2")
        slot = slots(net)[-1]
        net.lose()
        net.step(BROKER, "s", Delivered("A", 2, slot.entries, slot.event, slot.proof, 10**9))
        told = net.told["s"][-1]
        assert isinstance(told, Notification)
        assert (told.event.id, told.position) == ("a2", expected)


def test_what_comes_before_a_topic_has_begun_is_checked_too() -> None:
    net = coupled(proven())
    net.holds_back = lambda source, target, message: source == "root" and target == "t"
    net.change("t", "A")
    net.step(BROKER, "t", Delivered("A", 2, {}, FORGED))
    assert rejected(net, "t") == [("A", 2, "mallory")]
    net.release()
    net.publish("p", "A", "a2")
    assert net.notified("t") == ["a2"]


@pytest.mark.parametrize("id", ["forged", "a2"])
def test_a_slot_that_somebody_else_filled_is_a_void(id: str) -> None:
    """The slot is write-once, so the thief's event stays there for ever: nobody believes it, and all go on."""
    net = coupled(proven())
    net.step("mallory", BROKER, Write("A", 2, {"B": 10**9}, Event(id, "A", "p")))
    net.run()
    net.publish("p", "A", "a2")
    assert net.published("p") == [("a1", 1), ("a2", 3)], "it saw that the slot does not hold its own event"
    assert net.all_sent(Settled)[-2:] == [Settled("A", 2, (2,)), Settled("A", 3)]
    assert net.notified("s") == ["a1", "b1"]
    (waiting,) = net.subscriber("s").explain()
    assert waiting.why == "A 2 is not done; what came as A 2 was rejected as forged"
    net.publish("q", "B", "b2")
    net.wait(250.0)
    assert net.notified("s") == net.notified("r") == ["a1", "b1", "a2", "b2"]
    assert net.subscriber("s").explain() == []


def test_a_slot_that_somebody_else_filled_is_a_void_also_if_its_owner_is_gone() -> None:
    net = coupled(proven())
    net.step("mallory", BROKER, Write("A", 2, {}, FORGED))
    net.step("gone", "root", Ticket(1, "A", 1))
    net.run()
    net.publish("q", "A", "a3")
    net.wait(400.0)
    assert net.notified("s") == net.notified("r") == ["a1", "b1", "a3"]


def test_who_has_the_right_event_is_not_told_that_it_is_a_void() -> None:
    """A publisher that says that its own slot was stolen harms only those who say that they cannot believe it."""
    net = coupled(proven())
    net.hold_back(Settled)
    net.publish("p", "A", "a2")
    net.lose()
    net.step("p", "root", Settled("A", 2, (2, 10**9)))
    net.step("late", "root", Inquire("A", 2))
    net.step("other", "root", Inquire("A", 2, rejected=True))
    answers = [message for _, _, message in net.on_the_way if isinstance(message, Answer)]
    assert [each.state for each in answers] == ["published", "void"]
    assert answers[1].entries == {"B": 1}, "with the very entries of its number"


# ── too far ahead ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "forged",
    [
        Delivered("A", 2, {"B": 10**9}, FORGED),
        Delivered("A", 10**9, {}, FORGED),
        Delivered("A", 10**9, {}, None),
    ],
)
def test_what_lies_too_far_ahead_is_dropped(forged: Delivered) -> None:
    net = coupled(single(jump_max=100))
    net.step(BROKER, "s", forged)
    assert [each.reason for each in net.all_told("s", Rejected)] == [
        "its stamp names B 1000000000, more than 100 beyond what is done"
        if forged.entries
        else "1000000000 is more than 100 beyond what is done"
    ]
    net.publish("p", "A", "a2")
    assert net.notified("s") == net.notified("r") == ["a1", "b1", "a2"]
    net.wait(500.0)
    assert net.all_told("s", Answer) == [], "that no such number was given out is nothing the application must decide"
    net.sent.clear()
    net.wait(500.0)
    assert net.all_sent(Inquire) == [], "asked once, then forgotten"


def test_what_was_real_is_asked_for_again() -> None:
    net = single(jump_max=3)
    for subscriber in ("r", "s"):
        net.change(subscriber, "AB")
    net.holds_back = lambda source, to, message: to == "s" and isinstance(message, Delivered) and message.number == 1
    net.publish("p", "A", *(f"a{number}" for number in range(1, 11)))  # 1 is late; 4 … 10 are too far ahead
    assert net.subscriber("s").state.rejected == 7
    net.release()
    assert net.notified("s") == ["a1", "a2", "a3"]
    net.wait(200.0)
    assert net.notified("s") == net.notified("r") == [f"a{number}" for number in range(1, 11)]


def test_how_far_ahead_of_a_topic_being_joined_is_decided_when_it_has_begun() -> None:
    net = single(jump_max=3)
    net.change("s", "A")
    net.publish("q", "B", *(f"b{number}" for number in range(1, 11)))
    net.holds_back = lambda source, target, message: source == "root" and target == "s"
    net.change("s", "B")
    net.step(BROKER, "s", Delivered("A", 1, {"B": 10**9}, FORGED))
    net.step(BROKER, "s", Delivered("A", 1, {"B": 10}, event("a1")))
    assert net.subscriber("s").state.rejected == 0
    (waiting,) = net.subscriber("s").explain()
    assert waiting.why == "a topic that it names is being joined"
    net.wait(200.0)
    assert net.all_sent(Inquire) == [], "it has come"
    net.release()
    assert rejected(net) == [("A", 1, "mallory")]
    net.step(BROKER, "s", Delivered("A", 1, {"B": 10}, event("a1")))
    assert net.notified("s") == ["a1"]


# ── options ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"stamp_key": b"short"}, "stamp_key: 5 bytes can be guessed; give at least 16 random ones"),
        ({"jump_max": 0}, "jump_max: 0 is not positive"),
        ({"mode": "log", "stamp_key": KEY}, "stamp_key: in log mode only sequencers write stamps"),
        ({"mode": "log", "jump_max": 5}, "jump_max: in log mode only sequencers write stamps"),
    ],
)
def test_bad_options(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        options_for(**{"mode": "ticket"} | options)


def test_the_key_is_not_shown() -> None:
    shown = repr(TreeOptions(mode="ticket", stamp_key=KEY))
    assert "sixteen" not in shown and "stamp_key='(secret)'" in shown
    assert repr(TreeOptions()).startswith("TreeOptions(mode='log', order='global', ")


def test_the_key_is_needed_by_nodes_and_subscribers_only() -> None:
    net = Net(SequencingTree.single("A"), options_for(stamp_key=KEY))
    net.change("s", "A")
    net.options = options_for()  # what publishers are given
    net.publish("p", "A", "a1", "a2")
    assert net.publisher("p").options.stamp_key is None
    assert net.notified("s") == ["a1", "a2"]
