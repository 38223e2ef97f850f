"""Brokers and clients of the overlay: routing, what is acknowledged when, numbers, and what is refused."""

import msgspec
import pytest

from seriatim.filters import headers_of
from seriatim.model import APPLICATION, Event, Gap, InputError, Notification, RemoteError
from seriatim.protocols.link import Frame
from seriatim.protocols.node import Nonsense
from seriatim.protocols.overlay import Broker, Client, Order, Overlay, OverlayError, OverlayOptions, Place
from seriatim.protocols.overlay.bounds import NAME_MAX
from seriatim.protocols.overlay.messages import (
    Advertised,
    Advertisement,
    Ask,
    Climb,
    Deliver,
    Descend,
    Disinterest,
    EventTaken,
    Forget,
    Interest,
    Publish,
    Refused,
    Subscribed,
    Suspect,
    Turned,
    Unadvertised,
    Unsubscribed,
    Withdrawal,
)
from seriatim.protocols.overlay.running import BrokerNode
from tests.protocols.overlay.net import Net

CHAIN = {"b1": None, "b2": "b1", "b3": "b2"}
STAR = {"root": None, "left": "root", "right": "root"}


def test_an_event_reaches_whoever_wants_it() -> None:
    net = Net(STAR, {"p": "left", "near": "left", "far": "right", "other": "right"})
    net.advertise("p", "price >= 0")
    net.subscribe("near", "price > 100")
    net.subscribe("far", 'price > 100 and region = "EU"')
    net.subscribe("other", "price < 50")
    net.publish("p", "dear", price=120, region="EU")
    net.publish("p", "cheap", price=20, region="EU")
    assert net.seen("near") == net.seen("far") == ["dear"] and net.seen("other") == ["cheap"]
    assert net.told("p", EventTaken) == [EventTaken("dear"), EventTaken("cheap")]


def test_a_publication_climbs_no_higher_than_its_receivers_ask() -> None:
    net = Net(CHAIN, {"p": "b3", "near": "b3", "middle": "b2"})
    net.advertise("p")
    net.subscribe("near", "true")
    net.publish("p", "here")
    assert net.count(Climb) == 0 and net.seen("near") == ["here"]
    net.subscribe("middle", "x = 1")
    net.publish("p", "there", x=1)
    net.publish("p", "here again", x=2)
    assert net.count(Climb) == 1 and net.seen("near") == ["here", "there", "here again"]
    assert net.seen("middle") == ["there"]


def test_central_order_climbs_to_the_root_always() -> None:
    net = Net(CHAIN, {"p": "b3", "near": "b3"}, OverlayOptions(order="central"))
    net.advertise("p")
    net.subscribe("near", "true")
    net.publish("p", "here")
    assert (net.count(Climb), net.count(Descend)) == (2, 2) and net.seen("near") == ["here"]


def test_what_nobody_below_wants_comes_back_as_one_short_message_of_many() -> None:
    net = Net(STAR, {"p": "left", "far": "right"}, OverlayOptions(turned_max=3))
    net.advertise("p")
    net.subscribe("far", "true")
    for i in range(7):
        net.publish("p", f"away {i}")
    assert (net.count(Climb), net.count(Descend), net.count(Turned), net.count(Ask)) == (7, 7, 2, 0)
    assert len(net.machines["left"].state.climbing) == 1 and not net.machines["left"].explain()


def test_what_has_turned_is_told_with_what_comes_down_anyway() -> None:
    net = Net(STAR, {"p": "left", "far": "right", "q": "right", "near": "left"})
    net.advertise("p", "x = 1")
    net.advertise("q", "x = 2")
    net.subscribe("far", "x = 1")
    net.subscribe("near", "x = 2")
    net.publish("p", "away", x=1)
    assert net.machines["left"].state.climbing
    net.publish("q", "down", x=2)
    assert not net.machines["left"].state.climbing and net.count(Turned) == 0


