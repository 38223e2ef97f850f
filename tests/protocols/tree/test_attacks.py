"""Attacks on the sequencing tree: each test is one story of something going wrong at the worst moment."""

import pytest

from seriatim.lab.explore.tree.cast import topic_of
from seriatim.model import BROKER, InputError
from seriatim.protocols.broker import Trim
from seriatim.protocols.machine import Payload
from seriatim.protocols.tree import TreeOptions
from seriatim.protocols.tree.messages import (
    Announce,
    Announced,
    Cut,
    CutDone,
    Finished,
    Forget,
    JoinId,
    Pass,
    Refresh,
    Refreshed,
    Routed,
    Settled,
    Subscribe,
    Ticket,
    Update,
)
from seriatim.protocols.with_broker import Delivered, Grown, Kept, Listen, Trimmed, Watch, Written
from tests.protocols.tree.wires import Wires

PAIR = {"A": "left", "B": "right"}
FORK = {"top": None, "left": "top", "right": "top"}


# ── nodes that crash ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_repeated_after_its_desk_was_forgotten_is_replayed_as_it_was_lived() -> None:
    """What a node forgets as time passes must not change what its journal means."""
    wires = Wires(TreeOptions(mode="ticket"), {"A": "root"}, publishers=["p"])
    wires.cut("p", "root")
    wires.publish("p", "A", "a1")
    wires.step("p", "root", Ticket(1, "A", 1))
    wires.lose("root", "p")
    wires.pass_time(30_000)  # the number is voided, its range settled, and the publisher forgotten
    wires.step("p", "root", Ticket(1, "A", 1))
    assert wires.machines["root"].state.sequencer.homes["A"].issued == 2
    wires.take_over("root")
    assert wires.machines["root"].state.sequencer.homes["A"].issued == 2


# ── clients that lie ──────────────────────────────────────────────────────────────────────────────────────────────

FORGED = [
    Grown("A", 10**9),
    Written("A", 1, None),
    Kept("A", 1),
    Trimmed("A", 10**9),
    Written("B", 1, None),
    Pass("A", 1, 10**9, "left", {}),
    Pass("A", 1, 1, "right", {}),
    Announce("A", 10**9, "left", JoinId("s", 1, "A")),
    Cut(JoinId("s", 1, "A"), 10**9, "left", {}, frozenset()),
    Routed("left", Finished("A", 7, 7, {"B": 10**9})),
    Routed("left", Announced(JoinId("s", 1, "A"), "B")),
    Routed("left", CutDone(JoinId("s", 1, "A"), 10**9, {})),
    Forget("s"),
    Update(10**6, frozenset({"A", "nowhere"})),
    Subscribe(10**6, "A", frozenset({"A", "nowhere"})),
    Subscribe(10**6, "nowhere", frozenset({"nowhere"})),
    Subscribe(-1, "A", frozenset({"A"})),
    Ticket(-1, "A", 1),
    Ticket(1, "A", -5),
    Ticket(1, "A", 10**12),
    Ticket(1, "nowhere", 1),
    Settled("A", -1),
    Settled("nowhere", 1),
    Refresh(-1, -1.0),
]


@pytest.mark.parametrize("mode", ["log", "ticket"])
@pytest.mark.parametrize("message", FORGED, ids=lambda message: type(message).__name__)
def test_what_a_client_may_not_say_changes_nothing_for_others(message: Payload, mode: str) -> None:
    options = TreeOptions(mode=mode, order="global", own_order=True)  # type: ignore[arg-type]
    wires = Wires(options, PAIR, FORK, subscribers=["s"], publishers=["p"])
    wires.change("s", add="A B")
    for liar in ("liar", "other liar"):
        wires.step(liar, "left", message)
        wires.run()
    wires.publish("p", "A", "a1", "a2")
    wires.publish("p", "B", "b1")
    wires.take_over("left")
    wires.publish("p", "A", "a3")
    assert wires.seen("s") == ["a1", "a2", "b1", "a3"]


def test_a_range_declared_settled_before_it_has_a_stamp() -> None:
    """Two subscribers couple the topics, so that A's numbers climb; the publisher does not wait for them."""
    wires = Wires(TreeOptions(mode="ticket"), PAIR, FORK, subscribers=["s", "t"], publishers=["p"])
    wires.change("s", add="A B")
    wires.change("t", add="A B")
    wires.cut("left", "top")
    wires.publish("p", "A", "a1")
    wires.step("p", "left", Settled("A", 1))
    wires.heal()
    assert wires.seen("s") == ["a1"]


