"""How often and where the events of each topic are published."""

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seriatim.model import InputError
from seriatim.pipeline.plan.graph import Floats, sums_of
from seriatim.pipeline.plan.inputs import Inputs, Topics, check_columns, with_site


def rates_and_places(inputs: Inputs, topics: Topics, held: DataFrame) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Events per second of every topic, and the part of them at each site.

    Without rates every topic has one event per second. Where a rate has no site, its events are taken to be where the
    topic's subscribers are.
    """
    count = len(topics.names)
    known: dict[str, Floats] = {}
    at_sites = _counts_by_site(inputs, held, count)
    if inputs.rates is None:
        rates, unplaced = np.ones(count), np.ones(count)
    else:
        rates, known, unplaced = _given_rates(check_columns("rates", inputs.rates), topics, count)
    sites = tuple(sorted({*known, *at_sites}))
    where = np.zeros((count, len(sites)))
    for place_, site in enumerate(sites):
        where[:, place_] += known.get(site, 0.0)
    if at_sites:
        shares = np.stack([at_sites.get(site, np.zeros(count)) for site in sites], axis=1)
        sums = shares.sum(axis=1, keepdims=True)
        where += np.divide(shares, sums, out=np.zeros_like(shares), where=sums > 0.0) * unplaced[:, None]
    return rates, where, sites


def _given_rates(rates: DataFrame, topics: Topics, count: int) -> tuple[Floats, dict[str, Floats], Floats]:
    site = F.col("site") if "site" in rates.columns else F.lit(None)
    placed = rates.select(
        F.col("topic").cast("string"), F.col("events_per_s").cast("double"), site.cast("string").alias("site")
    )
    rows = (
        placed.join(topics.table(rates.sparkSession), "topic")
        .groupBy("id", "site")
        .agg(F.sum("events_per_s").alias("rate"))
        .toArrow()
    )
    if not rows.num_rows:
        raise InputError("rates", "none of them is of a topic that somebody holds", "give rates of the same topics")
    ids, values = rows.column("id").to_numpy(), rows.column("rate").to_numpy().astype(np.float64)
    if not np.isfinite(values).all() or (values < 0.0).any():
        raise InputError("rates", "some are negative or not a number", "give events per second, from 0 up")
    names = np.asarray([name or "" for name in rows.column("site").to_pylist()])
    total = sums_of(ids, values, count)
    known = {str(name): sums_of(ids[names == name], values[names == name], count) for name in np.unique(names)}
    unplaced = known.pop("", np.zeros(count))
    return total, known, unplaced


def _counts_by_site(inputs: Inputs, held: DataFrame, count: int) -> dict[str, Floats]:
    """How many subscribers of each topic are at each site; nothing if that is not needed or not known."""
    needed = inputs.rates is None or "site" not in inputs.rates.columns
    needed = needed or (inputs.rates is not None and not inputs.rates.where("site is null").isEmpty())
    if inputs.sites is None or not needed:
        return {}
    placed = with_site(held, "subscriber", inputs.sites).where("site is not null")
    rows = placed.groupBy("id", "site").count().toArrow()
    ids, counts = rows.column("id").to_numpy(), rows.column("count").to_numpy()
    names = np.asarray(rows.column("site").to_pylist())
    return {str(name): sums_of(ids[names == name], counts[names == name], count) for name in np.unique(names)}
