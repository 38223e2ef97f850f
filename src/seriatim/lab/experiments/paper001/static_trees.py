"""Runs of VCube-PS and SRPT-S by the fast model: membership does not change (paper 001 §4.1, §4.2 and §4.4), or its
changes are load (§4.5).

As load, every subscription and unsubscription is one more message to everybody; views and trees do not change, which
hardly matters where nearly every node is a member. So the fast model can play the paper's own sizes; changing.py plays
what membership itself does, with the protocols' machines, in smaller systems. There one unit of time is a millisecond.
"""

from random import Random

from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper001.tree_model import Model, Outcome, Planned, on_tick, run
from seriatim.lab.sim import PacketDelays

VCUBE, VCUBE_WINDOW, SRPT = "VCube-PS", "VCube-PS with a window", "SRPT"
RANDOM, REGULAR = "random", "regular"
SPAN = 1_000.0  # publishers publish within it
CUTOFF = 2_000.0  # what `latency_early` counts is received by then
PLACES = (0, 2, 4, 8, 16, 32, 4_096, 8_192)  # upper ends of Table 1's rows


def _model(parameters: Parameters, random: Random, members: list[int], topics: int = 1) -> Model:
    size = int(parameters["size"])
    return Model(
        size=size,
        members=members,
        delays=PacketDelays(propagation=float(parameters.get("propagation", 100.0))),
        acks_wait=parameters.get("acks") == "queued",
        stop_and_wait=parameters["system"] != VCUBE_WINDOW,
        roots=[random.randrange(size) for _ in range(topics)] if parameters["system"] == SRPT else None,
    )


def run_one_message(parameters: Parameters, seed: int) -> Measures:
    """One member publishes one message; `subscribers` in percent of all nodes, drawn at random."""
    random = Random(f"001 one message {seed} {parameters['size']}")
    size = int(parameters["size"])
    members = sorted(random.sample(range(size), size * int(parameters["subscribers"]) // 100))
    planned = [Planned(0.0, random.choice(members))]
    outcome = run(_model(parameters, random, members), planned)
    times = [outcome.received[member] for member in members if member != planned[0].source]
    return {
        "latency": outcome.mean_latency(planned, members),
        "latency_max": max(times),
        "messages": float(sum(outcome.sent)),
        "deliveries": float(len(times)),
    }


def run_publishers(parameters: Parameters, seed: int) -> Measures:
    """Everybody is a member, and `publishers` percent of them publish one message each, within `span`."""
    random = Random(f"001 publishers {seed} {parameters['size']}")
    size = int(parameters["size"])
    everybody = list(range(size))
    sources = random.sample(everybody, size * int(parameters["publishers"]) // 100)
    span = float(parameters.get("span", SPAN))
    planned = [Planned(on_tick(random.uniform(0.0, span)), source) for source in sources]
    outcome = run(_model(parameters, random, everybody), planned)
    measures = {
        "latency": outcome.mean_latency(planned, everybody),
        "latency_early": outcome.mean_latency_until(CUTOFF, planned),
        "messages": float(sum(outcome.sent)),
        "sent_max": float(max(outcome.sent)),
        "ended": outcome.ended,
    }
    return measures | queue_sizes(outcome)


def queue_sizes(outcome: Outcome) -> Measures:
    """How many nodes have a mean queue in each of Table 1's rows. The busiest one by itself: SRPT's root."""
    places = [outcome.mean_place(node) for node in range(outcome.size)]
    measures = {f"nodes[{upto}]": 0.0 for upto in PLACES}
    for place in places:
        row = next((upto for upto in PLACES if place <= upto), PLACES[-1])
        measures[f"nodes[{row}]"] += 1.0
    queued = [node for node in range(outcome.size) if outcome.queued[node]]
    return measures | {
        "place_mean": sum(places[node] for node in queued) / len(queued),
        "place_max_mean": max(places),
        "place_max": 1.0 + max(outcome.waited_max) / PacketDelays().transmission,
    }


def run_topics(parameters: Parameters, seed: int) -> Measures:
    """Everybody is a member of every topic; each publishes every `interval` on the average, `messages` in all.

    `arrivals`: pauses are exponential, or regular (after a random beginning, always the same).
    """
    random = Random(f"001 topics {seed} {parameters['messages']}")
    size, topics, messages = int(parameters["size"]), int(parameters["topics"]), int(parameters["messages"])
    exponent = 0.825 if parameters["popularity"] == "Zipf 0.825" else 0.0
    weights = [(rank + 1) ** -exponent for rank in range(topics)]
    everybody = list(range(size))
    planned: list[Planned] = []
    rate = 1.0 / float(parameters["interval"])
    is_regular = parameters.get("arrivals") == REGULAR
    due = [(random.uniform(0.0, 1.0 / rate) if is_regular else random.expovariate(rate), each) for each in everybody]
    while len(planned) < messages:  # a round is one message of each
        for at, source in due[: messages - len(planned)]:
            planned.append(Planned(on_tick(at), source, random.choices(range(topics), weights)[0]))
        due = [(at + (1.0 / rate if is_regular else random.expovariate(rate)), source) for at, source in due]
    outcome = run(_model(parameters, random, everybody, topics), planned)
    begun = [outcome.received[row * size + publication.source] for row, publication in enumerate(planned)]
    waited = sum(start - publication.at for start, publication in zip(begun, planned, strict=True))
    return {
        "latency": outcome.mean_latency(planned, everybody),
        "waited_at_source": 0.0 if parameters["system"] == SRPT else waited / messages,
        "place_max_mean": queue_sizes(outcome)["place_max_mean"],
    }


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
