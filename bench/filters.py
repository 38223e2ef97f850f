"""What does it cost to find the filters that an event matches, or that a filter overlaps with, as more are stored?

Three kinds of filters, each drawn so that an event matches about ten of them however many are stored:

- ticker: `symbol = "s17" and price >= 312 and price < 412`, a hundred filters for each symbol
- alerts: `price > 0.3 and volume > 0.8`, spans only: half of all filters allow the price, half the volume, ten both
- mixed: equality, lists, prefixes, exclusions and timestamps, over ten sets of attributes

The peer is asking every filter. Times are processor time of single calls, so that a busy machine distorts them less.
Every row is a process of its own; memory is what it grew by while filters were made and stored.

Run: python bench/filters.py [filters_max]
"""

import gc
import resource
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from time import process_time_ns

from seriatim.filters import Attributes, Filter, MatchIndex, OverlapIndex, attribute
from seriatim.filters.predicates import predicate

EVENTS = 500
PROBES = 300
BRUTE_CALLS_MAX = 400_000  # of `matches`, for the peer
SPARE_DAY = datetime(2026, 1, 1, tzinfo=UTC)
symbol, price, volume, region, at, is_open = map(attribute, ["symbol", "price", "volume", "region", "at", "is_open"])


def ticker(count: int, random: Random) -> Filter:
    low = random.uniform(0, 900)
    wanted = f"s{random.randrange(max(1, count // 100))}"
    return Filter.of(
        [predicate("symbol", "=", [wanted]), predicate("price", ">=", [low]), predicate("price", "<", [low + 100])]
    )


def ticker_event(count: int, random: Random) -> Attributes:
    return {"symbol": f"s{random.randrange(max(1, count // 100))}", "price": random.uniform(0, 1_000), "volume": 7}


def alert(count: int, random: Random) -> Filter:
    return Filter.of([predicate("price", ">", [random.random()]), predicate("volume", ">", [random.random()])])


def alert_event(count: int, random: Random) -> Attributes:
    share = min(1.0, 10 / count)
    one = share ** random.random()
    return {"price": one, "volume": share / one}