def test_a_ticket_in_log_mode_takes_no_numbers() -> None:
    """They would be numbers without a position, and the log's own would never be stamped."""
    wires = Wires(TreeOptions(mode="log"), {"A": "root"}, subscribers=["s"], publishers=["p"])
    wires.change("s", add="A")
    wires.step("stranger", "root", Ticket(1, "A", 100))
    wires.publish("p", "A", "a1")
    assert wires.seen("s") == ["a1"]


# ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────


def leased(**more: object) -> Wires:
    """s and t hold A and B; `right`, home of B, cannot reach s any more and forgets it; then both topics move on."""
    options = TreeOptions(mode="ticket", subscriber_lease_ms=3_000.0, **more)  # type: ignore[arg-type]
    wires = Wires(options, PAIR | {"C": "left"}, FORK, subscribers=["s", "t"], publishers=["p"])
    wires.change("s", add="A B")
    wires.change("t", add="A B")
    return wires


def forgotten(wires: Wires) -> None:
    wires.cut("s", "right")
    wires.pass_time(10_000)
    wires.lose("right", "s")
    wires.lose("s", "right")
    assert "s" not in wires.machines["right"].state.sequencer.couplings.holders


def test_a_change_made_while_forgotten_does_not_vouch_for_the_time_in_between() -> None:
    """While `right` did not know s, B's events were stamped without regard to it. Joining C makes it known again."""
    wires = leased()
    forgotten(wires)
    wires.cut("s", BROKER)
    wires.publish("p", "B", "b1")  # the last one to carry A, as the pair is no longer coupled
    wires.publish("p", "A", "a1")
    wires.publish("p", "B", "b2")  # after a1 for t, but without an entry
    for message in sorted(wires.lose(BROKER, "s"), key=topic_of, reverse=True):
        wires.step(BROKER, "s", message)  # topics overtake each other
    assert wires.seen("s") == []  # its lease has lapsed
    wires.away.discard(("s", BROKER))
    wires.away.discard((BROKER, "s"))
    wires.change("s", add="C")
    wires.heal()
    wires.pass_time(10_000)
    common = [id for id in wires.seen("t") if id in wires.seen("s")]
    assert common == wires.seen("s")


def test_a_join_that_outlasts_its_lease_does_not_vouch_for_the_time_in_between() -> None:
    """s has begun A and B, C's home cannot be reached. The other homes must not forget s unnoticed meanwhile."""
    options = TreeOptions(mode="ticket", subscriber_lease_ms=3_000.0)
    wires = Wires(options, PAIR | {"C": "top"}, FORK, subscribers=["s", "t"], publishers=["p"])
    wires.change("t", add="A B")
    wires.cut("s", "top")
    wires.change("s", add="A B C")
    wires.pass_time(1_000)
    wires.cut("s", "left", "right")
    wires.pass_time(10_000)  # both forget it
    for wire in (("s", "left"), ("left", "s"), ("s", "right"), ("right", "s")):
        wires.lose(*wire)
    wires.cut("s", BROKER)
    wires.publish("p", "B", "b1")
    wires.publish("p", "A", "a1")
    wires.publish("p", "B", "b2")
    for message in sorted(wires.lose(BROKER, "s"), key=topic_of, reverse=True):
        wires.step(BROKER, "s", message)
    wires.heal()
    wires.pass_time(20_000)
    assert wires.machines["s"].state.changing is None
    assert wires.seen("s") in ([], ["b1", "a1", "b2"])
    assert wires.seen("t") == ["b1", "a1", "b2"]


def test_an_answer_from_before_the_latest_change_is_no_reason_to_begin_anew() -> None:
    wires = leased()
    wires.cut("right", "s")
    wires.away.discard(("s", "right"))
    wires.pass_time(1_000)  # s asks; the answer of `right` is slow
    assert any(isinstance(message, Refreshed) for message in wires.wires["right", "s"])
    wires.change("s", add="C")
    wires.publish("p", "A", "a1")
    wires.heal()
    wires.pass_time(3_000)
    assert wires.machines["s"].state.version == 2  # one for A and B, one for C
    assert wires.seen("s") == ["a1"]


