"""VCube-PS: worlds that take several things at the right moments, each as a story that is told step by step.

In most of them `middle` comes after `cause`, is received by every member and so stands for it in the barrier of
`effect`; then everybody dies who could tell that `cause` comes first.
"""

import pytest
from tests.protocols.vcube.net import Net

from seriatim.explore.vcube_variants import peer_of
from seriatim.protocols.vcube.messages import Ack, Census, Pub, Published, Spare, Suspect


@pytest.mark.parametrize("variant", ["no-closed-frontier", None])
def test_a_joiner_begins_after_the_middle_of_a_chain(variant: str | None) -> None:
    """1 says how far it is before it publishes `cause`, 0 after it published `middle`."""
    net = Net(peer_of(variant), range(4))
    net.subscribe(0, 1, 2)
    net.hold(1, 0, Census)
    net.subscribe(3)
    net.hold(2, 3, "cause")
    net.publish(1, "cause")
    net.publish(0, "middle", "all have middle")
    net.release(1, 0)
    net.publish(2, "effect")
    net.release(2, 3)
    assert net.seen(3) == (["effect"] if variant is None else ["effect", "cause"])


@pytest.mark.parametrize("variant", ["no-known-start", None])
def test_only_joiners_are_left_of_those_who_had_it(variant: str | None) -> None:
    """4 and 6 are joining. 0 was held up and sends them `cause` when `middle` has long been received by all."""
    net = Net(peer_of(variant), range(7))
    net.subscribe(0, 1, 2, 3, 5)
    net.publish(3, "first")
    net.hold(0, 5, Pub)
    net.publish(0, "cause")
    net.publish(2, "middle", "all have middle")
    assert net.answers(2, Published)[0] == Published("middle")
    net.hold(4, 6, Census)
    net.hold(6, 2, Census)
    net.subscribe(4, 6)
    net.hold(0, 4, Pub)
    net.kill(5)
    net.suspect(5)
    net.hold(6, 4, Ack)
    net.publish(1, "effect")
    net.hold(4, 6, Census, Pub, Spare)
    net.release(0, 4)
    for id in range(4):
        net.kill(id)
    for id in range(4):
        net.suspect(id)
    net.release(4, 6)
    net.release(6, 4)
    net.publish(4, "new")
    assert net.seen(6) == (["new"] if variant is None else ["effect", "cause", "new"])


@pytest.mark.parametrize("variant", ["no-arrival", None])
def test_what_members_have_of_the_dead_comes_late(variant: str | None) -> None:
    """4 joins; the two who have `middle` cannot notify it yet, and what they send 4 of it is slow."""
    net = Net(peer_of(variant), range(5))
    net.subscribe(0, 1, 2, 3)
    net.hold(1, 0, "first")
    net.publish(1, "first")
    net.hold(0, 1, "cause")
    net.publish(2, "cause")
    net.publish(3, "middle", "all have middle")
    for id in (2, 3):
        net.kill(id)
    for id in (2, 3):
        net.suspect(id)
    assert net.seen(0) == [] and net.seen(1) == ["first"]
    net.hold(0, 4, "cause", "middle")
    net.hold(1, 4, "middle")
    net.subscribe(4)
    if variant is None:
        machine = net.machines[4]
        assert "A: to begin, publication 1 of 3 is waited for" in machine.explain()  # type: ignore[attr-defined]
    net.kill(1, 0, 4)
    net.hold(4, 0, Census)
    net.suspect(1)
    net.release(4, 0)
    assert net.seen(0) == ["cause", "middle", "all have middle"]
    net.publish(0, "effect")
    net.release(0, 4)
    assert net.seen(4) == (["effect"] if variant is None else ["all have middle", "effect", "cause"])


def leaver(variant: str | None) -> Net:
    """4 has left and still hands on `cause` and `effect` to 5, which is joining. It had received `middle`, but not
    notified it, for want of what came before. All others die."""
    net = Net(peer_of(variant), range(6))
    net.subscribe(0, 1, 2, 3, 4)
    net.hold(3, 4, "first")
    net.publish(3, "first")
    net.hold(0, 4, "cause")
    net.publish(0, "cause")
    net.publish(2, "middle", "all have middle")
    assert net.answers(2, Published)[0] == Published("middle")
    net.hold(5, 1, Census)
    net.subscribe(5)
    net.hold(5, 4, Census)
    net.hold(4, 5, "cause", "effect")
    net.publish(1, "effect")
    net.release(0, 4)
    net.unsubscribe(4)
    assert net.seen(4) == []
    for id in range(4):
        net.kill(id, 4, 5)
    for id in range(4):
        net.suspect(id)
    return net


@pytest.mark.parametrize("variant", ["no-remains", None])
def test_who_left_hands_on_what_its_past_is_lost_of(variant: str | None) -> None:
    net = leaver(variant)
    net.release(5, 4)
    net.release(4, 5)
    right = ["cause", "middle", "all have middle", "effect"]
    assert net.seen(5) == (right if variant is None else ["effect", "cause"])


@pytest.mark.parametrize("variant", ["no-own-answer", None])
def test_who_returns_while_it_still_hands_on(variant: str | None) -> None:
    net = leaver(variant)
    net.subscribe(4)
    net.release(5, 4)
    net.release(4, 5)
    right = ["cause", "middle", "all have middle", "effect"]
    assert net.seen(4) == (right if variant is None else ["effect", "cause"])
    assert net.seen(5) == ([] if variant is None else ["effect", "cause"])


@pytest.mark.parametrize("variant", ["no-stable-pruning", None])
def test_a_chain_whose_middle_died_with_two_peers(variant: str | None) -> None:
    net = Net(peer_of(variant), [0, 1, 3, 4])
    net.subscribe(0, 1, 3, 4)
    for source, target in ((0, 3), (0, 4), (1, 4), (4, 3)):
        net.hold(source, target, Pub)
    net.publish(4, "cause")
    net.publish(0, "middle")
    net.publish(1, "effect")  # 3 has it, and nothing else; nobody who lives has the middle
    net.kill(0, 3, 4)
    net.kill(1, 4)
    net.suspect(0)
    net.suspect(1)
    net.release(4, 3)
    assert net.seen(3) == (["cause", "effect"] if variant is None else ["effect", "cause"])
    assert net.seen(4) == ["cause", "effect"]


@pytest.mark.parametrize("variant", ["no-spares", None])
def test_what_everybody_had_before_somebody_joined(variant: str | None) -> None:
    """Everybody received `late` before 4 came, and nobody could notify it yet; its source will not send it again."""
    net = Net(peer_of(variant), range(5))
    net.subscribe(0, 1, 2, 3)
    for target in (0, 1):
        net.hold(3, target, Pub)
    net.publish(3, "lost")  # only 2 gets it
    net.hold(2, 0, Ack)
    net.publish(2, "late")  # after it
    net.kill(3, 0, 1)
    net.kill(2, 0, 1, 3)
    net.suspect(2)
    assert net.seen(0) == net.seen(1) == []
    net.subscribe(4)
    net.tell(4, Suspect(3))  # the first to notice that 3 is gone asks the others, who did not know it yet
    assert net.seen(0) == net.seen(1) == ["late"]
    net.publish(0, "new")
    assert net.seen(4) == (["late", "new"] if variant is None else [])
