"""Plots: worlds of VCube-PS in which several things happen at the right moments, told step by step.

Random walks hardly ever meet what takes four deaths and three slow links. A plot says which links are slow for what,
who is told what, and who dies; everything else arrives at once, in random order. The swarm plays plots with other ids
(the cube looks the same from everywhere), with steps left out and with more steps between them.

In most plots `middle` comes after `cause`, is received by every member and so stands for it in the barrier of `effect`;
then everybody dies who could tell that `cause` comes first.
"""

from random import Random

from seriatim.explore.vcube_plotting import (
    Die,
    Notice,
    Plot,
    Release,
    Step,
    Tell,
    die,
    events,
    hold,
    join,
    leave,
    mirrored,
)
from seriatim.protocols.vcube.messages import Suspect

LEFT_OUT = 0.03  # of the steps of a plot
INSERTED = 0.08  # after a step: somebody publishes, joins or leaves


def _only_joiners() -> Plot:
    """4 and 6 are joining. 0 was held up and sends them `cause` when `middle` has long been received by all."""
    return Plot(
        range(7),
        [0, 1, 2, 3, 5],
        [
            *events(3, "first"),
            hold(0, 5, "cause"),
            *events(0, "cause"),
            *events(2, "middle", "all have middle"),
            hold(4, 6, "Census"),
            hold(6, 2, "Census"),
            *join(4, 6),
            hold(0, 4, "cause"),
            *die(5),
            hold(6, 4, "Ack"),
            *events(1, "effect"),
            hold(4, 6, "Census", "cause"),
            Release(0, 4),
            *die(0, 1, 2, 3),
            Release(4, 6),
            Release(6, 4),
            *events(4, "new"),
        ],
    )


def _late_spares() -> Plot:
    """4 joins; the two who have `middle` cannot notify it yet, and what they send 4 of it is slow."""
    return Plot(
        range(5),
        [0, 1, 2, 3],
        [
            hold(1, 0, "first"),
            *events(1, "first"),
            hold(0, 1, "cause"),
            *events(2, "cause"),
            *events(3, "middle", "all have middle"),
            hold(4, 0, "Census"),
            *join(4),
            hold(0, 4, "cause", "middle"),
            hold(1, 4, "middle"),
            *die(2, 3),
            Release(4, 0),
            hold(4, 0, "Census"),
            *die(1),
            Release(4, 0),
            *events(0, "effect"),
            Release(0, 4),
        ],
    )


def _leaver(*then: Step) -> Plot:
    """4 has left and still hands on `cause` and `effect` to 5, which is joining. It had received `middle`, but not
    notified it, for want of what came before. All others die."""
    return Plot(
        range(6),
        [0, 1, 2, 3, 4],
        [
            hold(3, 4, "first"),
            *events(3, "first"),
            hold(0, 4, "cause"),
            *events(0, "cause"),
            *events(2, "middle", "all have middle"),
            hold(5, 1, "Census"),
            *join(5),
            hold(5, 4, "Census"),
            hold(4, 5, "cause", "effect"),
            *events(1, "effect"),
            Release(0, 4),
            leave(4),
            *die(0, 1, 2, 3),
            *then,
            Release(5, 4),
            Release(4, 5),
        ],
    )


def _two_crashes() -> Plot:
    """Nobody who lives has `middle`, and 3 has nothing but `effect`."""
    return Plot(
        [0, 1, 3, 4],
        [0, 1, 3, 4],
        [
            hold(0, 3, "cause", "middle"),
            hold(0, 4, "middle"),
            hold(1, 4, "effect"),
            hold(4, 3, "cause"),
            *events(4, "cause"),
            *events(0, "middle"),
            *events(1, "effect"),
            *die(0, 1),
            Release(4, 3),
        ],
    )


def _had_by_all() -> Plot:
    """Everybody received `late` before 4 came, and nobody could notify it yet; its source will not send it again."""
    return Plot(
        range(5),
        [0, 1, 2, 3],
        [
            hold(3, 0, "lost"),
            hold(3, 1, "lost"),
            *events(3, "lost"),
            hold(2, 0, "Ack"),
            *events(2, "late"),
            Die((3, 2)),
            Notice((2,)),
            *join(4),
            Notice((3,), by=4),
            *events(0, "new"),
        ],
    )


def _early_answer() -> Plot:
    """1 tells the joiner how far it is before it publishes `cause`, 0 after it published `middle`."""
    return Plot(
        range(4),
        [0, 1, 2],
        [
            hold(1, 0, "Census"),
            *join(3),
            hold(2, 3, "cause"),
            *events(1, "cause"),
            *events(0, "middle", "all have middle"),
            Release(1, 0),
            *events(2, "effect"),
            Release(2, 3),
        ],
    )


def _overtaken_spares() -> Plot:
    """What 0 sends 4 to join with is slow; 4 has to ask again, and 0, the only one who had it, has left by then."""
    return Plot(
        range(5),
        [0, 1, 2, 3],
        [
            hold(1, 0, "first"),
            *events(1, "first"),
            hold(0, 1, "cause"),
            *events(2, "cause"),
            *events(3, "middle"),
            *die(2, 3),
            hold(0, 4, "cause", "middle"),
            hold(1, 4, "middle"),
            *join(4),
            leave(0),
            *die(1),
            hold(0, 4, "cause"),
            Release(0, 4),
            *join(0),
        ],
    )