def test_what_was_held_when_everything_begins_anew_is_not_let_out() -> None:
    """s holds b1, which waits for a1. Forgotten by `right`, it begins A and B anew: b1 is dropped with its topic."""
    wires = leased()
    wires.cut("s", BROKER)
    wires.publish("p", "A", "a1")
    wires.publish("p", "B", "b1")
    for message in wires.lose(BROKER, "s"):
        if isinstance(message, Delivered) and message.topic == "B":
            wires.step(BROKER, "s", message)
    forgotten(wires)
    wires.lose("s", BROKER)
    wires.heal()
    wires.pass_time(10_000)
    assert wires.seen("s") == []
    assert wires.gaps("s") == [("A", 1, 1), ("B", 1, 1)]
    assert wires.seen("t") == ["a1", "b1"]


def test_a_durable_subscriber_that_no_node_reaches_is_not_forgotten_and_keeps_its_order() -> None:
    wires = leased(durable=True)
    wires.cut("s", "left", "right", BROKER)
    wires.pass_time(40_000)
    wires.publish("p", "B", "b1")
    wires.publish("p", "A", "a1")
    wires.publish("p", "B", "b2")
    for message in sorted(wires.lose(BROKER, "s"), key=topic_of):
        wires.step(BROKER, "s", message)  # topics overtake each other
    assert wires.seen("s") == wires.seen("t") == ["b1", "a1", "b2"], "both homes stamped with regard to it"
    assert "s" in wires.machines["right"].state.sequencer.couplings.holders


# ── messages that get lost ────────────────────────────────────────────────────────────────────────────────────────


def test_log_mode_a_lost_listen_is_repeated() -> None:
    wires = Wires(TreeOptions(mode="log"), {"A": "root"}, subscribers=["s"], publishers=["p"])
    wires.cut("s", BROKER)
    wires.change("s", add="A")
    assert wires.lose("s", BROKER) == [Listen("A", 0, version=1)]
    wires.heal()
    wires.pass_time(1_000)
    wires.publish("p", "A", "a1")
    assert wires.seen("s") == ["a1"]


@pytest.mark.parametrize("mode", ["log", "ticket"])
def test_a_lost_listen_of_a_resumed_subscriber_is_repeated(mode: str) -> None:
    options = TreeOptions(mode=mode, durable=True)  # type: ignore[arg-type]
    wires = Wires(options, {"A": "root"}, subscribers=["s"], publishers=["p"])
    wires.change("s", add="A")
    wires.publish("p", "A", "a1")
    wires.cut("s", BROKER)
    wires.publish("p", "A", "a2")
    wires.resume("s")
    assert wires.lose("s", BROKER) == [Listen("A", 1, version=1)]
    wires.heal()
    wires.pass_time(1_000)
    assert wires.seen("s") == ["a1", "a2"]


@pytest.mark.parametrize("lost", [Grown, Watch])
def test_log_mode_the_last_event_is_stamped_although_the_news_of_it_got_lost(lost: type) -> None:
    wires = Wires(TreeOptions(mode="log"), {"A": "root"}, subscribers=["s"], publishers=["p"])
    wires.change("s", add="A")
    wires.cut("root", BROKER)
    if lost is Watch:
        wires.machines[BROKER].state.topics["A"].watchers.clear()
    wires.publish("p", "A", "a1")
    wires.lose(BROKER, "root")
    wires.heal()
    wires.pass_time(10_000)
    assert wires.seen("s") == ["a1"]


# ── unreliable brokers ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_time_to_live_that_ends_during_a_join_does_not_spin() -> None:
    """t's event of A names B, which s is just joining: it cannot be let out, and asking again at once does not help."""
    options = TreeOptions(mode="ticket", full_stamps=True, time_to_live_ms=1_000.0)
    wires = Wires(options, PAIR, FORK, subscribers=["s", "t", "u"], publishers=["p"], replays=False)
    for name in ("s", "t", "u"):
        wires.change(name, add="A" if name == "s" else "A B")
    wires.publish("p", "B", "b1")
    wires.cut("s", "right")
    wires.change("s", add="B")
    wires.publish("p", "A", "a1")
    assert wires.seen("s") == []
    wires.pass_time(5_000)
    wires.heal()
    wires.pass_time(5_000)
    assert wires.seen("s") == ["a1"]


