"""A sequencing graph as text: what `plan.toml` of `seriatim plan --order atoms` holds, written and read.

    order = "atoms"
    threshold = 2                     # members that two groups share to be coupled; 1: causal order, too
    hosts = ["eu", "us"]
    topics = ["orders", "prices"]     # a topic's number is its place, from 0
    sizes = [3, 2]                    # how many members each has
    digests = ["…", "…"]              # who they are: see `digest_of`

    [[chains]]                        # atoms of one host, one after the other
    host = "eu"
    atoms = "0&1 0&2"                 # pairs of topics' numbers
    next = "1&2"                      # the atom after the last one; none: that is a root

    [members]                         # only if there are few
    orders = ["ann", "bob", "eve"]

Groups are the first incarnations of the topics. Where they enter and leave is not written: each enters at the first
atom that numbers it, and leaves at the last one. A reader of a plan checks C1, C2 and
direction. One that knows the members also checks that the plan was made for them, and that each overlap has its atom.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from seriatim.model import Address, Node, Topic
from seriatim.protocols.atoms.graph import (
    Atom,
    GraphError,
    Route,
    SequencingGraph,
    check,
    check_next,
    check_shape,
    set_routes,
)
from seriatim.protocols.atoms.overlaps import AtomId, Group, Members, atom_of, group_of, topic_of

ORDER = "atoms"
DIGITS = 15  # of a member's hash, in base 16: they fit into 64 bits
AGAIN = "seriatim plan --order atoms"
FIX = "plan again from the live subscriptions"


class Chain(Struct, forbid_unknown_fields=True):
    """Atoms one after the other, as numbers of topics."""

    host: Node
    atoms: str
    next: str | None = None


class Written(Struct, forbid_unknown_fields=True):
    """The contents of the file."""

    order: str
    threshold: int
    hosts: list[Node]
    topics: list[Topic]
    sizes: list[int]
    digests: list[str]
    chains: list[Chain] = []
    members: dict[Topic, list[Address]] | None = None


def digest_of(members: Iterable[Address]) -> str:
    """Sixty bits that say who the members are, in any order: hashes of their names, one exclusive-or the other."""
    mixed = 0
    for member in set(members):
        mixed ^= int(sha256(member.encode()).hexdigest()[:DIGITS], 16)
    return f"{mixed:0{DIGITS}x}"


def write(written: Written) -> str:
    """The text of a plan."""
    lines = [f"order = {_quoted(ORDER)}", f"threshold = {written.threshold}", f"hosts = {_quoted(written.hosts)}"]
    lines += [f"topics = {_quoted(written.topics)}", f"sizes = {_quoted(written.sizes)}"]
    lines += [f"digests = {_quoted(written.digests)}", ""]
    for chain in written.chains:
        lines += ["[[chains]]", f"host = {_quoted(chain.host)}", f"atoms = {_quoted(chain.atoms)}"]
        lines += [f"next = {_quoted(chain.next)}"] if chain.next is not None else []
        lines.append("")
    if written.members is not None:
        lines.append("[members]")
        lines += [f"{_quoted(topic)} = {_quoted(members)}" for topic, members in written.members.items()]
    return "\n".join(lines) + "\n"


def as_written(graph: SequencingGraph, hosts: Sequence[Node], threshold: int = 2) -> Written:
    """A graph that has not changed since it was built, with its members."""
    topics = [topic_of(group) for group in graph.groups]
    numbers = {group: number for number, group in enumerate(graph.groups)}
    members = {topic_of(group): sorted(route.members) for group, route in graph.groups.items()}
    text = {name: f"{numbers[atom.pair[0]]}&{numbers[atom.pair[1]]}" for name, atom in graph.atoms.items()}
    chains = []
    for chain in _chains(graph):
        after = graph.atoms[chain[-1]].next
        atoms = " ".join(text[name] for name in chain)
        chains.append(Chain(graph.atoms[chain[0]].host, atoms, None if after is None else text[after]))
    digests = [digest_of(members[topic]) for topic in topics]
    sizes = [len(members[topic]) for topic in topics]
    return Written(ORDER, threshold, list(hosts), topics, sizes, digests, chains, members)


def is_atoms(table: Mapping[str, Any]) -> bool:
    """Whether what was read from a `plan.toml` is a plan of atoms, not of a tree."""
    return table.get("order") == ORDER


def parse(table: Mapping[str, Any]) -> Written:
    """What TOML reads as; a GraphError says what is wrong with it."""
    if not is_atoms(table):
        raise GraphError(
            "order", f"{table.get('order')!r}: this is not a plan of atoms", "make one: seriatim plan --order atoms"
        )
    try:
        written = msgspec.convert(table, Written)
    except msgspec.ValidationError as error:
        raise GraphError("plan", f"does not fit: {error}", f"make it again: {AGAIN}") from None
    for name, column in (("sizes", written.sizes), ("digests", written.digests)):
        if len(column) != len(written.topics):
            raise GraphError(name, f"there are {len(column)}, for {len(written.topics)} topics", "make the plan again")
    if len(set(written.topics)) != len(written.topics):
        raise GraphError("topics", "one is listed twice", "make the plan again")
    return written


def graph_of(written: Written, memberships: Mapping[Topic, Iterable[Address]] | None = None) -> SequencingGraph:
    """The graph of a plan, checked. `memberships`: who holds what now, if the plan does not name the members."""
    live = memberships if memberships is not None else written.members
    if live is not None:
        matches(written, {topic: (len(set(each)), digest_of(each)) for topic, each in live.items()})
    groups: dict[Group, Route] = {}
    for topic in sorted(written.topics, key=lambda each: group_of(each, 1)):
        members: Members = frozenset(live[topic]) if live is not None else frozenset()
        groups[group_of(topic, 1)] = Route(members)
    graph = SequencingGraph({}, groups)
    for chain in written.chains:
        if chain.host not in written.hosts:
            raise GraphError(f"host {chain.host!r}", "it is not among the hosts of the plan", "name it there")
        pairs = [_pair(text, written.topics) for text in chain.atoms.split()]
        if not pairs:
            raise GraphError("chains", "one has no atoms", "leave it out")
        names = [atom_of(*pair) for pair in pairs]
        for name, pair in zip(names, pairs, strict=True):
            if name in graph.atoms:
                raise GraphError(f"atom {name!r}", "it is listed twice", "make the plan again")
            graph.atoms[name] = Atom(pair, host=chain.host)
        for name, after in pairwise(names):
            graph.atoms[name].next = after
        if chain.next is not None:
            graph.atoms[names[-1]].next = atom_of(*_pair(chain.next, written.topics))
    check_next(graph)
    set_routes(graph)
    check_shape(graph)
    if live is not None:
        check(graph, written.threshold)
    return graph


def matches(written: Written, live: Mapping[Topic, tuple[int, str]]) -> None:
    """Refuse a plan that was made for other members than there are. `live`: how many each topic has, and the digest."""
    found = differences(written, live)
    if found:
        more = f"; {len(found) - 1:,} more topics differ" if len(found) > 1 else ""
        raise GraphError(f"topic {found[0][0]!r}", f"{found[0][1]}{more}", FIX)


def differences(written: Written, live: Mapping[Topic, tuple[int, str]]) -> list[tuple[Topic, str]]:
    """The topics whose members are not those of the plan, and in what."""
    planned = dict(zip(written.topics, zip(written.sizes, written.digests, strict=True), strict=True))
    found: list[tuple[Topic, str]] = []
    for topic in sorted({*planned, *live}):
        here, there = planned.get(topic), live.get(topic)
        if here is None:
            found.append((topic, "is held, but not in the plan"))
        elif there is None:
            found.append((topic, "is in the plan, but nobody holds it"))
        elif here[0] != there[0]:
            found.append((topic, f"has {there[0]:,} members, the plan is for {here[0]:,}"))
        elif here[1] != there[1]:
            found.append((topic, f"has {there[0]:,} members, but not those of the plan"))
    return found


def _pair(text: str, topics: Sequence[Topic]) -> tuple[Group, Group]:
    one, _, other = text.partition("&")
    numbers = [int(each) if each.isascii() and each.isdigit() else len(topics) for each in (one, other)]
    if max(numbers) >= len(topics) or one == other:
        raise GraphError("chains", f"{text!r} is not a pair of topics", f"give two numbers below {len(topics)}: 0&1")
    first, second = sorted(group_of(topics[number], 1) for number in numbers)
    return first, second


def _chains(graph: SequencingGraph) -> Iterator[list[AtomId]]:
    """Every atom once, in runs of one host; an atom that several lead to goes on from the last of them."""
    before = {atom.next: name for name, atom in graph.atoms.items() if atom.next is not None}
    goes_on = {name: after for after, name in before.items() if graph.atoms[name].host == graph.atoms[after].host}
    continued = set(goes_on.values())
    for name in graph.atoms:
        if name not in continued:
            chain = [name]
            while chain[-1] in goes_on:
                chain.append(goes_on[chain[-1]])
            yield chain


def _quoted(value: object) -> str:
    """JSON's strings and lists are TOML's too, but TOML wants no raw DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
