"""The purpose of each rule: the same story with the rule and without it, and paper 004 where it is wrong."""

from collections.abc import Callable

import pytest

from seriatim.lab.explore.atoms.worlds import OwnIngresses, own_ingresses
from seriatim.lab.explore.registry import ATOMS
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions, check
from seriatim.protocols.atoms.messages import Stray
from tests.protocols.atoms.net import Net

FOUR = {  # four groups that all overlap; each atom on a host of its own, in this order on the way to the root
    "A.1&B.1": "AB",
    "A.1&C.1": "AC",
    "B.1&C.1": "BC",
    "A.1&D.1": "AD",
    "B.1&D.1": "BD",
    "C.1&D.1": "CD",
}


def four(variant: str | None) -> Net:
    plan = own_ingresses(dict.fromkeys("ABCD", "r s"), FOUR)
    assert plan.graph.way("A.1&B.1") == list(FOUR)
    return Net(plan, "rs", cast=ATOMS.cast(variant))


def alone(variant: str | None) -> Net:
    """One group, and room for others."""
    return Net(own_ingresses({"A": "r s"}, {}, "U"), "rs", cast=ATOMS.cast(variant))


def drain_marker(variant: str | None) -> Net:
    """P → Q → C, and Q retires: what P sent before through Q must not be overtaken by what it sends past it."""
    net = four(variant)
    net.hold((COORDINATOR, "AC"))
    net.change("B")
    net.hold(("AC", "BC"))
    net.publish("A", "before")
    net.release((COORDINATOR, "AC"))  # A.1&C.1 now leads past B.1&C.1
    net.publish("A", "after")
    assert net.seen("r") == []
    net.release()
    return net


def later_entry(variant: str | None) -> Net:
    """A's atoms retire, so B enters further on: past its own message that took the longer way."""
    net = four(variant)
    net.hold((COORDINATOR, "B"))
    net.change("A")
    net.hold(("AB", "AC"))
    net.publish("B", "before")
    net.release((COORDINATOR, "B"))
    net.publish("B", "after")
    net.release()
    return net


def flush(variant: str | None) -> Net:
    """D ends, so A leaves at A.1&C.1. A message of A is beyond it when the edge that nobody walks any more is cut."""
    net = four(variant)
    net.hold((COORDINATOR, "A"))
    net.change("D")
    net.hold(("AC", "BC"))
    net.publish("A", "before")
    net.release((COORDINATOR, "A"))
    net.publish("A", "after")
    net.release()
    return net


def lingering(variant: str | None) -> Net:
    """A ends, and s has not got its last message when its atoms are taken away."""
    net = four(variant)
    net.hold(("AD", "s"))
    net.publish("A", "before")
    net.change("A")
    net.publish("B", "after")
    net.release()
    return net


def coupling_with_closed(variant: str | None) -> Net:
    """A has ended, and s has not got its last message when U begins."""
    net = alone(variant)
    net.hold(("A", "s"))
    net.publish("A", "before")
    net.change("A")
    net.change("U", "r s")
    net.publish("U", "after")
    net.release()
    return net


def two_phases(variant: str | None) -> Net:
    """U begins while a message of A, from before A knew of it, is still on its way to s."""
    net = alone(variant)
    net.hold(("A", "s"), (COORDINATOR, "A"))
    net.publish("A", "before")
    net.change("U", "r s")
    net.publish("U", "after")
    if net.seen("r") == ["before"]:  # U has not begun: it was not published
        net.release()
        net.publish("U", "after")
    net.release()
    return net


def inherited_entry(variant: str | None) -> Net:
    """B gets a new group while a message of its old one is still on its way to the atom of the two."""
    net = four(variant)
    net.hold((COORDINATOR, "B"))
    net.change("B", "r s")
    net.hold(("AB", COORDINATOR))  # the host of the new atoms, which tells that B has marked
    net.release((COORDINATOR, "B"))
    net.hold(("AB", "AC"))
    net.publish("B", "before")
    net.release(("AB", COORDINATOR))
    net.publish("B", "after")
    net.release()
    return net


def marks(variant: str | None) -> Net:
    """U begins, and its first message follows A's mark."""
    net = alone(variant)
    net.publish("A", "before")
    net.change("U", "r s")
    net.publish("U", "after")
    return net


