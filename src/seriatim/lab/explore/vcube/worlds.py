"""The small worlds of VCube-PS that are searched exhaustively, by name. `plotting.plot` says how they are written."""

from seriatim.lab.explore.engine.plan import Plan, by_name
from seriatim.lab.explore.vcube.cast import VCubeWorld
from seriatim.lab.explore.vcube.plotting import founded_by, plot, scripts_of
from seriatim.protocols.vcube import Peer, VCubeOptions


def _world(
    name: str, about: str, ids: str, story: str, members: str | None = None, accurate: bool = True
) -> VCubeWorld:
    """All are members at first, unless `members` says otherwise."""
    told = plot(ids, ids if members is None else members, story)
    return VCubeWorld(
        name=name,
        about=about,
        ids=told.ids,
        options=VCubeOptions(window=2),
        setup=founded_by(told.members),
        scripts=scripts_of(told.steps),
        accurate=accurate,
    )


SUSPECTING = "0 publishes 0.1; 0 suspects 1; 1 publishes 1.1"
ALL_THREE = "0 publishes 0.1; 1 publishes 1.1; 2 publishes 2.1; 3 joins"

WORLDS: dict[str, Plan[type[Peer]]] = by_name(
    [
        _world("publish", "3 members; 2 of them publish", "0 1 2", "0 publishes 0.1; 1 publishes 1.1"),
        _world(
            "window", "2 members; one publishes twice, the other reacts", "0 1", "0 publishes 0.1, 0.2; 1 publishes 1.1"
        ),
        _world("join", "2 members and a joiner; 2 events", "0 1 2", "0 publishes 0.1; 1 publishes 1.1; 2 joins", "0 1"),
        _world("join-both", "a member and 2 joiners; 1 event", "0 1 2", "0 publishes 0.1; 1 2 join", "0"),
        _world("join-behind", "4 joins before 5, behind it for 0", "0 4 5", "0 publishes 0.1; 4 joins", "0 5"),
        _world("join-late", "3 members and a joiner; 3 events", "0 1 2 3", ALL_THREE, "0 1 2"),
        _world("leave-behind", "4 members; a relay leaves", "0 1 2 3", "0 publishes 0.1; 2 leaves"),
        _world("leave", "3 members; one leaves; 2 events", "0 1 2", "0 publishes 0.1; 1 publishes 1.1; 2 leaves"),
        _world(
            "return", "3 members; one leaves and comes back; 1 event", "0 1 2", "0 publishes 0.1; 2 leaves; 2 joins"
        ),
        _world(
            "suspect", "2 members; one suspects the other, which lives; 2 events", "0 1", SUSPECTING, accurate=False
        ),
    ]
)
