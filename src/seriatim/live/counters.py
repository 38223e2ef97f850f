"""The counters of a running node, which /metrics and /status read."""

from seriatim.server.metrics import LATENCY_BUCKETS_MS, Buckets

ENTRIES_BOUNDS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)


class Counters:
    """The counters of one node. They outlive its hosts: a standby that takes over again continues them."""

    def __init__(self) -> None:
        self.stamps = 0
        self.numbers = 0
        self.sampled_stamps = 0
        self.sampled_bytes = 0
        self.voids = 0
        self.inquiries = 0
        self.hop_ms: float | None = None  # the last one
        self.hops_ms = Buckets(LATENCY_BUCKETS_MS)
        self.stamp_entries = Buckets(ENTRIES_BOUNDS)