def test_who_waits_for_what_is_above_asks_all_the_way_up() -> None:
    net = Net(CHAIN, {"p": "b3", "far": "b1"})
    net.advertise("p")
    net.subscribe("far", "true")
    net.publish("p", "away")
    assert net.machines["b2"].state.climbing and net.machines["b3"].state.climbing
    net.hold(("b1", "b2"))
    net.unadvertise("p")
    assert net.count(Ask) == 2 and not net.told("p", Unadvertised) and net.machines["b2"].explain()
    net.unadvertise("p")  # the same again asks nobody again
    net.release()
    assert net.count(Ask) == 2 and net.count(Turned) == 2 and net.told("p", Unadvertised)
    assert not net.machines["b2"].state.climbing and not net.machines["b3"].state.climbing


def test_a_publication_follows_in_vain_once() -> None:
    """near hears two publishers, so it is told on the way down; what of p goes far it does not want."""
    net = Net(STAR, {"p": "left", "q": "left", "near": "left", "far": "right"})
    net.advertise("p")
    net.advertise("q")
    net.subscribe("near", "x = 1")
    net.subscribe("far", "x = 2")
    for i in range(4):
        net.publish("p", f"far {i}", x=2)
        net.publish("p", f"near {i}", x=1)
    assert net.seen("near") == [f"near {i}" for i in range(4)] and net.seen("far") == [f"far {i}" for i in range(4)]
    assert net.count(Climb) == 5 and net.machines["left"].state.uneven == {"left/p"}
    net.unadvertise("p")
    assert not net.machines["left"].state.uneven


def test_what_nobody_here_waits_for_does_not_follow() -> None:
    net = Net(STAR, {"p": "left", "near": "left", "far": "right"})
    net.advertise("p")
    net.subscribe("near", "x = 1")
    net.subscribe("far", "x = 2")
    net.hold(("left", "root"))
    net.publish("p", "away", x=2)
    net.publish("p", "here", x=1)
    net.publish("p", "unwanted", x=3)
    assert net.seen("near") == ["here"] and net.count(Climb) == 1


def test_a_covered_subscription_is_not_passed_on_until_it_has_to_be() -> None:
    net = Net(CHAIN, {"p": "b1", "wide": "b3", "narrow": "b3"})
    net.advertise("p")
    net.subscribe("wide", "x > 0")
    before = net.count(Interest)
    net.subscribe("narrow", "x > 5")
    assert net.count(Interest) == before == 2
    net.publish("p", "both", x=7)
    net.unsubscribe("wide")
    assert net.count(Interest) == 4 and net.count(Disinterest) == 2
    net.publish("p", "one", x=7)
    assert net.seen("wide") == ["both"] and net.seen("narrow") == ["both", "one"]


def test_a_wider_subscription_replaces_narrower_ones() -> None:
    net = Net(CHAIN, {"p": "b1", "wide": "b3", "narrow": "b3"})
    net.advertise("p")
    net.subscribe("narrow", "x > 5")
    net.subscribe("wide", "x > 0")
    assert list(net.machines["b1"].state.routes.wanted["b2"].values()) == ["x > 0"]
    assert net.count(Disinterest) == 2


def test_subscriptions_go_only_where_something_is_advertised() -> None:
    net = Net(STAR, {"p": "left", "s": "right", "t": "right"})
    net.advertise("p", "x > 10")
    net.subscribe("s", "x < 5")
    assert net.count(Interest) == 0
    net.subscribe("t", "x < 15")
    assert net.count(Interest) == 2
    net.unadvertise("p")
    assert net.count(Disinterest) == 2 and net.told("p", Unadvertised) == [Unadvertised("a")]


def test_an_advertisement_is_heard_everywhere_before_its_first_publication() -> None:
    net = Net(CHAIN, {"p": "b3", "s": "b1"})
    net.subscribe("s", "true")
    net.hold(("b2", "b1"))
    net.advertise("p")
    net.publish("p", "first")
    assert not net.told("p", Advertised) and not net.told("p", EventTaken)
    net.release()
    assert net.told("p", Advertised) == [Advertised("a")] and net.seen("s") == ["first"]


def test_a_subscription_is_acknowledged_when_every_publisher_has_heard() -> None:
    net = Net(CHAIN, {"p": "b1", "s": "b3"})
    net.advertise("p")
    net.hold(("b2", "b1"))
    net.subscribe("s", "true")
    assert not net.told("s", Subscribed)
    net.release()
    assert net.told("s", Subscribed) == [Subscribed("s")]


