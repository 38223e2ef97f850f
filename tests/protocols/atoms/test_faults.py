"""Mistakes that were found by looking for them, each as the story that shows it."""

from typing import Any

from seriatim.explore.atoms_worlds import OwnIngresses, own_ingresses
from seriatim.protocols.atoms import COORDINATOR, AtomHost, AtomsOptions, Node, check
from seriatim.protocols.atoms.messages import Accepted, Carry, Changed, Forget, Install, Item, Notice, Refused
from seriatim.protocols.atoms.plan import spread
from seriatim.protocols.link import Frame
from tests.protocols.atoms.net import Net
from tests.protocols.atoms.test_stories import four


def strays(net: Net) -> list[Any]:
    return [told for host in net.plan.hosts for told in net.told[host]]


def test_the_last_message_of_a_forgotten_group_when_another_one_is_removed_first() -> None:
    """C's FIN is on its way, to members who are forgotten; the removal of D cuts the edge that it would walk."""
    net = four(None)
    net.hold(("C", "AC"))
    net.change("C")
    net.hold(("s", COORDINATOR))
    net.change("D")
    net.hold((COORDINATOR, "D"))
    net.release(("s", COORDINATOR))
    assert "removing D.1" in net.explain(COORDINATOR)[0]
    for receiver in "rs":
        net.tell(COORDINATOR, Forget(receiver))
    net.release((COORDINATOR, "D"))
    net.release()
    assert strays(net) == [] and set(net.graph.groups) == {"A.1", "B.1"}


def test_what_is_published_after_a_change_was_confirmed_is_published_in_the_new_group() -> None:
    net = Net(own_ingresses({"A": "r s"}, {}, "U"), "rst")
    net.hold((COORDINATOR, "A"), (COORDINATOR, "U"))
    net.change("U", "r")
    net.change("A", "r t")
    net.change("U")
    assert net.answers(COORDINATOR, Changed) == []
    net.publish("U", "early")
    assert net.answers("U", Refused)
    net.release((COORDINATOR, "U"))
    assert [each.group for each in net.answers(COORDINATOR, Changed)] == ["U.1"]
    net.publish("A", "a1")
    net.release()
    assert [each.group for each in net.answers(COORDINATOR, Changed)] == ["U.1", "A.2", ""]
    net.publish("A", "a2")
    assert [each.group for each in net.answers("A", Accepted)] == ["A.1", "A.2"]
    assert net.seen("s") == ["a1"] and net.seen("t") == ["a2"]


def test_nothing_is_kept_for_a_receiver_that_was_forgotten_while_its_group_opened() -> None:
    """The notice was sent before the receiver was forgotten, and comes to the host after that."""
    plan = own_ingresses({"A": "r s"}, {}, "U")
    host = Node(AtomHost(plan, "h1", AtomsOptions()), 100.0)
    for number, message in enumerate((Install("1", "A.1&U.1", ("A.1", "U.1"), None, ""), Forget("s")), 1):
        host.step(COORDINATOR, Frame(1, number, 1, message), 0.0)
    notice = Notice(opens=True, way=("A.1&U.1",), members=frozenset("rs"))
    opened = host.step("U", Frame(1, 1, 0, Carry("A.1&U.1", "U.1", Item("U.1", 1, {}, None, notice))), 0.0)
    assert [target for target, _ in opened.send] == ["r", "U"]
    assert host.step("r", Frame(1, 0, 1), 0.0).wake_at is None and host.explain() == []


def test_a_change_does_not_end_before_its_new_way_is_in_use() -> None:
    """Else the marker that opens the way comes late, and looks for an atom that the next change has taken away."""
    names = ["A.1&B.1", "B.1&C.1", "B.1&D.1", "D.1&G.1", "G.1&H.1", "H.1&I.1"]
    hosts = {name: name.replace(".1", "").replace("&", "") for name in (*names, "E.1&F.1")}
    members = {"A": "r s p q", "B": "r s t u v w", "C": "t u", "D": "v w d e", "G": "d e f g", "H": "f g h i"}
    graph = own_ingresses({**members, "I": "h i", "E": "x y", "F": "x y"}, hosts).graph
    for name, after in zip(names, [*names[1:], None], strict=True):
        graph.atoms[name].next = after  # one chain, which is valid too
    for group, route in graph.groups.items():
        own = [name for name in hosts if group in graph.atoms[name].pair]
        route.entry, route.end = own[0], own[-1]
    check(graph)
    new = {f"x{i}" for i in range(17)}
    plan = OwnIngresses(graph, tuple(sorted({*hosts.values(), *new})), tuple("ABCDEFGHIZ"))
    first, second, third = (spread(f"{group}.1&Z.1", plan.hosts) for group in "AEF")
    assert len({first, second, third} & new) == 3
    net = Net(plan, "rspqtuvwdefghixy", AtomsOptions(spread=True))
    net.hold(("AB", first))
    net.change("Z", "p q x y")  # between A.1&B.1 and B.1&C.1; E and F are led there
    net.hold((first, second))
    net.release(("AB", first))
    assert "drained" in net.explain(COORDINATOR)[0]
    net.change("C")  # its only atom goes
    net.publish("B", "b1")
    net.release()
    assert strays(net) == [] and net.explain(COORDINATOR) == [] and "B.1&C.1" not in net.graph.atoms
    assert net.seen("t") == ["b1"]
