"""How tree_model.py is computed: a wave of arrivals at a time, with arrays of numpy.

Nothing that happens within the time of one hop can cause anything else within that time. So all arrivals of such a wave
are known when it begins; they are sorted once, every node's queue is a running maximum, and what they cause is laid
aside for later waves. Times are whole ticks, so sums do not depend on the order in which they are made, and the order
of equal times is the simulator's: the outcome is the simulator's to the last bit
(tests/lab/experiments/test_tree_model.py).

Needs numpy, which the core does without; tree_model.run imports this file when it is called.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from seriatim.lab.experiments.paper001.tree_model import (
    ACK,
    KIND_BITS,
    KIND_MASK,
    REQUEST,
    TICKS,
    Model,
    Outcome,
    Planned,
    chains,
    fans_of,
)

Numbers: TypeAlias = NDArray[np.int64]


class Wave(Struct):
    """All arrivals within the time of one hop, in order. `causes`: how many messages each of them leads to."""

    times: Numbers
    cells: Numbers  # publication * size + node, as in tree_model.py
    kinds: Numbers
    causes: Numbers


class Fans(Struct, frozen=True):
    """To whom nodes hand on: `counts` by node and kind. The fan of a smaller kind is the beginning of a larger."""

    counts: Numbers
    children: Numbers  # by node and place
    kinds: Numbers


class Calendar:
    """Messages under way: by wave, in the order in which they were sent."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._waves: dict[int, list[tuple[Numbers, Numbers]]] = {}

    def add(self, times: Numbers, codes: Numbers) -> None:
        if not len(times):
            return
        due = times // self._width
        first = int(due.min())
        due -= first
        count = int(due.max()) + 1
        order = np.argsort(due.astype(np.uint16) if count <= 1 << 16 else due, kind="stable")
        ends = np.searchsorted(due[order], np.arange(1, count + 1))
        begin = 0
        for wave, end in enumerate(ends.tolist(), first):
            if end > begin:
                chosen = order[begin:end]
                self._waves.setdefault(wave, []).append((times[chosen], codes[chosen]))
            begin = end

    def take(self) -> Wave | None:
        """The next wave, sorted. Equal times stay in the order in which they were sent."""
        if not self._waves:
            return None
        parts = self._waves.pop(min(self._waves))
        times = np.concatenate([part[0] for part in parts])
        codes = np.concatenate([part[1] for part in parts])
        order = np.argsort(times, kind="stable")
        codes = codes[order]
        return Wave(times[order], codes >> KIND_BITS, codes & KIND_MASK, np.zeros(len(order), np.int64))


