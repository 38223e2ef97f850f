"""Spark's `xxhash64` in arrays, bit for bit: what a Python worker hashes, a join in the JVM finds again.

XXH64 takes another path for every length, so the texts of one length are hashed together, a word of all of them at a
time. Several columns are hashed by using the hash of one as the seed of the next, as Spark does.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

SPARK_SEED = 42

P1, P2, P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
P4, P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)


def seed_of(salt: int, *texts: str) -> Ids:
    """`xxhash64(lit(salt), text, …)`, as the seed of what is hashed after it: one number."""
    size = 4 if -(1 << 31) <= salt < 1 << 31 else 8  # as `lit` makes an int or a bigint of it
    seed = _hash_equal(np.frombuffer(salt.to_bytes(size, "little", signed=True), np.uint8)[None, :], SPARK_SEED)
    for text in texts:
        seed = _hash_equal(np.frombuffer(text.encode(), np.uint8)[None, :], seed)
    return seed.view(np.int64)


def hash_column(column: pa.Array, seeds: Ids) -> Ids:
    """The hash of every text of a column without nulls. `seeds`: one for all, or one for each."""
    if isinstance(column, pa.DictionaryArray):
        if len(seeds) == 1:  # few names, many rows
            hashes: Ids = hash_texts(column.dictionary, seeds)[column.indices.to_numpy()]
            return hashes
        column = column.dictionary_decode()
    return hash_texts(column, seeds)


def hash_texts(texts: pa.Array, seeds: Ids) -> Ids:
    """The hash of every text of an array that is not dictionary-encoded. `seeds`: one for all, or one for each."""
    texts = texts.cast(pa.string())
    if not len(texts):
        return np.empty(0, np.int64)
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.empty(len(texts), np.uint64)
    seeds_of = seeds.view(np.uint64)
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        rows = np.flatnonzero(lengths == length)
        cells = _cells(data, starts[rows], length)
        hashes[rows] = _hash_equal(cells, seeds_of if len(seeds) == 1 else seeds_of[rows])
    return hashes.view(np.int64)


def _cells(data: Bytes, starts: NDArray[np.int32], length: int) -> Bytes:
    """The bytes of texts of one length, a row each."""
    if not length:
        return np.empty((len(starts), 0), np.uint8)
    if int(starts[-1]) - int(starts[0]) == length * (len(starts) - 1):  # they lie side by side
        return data[starts[0] : int(starts[-1]) + length].reshape(-1, length)
    return np.lib.stride_tricks.sliding_window_view(data, length)[starts]


def _hash_equal(cells: Bytes, seeds: Any) -> Words:
    """XXH64 of texts that are all as long as one another."""
    count, length = cells.shape
    with np.errstate(over="ignore"):
        hashed = np.empty(count, np.uint64)
        hashed[:] = np.asarray(seeds).astype(np.uint64)
        at = 0
        if length >= 32:
            lanes = [hashed + P1 + P2, hashed + P2, hashed, hashed - P1]
            while at + 32 <= length:
                lanes = [_round(lane, _words(cells, at + 8 * nth)) for nth, lane in enumerate(lanes)]
                at += 32
            turns = (1, 7, 12, 18)
            hashed = np.sum([_turn(lane, by) for lane, by in zip(lanes, turns, strict=True)], axis=0, dtype=np.uint64)
            for lane in lanes:
                hashed = (hashed ^ _round(np.uint64(0), lane)) * P1 + P4
        else:
            hashed = hashed + P5
        hashed = hashed + np.uint64(length)
        while at + 8 <= length:
            hashed = _turn(hashed ^ _round(np.uint64(0), _words(cells, at)), 27) * P1 + P4
            at += 8
        if at + 4 <= length:
            word = np.ascontiguousarray(cells[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)
            hashed = _turn(hashed ^ word * P1, 23) * P2 + P3
            at += 4
        while at < length:
            hashed = _turn(hashed ^ cells[:, at].astype(np.uint64) * P5, 11) * P1
            at += 1
        hashed = (hashed ^ hashed >> np.uint64(33)) * P2
        hashed = (hashed ^ hashed >> np.uint64(29)) * P3
        mixed: Words = hashed ^ hashed >> np.uint64(32)
    return mixed


def _words(cells: Bytes, at: int) -> Words:
    words: Words = np.ascontiguousarray(cells[:, at : at + 8]).view("<u8")[:, 0]
    return words


def _round(lane: Any, words: Words) -> Words:
    return _turn(lane + words * P2, 31) * P1


def _turn(words: Words, by: int) -> Words:
    return words << np.uint64(by) | words >> np.uint64(64 - by)