def test_numbers_of_a_subscription_have_no_holes_under_its_filter() -> None:
    net = Net(STAR, {"p": "left", "s": "right"})
    net.advertise("p")
    net.subscribe("s", "x > 3", "high")
    net.subscribe("s", "x > 0", "all")
    for i in range(1, 6):
        net.publish("p", f"e{i}", x=i)
    entries = [payload.entries for payload in net.told("s", Notification)]
    assert entries == [{"all": 1}, {"all": 2}, {"all": 3}, {"all": 4, "high": 1}, {"all": 5, "high": 2}]
    net.unsubscribe("s", "high")
    assert net.told("s", Unsubscribed) == [Unsubscribed("high", 2)]


def test_a_client_sees_a_missing_number_and_drops_a_repeated_one() -> None:
    client = Client("c", "b")
    events = [Deliver(None, {"s": 1}, "lost"), Deliver(None, {"s": 4}, "lost"), Deliver(None, {"s": 4}, "lost")]
    told = [payload for event in events for payload in client.step("b", event, 0.0).notify]
    assert told == [
        Gap("s", 1, 1, "lost"),
        Gap("s", 2, 3, "lost on the way from the broker"),
        Gap("s", 4, 4, "lost"),
    ]


def test_a_publisher_keeps_its_own_order_although_only_some_of_it_climbs() -> None:
    net = Net(STAR, {"p": "left", "near": "left", "far": "right"}, OverlayOptions(early=False))
    net.advertise("p")
    net.subscribe("near", "true")
    net.subscribe("far", "x = 1")
    net.hold(("root", "left"))
    net.publish("p", "both", x=1)
    net.publish("p", "near only", x=2)
    assert net.seen("near") == []
    net.release()
    assert net.seen("near") == ["both", "near only"]


def test_a_withdrawal_waits_for_what_it_is_about() -> None:
    net = Net(STAR, {"p": "left", "far": "right"})
    net.advertise("p")
    net.subscribe("far", "true")
    net.hold(("left", "root"))
    net.publish("p", "late")
    net.unadvertise("p")
    assert not net.told("p", Unadvertised)
    net.release()
    assert net.seen("far") == ["late"] and net.told("p", Unadvertised)
    assert all(not machine.explain() for machine in net.machines.values())


@pytest.mark.parametrize(
    ("where", "error"),
    [("x > 5 and x < 3", "Contradiction"), ("x >", "FilterError"), ('x > 5 and x = "a"', "Contradiction")],
)
def test_a_filter_that_cannot_be_used_is_refused_and_nobody_else_is_touched(where: str, error: str) -> None:
    net = Net(STAR, {"p": "left", "s": "right", "t": "right"})
    net.advertise("p")
    net.subscribe("t", "true")
    net.subscribe("s", where)
    net.advertise("s", where)
    assert [each.error for each in net.told("s", Refused)] == [error, error]
    net.publish("p", "e")
    assert net.seen("t") == ["e"] and net.seen("s") == []


def test_what_is_refused() -> None:
    net = Net(STAR, {"p": "left", "s": "right"})
    net.advertise("p", "x > 5")
    net.subscribe("s", "true")
    net.publish("p", "outside", x=3)
    net.publish("s", "unadvertised")
    net.advertise("p", "true")
    net.subscribe("s", "true")
    net.unsubscribe("s", "nothing")
    net.unadvertise("s", "nothing")
    net.publish("p", "inside", x=7)
    assert [(each.command, each.error) for each in net.told("p", Refused)] == [
        ("Publish", "OutsideAdvertisement"),
        ("Advertise", "NameInUse"),
    ]
    assert [(each.command, each.error) for each in net.told("s", Refused)] == [
        ("Publish", "OutsideAdvertisement"),
        ("Subscribe", "NameInUse"),
        ("Unsubscribe", "UnknownName"),
        ("Unadvertise", "UnknownName"),
    ]
    assert net.seen("s") == ["inside"]


def test_more_than_may_wait_is_refused() -> None:
    net = Net(STAR, {"p": "left", "s": "right"}, OverlayOptions(held_max=2))
    net.subscribe("s", "true")
    net.hold(("root", "right"))
    net.advertise("p")
    for id in ("one", "two", "three"):
        net.publish("p", id)
    assert [(each.name, each.error) for each in net.told("p", Refused)] == [("three", "QueueFull")]
    net.release()
    assert net.seen("s") == ["one", "two"]


