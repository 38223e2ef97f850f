"""Plots: worlds of VCube-PS in which several things happen at the right moments, scripted step by step.

Random walks hardly ever meet what takes four deaths and three slow links. A plot says which links are slow for which
messages, which commands peers get, and which peers die; everything else arrives immediately, in random order. The swarm
plays plots with other ids (the cube looks the same from everywhere), with steps left out and with more steps between
them. `plotting.plot` says how a plot is written.

In most plots `middle` comes after `cause`, is received by every member and so stands for it in the barrier of `effect`;
then everybody dies who could tell that `cause` comes first.
"""

from random import Random

from seriatim.lab.explore.vcube.plotting import Plot, Step, events, join, leave, mirrored, plot

LEFT_OUT = 0.03  # of the steps of a plot
INSERTED = 0.08  # after a step: somebody publishes, joins or leaves

PLOTS: dict[str, Plot] = {
    "only joiners are left of those who had it": plot(
        # 4 and 6 are joining. 0 was held up and sends them `cause` when `middle` has long been received by all.
        "0 1 2 3 4 5 6",
        "0 1 2 3 5",
        """
        3 publishes first; slow 0>5 cause; 0 publishes cause; 2 publishes middle, all have middle; slow 4>6 Census
        slow 6>2 Census; 4 6 join; slow 0>4 cause; 5 dies; slow 6>4 Ack; 1 publishes effect; slow 4>6 Census cause
        release 0>4; 0 1 2 3 die; release 4>6; release 6>4; 4 publishes new
        """,
    ),
    "what members have of the dead comes late": plot(
        # 4 joins; the two who have `middle` cannot notify it yet, and what they send 4 of it is slow.
        "0 1 2 3 4",
        "0 1 2 3",
        """
        slow 1>0 first; 1 publishes first; slow 0>1 cause; 2 publishes cause; 3 publishes middle, all have middle
        slow 4>0 Census; 4 joins; slow 0>4 cause middle; slow 1>4 middle; 2 3 die; release 4>0; slow 4>0 Census
        1 dies; release 4>0; 0 publishes effect; release 0>4
        """,
    ),
    "a leaver hands on events whose causes are lost": plot(
        # 4 has left and still hands on `cause` and `effect` to 5, which is joining. It had received `middle`, but not
        # notified it, for want of what came before. All others die.
        "0 1 2 3 4 5",
        "0 1 2 3 4",
        """
        slow 3>4 first; 3 publishes first; slow 0>4 cause; 0 publishes cause; 2 publishes middle, all have middle
        slow 5>1 Census; 5 joins; slow 5>4 Census; slow 4>5 cause effect; 1 publishes effect; release 0>4; 4 leaves
        0 1 2 3 die; release 5>4; release 4>5
        """,
    ),
    "a leaver returns while it still hands on": plot(
        # 4 has left and still hands on `cause` and `effect` to 5, which is joining. It had received `middle`, but not
        # notified it, for want of what came before. All others die, and 4 returns.
        "0 1 2 3 4 5",
        "0 1 2 3 4",
        """
        slow 3>4 first; 3 publishes first; slow 0>4 cause; 0 publishes cause; 2 publishes middle, all have middle
        slow 5>1 Census; 5 joins; slow 5>4 Census; slow 4>5 cause effect; 1 publishes effect; release 0>4; 4 leaves
        0 1 2 3 die; 4 joins; release 5>4; release 4>5
        """,
    ),
    "two crashes": plot(
        # Nobody who lives has `middle`, and 3 has nothing but `effect`.
        "0 1 3 4",
        "0 1 3 4",
        """
        slow 0>3 cause middle; slow 0>4 middle; slow 1>4 effect; slow 4>3 cause; 4 publishes cause
        0 publishes middle; 1 publishes effect; 0 1 die; release 4>3
        """,
    ),
    "all had it before somebody joined": plot(
        # Everybody received `late` before 4 came, and nobody could notify it yet; its source will not send it again.
        "0 1 2 3 4",
        "0 1 2 3",
        """
        slow 3>0 lost; slow 3>1 lost; 3 publishes lost; slow 2>0 Ack; 2 publishes late; 3 2 die unnoticed
        all notice 2; 4 joins; 4 notices 3; 0 publishes new
        """,
    ),
    "how far, told too early": plot(
        # 1 tells the joiner how far it is before it publishes `cause`, 0 after it published `middle`.
        "0 1 2 3",
        "0 1 2",
        """
        slow 1>0 Census; 3 joins; slow 2>3 cause; 1 publishes cause; 0 publishes middle, all have middle
        release 1>0; 2 publishes effect; release 2>3
        """,
    ),
    "spares of an earlier census": plot(
        # What 0 sends 4 to join with is slow; 4 has to ask again, and 0, the only one who had it, has left by then.
        "0 1 2 3 4",
        "0 1 2 3",
        """
        slow 1>0 first; 1 publishes first; slow 0>1 cause; 2 publishes cause; 3 publishes middle; 2 3 die
        slow 0>4 cause middle; slow 1>4 middle; 4 joins; 0 leaves; 1 dies; slow 0>4 cause; release 0>4; 0 joins
        """,
    ),
    "left out as dead": plot(
        # 0 presumes 4 and 5 dead, so `middle` is received by all without them; they hear of both only from others.
        "0 1 2 4 5",
        "0 1 2 4 5",
        """
        slow 4>5 cause; 2 publishes cause; slow 0>1 News; slow 0>2 News; slow 0>4 News; slow 0>5 News; 0 suspects 4
        0 suspects 5; 0 publishes middle, all have middle; 1 publishes effect; 0 1 2 die; release 4>5
        """,
        accurate=False,
    ),
    "named to a joiner by a leaver": plot(
        # 0 cannot notify `middle` yet. It sends it to 1, which joins, and leaves; then 2 joins, and asks who has it.
        "0 1 2 4 5 6",
        "0 4 5",
        """
        4 publishes begin; slow 5>0 first; 5 publishes first; 4 publishes middle; slow 0>6 Census; 4 5 die
        slow 0>1 middle; 1 joins; 0 leaves; 2 joins; slow 1>2 middle; release 0>1; 1 publishes effect; release 1>2
        """,
    ),
    "handed on by a leaver": plot(
        # 1 has left and hands on `middle`, which it could not notify. 4 joins, and asks the others before they get it
        # and 1 after.
        "0 1 2 4 5",
        "0 1 2 5",
        """
        5 publishes begin; slow 0>1 first; 0 publishes first; slow 1>0 middle; slow 1>2 middle; 5 publishes middle
        1 leaves; 5 dies; slow 0>1 Census first; 4 joins; slow 0>4 middle; release 1>0; release 1>2; release 0>1
        2 publishes effect; release 0>4
        """,
    ),
    "notified and handed on by a leaver": plot(
        # 2 has notified `middle`, has left and hands it on to 3. 1 has nothing but `effect`, and asks 3 before it gets
        # it and 2 after.
        "0 1 2 3 5",
        "0 1 2 3 5",
        """
        slow 0>1 middle; slow 2>3 middle; 0 publishes middle; 2 leaves; 5 publishes effect; slow 3>2 Census
        slow 3>1 middle; 0 5 die unnoticed; all notice 5; all notice 0; release 2>3; release 3>2; release 3>1
        """,
    ),
    "notified and handed on by a leaver that returned": plot(
        # 2 has notified `middle`, has left and hands it on to 3. 1 has nothing but `effect`, and asks 3 before it gets
        # it and 2 after.
        "0 1 2 3 5",
        "0 1 2 3 5",
        """
        slow 0>1 middle; slow 2>3 middle; 0 publishes middle; 2 leaves; 2 joins; 5 publishes effect
        slow 3>2 Census; slow 3>1 middle; 0 5 die unnoticed; all notice 5; all notice 0; release 2>3; release 3>2
        release 3>1
        """,
    ),
    "handed on by a peer that began after it": plot(
        # 5 began after `middle`, and hands it on to 7 because 4 died. 3 has nothing but `effect`, and asks 7 before it
        # gets it and 5 after.
        "0 1 3 4 5 7",
        "0 1 3 4 7",
        """
        slow 0>3 middle; slow 0>4 middle; 0 publishes middle; 5 joins; slow 5>7 middle; 4 dies; slow 1>5 effect
        1 publishes effect; slow 7>5 Census; slow 7>3 middle; 0 1 die unnoticed; all notice 1; all notice 0
        release 5>7; release 7>5; release 7>3
        """,
    ),
    "handed on by an earlier life": plot(
        # 1 has left and hands on `middle`, which it could not notify. Then it begins a new life, of which only 0 has
        # heard when 4 joins and asks; 2 still takes what the old life sent.
        "0 1 2 4 5",
        "0 1 2 5",
        """
        5 publishes begin; slow 0>1 first; 0 publishes first; slow 1>0 middle; slow 1>2 middle; 5 publishes middle
        1 leaves; 5 dies; slow 1>2 News middle; slow 1>4 News; slow 0>2 News; slow 0>4 News; 0 suspects 1; 4 joins
        slow 0>4 News middle; slow 1>2 News; 2 publishes effect; release 0>4
        """,
        accurate=False,
    ),
}


def random_plot(random: Random) -> Plot:
    """One of the plots, seen from another corner of the cube, and not quite as it is told."""
    chosen = random.choice(list(PLOTS.values()))
    mask = random.choice([0, 0, random.randrange(8)])
    steps: list[Step] = []
    for number, step in enumerate(chosen.steps):
        if random.random() >= LEFT_OUT:
            steps.append(step)
        if random.random() < INSERTED:
            peer = random.choice(chosen.ids)
            steps.extend(random.choice([events(peer, f"{peer}.{number}"), join(peer), [leave(peer)]]))
    return mirrored(chosen, mask, steps)
