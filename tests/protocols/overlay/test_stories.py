"""The purpose of each rule: the same story with the rule and without it."""

from collections.abc import Callable

import pytest

from seriatim.lab.explore.registry import OVERLAY
from seriatim.model import Address, Gap
from seriatim.protocols.overlay import OverlayOptions
from seriatim.protocols.overlay.messages import EventTaken, Subscribed
from tests.protocols.overlay.net import Net

FORK: dict[Address, Address | None] = {"b1": None, "b2": "b1", "b3": "b1"}
DEEP: dict[Address, Address | None] = {"b0": None, "b1": "b0", "b2": "b1", "b3": "b1"}
RESOLUTION = OverlayOptions(order="resolution")


def net_of(
    variant: str | None,
    parents: dict[Address, Address | None],
    clients: dict[Address, Address],
    options: OverlayOptions | None = None,
) -> Net:
    return Net(parents, clients, options, OVERLAY.cast(variant))


def late_withdrawal(variant: str | None) -> Net:
    """A publication is above b1 when its publisher withdraws: nobody may forget who wants it before it is down."""
    net = net_of(variant, DEEP, {"p": "b2", "c": "b3", "t": "b0"})
    net.advertise("p")
    net.subscribe("c", "true")
    net.subscribe("t", "true")
    net.hold(("b0", "b1"))
    net.publish("p", "last")
    net.unadvertise("p")
    net.release()
    return net


def following(variant: str | None) -> Net:
    """One publication climbs, the next one of the same publisher need not."""
    net = net_of(variant, FORK, {"p": "b2", "c": "b2", "t": "b3"}, OverlayOptions(early=False))
    net.advertise("p")
    net.subscribe("c", "true")
    net.subscribe("t", "x = 1")
    net.hold(("b2", "b1"))
    net.publish("p", "one", x=1)
    net.publish("p", "two", x=2)
    net.release()
    return net


def single_source(variant: str | None) -> Net:
    """c hears two publishers: what it is told on the way up may come down to t after what the other one publishes."""
    net = net_of(variant, FORK, {"p": "b2", "c": "b2", "q": "b3", "t": "b3"})
    net.advertise("p")
    net.advertise("q")
    net.subscribe("c", "true")
    net.subscribe("t", "true")
    net.hold(("b2", "b1"))
    net.publish("p", "one")
    net.publish("q", "two")
    net.release()
    return net


def untold(variant: str | None) -> Net:
    """q withdraws while something of p is above that c was not told of: what follows may not be told early."""
    net = net_of(variant, FORK, {"p": "b2", "c": "b2", "q": "b3", "t": "b3"})
    net.advertise("p")
    net.advertise("q")
    net.subscribe("c", "true")
    net.subscribe("t", "true")
    net.hold(("b2", "b1"))
    net.publish("p", "one")
    net.unadvertise("q")
    net.publish("p", "two")
    net.release()
    return net


def late_answer(variant: str | None) -> Net:
    """c is told early while q's advertisement is on its way: q may publish when that has come back."""
    net = net_of(variant, DEEP, {"p": "b2", "c": "b2", "q": "b3", "t": "b3", "u": "b0"})
    net.advertise("p")
    net.subscribe("c", "true")
    net.subscribe("t", "true")
    net.subscribe("u", "x = 1")
    net.hold(("b1", "b2"))
    net.advertise("q")
    net.hold(("b1", "b0"))
    net.publish("p", "one", x=1)
    assert net.seen("c") == ["one"] and net.seen("t") == []
    net.release(("b1", "b2"))
    net.publish("q", "two", x=2)
    net.release()
    return net


def late_joining(variant: str | None) -> Net:
    """c is told early, and then wants more: what is on its way down to others may be before what c was told."""
    net = net_of(variant, FORK, {"p": "b2", "c": "b2", "d": "b2", "q": "b3", "t": "b3"})
    net.advertise("p", "x = 1")
    net.advertise("q", "x = 2")
    net.subscribe("c", "x = 1")
    net.subscribe("d", "true")
    net.subscribe("t", "true")
    net.hold(("b2", "b1"))
    net.publish("p", "one", x=1)
    net.subscribe("c", "x = 2", "more")
    net.publish("q", "two", x=2)
    net.release()
    assert len(net.told("c", Subscribed)) == 2
    return net


def warning(variant: str | None) -> Net:
    """c comes to want what is above: it may not be told early of what follows."""
    net = net_of(variant, FORK, {"p": "b2", "c": "b2", "d": "b2", "q": "b3", "t": "b3"})
    net.advertise("p")
    net.advertise("q", "x = 3")  # d hears it too, so that what d wants comes back
    net.subscribe("c", "x = 1")
    net.subscribe("d", "true")
    net.subscribe("t", "true")
    net.hold(("b2", "b1"))
    net.publish("p", "one", x=2)
    net.subscribe("c", "x = 2", "more")
    net.publish("p", "two", x=1)
    net.release()
    return net


