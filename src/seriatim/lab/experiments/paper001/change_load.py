"""Churn as load (paper 001 §4.5): what changes of membership do to publications by the messages that they cost.

Every subscription and unsubscription is one more message to everybody; views and trees do not change, which hardly
matters where nearly every node is a member. So the fast model can play the paper's own sizes; changing.py plays what
membership itself does, with the protocols' machines, in smaller systems. One unit of time is a millisecond.
"""

from random import Random

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper001.static_trees import SRPT
from seriatim.lab.experiments.paper001.tree_model import Model, Planned, on_tick, run

INTERVAL = 500.0  # from one publication to the next


def nodes_for(members: int) -> int:
    """The paper: fewer members than nodes, in the smallest hypercube that leaves some over."""
    return 1 << (members + members // 64).bit_length()


def run_change_load(parameters: Parameters, seed: int) -> Measures:
    """`churn` percent of the members leave in a second, and as many others join; a random member publishes every 500.

    In VCube-PS who joined a moment ago may be the one that publishes, and as the paper has it, its publication waits
    until everybody has acknowledged its subscription. In SRPT every change goes to the root and down the tree.
    """
    members, churn = int(parameters["members"]), float(parameters["churn"])
    duration = 1_000.0 * float(parameters["seconds"])
    size = nodes_for(members)
    random = Random(f"001 load {seed} {members}")
    joined = random.sample(range(size), members)
    others = sorted(set(range(size)) - set(joined))
    rate = members * churn / 100.0 / 1_000.0
    changes = [random.expovariate(rate)] if rate else [duration]
    while changes[-1] < duration:
        changes.append(changes[-1] + random.expovariate(rate))
    moments = [(at, True) for at in changes[:-1]]
    moments += [(number * INTERVAL + random.random(), False) for number in range(int(duration / INTERVAL))]
    planned: list[Planned] = []
    publications: list[int] = []
    for at, is_change in sorted(moments):
        place = random.randrange(members)
        if is_change:
            other = random.randrange(len(others))
            planned.append(Planned(on_tick(at), joined[place]))
            planned.append(Planned(on_tick(at), others[other]))
            joined[place], others[other] = others[other], joined[place]
        else:
            publications.append(len(planned))
            planned.append(Planned(on_tick(at), joined[place]))
    roots = [random.randrange(size)] if parameters["system"] == SRPT else None
    is_queued = parameters.get("acks") == "queued"
    outcome = run(Model(size=size, members=range(size), roots=roots, acks_wait=is_queued), planned)
    total, waited = 0.0, 0.0
    for row in publications:
        at, source = planned[row].at, planned[row].source
        times = outcome.received[row * size : (row + 1) * size]
        total += sum(times) - times[source] - (size - 1) * at
        waited += times[source] - at
    means = [each / max(1, count) for each, count in zip(outcome.waited, outcome.queued, strict=True)]
    return {
        "latency": total / (len(publications) * (size - 1)),
        "waited_at_source": 0.0 if roots else waited / len(publications),
        "queue": sum(outcome.waited) / sum(outcome.queued),
        "queue_busiest": max(means),
        "changes": float(len(changes) - 1),
    }