class Queues:
    """The output queues of all nodes. One message after the other, each for `transmission` ticks."""

    def __init__(self, size: int, transmission: int) -> None:
        self._transmission = transmission
        self.busy_until = np.zeros(size, np.int64)
        self.waited = np.zeros(size, np.int64)
        self.waited_max = np.zeros(size, np.int64)
        self.queued = np.zeros(size, np.int64)
        self.places = np.zeros(size, np.int64)

    def enter(self, nodes: Numbers, times: Numbers, counts: Numbers) -> Numbers:
        """Let so many copies enter at these times, which are in order; when does the first of each begin to leave?"""
        if not len(nodes):
            return times
        order = np.argsort(nodes.astype(np.uint16), kind="stable")
        nodes, times, counts = nodes[order], times[order], counts[order]
        first = np.flatnonzero(np.concatenate(([True], nodes[1:] != nodes[:-1])))
        last = np.append(first[1:], len(nodes)) - 1
        lengths = last - first + 1
        there = nodes[first]
        service = counts * self._transmission
        before = np.cumsum(service) - service
        before -= np.repeat(before[first], lengths)
        # It begins at the latest of all earlier entries' times, each plus the service of what entered since.
        earliest = times - before
        earliest[first] = np.maximum(earliest[first], self.busy_until[there])
        apart = int(earliest.max() - earliest.min()) + 1
        step = np.repeat(np.arange(len(first)) * apart, lengths)
        begins = np.maximum.accumulate(earliest + step) - step + before
        waits = begins - times
        pairs = counts * (counts - 1) // 2
        self.busy_until[there] = begins[last] + service[last]
        self.waited[there] += np.add.reduceat(counts * waits + self._transmission * pairs, first)
        self.places[there] += np.add.reduceat(counts * (1 + waits // self._transmission) + pairs, first)
        self.queued[there] += np.add.reduceat(counts, first)
        longest = np.maximum.reduceat(waits + self._transmission * (counts - 1), first)
        self.waited_max[there] = np.maximum(self.waited_max[there], longest)
        unsorted = np.empty_like(begins)
        unsorted[order] = begins
        return unsorted


def run_waves(model: Model, planned: Sequence[Planned]) -> Outcome:
    """Let all publications happen. Times and delays must be whole ticks, and there must be two members or more."""
    return _Waves(model, planned).run()


class _Waves:
    def __init__(self, model: Model, planned: Sequence[Planned]) -> None:
        self.model, self.planned, self.size = model, planned, model.size
        self.whole = (model.size - 1).bit_length() + 1
        self.transmission = _ticks(model.delays.transmission)
        self.after = _ticks(model.delays.after_departure)
        self.has_acks = model.roots is None
        self.acks_wait = model.acks_wait and self.has_acks
        self.sources = np.array([publication.source for publication in planned], np.int64)
        self.fans = self._fans()
        self.calendar = Calendar(self.transmission + self.after)
        self.queues = Queues(model.size, self.transmission)
        cells = len(planned) * model.size
        self.received = np.full(cells, -TICKS, np.int64)
        self.parents = np.zeros(cells, np.uint16)
        self.pending = np.zeros(cells, np.int8)
        self.latest = np.zeros(cells if self.has_acks else 0, np.int32)  # of a cell's arrivals in this wave
        self.completed = [-1.0] * len(planned)
        self.sent = np.zeros(model.size, np.int64)
        is_chained = self.has_acks and model.stop_and_wait
        self.following, self.preceding = chains(planned) if is_chained else ({}, {})
        self.is_due = bytearray(len(planned))

    def run(self) -> Outcome:
        roots = self.model.roots
        kinds = [
            self.whole if roots is None or roots[publication.topic] == publication.source else REQUEST
            for publication in self.planned
        ]
        codes = [
            (row * self.size + publication.source) << KIND_BITS | kind
            for row, (publication, kind) in enumerate(zip(self.planned, kinds, strict=True))
        ]
        times = [_ticks(publication.at) for publication in self.planned]
        self.calendar.add(np.array(times, np.int64), np.array(codes, np.int64))
        arrivals, ended = -len(self.planned), 0
        while (wave := self.calendar.take()) is not None:
            arrivals += len(wave.times)
            ended = int(wave.times[-1])
            self._play(wave)
        return self._outcome(arrivals, ended)

    def _play(self, wave: Wave) -> None:
        is_cast = (wave.kinds != ACK) & (wave.kinds != REQUEST)
        answers = self._acknowledge(wave, is_cast) if self.has_acks else np.zeros(0, np.int64)
        casts = np.flatnonzero(is_cast)
        cells, kinds = wave.cells[casts], wave.kinds[casts]
        self.received[cells] = wave.times[casts]
        counts = self.fans.counts[cells & (self.size - 1), kinds - 1]
        wave.causes[casts] = counts
        if self.has_acks:
            answers = np.sort(np.concatenate((answers, casts[counts == 0])))
            wave.causes[answers] = 1
        requests = np.flatnonzero(wave.kinds == REQUEST)
        wave.causes[requests] = 1
        self._send(wave, casts[counts > 0], answers, requests)

    def _acknowledge(self, wave: Wave, is_cast: NDArray[np.bool_]) -> Numbers:
        """Count acknowledgements. Which arrivals are a node's last missing one, so that it answers itself?"""
        acks = np.flatnonzero(wave.kinds == ACK)
        cells = wave.cells[acks]
        np.subtract.at(self.pending, cells, np.int8(1))
        self.latest[cells] = acks
        is_last = (self.pending[cells] == 0) & (self.latest[cells] == acks)
        acks, cells = acks[is_last], cells[is_last]
        is_source = self.sources[cells // self.size] == cells & (self.size - 1)
        self._chain(wave, acks[is_source], is_cast)
        answers: Numbers = acks[~is_source]
        return answers

    def _chain(self, wave: Wave, ended: Numbers, is_cast: NDArray[np.bool_]) -> None:
        """A source's publication begins when the one before it is acknowledged by all, not before. In order of time."""
        begun = np.flatnonzero(wave.kinds == self.whole)
        for at in np.sort(np.concatenate((ended, begun))).tolist():
            row, node = divmod(int(wave.cells[at]), self.size)
            if wave.kinds[at] == self.whole:
                if row in self.preceding and self.completed[self.preceding[row]] < 0.0:
                    self.is_due[row], is_cast[at] = 1, False
                continue
            self.completed[row] = int(wave.times[at]) / TICKS
            row = self.following.get(row, -1)
            if row >= 0 and self.is_due[row]:
                wave.cells[at], wave.kinds[at], is_cast[at] = row * self.size + node, self.whole, True

    def _send(self, wave: Wave, casts: Numbers, answers: Numbers, requests: Numbers) -> None:
        """Lay aside what this wave causes, in the order of what causes it."""
        places = np.cumsum(wave.causes) - wave.causes
        total = int(wave.causes.sum())
        times, codes = np.empty(total, np.int64), np.empty(total, np.int64)
        begins = self._enter(wave, casts, answers)
        counts = wave.causes[casts]
        copy = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        by, cells = np.repeat(casts, counts), np.repeat(wave.cells[casts], counts)
        nodes = cells & (self.size - 1)
        children = cells - nodes + self.fans.children[nodes, copy]
        self.parents[children] = nodes
        self.pending[wave.cells[casts]] = counts
        self.sent += np.bincount(nodes, minlength=self.size)
        times[places[by] + copy] = begins[by] + (copy + 1) * self.transmission + self.after
        codes[places[by] + copy] = children << KIND_BITS | self.fans.kinds[nodes, copy]
        cells = wave.cells[answers]
        times[places[answers]] = begins[answers] + self.transmission + self.after
        codes[places[answers]] = (cells - (cells & (self.size - 1)) + self.parents[cells]) << KIND_BITS | ACK
        if self.model.roots is not None and len(requests):
            rows = wave.cells[requests] // self.size
            roots = np.array([self.model.roots[self.planned[row].topic] for row in rows.tolist()], np.int64)
            times[places[requests]] = wave.times[requests] + self.transmission + self.after
            codes[places[requests]] = (rows * self.size + roots) << KIND_BITS | self.whole
        self.calendar.add(times, codes)

    def _enter(self, wave: Wave, casts: Numbers, answers: Numbers) -> Numbers:
        """By arrival: when the first message that it causes begins to be transmitted."""
        begins = wave.times.copy()
        entering = np.sort(np.concatenate((casts, answers))) if self.acks_wait else casts
        nodes = wave.cells[entering] & (self.size - 1)
        begins[entering] = self.queues.enter(nodes, wave.times[entering], wave.causes[entering])
        return begins

    def _fans(self) -> Fans:
        fans = fans_of(self.size, self.model.members, through_all=self.model.roots is not None)
        counts = np.array([[len(fan) for fan in by_height] for by_height in fans], np.int64)
        shape = (self.size, self.whole)
        children, kinds = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for node, by_height in enumerate(fans):
            for place, (child, kind) in enumerate(by_height[-1]):
                children[node, place], kinds[node, place] = child, kind
        return Fans(counts, children, kinds)

    def _outcome(self, arrivals: int, ended: int) -> Outcome:
        received = self.received.view(np.float64)
        step = 1 << 20
        for begin in range(0, len(received), step):  # in place: the largest array is not needed twice
            received[begin : begin + step] = self.received[begin : begin + step] / TICKS
        queues = self.queues
        return Outcome(
            size=self.size,
            received=memoryview(received.data),
            completed=self.completed,
            sent=self.sent.tolist(),
            waited=(queues.waited / TICKS).tolist(),
            queued=queues.queued.tolist(),
            waited_max=(queues.waited_max / TICKS).tolist(),
            places=queues.places.tolist(),
            arrivals=arrivals,
            ended=ended / TICKS,
        )


def _ticks(time: float) -> int:
    return int(time * TICKS)