STORIES: dict[str, tuple[Callable[[str | None], Net], list[str], list[str]]] = {  # what c sees, with and without
    "no-late-withdrawal": (late_withdrawal, ["last"], []),
    "no-following": (following, ["one", "two"], ["two", "one"]),
    "no-single-source": (single_source, ["two", "one"], ["one", "two"]),
    "no-untold": (untold, ["one", "two"], ["two", "one"]),
    "no-late-answer": (late_answer, ["one", "two"], ["one", "two"]),
    "no-late-joining": (late_joining, ["one"], ["one", "two"]),
    "no-warning": (warning, ["one", "two"], ["two", "one"]),
}


@pytest.mark.parametrize("variant", STORIES)
def test_with_the_rule_and_without(variant: str) -> None:
    story, proper, broken = STORIES[variant]
    net = story(None)
    assert net.seen("c") == proper
    assert [id for id in net.seen("t") if id in proper] == [id for id in proper if id in net.seen("t")]
    assert all(not machine.explain() for machine in net.machines.values())
    net = story(variant)
    assert net.seen("c") == broken


@pytest.mark.parametrize("variant", ["no-single-source", "no-late-answer", "no-late-joining"])
def test_without_the_rule_somebody_sees_another_order(variant: str) -> None:
    net = STORIES[variant][0](variant)
    assert (net.seen("c"), net.seen("t")) == (["one", "two"], ["two", "one"])


def end_of_early(variant: str | None) -> Net:
    """c is told early all the time, and wants more: something of p is above at every moment."""
    net = net_of(variant, FORK, {"p": "b2", "c": "b2", "q": "b2", "t": "b3"})
    net.advertise("p", "x = 1")
    net.advertise("q", "x = 2")
    net.subscribe("c", "x = 1")
    net.subscribe("t", "x = 1")
    net.hold(("b1", "b2"))
    net.publish("p", "p0", x=1)
    net.subscribe("c", "x = 2", "more")
    for i in range(1, 9):
        net.hold(("b2", "b1"))
        net.publish("p", f"p{i}", x=1)
        net.release(("b1", "b2"))
        net.hold(("b1", "b2"))
        net.release(("b2", "b1"))
    return net


def test_a_subscription_begins_although_its_client_is_told_early_all_the_time() -> None:
    net = end_of_early(None)
    assert len(net.told("c", Subscribed)) == 2
    net.release()
    assert net.seen("c") == net.seen("t") == [f"p{i}" for i in range(9)]
    net = end_of_early("no-end-of-early")
    assert len(net.told("c", Subscribed)) == 1


def beginning(variant: str | None) -> Net:
    """c comes to want what was published before something it was notified of."""
    net = net_of(variant, FORK, {"p": "b2", "c": "b2", "d": "b2", "q": "b3"}, RESOLUTION)
    net.advertise("p", "x = 1")
    net.advertise("q", "x = 2")
    net.subscribe("c", "x = 1")
    net.subscribe("d", "x = 2")
    net.hold(("b1", "b2"))
    net.publish("q", "before", x=2)
    for i in range(9):
        net.publish("p", f"p{i}", x=1)
    net.subscribe("c", "x = 2", "more")
    net.release()
    return net


def test_a_subscription_begins_after_all_that_it_met() -> None:
    assert not beginning(None).told("c", Gap) and beginning(None).seen("d") == ["before"]
    assert [gap.topic for gap in beginning("no-beginning").told("c", Gap)] == ["more"]


def second_echo(variant: str | None) -> Net:
    """b2's clock is far ahead when c subscribes there to what q publishes, whose clock is far behind."""
    net = net_of(variant, FORK, {"p": "b2", "c": "b2", "q": "b3"}, RESOLUTION)
    net.advertise("p", "x = 1")
    net.advertise("q", "x = 2")
    for i in range(9):
        net.publish("p", f"p{i}", x=1)
    net.subscribe("c", "x = 2")
    assert net.told("c", Subscribed)
    net.publish("q", "after", x=2)
    return net


def test_what_is_published_after_the_acknowledgement_comes() -> None:
    assert second_echo(None).seen("c") == ["after"]
    assert second_echo("no-second-echo").seen("c") == []


def test_what_waits_when_its_publisher_withdraws_waits_on() -> None:
    """Found as world 434 of seed 21: one publisher is left, but what waits is not its own."""
    net = net_of(None, FORK, {"p": "b2", "c": "b1", "q": "b3", "t": "b3"}, RESOLUTION)
    net.advertise("p")
    net.advertise("q")
    net.subscribe("c", "true")
    net.subscribe("t", "true")
    net.hold(("b3", "b1"), ("b1", "b3"))
    net.publish("q", "q1")
    net.publish("p", "p1")
    net.publish("p", "p2")
    net.unadvertise("p")
    assert net.seen("c") == []
    net.release()
    assert net.seen("c") == net.seen("t") and len(net.seen("c")) == 3 and not net.told("c", Gap)


def test_who_hears_one_publisher_only_is_told_at_once() -> None:
    for order in ("rooted", "resolution"):
        net = Net(FORK, {"p": "b2", "c": "b2", "t": "b3"}, OverlayOptions(order=order))
        net.advertise("p")
        net.subscribe("c", "true")
        net.subscribe("t", "true")
        net.hold(("b2", "b1"))
        net.publish("p", "one")
        assert net.seen("c") == ["one"] and net.told("p", EventTaken)
        net.release()
        assert net.seen("t") == ["one"]
