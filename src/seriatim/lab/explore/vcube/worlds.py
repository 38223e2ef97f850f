"""The small worlds of VCube-PS that are searched exhaustively, by name."""

from seriatim.lab.explore.engine.plan import Plan, by_name
from seriatim.lab.explore.vcube.cast import Command, VCubeWorld, publish
from seriatim.protocols.vcube import Peer, VCubeOptions, address_of
from seriatim.protocols.vcube.messages import Subscribe, Suspect, Unsubscribe

JOIN, LEAVE = Subscribe("A"), Unsubscribe("A")


def _world(
    name: str, about: str, ids: list[int], setup: list[int], scripts: dict[int, list[Command]], accurate: bool = True
) -> VCubeWorld:
    return VCubeWorld(
        name=name,
        about=about,
        ids=ids,
        options=VCubeOptions(window=2),
        setup=[(address_of(id), JOIN) for id in setup],
        scripts={address_of(id): script for id, script in scripts.items()},
        accurate=accurate,
    )


def _events(id: int, count: int) -> list[Command]:
    """One event after the other."""
    return publish(id, "A", *(f"{id}.{i}" for i in range(1, count + 1)))


WORLDS: dict[str, Plan[type[Peer]]] = by_name(
    [
        _world("publish", "3 members; 2 of them publish", [0, 1, 2], [0, 1, 2], {0: _events(0, 1), 1: _events(1, 1)}),
        _world(
            "window",
            "2 members; one publishes twice, the other reacts",
            [0, 1],
            [0, 1],
            {0: _events(0, 2), 1: _events(1, 1)},
        ),
        _world(
            "join",
            "2 members and a joiner; 2 events",
            [0, 1, 2],
            [0, 1],
            {0: _events(0, 1), 1: _events(1, 1), 2: [JOIN]},
        ),
        _world(
            "join-both", "a member and 2 joiners; 1 event", [0, 1, 2], [0], {0: _events(0, 1), 1: [JOIN], 2: [JOIN]}
        ),
        _world("join-behind", "4 joins before 5, behind it for 0", [0, 4, 5], [0, 5], {0: _events(0, 1), 4: [JOIN]}),
        _world(
            "join-late",
            "3 members and a joiner; 3 events",
            [0, 1, 2, 3],
            [0, 1, 2],
            {0: _events(0, 1), 1: _events(1, 1), 2: _events(2, 1), 3: [JOIN]},
        ),
        _world("leave-behind", "4 members; a relay leaves", [0, 1, 2, 3], [0, 1, 2, 3], {0: _events(0, 1), 2: [LEAVE]}),
        _world(
            "leave",
            "3 members; one leaves; 2 events",
            [0, 1, 2],
            [0, 1, 2],
            {0: _events(0, 1), 1: _events(1, 1), 2: [LEAVE]},
        ),
        _world(
            "return",
            "3 members; one leaves and comes back; 1 event",
            [0, 1, 2],
            [0, 1, 2],
            {0: _events(0, 1), 2: [LEAVE, JOIN]},
        ),
        _world(
            "suspect",
            "2 members; one suspects the other, which lives; 2 events",
            [0, 1],
            [0, 1],
            {0: [*_events(0, 1), Suspect(1)], 1: _events(1, 1)},
            accurate=False,
        ),
    ]
)
