"""Runs of overlays under load, one function per kind of experiment of paper 003 §V."""

from collections.abc import Iterable
from random import Random

from seriatim.audit.degree import ordering_degree
from seriatim.lab.experiments.experiment import Measures, Parameters
from seriatim.lab.experiments.paper003.overlay_worlds import Costs, OverlayLoad, OverlayWorld, Seen
from seriatim.model import Delivery

ROW_MS = 0.0022  # calibrated: Fig. 5a, up to 10 s at an edge broker with 300 entries, all in conflict
SCINET_MS = 2.0  # for a message in Fig. 7: the paper's order can just be kept up with 240 publishers
WINDOW = 30  # publications: the length of stream that goes with the paper's degree and its conflicts (§V)


def run_detection(parameters: Parameters, seed: int) -> Measures:
    """24 brokers, half of the `entries` subscriptions and half advertisements; `conflict` in percent."""
    half = int(parameters["entries"]) // 2
    load = OverlayLoad(
        system=str(parameters["system"]),
        subscriptions=half,
        advertisements=half,
        groups=100 // int(parameters["conflict"]),
        seconds=float(parameters["seconds"]),
        seed=seed,
        costs=Costs(row_ms=float(parameters.get("row_us", 1_000.0 * ROW_MS)) / 1_000.0),
    )
    world = OverlayWorld(load)
    world.run()
    edges, cores = world.on("edge"), world.on("core")
    return {
        "detection_edge_ms": _detection(edges),
        "detection_edge_max_ms": max(seen.detection_ms_max for seen in edges),
        "detection_core_ms": _detection(cores),
        "detection_core_max_ms": max(seen.detection_ms_max for seen in cores),
        "rows_edge": _rows(edges),
        "rows_core": _rows(cores),
        "outgoing": _mean(seen.sent for seen in edges + cores),
        "latency_ms": _mean(world.latencies_local),
        "notified": len(world.latencies) / world.owed(),
    }


def run_comparison(parameters: Parameters, seed: int) -> Measures:
    """96 brokers; everything conflicts. There are 10 subscribers for 3 publishers, as with the paper's 800 and 240."""
    publishers = int(parameters["publishers"])
    load = OverlayLoad(
        system=str(parameters["system"]),
        cores=16,
        subscriptions=publishers * 10 // 3,
        advertisements=publishers,
        seconds=float(parameters.get("seconds", 8)),
        covers=True,
        seed=seed,
        costs=Costs(handle_ms=float(parameters.get("handle_ms", SCINET_MS)), row_ms=ROW_MS),
    )
    world = OverlayWorld(load)
    world.run(drain_ms=10_000.0)
    brokers = [busy.seen for busy in world.brokers.values()]
    served = {id.rpartition(" ")[0] for id in world.published}
    root = world.brokers[world.overlay.root].seen
    return {
        "latency_ms": _mean(world.latencies_local),
        "latency_max_ms": max(world.latencies_local),
        "latency_all_ms": _mean(world.latencies),
        "served": float(len(served - world.refused)),
        "notified": len(world.latencies) / world.owed(),
        "outgoing": sum(seen.sent for seen in brokers) / len(world.published),
        "root_handled": root.handled / len(world.published),
        "busiest": max(seen.busy_ms for seen in brokers) / (1_000.0 * load.seconds),
    }


def run_degree(parameters: Parameters, seed: int) -> Measures:
    """96 brokers, 240 publishers, one subscriber at each edge; a hop takes `hop_ms`, half of it at the broker.

    Fewer `cores` have fewer of all.

    Random pairs of subscribers are compared over every `WINDOW` publications.
    """
    half, cores = float(parameters["hop_ms"]) / 2.0, int(parameters.get("cores", 16))
    load = OverlayLoad(
        system=str(parameters["system"]),
        cores=cores,
        subscriptions=5 * cores,
        advertisements=15 * cores,
        seconds=float(parameters.get("seconds", 8)),
        covers=True,
        seed=seed,
        costs=Costs(handle_ms=half, send_ms=0.0, link_ms=half),
    )
    world = OverlayWorld(load, keep=lambda subscriber: True)
    world.run(drain_ms=5_000.0)
    names = sorted(world.kept)
    labels = dict(zip(names, Random(seed).sample(names, len(names)), strict=True))
    ids = list(world.published)
    compared = displaced = displacement_max = 0
    degrees = []
    for start in range(0, len(ids) - WINDOW + 1, WINDOW):
        window = set(ids[start : start + WINDOW])
        found = ordering_degree(
            Delivery(labels[name], position, id, "")
            for name, seen in world.kept.items()
            for position, id in enumerate(id for id in seen if id in window)
        )
        degrees.append(found.degree if found.degree is not None else 1.0)
        compared += found.compared
        displaced += found.displaced
        displacement_max = max(displacement_max, found.displacement_max)
    return {
        "degree": _mean(degrees),
        "conflicts": displaced / 2.0 / compared,
        "displacement_max": float(displacement_max),
        "notified": len(world.latencies) / world.owed(),
    }


def run_livelock(parameters: Parameters, seed: int) -> Measures:
    """Three publishers and three subscribers, one of each at three edges; `rate` publications per minute in all.

    An acknowledgement is there after `round_ms`: four links, from edge to edge and back.
    """
    load = OverlayLoad(
        system=str(parameters["system"]),
        cores=1,
        subscriptions=3,
        advertisements=3,
        interval_ms=180_000.0 / float(parameters["rate"]),
        seconds=float(parameters.get("seconds", 120)),
        seed=seed,
        costs=Costs(link_ms=float(parameters["round_ms"]) / 4.0),
    )
    world = OverlayWorld(load)
    world.run()
    return {"notified": 100.0 * len(world.latencies) / world.owed(), "latency_ms": _mean(world.latencies)}


def _detection(brokers: list[Seen]) -> float:
    return sum(seen.detection_ms for seen in brokers) / max(1, sum(seen.publications for seen in brokers))


def _rows(brokers: list[Seen]) -> float:
    return sum(seen.rows for seen in brokers) / max(1, sum(seen.publications for seen in brokers))


def _mean(values: Iterable[float]) -> float:
    given = list(values)
    return sum(given) / len(given) if given else 0.0