STORIES: dict[str, tuple[Callable[[str | None], Net], str]] = {
    "no-drain-marker": (drain_marker, "stuck"),
    "no-later-entry-drain": (later_entry, "stuck"),
    "no-flush": (flush, "stray"),
    "no-lingering": (lingering, "inversion"),
    "no-coupling-with-closed": (coupling_with_closed, "inversion"),
    "no-two-phases": (two_phases, "inversion"),
    "no-marks": (marks, "stuck"),
    "no-inherited-entry": (inherited_entry, "disorder"),
}


@pytest.mark.parametrize("variant", STORIES)
def test_with_the_rule_everything_comes_in_order(variant: str) -> None:
    net = STORIES[variant][0](None)
    assert net.seen("r") == net.seen("s") == ["before", "after"]
    assert net.graph and net.explain(COORDINATOR) == []


@pytest.mark.parametrize("variant", STORIES)
def test_without_the_rule(variant: str) -> None:
    story, kind = STORIES[variant]
    net = story(variant)
    if kind == "inversion":
        assert {tuple(net.seen("r")), tuple(net.seen("s"))} == {("before", "after"), ("after", "before")}
    elif kind == "disorder":
        assert net.seen("r") == net.seen("s") == ["after", "before"]
    elif kind == "stray":
        assert [name for name in net.plan.hosts if net.answers(name, Stray)]
        assert "before" not in net.seen("r")
    else:
        assert "after" not in net.seen("r") and net.explain("r")


@pytest.mark.parametrize("variant", [None, "no-drain-marker"])
def test_a_chain_that_is_put_into_an_edge(variant: str | None) -> None:
    """P → C becomes P → Q → C: what P sent before must not be overtaken either."""
    members = {"A": "r s", "B": "r s t u", "C": "t u v w", "D": "v w"}
    graph = own_ingresses(members, {"A.1&B.1": "AB", "B.1&C.1": "BC", "C.1&D.1": "CD"}).graph
    graph.atoms["B.1&C.1"].next, graph.atoms["C.1&D.1"].next = "C.1&D.1", None  # one chain, which is valid too
    graph.groups["C.1"].entry, graph.groups["C.1"].end = "B.1&C.1", "C.1&D.1"
    check(graph)
    net = Net(OwnIngresses(graph, ("AB", "BC", "CD", "empty"), (*"ABCDZ",)), "rstuvw", cast=ATOMS.cast(variant))
    net.hold(("AB", "BC"))
    net.publish("B", "before")
    net.change("Z", "r s")  # its atoms come between the two, on the host that has none
    net.publish("B", "after")
    assert net.machines["AB"].state.atoms["A.1&B.1"].next_host == "empty"
    net.release()
    if variant is not None:
        assert net.seen("t") == [] and net.explain("t")
        return
    net.publish("Z", "z")
    assert net.seen("t") == ["before", "after"] and net.seen("r") == ["before", "after", "z"]
    assert net.graph.path("B.1") == ["A.1&B.1", "A.1&Z.1", "B.1&Z.1", "B.1&C.1"]


@pytest.mark.parametrize("causal", [False, True])
def test_a_chain_of_causes_through_groups_that_share_one_member_each(causal: bool) -> None:
    """Paper 004 promises causal order to senders that subscribe. These do, and nothing is doubly overlapped.

    p sees a in T and sends b in U; q sees b and sends c in V; r gets c and a. With an atom for every overlap (`causal`)
    a precedes c.
    """
    members = {"T": "p r", "U": "p q", "V": "q r"}
    options = AtomsOptions(causal=causal)
    plan = own_ingresses(members, {}) if not causal else None
    if plan is None:
        hosts = {"T.1&U.1": "h1", "T.1&V.1": "h2", "U.1&V.1": "h3"}
        plan = own_ingresses(members, hosts, threshold=1)
    net = Net(plan, "pqr", options)
    slow = [(source, "r") for source in ("T", "h1", "h2")]
    net.hold(*slow[: 1 if not causal else 3])
    net.publish("T", "a")
    assert net.seen("p") == ["a"]
    net.publish("U", "b")
    assert net.seen("q") == ["b"]
    net.publish("V", "c")
    net.release()
    assert net.seen("r") == (["a", "c"] if causal else ["c", "a"])
