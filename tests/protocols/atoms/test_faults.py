"""Mistakes that were found by looking for them, each as the story that shows it."""

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import pytest

from seriatim.lab.explore.atoms.worlds import OwnIngresses, own_ingresses
from seriatim.model import APPLICATION, Event, InputError, Notification
from seriatim.protocols.atoms import (
    COORDINATOR,
    AtomHost,
    AtomsOptions,
    Coordinator,
    Ingress,
    Plan,
    Receiver,
    check,
)
from seriatim.protocols.atoms.messages import (
    Accepted,
    Carry,
    Change,
    Changed,
    Forget,
    Install,
    Item,
    Notice,
    Publish,
    Refused,
)
from seriatim.protocols.atoms.overlaps import atom_of, group_of
from seriatim.protocols.atoms.plan import spread
from seriatim.protocols.link import Frame
from seriatim.protocols.machine import Effects
from seriatim.protocols.node import JournaledNode
from tests.protocols.atoms.net import Net
from tests.protocols.atoms.test_stories import four

THREE = ["A.1&B.1", "A.1&C.1", "B.1&C.1"]


def first_group_of(topic: str) -> str:
    return group_of(topic, 1)


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
    host = JournaledNode(AtomHost(plan, "h1", AtomsOptions()), 100.0)
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


def test_a_topic_may_be_called_what_an_atom_is_called() -> None:
    topics = ["A", "A.1&B", "B", "&"]
    hosts = {atom_of(*map(first_group_of, pair)): "h1" for pair in combinations(topics, 2)}
    net = Net(own_ingresses(dict.fromkeys(topics, "r s"), hosts), "rs")
    for number in range(3):
        for topic in topics:
            net.publish(topic, f"{topic} {number}")
    net.change("A.1&B", "r")
    net.change("A.1&B")
    assert len(net.seen("r")) == len(net.seen("s")) == 12 and set(net.graph.groups) == {"A.1", "B.1", "&&.1"}


def test_a_publisher_that_begins_to_count_again_loses_nothing() -> None:
    """It was restarted: its first request is not a repeat of its earlier first one."""
    ingress = Ingress(own_ingresses({"A": "r"}, {}), "A", AtomsOptions())
    first = ingress.step(APPLICATION, Publish(Event("a1", "A", "p"), 1), 0.0)
    other = ingress.step(APPLICATION, Publish(Event("a2", "A", "p"), 1), 0.0)
    repeat = ingress.step(APPLICATION, Publish(Event("a2", "A", "p"), 1), 0.0)
    assert first.notify == [Accepted("a1", "A.1", 1)]
    assert other.notify == repeat.notify == [Accepted("a2", "A.1", 2)] and repeat.send == []


@pytest.mark.parametrize("name", ["", COORDINATOR, "A", "h1"])
def test_who_cannot_be_a_receiver(name: str) -> None:
    """A machine of the network is no member of anything, and is not forgotten: all others need it."""
    net = Net(own_ingresses({"A": "r s"}, {}, "U"), "rs")
    net.tell(COORDINATOR, Change("U", frozenset({"r", name})))
    assert "receiver" in net.answers(COORDINATOR, Refused)[0].reason
    with pytest.raises(InputError, match="receiver"):
        net.tell(COORDINATOR, Forget(name))
    net.change("U", "r s")
    net.publish("U", "u1")
    assert net.seen("r") == ["u1"]


class RestlessNet:
    """Machines with links and journals. Each is rebuilt from its journal after every single step."""

    def __init__(self, plan: Plan, receivers: str, options: AtomsOptions) -> None:
        self.creates: dict[str, Callable[[], Any]] = {COORDINATOR: partial(Coordinator, plan, COORDINATOR, options)}
        self.creates |= {name: partial(Ingress, plan, name, options) for name in plan.ingresses}
        self.creates |= {name: partial(AtomHost, plan, name, options) for name in plan.hosts}
        self.nodes: dict[str, Any] = {name: JournaledNode(create(), 1.0) for name, create in self.creates.items()}
        self.nodes |= {name: JournaledNode(Receiver(plan, name, options), 1.0, journals=False) for name in receivers}
        self.journals: dict[str, list[Any]] = {name: [] for name in self.creates}
        self.links: dict[tuple[str, str], deque[Any]] = {}
        self.told: dict[str, list[Any]] = {name: [] for name in self.nodes}
        self.restarts = 0

    def tell(self, address: str, command: Any) -> None:
        self._carry_out(address, self.nodes[address].step(APPLICATION, command, 0.0))
        for _ in range(20_000):
            link = next((link for link, waiting in self.links.items() if waiting), None)
            if link is None:
                return
            source, target = link
            self._carry_out(target, self.nodes[target].step(source, self.links[link].popleft(), 0.0))
        raise AssertionError("the system does not come to rest")

    def _carry_out(self, address: str, effects: Effects) -> None:
        self.told[address] += effects.notify
        self._send(address, effects)
        if not effects.persist:
            return
        node, journal = self.nodes[address], self.journals[address]
        journal += effects.persist
        again = JournaledNode.take_over(self.creates[address], 1.0, journal)
        assert again.inner.state == node.inner.state, address
        assert [(link.sent, link.received) for _, link in sorted(again.state.links.items()) if link.received] == [
            (link.sent, link.received) for _, link in sorted(node.state.links.items()) if link.received
        ]
        self.nodes[address] = again
        self.restarts += 1
        repeats = again.tick(0.0)
        journal += repeats.persist
        self._send(address, repeats)

    def _send(self, address: str, effects: Effects) -> None:
        for target, frame in effects.send:
            self.links.setdefault((address, target), deque()).append(frame)


def test_machines_that_are_restarted_after_every_step() -> None:
    """Groups open, change, end and begin again; what was sent before each crash comes twice."""
    plan = own_ingresses({"A": "r s", "B": "r s", "C": "r s"}, dict(zip(THREE, ["h1", "h2", "h3"], strict=True)), "U")
    net = RestlessNet(plan, "rst", AtomsOptions(spread=True))
    published: dict[str, list[str]] = {topic: [] for topic in "ABCU"}

    def publish(*topics: str) -> None:
        for topic in topics:
            id = f"{topic}{len(published[topic])}"
            published[topic].append(id)
            net.tell(topic, Publish(Event(id, topic, topic), len(published[topic])))

    publish("A", "B", "C")
    for topic, members in (("U", "r s"), ("B", "s t"), ("A", ""), ("A", "r s t"), ("U", ""), ("C", "r")):
        net.tell(COORDINATOR, Change(topic, frozenset(members.split())))
        publish(*(each for each in "ABC" if (topic, members, each) != ("A", "", "A")))
    net.tell(COORDINATOR, Forget("t"))
    publish("A", "B", "C")
    seen = {name: [each.event.id for each in net.told[name] if isinstance(each, Notification)] for name in "rst"}
    assert net.restarts > 300
    assert seen["s"] == sorted(set(seen["s"]), key=seen["s"].index) and set(published["B"]) <= set(seen["s"])
    common = [id for id in seen["r"] if id in seen["s"]]
    assert common == [id for id in seen["s"] if id in seen["r"]] and len(common) >= 10
    assert set(published["C"]) <= set(seen["r"]) and set(published["A"]) <= set(seen["r"])
    assert net.nodes[COORDINATOR].inner.explain() == []
    check(net.nodes[COORDINATOR].inner.state.graph)