def mixed(count: int, random: Random) -> Filter:
    key = random.randrange(max(1, count // 40))
    moment = SPARE_DAY + timedelta(minutes=random.randrange(500_000))
    match random.randrange(5):
        case 0:
            return (symbol == f"s{key:06}") & (price != 3)
        case 1:
            return symbol.prefix(f"s{key:06}"[: random.choice([6, 7])]) & (is_open == True) & (at >= moment)  # noqa: E712
        case 2:
            return symbol.one_of(*(f"s{(key + i) % max(1, count // 40):06}" for i in range(4))) & (volume > 500)
        case 3:
            return (at >= moment) & (at < moment + timedelta(minutes=5_000_000 // count)) & (region == "EU")
    return (symbol == f"s{key:06}") & region.one_of("EU", "US", "JP") & (price < random.uniform(0, 1_000))


def mixed_event(count: int, random: Random) -> Attributes:
    return {
        "symbol": f"s{random.randrange(max(1, count // 40)):06}",
        "price": random.uniform(0, 1_000),
        "volume": random.randrange(1_000),
        "region": random.choice(["EU", "US", "JP", "BR"]),
        "at": SPARE_DAY + timedelta(minutes=random.randrange(500_000)),
        "is_open": random.random() < 0.5,
    }


KINDS: dict[str, tuple[Callable[[int, Random], Filter], Callable[[int, Random], Attributes]]] = {
    "ticker": (ticker, ticker_event),
    "alerts": (alert, alert_event),
    "mixed": (mixed, mixed_event),
}


def percentile(values: list[int], share: float) -> float:
    """In microseconds."""
    return sorted(values)[int(share * (len(values) - 1))] / 1_000


def timed(calls: list[Callable[[], object]]) -> list[int]:
    times = []
    for call in calls:
        start = process_time_ns()
        call()
        times.append(process_time_ns() - start)
    return times


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def measure_matching(kind: str, count: int) -> None:
    make_filter, make_event = KINDS[kind]
    random = Random(count)
    gc.collect()
    before_mb = peak_mb()
    index: MatchIndex[int] = MatchIndex()
    add_ns = 0
    for key in range(count):
        made = make_filter(count, random)
        start = process_time_ns()
        index.add(key, made)
        add_ns += process_time_ns() - start
    grown_mb = peak_mb() - before_mb
    events = [make_event(count, random) for _ in range(EVENTS)]
    matched = visited = 0
    for event in events:
        matched += len(index.match(event))
        visited += index.visited
    times = timed([lambda event=event: index.match(event) for event in events])  # type: ignore[misc]
    stored = [index.filter(key) for key in range(count)]
    tried = events[: max(1, BRUTE_CALLS_MAX // count)]
    brute = timed([lambda event=event: [f for f in stored if f.matches(event)] for event in tried])  # type: ignore[misc]
    removed = random.sample(range(count), min(count, 1_000))
    remove_ns = sum(timed([lambda key=key: index.remove(key) for key in removed]))  # type: ignore[misc, arg-type]
    ratio = percentile(brute, 0.5) / percentile(times, 0.5)
    print(
        f"{kind:>8} {count:>9,} {matched / EVENTS:>8.1f} {visited / EVENTS:>8.0f} {percentile(times, 0.5):>9.1f} "
        f"{percentile(times, 0.99):>9.1f} {ratio:>11,.0f}x {add_ns / count / 1_000:>9.1f} "
        f"{remove_ns / len(removed) / 1_000:>9.1f} {grown_mb * 1024**2 / count:>9,.0f}",
        flush=True,
    )


def measure_overlap(kind: str, count: int) -> None:
    make_filter, _ = KINDS[kind]
    random = Random(count)
    index: OverlapIndex[int] = OverlapIndex()
    for key in range(count):
        index.add(key, make_filter(count, random))
    probes = [make_filter(count, random) for _ in range(PROBES)]
    found = sum(len(index.intersecting(probe)) for probe in probes)
    times = timed([lambda probe=probe: index.intersecting(probe) for probe in probes])  # type: ignore[misc]
    covers = timed([lambda probe=probe: index.covering(probe) for probe in probes])  # type: ignore[misc]
    stored = [index.filter(key) for key in range(count)]
    tried = probes[: max(1, BRUTE_CALLS_MAX // count)]
    brute = timed([lambda probe=probe: [f for f in stored if f.intersects(probe)] for probe in tried])  # type: ignore[misc]
    ratio = percentile(brute, 0.5) / percentile(times, 0.5)
    print(
        f"{kind:>8} {count:>9,} {found / PROBES:>8.1f} {percentile(times, 0.5):>9.1f} {percentile(times, 0.99):>9.1f} "
        f"{percentile(covers, 0.5):>13.1f} {ratio:>12,.0f}x",
        flush=True,
    )


def main(filters_max: int) -> None:
    sizes = [size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= filters_max]
    print("matching an event                         µs per match   asking each   µs per    µs per     bytes")
    print("    kind   filters  matches  visited       p50       p99        / p50       add    remove  a filter")
    for kind in KINDS:
        for count in sizes:
            in_a_process("matching", kind, count)
    print("\noverlap with a filter         µs to intersect   µs to cover   asking each")
    print("    kind   filters  answers       p50       p99           p50         / p50")
    for kind in ("ticker", "alerts"):
        for count in [size for size in (100, 1_000, 10_000, 100_000) if size <= filters_max]:
            in_a_process("overlap", kind, count)


def in_a_process(what: str, kind: str, count: int) -> None:
    sys.stdout.flush()
    subprocess.run([sys.executable, __file__, what, kind, str(count)], check=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        {"matching": measure_matching, "overlap": measure_overlap}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