def test_a_neighbour_that_does_not_answer_is_named_and_heals() -> None:
    net = Net(CHAIN, {"p": "b3", "s": "b1", "near": "b3"})
    net.subscribe("s", "true")
    net.subscribe("near", "true")
    net.hold(("b3", "b2"))
    net.advertise("p")
    net.tell("b3", Suspect("b2"))
    assert net.told("p", Advertised) == [Advertised("a", ("b2",))]
    net.publish("p", "meanwhile")
    assert net.seen("near") == ["meanwhile"]
    net.release()
    net.publish("p", "later")
    assert net.seen("s") == ["later"] and net.seen("near") == ["meanwhile", "later"]
    assert not net.machines["b3"].state.suspected


def test_a_client_that_is_gone_is_forgotten_behind_what_it_published() -> None:
    net = Net(STAR, {"p": "left", "s": "right"})
    net.advertise("p")
    net.subscribe("p", "true")
    net.subscribe("s", "true")
    net.hold(("left", "root"))
    net.publish("p", "last")
    net.tell("left", Forget("p"))
    net.release()
    assert net.seen("s") == ["last"]
    assert not net.machines["left"].state.clients and not net.machines["right"].state.routes.offered


def test_shapes_that_are_no_overlay() -> None:
    with pytest.raises(OverlayError, match="two of this name"):
        Overlay.of([("b1", None), ("b2", "b1"), ("b2", "b1")])
    with pytest.raises(OverlayError, match="cycle"):
        Overlay({"b1": "b2", "b2": "b1", "b3": None})
    with pytest.raises(OverlayError, match="more than one root"):
        Overlay({"b1": None, "b2": None})
    with pytest.raises(OverlayError, match="unknown"):
        Overlay({"b1": None, "b2": "b0"})
    overlay = Overlay({"b": None, "a": "b", "c": "b", "d": "c"})
    assert overlay.path("d") == ["d", "c", "b"] and overlay.places["c"] == Place("c", "b", ("d",))


def test_what_the_protocol_does_not_know_is_an_error_and_changes_nothing() -> None:
    broker = Broker(Overlay(STAR).places["left"], OverlayOptions())
    for source, message in [("root", EventTaken("e")), ("c", Interest("i", "true")), (APPLICATION, EventTaken("e"))]:
        with pytest.raises(RemoteError):
            broker.step(source, message, 0.0)
    with pytest.raises(RemoteError):
        Client("c", "left").step("elsewhere", EventTaken("e"), 0.0)


def test_attributes_that_cannot_be_are_refused() -> None:
    net = Net(STAR, {"p": "left", "s": "right"})
    net.advertise("p")
    net.subscribe("s", "true")
    headers = {"Attribute-name": '"' + "x" * 5_000 + '"'}
    net.tell("p", Publish(Event("large", "", "p", headers=headers)))
    net.publish("p", "small")
    assert [(each.name, each.error) for each in net.told("p", Refused)] == [("large", "InputError")]
    assert net.seen("s") == ["small"]


@pytest.mark.parametrize("message", [Disinterest("b2/x.1"), Withdrawal("b2/x.1")])
def test_a_neighbour_that_ends_what_never_was_is_passed_over(message: Disinterest | Withdrawal) -> None:
    place = Overlay(CHAIN).places["b1"]
    node = BrokerNode(Broker(place, OverlayOptions()), 500.0)
    effects = node.step("b2", Frame(1, 1, 0, message), 0.0)
    assert [type(each) for each in effects.notify] == [Nonsense] and len(effects.persist) == 1
    again = BrokerNode.take_over(lambda: Broker(place, OverlayOptions()), 500.0, effects.persist)
    assert again.state.links["b2"].received == node.state.links["b2"].received == 1
    assert again.inner.state == node.inner.state


