"""The small worlds of sequencing atoms that are searched exhaustively, by name."""

from collections.abc import Mapping

from seriatim.lab.explore.atoms.cast import AtomsWorld, Cast, Command, change, publish
from seriatim.lab.explore.engine.plan import Plan, by_name
from seriatim.model import Topic
from seriatim.protocols import atoms
from seriatim.protocols.atoms import COORDINATOR, AtomsOptions, check, plan_of
from seriatim.protocols.atoms.overlaps import AtomId


def _world(
    name: str,
    about: str,
    members: Mapping[Topic, str],
    hosts: Mapping[AtomId, str],
    events: Mapping[Topic, int],
    changes: list[Command] | None = None,
) -> AtomsWorld:
    """Every topic has an ingress of its own, named after it, so that topics overtake each other."""
    plan = own_ingresses(members, hosts, " ".join(events))
    scripts = {
        topic: publish(topic, topic, *(f"{topic}{i + 1}" for i in range(count))) for topic, count in events.items()
    }
    receivers = sorted({each for text in members.values() for each in text.split()})
    return AtomsWorld(
        name=name,
        about=about,
        plan=plan,
        receivers=receivers,
        options=AtomsOptions(spread=True),
        scripts=scripts if changes is None else {**scripts, COORDINATOR: changes},
    )


class OwnIngresses(atoms.Plan, frozen=True):
    """A plan in which each topic enters at an ingress of its own name."""

    def ingress_of(self, topic: Topic) -> str:
        return topic


def own_ingresses(
    members: Mapping[Topic, str], hosts: Mapping[AtomId, str], topics: str = "", threshold: int = 2
) -> OwnIngresses:
    """A plan for these members (separated by blanks), these hosts of the atoms, and topics that come later."""
    names = sorted(set(hosts.values())) or ["h1"]
    split = {topic: each.split() for topic, each in members.items()}
    plan = plan_of(split, names, ["any"], threshold, hosts)
    return OwnIngresses(plan.graph, tuple(names), tuple(sorted({*members, *topics.split()})))


def _chained(
    name: str, about: str, members: Mapping[Topic, str], chain: list[AtomId], events: int, ends: Topic
) -> AtomsWorld:
    """A's events go along a chain of atoms, each on a host of its own, some of which do not number them; a topic ends.

    Causal, so that a common member is enough for an atom: the fewer receivers, the fewer states.
    """
    plan = own_ingresses(members, {atom: f"h{i}" for i, atom in enumerate(chain, 1)}, threshold=1)
    for atom, after in zip(chain, [*chain[1:], None], strict=True):
        plan.graph.atoms[atom].next = after
    for group, route in plan.graph.groups.items():
        own = [atom for atom in chain if group in plan.graph.atoms[atom].pair]
        route.entry, route.end = own[0], own[-1]
    check(plan.graph, 1)
    return AtomsWorld(
        name=name,
        about=about,
        plan=plan,
        receivers=sorted({each for text in members.values() for each in text.split()}),
        options=AtomsOptions(causal=True, spread=True),
        scripts={"A": publish("A", "A", *(f"A{i + 1}" for i in range(events))), COORDINATOR: [change(ends, "")]},
    )


WORLDS: dict[str, Plan[Cast]] = by_name(
    [
        _world(
            "pair",
            "2 groups with 2 common members; 2 events each",
            {"A": "r s", "B": "r s"},
            {"A.1&B.1": "h1"},
            {"A": 2, "B": 2},
        ),
        _world(
            "triangle",
            "the 3 groups of the paper's figure 2, on 3 hosts; 1 event each",
            {"A": "a b d", "B": "a b c", "C": "b c d"},
            {"A.1&B.1": "h1", "A.1&C.1": "h2", "B.1&C.1": "h3"},
            {"A": 1, "B": 1, "C": 1},
        ),
        _world(
            "open", "1 group; another opens; 2 events and 1", {"A": "r s"}, {}, {"A": 2, "B": 1}, [change("B", "r s")]
        ),
        _world(
            "replace",
            "2 groups; one gets other members; 1 event each",
            {"A": "r s", "B": "r s"},
            {"A.1&B.1": "h1"},
            {"A": 1, "B": 1},
            [change("B", "s")],
        ),
        _world(
            "close",
            "2 groups; one ends; 1 event each",
            {"A": "r s", "B": "r s"},
            {"A.1&B.1": "h1"},
            {"A": 1, "B": 1},
            [change("B", "")],
        ),
        _world(
            "retire",
            "3 groups on 3 hosts; one ends, and its atoms with it; 2 events of another",
            {"A": "r s", "B": "r s", "C": "r s"},
            {"A.1&B.1": "h1", "A.1&C.1": "h2", "B.1&C.1": "h3"},
            {"A": 2},
            [change("B", "")],
        ),
        _chained(
            "bypass",
            "5 groups on 3 hosts; one ends, and the atom in the middle of another's path goes; 2 events of that one",
            {"A": "r s", "B": "r", "C": "s", "D": "t", "E": "t"},
            ["A.1&B.1", "D.1&E.1", "A.1&C.1"],
            2,
            "D",
        ),
        _chained(
            "shorten",
            "4 groups on 3 hosts; one ends, and the path of another ends earlier; 1 event of that one",
            {"A": "r s", "B": "t", "C": "r t", "D": "s"},
            ["A.1&C.1", "B.1&C.1", "A.1&D.1"],
            1,
            "D",
        ),
    ]
)
