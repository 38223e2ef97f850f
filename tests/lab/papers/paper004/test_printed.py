"""Where paper 004 is wrong as printed."""

from collections import deque
from collections.abc import Mapping

from seriatim.lab.papers.paper004 import Sequencer
from seriatim.lab.papers.paper004.sequencer import Terminate
from seriatim.model import APPLICATION, Event, Notification
from seriatim.protocols.atoms import AtomsOptions, Plan, Receiver, build, check
from seriatim.protocols.atoms.bounds import clique_bound
from seriatim.protocols.atoms.graph import Atom, Route, SequencingGraph
from seriatim.protocols.atoms.messages import Finished, Publish
from seriatim.protocols.atoms.overlaps import Members, group_of
from seriatim.protocols.machine import Payload
from tests.protocols.atoms.oracle import problems_of

Paths = dict[str, list[str]]

PAIRS = {"Q01": ("G0.1", "G1.1"), "Q02": ("G0.1", "G2.1"), "Q12": ("G1.1", "G2.1")}
FIGURE_2: dict[str, Members] = {"G0.1": frozenset("ABD"), "G1.1": frozenset("ABC"), "G2.1": frozenset("BCD")}


class Printed:
    """Sequencers and receivers; links can be held back."""

    def __init__(self, pairs: Mapping[str, tuple[str, str]], paths: Paths, members: Mapping[str, Members]) -> None:
        self.paths = paths
        self.machines: dict[str, Sequencer | Receiver] = {
            name: Sequencer(name, pair, paths, members) for name, pair in pairs.items()
        }
        graph = SequencingGraph(
            {name: Atom(pair, None, "h") for name, pair in pairs.items()},
            {group: Route(each) for group, each in members.items()},
        )
        plan = Plan(graph, ("h",), ("i",))
        for member in sorted(frozenset().union(*members.values())):
            self.machines[member] = Receiver(plan, member, AtomsOptions())
        self.links: dict[tuple[str, str], deque[Payload]] = {}
        self.held: set[tuple[str, str]] = set()
        self.seen: dict[str, list[str]] = {name: [] for name in self.machines}

    def publish(self, topic: str, id: str) -> None:
        self._step(self.paths[group_of(topic, 1)][0], APPLICATION, Publish(Event(id, topic, "p")))

    def terminate(self, group: str) -> None:
        self._step(self.paths[group][0], APPLICATION, Terminate(group))

    def release(self, *links: tuple[str, str]) -> None:
        self.held.difference_update(links or set(self.held))
        self.run()

    def run(self) -> None:
        for _ in range(1_000):
            link = next((each for each, waiting in self.links.items() if waiting and each not in self.held), None)
            if link is None:
                return
            self._step(link[1], link[0], self.links[link].popleft(), run=False)
        raise AssertionError("the system does not come to rest")

    def _step(self, target: str, source: str, message: Payload, run: bool = True) -> None:
        effects = self.machines[target].step(source, message, 0.0)
        self.seen[target] += [each.event.id for each in effects.notify if isinstance(each, Notification)]
        for to, sent in effects.send:
            if not isinstance(sent, Finished):
                self.links.setdefault((target, to), deque()).append(sent)
        if run:
            self.run()


def test_c1_and_c2_alone_allow_a_deadlock() -> None:
    """G1 walks Q12 → Q02 → Q01, the others the other way."""
    paths = {"G0.1": ["Q01", "Q02"], "G1.1": ["Q12", "Q02", "Q01"], "G2.1": ["Q02", "Q12"]}
    owned = {group: [name for name, pair in PAIRS.items() if group in pair] for group in paths}
    found = problems_of(paths, owned)
    assert found and all(each.startswith("direction") for each in found)
    net = Printed(PAIRS, paths, FIGURE_2)
    net.held = {("Q01", "Q02"), ("Q12", "Q02"), ("Q02", "Q12")}
    net.publish("G0", "m0")  # Q01: m0 first
    net.publish("G1", "m1")  # Q12: m1 first
    net.publish("G2", "m2")  # Q02: m2 first
    net.release()
    # Q01: m0 before m1. Q12: m1 before m2. Q02: m2 before m0.
    assert net.seen["B"] == []


def test_the_loop_of_figure_2a() -> None:
    paths = {"G0.1": ["Q01", "Q02"], "G1.1": ["Q01", "Q12"], "G2.1": ["Q02", "Q12"]}
    net = Printed(PAIRS, paths, FIGURE_2)
    net.held = {("Q01", "Q02"), ("Q02", "Q12")}
    net.publish("G0", "m0")
    net.publish("G1", "m1")
    net.publish("G2", "m2")
    net.release()
    assert net.seen["B"] == []
    check(build(FIGURE_2))


PASSING = {"X.1": ["P", "Q", "C"], "W.1": ["P"], "Y.1": ["Q"], "Z.1": ["C"]}
PASSING_PAIRS = {"P": ("W.1", "X.1"), "Q": ("X.1", "Y.1"), "C": ("X.1", "Z.1")}
BOTH = frozenset("rs")


def test_a_sequencer_that_retires_lets_messages_overtake() -> None:
    net = Printed(PASSING_PAIRS, PASSING, dict.fromkeys(PASSING, BOTH))
    net.held = {("Q", "C")}
    net.publish("X", "x1")
    net.terminate("Y.1")  # Q tells P to forward to C
    net.publish("X", "x2")
    net.release()
    assert net.seen["r"] == net.seen["s"] == []
    receiver = net.machines["r"]
    assert isinstance(receiver, Receiver)
    assert receiver.explain()[:2] == ["x1 (X.1 1): waits for C 1", "x2 (X.1 2): waits for X.1 1"]


def test_a_sequencer_that_retires_when_the_termination_message_passes_retires_too_early() -> None:
    net = Printed(
        {"Q": ("X.1", "Y.1"), "C": ("X.1", "Z.1")},
        {"X.1": ["Q", "C"], "Y.1": ["Q"], "Z.1": ["C"]},
        dict.fromkeys(("X.1", "Y.1", "Z.1"), BOTH),
    )
    net.held = {("Q", "s")}
    net.publish("Y", "y")
    net.terminate("Y.1")
    net.publish("X", "x")
    net.release()
    assert net.seen["r"] == ["y", "x"] and net.seen["s"] == ["x", "y"]


def test_paths_are_longer_than_the_number_of_groups() -> None:
    groups = 32
    atoms = groups * (groups - 1) // 2
    mean = (2 * atoms + clique_bound(groups)) / groups  # at least, in any graph with C1 and C2
    assert int(mean) == 151 > groups
    built = build({group_of(f"T{index}", 1): "ab" for index in range(groups)})
    assert sum(built.lengths().values()) / groups >= mean
