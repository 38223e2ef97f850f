"""Where VCube-PS as printed fails (DESIGN §7, rows of 001), and that ours keeps its promise in the same story."""

import pytest

from seriatim.lab.papers.paper001 import CubeNode
from seriatim.protocols.vcube import Peer, VCubeOptions
from seriatim.protocols.vcube.messages import EventReceived, Subscribed
from tests.protocols.vcube.net import Net

as_printed = pytest.mark.parametrize("peer", [CubeNode, Peer], ids=["as printed", "ours"])


@as_printed
def test_quiet_times_are_the_same_for_both(peer: type[Peer] | type[CubeNode]) -> None:
    """Figure 2 of paper 001: three nodes, four publications, all delivered in causal order."""
    net = Net(peer, range(4))
    net.subscribe(0, 1, 2)
    net.publish(0, "m01")
    net.publish(1, "m11")
    net.publish(2, "m21")
    net.publish(1, "m12")
    assert net.seen(0) == net.seen(1) == net.seen(2) == ["m01", "m11", "m21", "m12"]
    assert net.seen(3) == []


@as_printed
def test_a_joiner_and_a_source_that_stays_silent(peer: type[Peer] | type[CubeNode]) -> None:
    net = Net(peer, range(4))
    net.subscribe(0, 1, 2)
    net.publish(2, "old")  # and never again
    net.subscribe(3)
    net.publish(1, "new")  # its barrier names `old`, which 3 was never sent
    assert net.seen(0) == ["old", "new"]
    assert net.seen(3) == ([] if peer is CubeNode else ["new"])


@as_printed
def test_a_joiner_that_does_not_know_the_members_yet(peer: type[Peer] | type[CubeNode]) -> None:
    net = Net(peer, range(8))
    net.subscribe(0, 5)
    net.hold(5, 4)  # 5's answer to 4 is slow
    net.subscribe(4)  # 4 is the nearest member in 0's third cluster, where 5 is too
    net.publish(0, "m")
    net.release(5, 4)
    assert net.seen(5) == ([] if peer is CubeNode else ["m"])
    assert net.answers(0, EventReceived) == [EventReceived("m")]  # as printed, 0 even believes that all have it


@as_printed
def test_a_chain_whose_middle_the_joiner_never_gets(peer: type[Peer] | type[CubeNode]) -> None:
    net = Net(peer, range(8))
    net.subscribe(4, 7)
    net.hold(6, 7)
    net.subscribe(0)  # 4 knows of 0, and 7 not yet: it is told through 6
    net.hold(4, 0)
    net.publish(4, "d")  # on its way to 0, slowly
    net.publish(7, "e'")  # after d; not for 0
    net.release(6, 7)  # now 7 knows of 0
    net.publish(7, "f")  # after e'
    net.release(4, 0)
    if peer is CubeNode:
        assert net.seen(0) == ["f", "d"], "the effect before its cause"
    else:
        assert net.seen(0) in (["d", "e'", "f"], ["e'", "f"], ["f"], []), "from some place on, in causal order"
        net.publish(4, "g")
        assert net.seen(0)[-1] == "g" and net.answers(0, Subscribed)


@as_printed
def test_a_relay_crashes(peer: type[Peer] | type[CubeNode]) -> None:
    net = Net(peer, range(4))
    net.subscribe(0, 1, 2, 3)
    net.kill(2)
    net.publish(0, "m1", "m2")  # 2 should have handed them to 3
    net.suspect(2)
    if peer is CubeNode:
        assert net.seen(3) == [] and net.answers(0, EventReceived) == []
    else:
        assert net.seen(3) == ["m1", "m2"]
        assert net.answers(0, EventReceived) == [EventReceived("m1"), EventReceived("m2")]


def test_ours_has_a_window_and_the_paper_stops_and_waits() -> None:
    for window, expected in ((1, ["m1"]), (3, ["m1", "m2", "m3"])):
        net = Net(Peer, range(2), VCubeOptions(window=window))
        net.subscribe(0, 1)
        net.hold(1, 0)  # no acknowledgement arrives
        net.publish(0, "m1", "m2", "m3", "m4")
        assert net.seen(1) == expected
        net.release(1, 0)
        assert net.seen(1) == ["m1", "m2", "m3", "m4"]
    printed = Net(CubeNode, range(2))
    printed.subscribe(0, 1)
    printed.hold(1, 0)
    printed.publish(0, "m1", "m2")
    assert printed.seen(1) == ["m1"]