def _left_out() -> Plot:
    """0 holds 4 and 5 for dead, so `middle` is received by all without them; they hear of both only from others."""
    return Plot(
        [0, 1, 2, 4, 5],
        [0, 1, 2, 4, 5],
        [
            hold(4, 5, "cause"),
            *events(2, "cause"),
            *(hold(0, other, "News") for other in (1, 2, 4, 5)),
            Tell(0, Suspect(4)),
            Tell(0, Suspect(5)),
            *events(0, "middle", "all have middle"),
            *events(1, "effect"),
            *die(0, 1, 2),
            Release(4, 5),
        ],
        accurate=False,
    )


def _named_and_left() -> Plot:
    """0 cannot notify `middle` yet. It sends it to 1, which joins, and leaves; then 2 joins, and asks who has it."""
    return Plot(
        [0, 1, 2, 4, 5, 6],
        [0, 4, 5],
        [
            *events(4, "begin"),
            hold(5, 0, "first"),
            *events(5, "first"),
            *events(4, "middle"),
            hold(0, 6, "Census"),
            *die(4, 5),
            hold(0, 1, "middle"),
            *join(1),
            leave(0),
            *join(2),
            hold(1, 2, "middle"),
            Release(0, 1),
            *events(1, "effect"),
            Release(1, 2),
        ],
    )


def _handed_on_and_left() -> Plot:
    """1 has left and hands on `middle`, which it could not notify. 4 joins, and asks the others before they get it
    and 1 after."""
    return Plot(
        [0, 1, 2, 4, 5],
        [0, 1, 2, 5],
        [
            *events(5, "begin"),
            hold(0, 1, "first"),
            *events(0, "first"),
            hold(1, 0, "middle"),
            hold(1, 2, "middle"),
            *events(5, "middle"),
            leave(1),
            *die(5),
            hold(0, 1, "first", "Census"),
            *join(4),
            hold(0, 4, "middle"),
            Release(1, 0),
            Release(1, 2),
            Release(0, 1),
            *events(2, "effect"),
            Release(0, 4),
        ],
    )


def _notified_and_left(*then: Step) -> Plot:
    """2 has notified `middle`, has left and hands it on to 3. 1 has nothing but `effect`, and asks 3 before it gets it
    and 2 after."""
    return Plot(
        [0, 1, 2, 3, 5],
        [0, 1, 2, 3, 5],
        [
            hold(0, 1, "middle"),
            hold(2, 3, "middle"),
            *events(0, "middle"),
            leave(2),
            *then,
            *events(5, "effect"),
            hold(3, 2, "Census"),
            hold(3, 1, "middle"),
            Die((0, 5)),
            Notice((5,)),
            Notice((0,)),
            Release(2, 3),
            Release(3, 2),
            Release(3, 1),
        ],
    )


def _handed_on_below() -> Plot:
    """5 began after `middle`, and hands it on to 7 because 4 died. 3 has nothing but `effect`, and asks 7 before it
    gets it and 5 after."""
    return Plot(
        [0, 1, 3, 4, 5, 7],
        [0, 1, 3, 4, 7],
        [
            hold(0, 3, "middle"),
            hold(0, 4, "middle"),
            *events(0, "middle"),
            *join(5),
            hold(5, 7, "middle"),
            *die(4),
            hold(1, 5, "effect"),
            *events(1, "effect"),
            hold(7, 5, "Census"),
            hold(7, 3, "middle"),
            Die((0, 1)),
            Notice((1,)),
            Notice((0,)),
            Release(5, 7),
            Release(7, 5),
            Release(7, 3),
        ],
    )


def _reborn() -> Plot:
    """1 has left and hands on `middle`, which it could not notify. Then it begins a new life, of which only 0 has heard
    when 4 joins and asks; 2 still takes what the old life sent."""
    return Plot(
        [0, 1, 2, 4, 5],
        [0, 1, 2, 5],
        [
            *events(5, "begin"),
            hold(0, 1, "first"),
            *events(0, "first"),
            hold(1, 0, "middle"),
            hold(1, 2, "middle"),
            *events(5, "middle"),
            leave(1),
            *die(5),
            hold(1, 2, "middle", "News"),
            hold(1, 4, "News"),
            hold(0, 2, "News"),
            hold(0, 4, "News"),
            Tell(0, Suspect(1)),
            *join(4),
            hold(0, 4, "News", "middle"),
            hold(1, 2, "News"),
            *events(2, "effect"),
            Release(0, 4),
        ],
        accurate=False,
    )


PLOTS: dict[str, Plot] = {
    "only joiners are left of those who had it": _only_joiners(),
    "what members have of the dead comes late": _late_spares(),
    "who left hands on what its past is lost of": _leaver(),
    "who returns while it still hands on": _leaver(*join(4)),
    "two crashes": _two_crashes(),
    "all had it before somebody joined": _had_by_all(),
    "how far, told too early": _early_answer(),
    "spares of an earlier census": _overtaken_spares(),
    "left out as dead": _left_out(),
    "named to a joiner by who left": _named_and_left(),
    "handed on by who left": _handed_on_and_left(),
    "notified and handed on by who left": _notified_and_left(),
    "notified and handed on by who left and returned": _notified_and_left(*join(2)),
    "handed on by who began after it": _handed_on_below(),
    "handed on by an earlier life": _reborn(),
}


def random_plot(random: Random) -> Plot:
    """One of the plots, seen from another corner of the cube, and not quite as it is told."""
    plot = random.choice(list(PLOTS.values()))
    mask = random.choice([0, 0, random.randrange(8)])
    steps: list[Step] = []
    for number, step in enumerate(plot.steps):
        if random.random() >= LEFT_OUT:
            steps.append(step)
        if random.random() < INSERTED:
            peer = random.choice(plot.ids)
            steps.extend(random.choice([events(peer, f"{peer}.{number}"), join(peer), [leave(peer)]]))
    return mirrored(plot, mask, steps)