@pytest.mark.parametrize("home", ["left", "right"])
def test_the_event_that_carries_a_last_entry_may_get_lost(home: str) -> None:
    """z saw b1, left B, and sees a2. y loses a1, the next event of A, and must still not take a2 before b1."""
    options = TreeOptions(mode="ticket", full_stamps=True, time_to_live_ms=1_000.0)
    wires = Wires(options, {"A": "left", "B": home}, FORK, subscribers=["y", "z"], publishers=["p"], replays=False)
    wires.change("y", add="A B")
    wires.change("z", add="A B")
    wires.publish("p", "B", "b0")
    wires.cut("y", BROKER)
    wires.publish("p", "B", "b1")
    late = wires.lose(BROKER, "y")
    wires.change("z", remove="B")
    wires.publish("p", "A", "a1")
    wires.lose(BROKER, "y")
    wires.heal()
    wires.publish("p", "A", "a2")
    wires.pass_time(5_000)
    for message in late:
        wires.step(BROKER, "y", message)
    assert wires.seen("z") == ["b0", "b1", "a1", "a2"]
    assert wires.seen("y") == ["b0", "a2", "late b1"]


def test_the_event_that_carries_a_left_topic_may_get_lost() -> None:
    """z moves from B to A: A's next event, which y loses, carries B; the one after it must do so too."""
    options = TreeOptions(mode="ticket", full_stamps=True, time_to_live_ms=1_000.0)
    wires = Wires(options, PAIR, FORK, subscribers=["y", "z"], publishers=["p"], replays=False)
    wires.change("y", add="A B")
    wires.change("z", add="B")
    wires.cut("y", BROKER)
    wires.publish("p", "B", "b1")
    late = wires.lose(BROKER, "y")
    wires.change("z", add="A", remove="B")
    wires.publish("p", "A", "a1")
    wires.lose(BROKER, "y")
    wires.heal()
    wires.publish("p", "A", "a2")
    wires.pass_time(5_000)
    for message in late:
        wires.step(BROKER, "y", message)
    assert wires.seen("z") == ["b1", "a1", "a2"]
    assert wires.seen("y") == ["a2", "late b1"]


def test_log_mode_gives_nothing_up() -> None:
    """An event given up before its stamp came would later be notified as if it were in order."""
    with pytest.raises(InputError, match="mode"):
        TreeOptions(mode="log", full_stamps=True, time_to_live_ms=1_000.0)


# ── retention ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_retention_takes_nothing_that_a_subscriber_already_holds() -> None:
    """B's events wait for a1, which is slow. That the broker drops them meanwhile is no reason to."""
    wires = Wires(
        TreeOptions(mode="log", on_lost="skip"), {"A": "root", "B": "root"}, subscribers=["s", "t"], publishers=["p"]
    )
    wires.change("s", add="A B")
    wires.change("t", add="A B")
    wires.cut("s", BROKER)
    wires.publish("p", "A", "a1")
    wires.publish("p", "B", "b1")
    wires.publish("p", "B", "b2")
    messages = wires.lose(BROKER, "s")
    wires.heal()
    for message in sorted(messages, key=topic_of, reverse=True):
        if topic_of(message) == "A":
            break
        wires.step(BROKER, "s", message)
    wires.step("application", BROKER, Trim("B", 3))
    wires.run()
    for message in messages:
        wires.step(BROKER, "s", message)
    wires.pass_time(10_000)
    assert wires.seen("s") == ["a1", "b1", "b2"]


def test_a_loss_told_twice_during_a_change_makes_one_new_beginning() -> None:
    wires = Wires(TreeOptions(mode="log", on_lost="skip"), PAIR, FORK, subscribers=["s"], publishers=["p"])
    wires.change("s", add="A")
    wires.cut("s", BROKER)
    for number in range(1, 4):
        wires.publish("p", "A", f"a{number}")
    wires.lose(BROKER, "s")
    wires.heal()
    wires.cut("s", "right")
    wires.change("s", add="B")
    for _ in range(3):
        wires.step(BROKER, "s", Trimmed("A", 3))
    wires.heal()
    wires.pass_time(5_000)
    assert wires.machines["s"].state.version == 3  # A, B, and A once more


# ── publishers ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_events_that_lost_their_slots_are_published_again_in_their_order() -> None:
    wires = Wires(TreeOptions(mode="ticket"), {"A": "root"}, subscribers=["s"], publishers=["p"])
    wires.change("s", add="A")
    wires.cut("p", BROKER)
    wires.publish("p", "A", "a1", "a2", "a3")
    wires.cut("p", "root")
    wires.publish("p", "A", "a4")  # its request is under way when the others come back
    wires.pass_time(15_000)  # the first three are voided
    wires.away -= {("p", BROKER), (BROKER, "p")}
    wires.run()
    wires.heal()
    wires.pass_time(30_000)
    seen = [id for id in wires.seen("s") if id != "a4"]
    assert seen == ["a1", "a2", "a3"]
