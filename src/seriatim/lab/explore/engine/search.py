"""Exhaustive search of a space: every state where a run can stop, without walking every interleaving.

Two reductions, each of which can be switched off:

- *Persistent sets.* If nothing that can still happen elsewhere is able to make anybody send to a member of a set of
  machines, then the transitions of its members are all that must be tried now: whatever the others do commutes with
  them. This prunes states.
- *Sleep sets.* After trying t and then u, where they act on different machines, there is no need to try t right after
  u: it leads to the same state. This prunes transitions. Combined with a table of visited states as in Godefroid,
  Partial-Order Methods for the Verification of Concurrent Systems (1996), section 5: the sleep set is kept with
  the state, and a visit with a smaller one tries what was asleep then and is not now.

Both keep every state in which nothing regular is left to happen, and all checks are stable (see `checks`), so they keep
every violation. `docs/explorer.md` has the argument.
"""

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from seriatim.lab.explore.engine.checks import Violation
from seriatim.lab.explore.engine.space import Offer, Space, State
from seriatim.lab.explore.engine.world import Transition, encode
from seriatim.model import InputError

CLOCK_EVERY = 2048  # transitions between two looks at the clock


@dataclass(frozen=True)
class SearchOptions:
    """Which reductions to use, and how far to go. None: no bound."""

    persistent_sets: bool = True
    sleep_sets: bool = True
    max_states: int | None = None
    max_seconds: float | None = None
    stop_at_violation: bool = True
    keep_outcomes: bool = False

    def __post_init__(self) -> None:
        for name, bound in (("max_states", self.max_states), ("max_seconds", self.max_seconds)):
            if bound is not None and bound <= 0:
                raise InputError(name, f"{bound} is not positive", "give a positive bound or leave it out")


