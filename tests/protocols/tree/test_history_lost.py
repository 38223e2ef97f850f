"""A subscriber reads history from an order log that was deleted, or is an older copy: what is gone is a gap."""

from seriatim.model import APPLICATION, BROKER, Gap
from seriatim.protocols.broker import KeepOrder
from seriatim.protocols.with_broker import Start
from tests.protocols.tree.test_history import begin, net_of, traffic


def test_a_deleted_order_log_is_a_gap_also_for_topics_without_later_events() -> None:
    net = net_of()
    traffic(net, 3)
    net.step(APPLICATION, BROKER, KeepOrder(0, 0))
    net.wait(60)
    begin(net, "s", "AB", Start())
    net.wait(60)
    assert [(gap.topic, gap.first, gap.last) for gap in net.all_told("s", Gap)] == [("A", 1, 3), ("B", 1, 3)]
    assert net.subscriber("s").past() is None, "it is live, though nobody has published since"
    net.publish("p", "A", "a4")
    net.wait(60)
    begin(net, "t", "AB", Start())
    net.wait(60)
    assert [(gap.topic, gap.first, gap.last) for gap in net.all_told("t", Gap)] == [("A", 1, 3), ("B", 1, 3)]
    assert net.notified("s") == net.notified("t") == ["a4"]


def test_an_older_copy_of_the_order_log_is_a_gap_in_its_place() -> None:
    net = net_of()
    traffic(net, 3)  # A, B and C in turn: nine positions
    net.step(APPLICATION, BROKER, KeepOrder(1, 4))
    net.wait(60)
    net.publish("p", "A", "a4")
    net.wait(60)
    for name, start in (("s", Start()), ("t", Start(after=5))):
        begin(net, name, "AB", start)
        net.wait(60)
    assert net.notified("s") == ["a1", "b1", "a2", "a4"]
    gaps = [(gap.topic, gap.first, gap.last) for gap in net.all_told("s", Gap)]
    assert gaps == [("A", 3, 3), ("B", 2, 3)]
    assert net.notified("t") == ["a4"]
    for gap in net.all_told("t", Gap):  # nobody knows which of them stood behind position 5
        assert (gap.first, gap.last) == (1, 3)
        assert "it may be from before the start" in gap.reason
