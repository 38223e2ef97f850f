"""The results of other choices: one experiment for each choice that paper 000 leaves open in Figs. 9 to 14.

An experiment here shows whether a choice matters: only the one we made agrees with what the paper states, or the
results do not hinge on it.
"""

from statistics import fmean

from seriatim.lab.experiments.experiment import Axis, Experiment, Measures, Parameters
from seriatim.lab.experiments.facts import Judgement, at, shape
from seriatim.lab.experiments.paper000.interest import EXPONENTS, zipf
from seriatim.lab.experiments.paper000.sites import RANKING, RANKINGS, SERVERS, SHAPE, SITES, populate, site_of_topic
from seriatim.lab.experiments.paper000.stamping import (
    CLIENTS,
    MEASURED_MS,
    SERVICE_MS,
    WARM_UP_MS,
    Load,
    StampingWorld,
    paper_route,
)
from seriatim.lab.experiments.results import NotMeasuredError, Results, Where

FORWARDS = 0.10  # a server that forwards no more than this part of what it handles is one that hardly forwards

# Per entry, so that the mean stamp of the geographic pattern with 10 topics each (74 entries) takes SERVICE_MS.
ENTRY_MS = SERVICE_MS / 74


def run_rankings(parameters: Parameters, seed: int) -> Measures:
    """What each server forwards if sites rank the topics of others like this. Expected values: no load, no clock."""
    pattern = str(parameters["pattern"])
    topics_each = int(parameters["subscriptions"]) // CLIENTS
    population = populate(pattern, CLIENTS, topics_each, seed, str(parameters["ranking"]))
    weights = zipf(EXPONENTS[SHAPE[pattern]])
    published = [0.0] * len(weights)
    for ranking in population.rankings:
        for topic, weight in zip(ranking, weights, strict=True):
            published[topic] += weight
    handled, forwarded = dict.fromkeys(SERVERS, 0.0), dict.fromkeys(SERVERS, 0.0)
    for topic, group in enumerate(population.coupled):
        size = published[topic] * (len(group) + 1)
        path = (SERVERS[site_of_topic(topic)], *paper_route(topic, group))
        for server in path:
            handled[server] += size
        for server in path[:-1]:
            forwarded[server] += size
    shares = {f"forwarded[{site + 1}]": forwarded[SERVERS[site]] / handled[SERVERS[site]] for site in range(SITES)}
    return shares | {"clients_outside": population.outside}


def run_service(parameters: Parameters, seed: int) -> Measures:
    """The geographic pattern at 5,000 requests per second, if a server's time is for a stamp or for each entry."""
    topics_each = int(parameters["subscriptions"]) // CLIENTS
    entry_ms = ENTRY_MS if parameters["service"] == "per entry" else None
    load = Load(layout="paper", rate=5_000, seed=seed, entry_ms=entry_ms)
    return StampingWorld(populate("geographic", CLIENTS, topics_each, seed), load).run(WARM_UP_MS, MEASURED_MS)


def run_waiting(parameters: Parameters, seed: int) -> Measures:
    """The geographic pattern, if clients wait for answers or do not; measured late, and later."""
    population = populate("geographic", CLIENTS, 10, seed)
    load = Load(layout="paper", rate=float(parameters["rate"]), seed=seed, waits=parameters["clients"] == "wait")
    return StampingWorld(population, load).run(WARM_UP_MS, MEASURED_MS)


def like_the_papers(measures: Measures) -> bool:
    """Whether a system forwards what the paper's did (Fig. 11): servers 1 to 3 next to nothing, 4 and 5 something."""
    shares = [measures[f"forwarded[{server}]"] for server in range(1, SITES + 1)]
    return max(shares[:3]) <= FORWARDS < min(shares[3:])


def _geographic(ranking: str) -> Where:
    return at(pattern="geographic", ranking=ranking)


def _rankings_that_fit(results: Results) -> Judgement:
    alike = {ranking: fmean(map(like_the_papers, results.measures(_geographic(ranking)))) for ranking in RANKINGS}
    others = max(part for ranking, part in alike.items() if ranking != RANKING)
    is_ours = alike[RANKING] == max(alike.values()) >= 2 * others
    return ", ".join(f"{ranking}: {part:.0%}" for ranking, part in alike.items()), is_ours


def _both_services_agree(results: Results) -> Judgement:
    per_stamp, per_entry = (results.curve("stamps_per_s", "subscriptions", at(service=name)) for name in SERVICES)
    ratios = [per_entry[count] / per_stamp[count] for count in per_stamp if count in per_entry and count <= 10_000]
    if not ratios:
        raise NotMeasuredError
    return f"{min(ratios):.2f} to {max(ratios):.2f} of it", all(abs(ratio - 1) <= 0.1 for ratio in ratios)


def _waiting_bounds_latency(results: Results) -> Judgement:
    latency = {clients: results.mean("latency_ms", at(clients=clients, rate=10_000)) for clients in CLIENTS_MAY}
    text = ", ".join(f"{clients}: {mean:,.0f} ms" for clients, mean in latency.items())
    return text, [mean < 300.0 for mean in latency.values()] == [True, False]


PATTERNS = tuple(SHAPE)
SERVICES = ("per stamp", "per entry")
CLIENTS_MAY = ("wait", "do not wait")

CHOICES = (
    Experiment(
        id="000-rankings",
        title="What servers forward, by how sites rank the topics of others",
        citation="paper 000, Fig. 11 and §5.4",
        x="subscriptions",
        measures={"forwarded": "part of the stamp bytes a server handles that it forwards to other servers"},
        axes=(Axis("pattern", PATTERNS), Axis("ranking", tuple(RANKINGS)), Axis("subscriptions", (10_000,))),
        run=run_rankings,
        seeds=20,
        facts=(shape("seeds like the paper's system", "(open)", "our choice: twice any other", _rankings_that_fit),),
    ),
    Experiment(
        id="000-service",
        title="Stamps per second, if a server's time is for a stamp or for each entry",
        citation="paper 000, Fig. 14 and §5.4",
        x="subscriptions",
        measures={"stamps_per_s": "stamps per second", "latency_ms": "ms from request to stamp, mean"},
        axes=(
            Axis("service", SERVICES),
            Axis("subscriptions", (2_000, 10_000, 20_000), (2_000, 5_000, 10_000, 20_000)),
        ),
        run=run_service,
        facts=(shape("per entry against per stamp", "(open)", "± 10 % up to 10,000", _both_services_agree),),
    ),
    Experiment(
        id="000-waiting",
        title="Mean time to build a stamp, if clients wait for answers or do not",
        citation="paper 000, Fig. 9 and §1",
        x="rate",
        measures={"latency_ms": "ms from request to stamp, mean", "stamps_per_s": "stamps per second"},
        axes=(
            Axis("clients", CLIENTS_MAY),
            Axis("rate", (1_000, 5_000, 10_000), (1_000, 2_000, 4_000, 5_000, 6_000, 8_000, 10_000)),
        ),
        run=run_waiting,
        facts=(shape("10,000 requests/s", "< 300 ms", "only if clients wait", _waiting_bounds_latency),),
    ),
)
