"""Paper 003 as printed, in the stories where it lets subscribers disagree, and ours in the same stories."""

import pytest

from seriatim.lab.papers.paper003 import PrintedBroker, UnacknowledgedBroker
from seriatim.protocols.overlay import Broker, OverlayOptions
from seriatim.protocols.overlay.messages import Suspect
from tests.protocols.overlay.net import Net

PAIR = {"b1": None, "b2": "b1"}
RESOLUTION = OverlayOptions(order="resolution")


def two_each(broker: type[Broker], options: OverlayOptions = RESOLUTION, first: str = "q", second: str = "p") -> Net:
    """Two brokers, a publisher and a subscriber at each. `second` publishes twice before `first`'s event arrives."""
    net = Net(PAIR, {first: "b2", second: "b1", "s": "b1", "t": "b2"}, options, broker)
    for publisher in (first, second):
        net.advertise(publisher)
    for subscriber in ("s", "t"):
        net.subscribe(subscriber, "true")
    net.hold(("b1", "b2"), ("b2", "b1"))
    net.publish(first, f"{first}1")
    net.publish(second, f"{second}1")
    net.publish(second, f"{second}2")
    net.release(("b1", "b2"))
    net.release()
    return net


def test_one_publication_each_is_sorted_alike() -> None:
    """Figure 4, as long as nobody publishes twice: the acknowledgement flushes the link."""
    net = Net(PAIR, {"p": "b1", "q": "b2", "s": "b1", "t": "b2"}, RESOLUTION, PrintedBroker)
    for publisher in ("p", "q"):
        net.advertise(publisher)
    for subscriber in ("s", "t"):
        net.subscribe(subscriber, "true")
    net.hold(("b1", "b2"), ("b2", "b1"))
    net.publish("q", "q1")
    net.publish("p", "p1")
    assert net.seen("s") == net.seen("t") == []
    net.release()
    assert net.seen("s") == net.seen("t") == ["p1", "q1"]


def test_sorting_the_acknowledged_part_by_id_lets_subscribers_disagree() -> None:
    net = two_each(PrintedBroker, first="a", second="p")
    assert net.seen("s") == ["p1", "a1", "p2"]
    assert net.seen("t") == ["a1", "p1", "p2"]


@pytest.mark.parametrize("order", ["rooted", "resolution", "central"])
def test_ours_agree_in_the_same_story(order: str) -> None:
    net = two_each(Broker, OverlayOptions(order=order), first="a", second="p")  # type: ignore[arg-type]
    assert net.seen("s") == net.seen("t") and len(net.seen("s")) == 3


def unheard(broker: type[Broker], options: OverlayOptions = RESOLUTION) -> Net:
    """q advertises and publishes while b1 has not heard of it; p publishes at b1."""
    net = Net(PAIR, {"p": "b1", "q": "b2", "s": "b1", "t": "b2"}, options, broker)
    net.advertise("p")
    for subscriber in ("s", "t"):
        net.subscribe(subscriber, "true")
    net.hold(("b1", "b2"), ("b2", "b1"))
    net.advertise("q")
    net.publish("q", "q1")
    net.publish("p", "p1")
    net.release(("b2", "b1"))
    net.release()
    return net


def test_a_distant_broker_sees_no_conflict_with_an_advertisement_it_has_not_seen() -> None:
    net = unheard(UnacknowledgedBroker)
    assert net.seen("t") == ["q1", "p1"] and net.seen("s") == ["p1"]  # and b2 did not even know that s wants q1


@pytest.mark.parametrize("order", ["rooted", "resolution"])
def test_an_acknowledged_advertisement_closes_that_hole(order: str) -> None:
    net = unheard(Broker, OverlayOptions(order=order))  # type: ignore[arg-type]
    assert net.seen("s") == net.seen("t") == ["p1", "q1"]


def test_a_broker_that_is_gone_blocks_its_neighbour_for_ever() -> None:
    for broker, seen in ((PrintedBroker, []), (Broker, ["p1"])):
        net = Net(PAIR, {"p": "b1", "q": "b2", "s": "b1", "t": "b2"}, RESOLUTION, broker)
        for publisher in ("p", "q"):
            net.advertise(publisher)
        for subscriber in ("s", "t"):
            net.subscribe(subscriber, "true")
        net.hold(("b1", "b2"), ("b2", "b1"))
        net.publish("p", "p1")
        net.tell("b1", Suspect("b2"))
        assert net.seen("s") == seen