@dataclass
class SearchResult:
    """The coverage and the findings. Only `exhausted` says that nothing was left out."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    stopped_states: int = 0
    cycles: int = 0  # states met again on the way to themselves: a run that may never stop
    seconds: float = 0.0
    exhausted: bool = False
    bound: str | None = None  # why it is not exhausted
    violations: dict[Violation, list[Transition]] = field(default_factory=dict)  # with the way that led there
    outcomes: set[tuple[tuple[bytes, ...], ...]] = field(default_factory=set)  # the logs of all machines, if kept

    @property
    def transitions_per_second(self) -> float:
        return self.transitions / self.seconds if self.seconds else 0.0


@dataclass
class _Frame:
    """A state on the way down: the transitions that are still to be tried, and those that are asleep."""

    state: State
    digest: bytes
    todo: list[int]
    sleep: int
    via: int  # the transition that led here; -1 at the start


class Search:
    """One depth-first search. `progress` is called about once a second with the result so far."""

    def __init__(
        self, space: Space, options: SearchOptions, progress: Callable[[SearchResult], None] | None = None
    ) -> None:
        self.space = space
        self.options = options
        self.progress = progress
        self.result = SearchResult()
        self._visited: dict[bytes, int] = {}  # digest → transitions asleep on every visit so far
        self._undisturbed: dict[tuple[tuple[int, int, int], ...], list[int]] = {}
        self._stack: list[_Frame] = []
        self._on_stack: set[bytes] = set()
        self._began = 0.0
        self._told = 0.0

    def run(self) -> SearchResult:
        """Search until done, a bound is met, or a violation ends it. Ctrl-C leaves `result` as far as it came."""
        result, space, stack = self.result, self.space, self._stack
        self._began = self._told = time.monotonic()
        sleep_sets = self.options.sleep_sets
        try:
            self._enter(space.initial, 0, -1)
            while stack and result.bound is None:
                frame = stack[-1]
                if not frame.todo:
                    stack.pop()
                    self._on_stack.discard(frame.digest)
                    continue
                transition = frame.todo.pop()
                after, notified = space.follow(frame.state, transition)
                machine = space.owner[transition]
                sleep = frame.sleep & ~space.owned[machine] if sleep_sets else 0
                frame.sleep |= 1 << transition
                result.transitions += 1
                broken = space.broken_by(after, machine) if notified else None
                if broken is not None:
                    self._report(broken, transition)
                self._enter(after, sleep, transition)
                if result.transitions % CLOCK_EVERY == 0:
                    self._look_at_clock()
            result.exhausted = result.bound is None
        except KeyboardInterrupt:
            result.bound = "interrupted"
            raise
        finally:
            result.seconds = time.monotonic() - self._began
        return result

    def _enter(self, state: State, sleep: int, via: int) -> None:
        digest = blake2b(array("I", state).tobytes(), digest_size=16).digest()
        result = self.result
        known = self._visited.get(digest)
        if known is None:
            self._visited[digest] = sleep
            result.states += 1
            todo = self._choose(state, via)
            wanted = [transition for transition in todo if not sleep >> transition & 1]
            if self.options.max_states is not None and result.states >= self.options.max_states:
                result.bound = f"{self.options.max_states:,} states"
        else:
            if digest in self._on_stack:
                result.cycles += 1
            woken = known & ~sleep
            if not woken:
                return
            sleep &= known
            self._visited[digest] = sleep
            wanted = [transition for transition in self._choose(state, None) if woken >> transition & 1]
        if wanted:
            self._stack.append(_Frame(state, digest, wanted, sleep, via))
            self._on_stack.add(digest)
            result.depth = max(result.depth, len(self._stack))

    def _choose(self, state: State, via: int | None) -> list[int]:
        """The transitions that must be tried here. `via` is None for a state that was looked at before."""
        space = self.space
        offers = [space.offer(state, machine) for machine in range(space.count)]
        if via is not None and not any(offer.regular for offer in offers):
            self._stop_here(state, via)
        if self.options.persistent_sets:
            offers = self._persistent(offers)
        return [transition for offer in offers for transition in (*offer.optional, *offer.regular)]

    def _persistent(self, offers: list[Offer]) -> list[Offer]:
        """What is offered by the cheapest set of machines that no other machine can disturb; else by all."""
        key = tuple((offer.edges, len(offer.regular), len(offer.optional)) for offer in offers)
        members = self._undisturbed.get(key)
        if members is None:
            leads_to = self.space.leads_to
            best = sum(regular + optional for _, regular, optional in key) + 1
            members = list(range(len(offers)))
            for seed, offer in enumerate(offers):
                if not offer.regular:
                    continue  # what only may happen must not keep the rest from happening
                chosen, disturbing, grew = {seed}, leads_to[seed], True
                while grew:
                    grew = False
                    for machine, (edges, _, _) in enumerate(key):
                        if machine not in chosen and edges & disturbing:
                            chosen.add(machine)
                            disturbing |= leads_to[machine]
                            grew = True
                size = sum(key[machine][1] + key[machine][2] for machine in chosen)
                if size < best:
                    best, members = size, sorted(chosen)
            self._undisturbed[key] = members
        return [offers[machine] for machine in members]

    def _stop_here(self, state: State, via: int) -> None:
        """Check a state in which no message is on its way and no command is left: everything owed must be there."""
        self.result.stopped_states += 1
        if self.options.keep_outcomes:
            self.result.outcomes.add(self._outcome(state))
        for violation in self.space.violations(state):
            self._report(violation, via)

    def _report(self, violation: Violation, via: int) -> None:
        """Keep the violation with the way that led to it, or a shorter one. `via` is the last transition."""
        way = [*(frame.via for frame in self._stack), via]
        trace = [self.space.transitions.values[transition] for transition in way if transition >= 0]
        known = self.result.violations.get(violation)
        if known is None or len(trace) < len(known):
            self.result.violations[violation] = trace
        if self.options.stop_at_violation:
            self.result.bound = "stopped at the first violation"

    def _outcome(self, state: State) -> tuple[tuple[bytes, ...], ...]:
        space = self.space
        logs = [space.log_payloads(space.locals.values[state[machine]].log) for machine in range(space.count)]
        return tuple(tuple(map(encode, log)) for log in logs)

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        self.result.seconds = now - self._began
        limit = self.options.max_seconds
        if limit is not None and self.result.seconds >= limit:
            self.result.bound = f"{limit:g} seconds"
        if self.progress is not None and now - self._told >= 1.0:
            self._told = now
            self.progress(self.result)


def search(
    space: Space, options: SearchOptions | None = None, progress: Callable[[SearchResult], None] | None = None
) -> SearchResult:
    """Search the space; see `SearchResult` for what it says and what it does not."""
    return Search(space, options or SearchOptions(), progress).run()