def test_a_neighbours_filter_that_nobody_can_read_is_passed_over_in_the_journal_too() -> None:
    place = Overlay(CHAIN).places["b1"]
    node = BrokerNode(Broker(place, OverlayOptions()), 500.0)
    messages = [Interest("b2/x.1", "price >"), Advertisement("b2/x.2", "b2/x", "price >"), Interest("b2/x.3", "x > 1")]
    messages += [Interest("b2/x.3", "x > 2"), Interest("b2/x.4", "x < 1")]
    journal, passed_over = [], 0
    for number, message in enumerate(messages, start=1):
        effects = node.step("b2", Frame(1, number, 0, message), 0.0)
        journal += effects.persist
        passed_over += sum(isinstance(each, Nonsense) for each in effects.notify)
    assert passed_over == 3 and node.inner.state.routes.wanted == {"b2": {"b2/x.3": "x > 1", "b2/x.4": "x < 1"}}
    again = BrokerNode.take_over(lambda: Broker(place, OverlayOptions()), 500.0, journal)
    assert again.state.links["b2"].received == node.state.links["b2"].received == 5
    assert again.inner.state == node.inner.state


@pytest.mark.parametrize("order", ["rooted", "resolution"])
def test_clients_of_two_brokers_may_have_the_same_name(order: Order) -> None:
    """Side by side, as the brokers see them: nobody else knows that the one is not the other."""
    options = OverlayOptions(order=order)
    net = Net(STAR, {"same": "left"}, options)
    for side in ("left", "right"):
        net.machines["same"] = Client("same", side)
        net.subscribe("same", "x > 0")
        net.advertise("same", "x > 0")
    root = net.machines["root"]
    assert {len(root.state.routes.wanted[side]) for side in ("left", "right")} == {1}
    assert {each for side in ("left", "right") for each in root.state.routes.offered[side]} == {
        "left/same/a.2",
        "right/same/a.2",
    }
    assert root.tables.owners("true") == {"left/same", "right/same"}
    assert len(net.told("same", Subscribed)) == len(net.told("same", Advertised)) == 2


def test_a_client_publishes_in_its_own_name_and_under_the_topic_it_is_matched_by() -> None:
    net = Net(STAR, {"p": "left", "s": "right"})
    net.advertise("p")
    net.subscribe("s", "true")
    headers = headers_of({"topic": "t"})
    net.tell("p", Publish(Event("as another", "t", "victim", headers=headers)))
    net.tell("p", Publish(Event("elsewhere", "payroll", "p", headers=headers)))
    net.tell("p", Publish(Event("honest", "t", "p", headers=headers)))
    assert [(each.name, each.error) for each in net.told("p", Refused)] == [
        ("as another", "ForgedPublisher"),
        ("elsewhere", "TopicMismatch"),
    ]
    assert net.seen("s") == ["honest"]


def test_names_and_how_many_of_them_are_bounded() -> None:
    options = OverlayOptions(subscriptions_max=2, advertisements_max=2)
    net = Net(STAR, {"c": "left", "other": "left"}, options)
    net.hold(("root", "left"))  # so that advertisements wait to be heard, and what is behind them waits too
    for name in ("n" * (NAME_MAX + 1), "1", "2", "3"):
        net.subscribe("c", "x > 0", name)
        net.advertise("c", "x > 0", name)
    net.release()
    errors = [(each.command, each.error) for each in net.told("c", Refused)]
    assert errors == [
        ("Subscribe", "NameTooLong"),
        ("Advertise", "NameTooLong"),
        ("Subscribe", "TooManySubscriptions"),
        ("Advertise", "TooManyAdvertisements"),
    ]
    net.unsubscribe("c", "1")
    net.unadvertise("c", "1")
    net.subscribe("c", "x > 0", "4")
    net.advertise("c", "x > 0", "4")
    net.subscribe("other", "x > 0")
    assert [each.name for each in net.told("c", Subscribed)] == ["1", "2", "4"]
    assert [each.name for each in net.told("c", Advertised)] == ["1", "2", "4"]
    assert len(net.told("c", Refused)) == 4 and len(net.told("other", Subscribed)) == 1


@pytest.mark.parametrize("bound", ["held_max", "subscriptions_max", "advertisements_max", "turned_max"])
def test_bounds_that_cannot_be(bound: str) -> None:
    with pytest.raises(InputError, match=bound):
        msgspec.structs.replace(OverlayOptions(), **{bound: 0})
