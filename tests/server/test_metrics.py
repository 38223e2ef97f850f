"""Metrics: what is counted is what Prometheus reads."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from seriatim.model import InputError
from seriatim.server.metrics import Buckets, Metrics, add_process


def read(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, as another implementation understands it."""
    samples = {}
    for family in text_string_to_metric_families(metrics.text()):
        for sample in family.samples:
            samples[sample.name, frozenset(sample.labels.items())] = sample.value
    return samples


def test_counters_and_gauges() -> None:
    metrics = Metrics()
    tickets = {"root": 3, "left": 0.5}
    metrics.sample("tickets_total", "Tickets, by node.", lambda: tickets, labels=["node"])
    metrics.sample("epoch", "Now.", lambda: 7)
    metrics.sample("nothing_total", "Never.", lambda: 0)
    assert read(metrics) == {
        ("tickets_total", frozenset({("node", "root")})): 3.0,
        ("tickets_total", frozenset({("node", "left")})): 0.5,
        ("epoch", frozenset()): 7.0,
        ("nothing_total", frozenset()): 0.0,
    }
    assert "# HELP tickets_total Tickets, by node.\n# TYPE tickets_total counter\n" in metrics.text()


def test_a_histogram_counts_up_to_each_bound() -> None:
    metrics = Metrics()
    spread = Buckets([1, 2.5, 10])
    metrics.histogram("wait_ms", "Waits.", lambda: {"root": spread}, labels=["node"])
    for value in (0.5, 1, 1.5, 2.5, 3, 11, 12):
        spread.observe(value)
    for _ in range(3):
        spread.observe(4)
    samples = read(metrics)
    buckets = [
        samples["wait_ms_bucket", frozenset({("node", "root"), ("le", le)})] for le in ("1", "2.5", "10", "+Inf")
    ]
    assert buckets == [2, 4, 8, 10]
    assert samples["wait_ms_count", frozenset({("node", "root")})] == 10
    assert samples["wait_ms_sum", frozenset({("node", "root")})] == 43.5


def test_samples_are_taken_when_they_are_read() -> None:
    metrics = Metrics()
    values = {"root": 1.0}
    metrics.sample("backlog", "Now.", lambda: dict(values), labels=["node"])
    metrics.sample("size", "Now.", lambda: len(values))
    metrics.sample("pairs_total", "Two labels.", lambda: {("a", "b"): 2.0}, labels=["x", "y"])
    values["left"] = math.inf
    assert read(metrics) == {
        ("backlog", frozenset({("node", "root")})): 1.0,
        ("backlog", frozenset({("node", "left")})): math.inf,
        ("size", frozenset()): 2.0,
        ("pairs_total", frozenset({("x", "a"), ("y", "b")})): 2.0,
    }


# The other implementation splits its input at every kind of line end; the format itself knows \n only.
LABELS = st.text(st.one_of(st.sampled_from('\n\\"{}=, '), st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])))


@given(st.dictionaries(LABELS, st.floats(allow_nan=False), max_size=5))
def test_whatever_the_labels_and_values_are_they_are_read_back(values: dict[str, float]) -> None:
    metrics = Metrics()
    metrics.sample("value", "Anything.", lambda: values, labels=["name"])
    assert read(metrics) == {("value", frozenset({("name", label)})): value for label, value in values.items()}


def test_what_is_declared_wrongly_is_refused() -> None:
    metrics = Metrics()
    metrics.sample("taken", "Once.", lambda: 1)
    for wrong in (
        lambda: metrics.sample("taken", "Twice.", lambda: 1),
        lambda: metrics.sample("with blank", "x", lambda: 1),
        lambda: metrics.histogram("x_total", "It says it is a counter.", dict, labels=[]),
        lambda: metrics.sample("labelled", "x", lambda: 1, labels=["le"]),
        lambda: Buckets([2, 1]),
        lambda: Buckets([]),
    ):
        with pytest.raises(InputError):
            wrong()


def test_the_process_is_measured() -> None:
    metrics = Metrics()
    add_process(metrics)
    samples = {name: value for (name, _), value in read(metrics).items()}
    assert samples["process_cpu_seconds_total"] > 0
    assert samples["process_resident_memory_bytes"] > 1_000_000
    assert samples["process_open_fds"] > 2
