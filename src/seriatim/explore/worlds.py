"""The small worlds that are searched exhaustively, by name."""

from seriatim.explore.tree import TreeWorld, change, publish
from seriatim.model import InputError
from seriatim.order import SequencingTree
from seriatim.protocols.tree import TreeOptions

LOG = TreeOptions(mode="log")
TICKET = TreeOptions(mode="ticket")


def _pair(mode: str, tree: SequencingTree, name: str, about: str) -> TreeWorld:
    """Two topics, two subscribers: y joins B while z, which holds both, leaves it; events on both topics meanwhile."""
    return TreeWorld(
        name=name,
        about=about,
        tree=tree,
        options=LOG if mode == "log" else TICKET,
        setup=[("y", change("A")), ("z", change("A B"))],
        scripts={
            "y": [change("B")],
            "z": [change(remove="B")],
            "p": [publish("p", "A", "a1"), publish("p", "A", "a2")],
            "q": [publish("q", "B", "b1"), publish("q", "B", "b2")],
        },
    )


def _joiners(mode: str, tree: SequencingTree, name: str, about: str) -> TreeWorld:
    """Three topics, three subscribers that all join at once, each a different pair, with an event on every topic."""
    return TreeWorld(
        name=name,
        about=about,
        tree=tree,
        options=LOG if mode == "log" else TICKET,
        scripts={
            "x": [change("A B")],
            "y": [change("B C")],
            "z": [change("A C")],
            "p": [publish("p", "A", "a1")],
            "q": [publish("q", "B", "b1")],
            "r": [publish("r", "C", "c1")],
        },
    )


def named_worlds() -> dict[str, TreeWorld]:
    """All of them."""
    single, split = SequencingTree.single("AB"), SequencingTree.chain({"A": 1, "B": 2}, 2)
    chain, star = SequencingTree.chain({"A": 1, "B": 2, "C": 3}, 3), SequencingTree.star({"A": 1, "B": 2, "C": 3}, 3)
    worlds = [
        _pair("log", single, "pair", "2 topics on one node; y joins B while z leaves it; 2 events on each"),
        _pair("log", split, "pair-chain", "the same on two nodes"),
        _pair("ticket", single, "pair-ticket", "the same on one node, ticket mode"),
        _pair("ticket", split, "pair-chain-ticket", "the same on two nodes, ticket mode"),
        _joiners("log", chain, "chain", "3 topics on a chain of 3 nodes; 3 subscribers join pairs of them at once"),
        _joiners("log", star, "star", "the same on a star with 3 leaves"),
        _joiners("ticket", chain, "chain-ticket", "3 topics on a chain of 3 nodes, 3 joiners, ticket mode"),
        _joiners("ticket", star, "star-ticket", "the same on a star, ticket mode"),
    ]
    return {world.name: world for world in worlds}


def named_world(name: str) -> TreeWorld:
    """The world of this name."""
    worlds = named_worlds()
    if name not in worlds:
        raise InputError("world", f"there is none called {name!r}", f"use one of {', '.join(worlds)}")
    return worlds[name]
