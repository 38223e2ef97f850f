"""What a paper states, as data with its citation, and how ours is compared with it.

A fact is judged on the results of all seeds: `within` its band, `outside`, or not measured when the grid that was run
lacks its points. Where ours is outside, `reason` says why; docs/figures.md shows the experiment behind the reason.
"""

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from seriatim.experiments.results import Results, Sample, Where

BAND = 0.10  # "same" unless the fact says otherwise


class Judgement(Struct, frozen=True):
    """Ours beside the paper's. `is_within` is None where nothing was measured."""

    ours: str
    is_within: bool | None


Judge: TypeAlias = Callable[[Results], Judgement]


class Fact(Struct, frozen=True, kw_only=True):
    """One statement of a paper. `measure`, `where` and `value` are set where it is one number of one point."""

    point: str
    paper: str
    band: str
    judge: Judge
    citation: str = ""
    reason: str = ""
    measure: str | None = None
    where: Where | None = None
    value: float | None = None

    def states(self, measure: str, where: Where) -> float | None:
        """The paper's number for this point, if this fact is about it."""
        is_this = self.measure == measure and self.where is not None and self.where.items() <= where.items()
        return self.value if is_this else None


NOT_MEASURED = Judgement("not measured", None)


def shown(sample: Sample) -> str:
    """Mean ± half the width of its 95 % interval over seeds."""
    if sample.count == 1:
        return f"{_number(sample.mean)} (one seed)"
    return f"{_number(sample.mean)} ± {_number(sample.half_width)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def same(point: str, value: float, measure: str, where: Where, *, band: float = BAND, **more: str) -> Fact:
    """The paper states a number, and ours must be within `band` of it."""

    def judge(results: Results) -> Judgement:
        sample = results.sample(measure, where)
        if sample is None:
            return NOT_MEASURED
        return Judgement(shown(sample), abs(sample.mean - value) <= band * abs(value))

    text = f"± {band:.0%}" if value else "exactly"
    return _fact(point, _number(value), text, judge, measure, where, value, more)


def at_least(point: str, bound: float, measure: str, where: Where, **more: str) -> Fact:
    """The paper states that it is more than this."""

    def judge(results: Results) -> Judgement:
        sample = results.sample(measure, where)
        return NOT_MEASURED if sample is None else Judgement(shown(sample), sample.mean >= bound)

    return _fact(point, f"> {_number(bound)}", "at least", judge, measure, where, None, more)


def at_most(point: str, bound: float, measure: str, where: Where, **more: str) -> Fact:
    """The paper states that it is less than this."""

    def judge(results: Results) -> Judgement:
        sample = results.sample(measure, where)
        return NOT_MEASURED if sample is None else Judgement(shown(sample), sample.mean <= bound)

    return _fact(point, f"< {_number(bound)}", "at most", judge, measure, where, None, more)


def shape(point: str, paper: str, band: str, judge: Judge, *, citation: str = "", reason: str = "") -> Fact:
    """The paper states how a curve runs; `judge` says whether ours does."""
    return Fact(point=point, paper=paper, band=band, judge=judge, citation=citation, reason=reason)


def _fact(
    point: str,
    paper: str,
    band: str,
    judge: Judge,
    measure: str,
    where: Where,
    value: float | None,
    more: dict[str, str],
) -> Fact:
    return Fact(point=point, paper=paper, band=band, judge=judge, measure=measure, where=where, value=value, **more)
