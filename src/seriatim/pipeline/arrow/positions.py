"""Positions made from a column or from lines, in arrays; `Table._positioned` in `audit/reading.py` says the same of
rows, and `place_by_order` in `pipeline/logs/fitting.py` of tables."""

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def positions_by_line(subscribers: Array, files: Array) -> Array | int:
    """Each subscriber's rows as they come; or a subscriber whose rows are in several files, which gives no order."""
    if not len(subscribers):
        return np.empty(0, np.int64)
    order = np.argsort(subscribers, kind="stable")
    who, where = subscribers[order], files[order]
    is_same = who[1:] == who[:-1]
    torn = np.flatnonzero(is_same & (where[1:] != where[:-1]))
    if len(torn):
        return int(who[torn[0]])
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order)) - _starts(is_same)
    return positions


def positions_by_order(subscribers: Array, files: Array, order: Array, is_trusted: bool) -> Array:
    """Without holes. Rows of equal value share one, and rows of one file whose lines contradict the column do, too."""
    if not len(subscribers):
        return np.empty(0, np.int64)
    rank = np.unique(order, return_inverse=True)[1].astype(np.int64)
    width = int(rank.max(initial=0)) + 1
    reach = rank
    if not is_trusted:  # up to the largest of an earlier line of its file
        lines = np.lexsort((files, subscribers))  # stable: lines of a file stay as they are
        who, where = subscribers[lines], files[lines]
        group = np.cumsum(np.concatenate([[0], (who[1:] != who[:-1]) | (where[1:] != where[:-1])]))
        reach = np.empty_like(rank)
        reach[lines] = np.maximum.accumulate(group * width + rank[lines]) - group * width
    by_value = np.lexsort((rank, subscribers))
    who, value = subscribers[by_value], rank[by_value]
    is_same = who[1:] == who[:-1]
    group = np.concatenate([[0], np.cumsum(~is_same)])
    latest = np.maximum.accumulate(group * width + reach[by_value]) - group * width
    is_next = np.concatenate([[0], (value[1:] > latest[:-1]) & is_same])
    steps = np.cumsum(is_next)
    positions = np.empty(len(who), np.int64)
    positions[by_value] = steps - steps[_starts(is_same)]
    return positions


def _starts(is_same: Array) -> Array:
    """Of each row, where its group begins. `is_same`: as the row before it."""
    begins = np.concatenate([[True], ~is_same])
    return np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
