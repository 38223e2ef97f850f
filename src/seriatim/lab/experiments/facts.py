"""The statements of a paper, as data with their citations, and how our results are compared with them.

A fact is judged on the results of all seeds: `within` its band, `outside`, or not measured when the grid that was run
lacks its points. Where ours is outside, `reason` says why; docs/figures.md shows the experiment behind the reason.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from msgspec import Struct

from seriatim.lab.experiments.results import NotMeasuredError, Results, Sample, Where

BAND = 0.10  # "same" unless the fact says otherwise

# Ours as a text, and whether it is within the paper's statement; None where the paper states nothing to compare with.
Judgement: TypeAlias = tuple[str, bool | None]
Judge: TypeAlias = Callable[[Results], Judgement]
Verdict: TypeAlias = Callable[..., Judgement]  # of numbers that were measured


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


def shown(sample: Sample) -> str:
    """Mean ± half the width of its 95 % interval over seeds."""
    if sample.count == 1:
        return f"{_number(sample.mean)} (one seed)"
    return f"{_number(sample.mean)} ± {_number(sample.half_width)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def same(point: str, value: float, measure: str, where: Where, *, band: float = BAND, **more: str) -> Fact:
    """The paper states a number, and ours must be within `band` of it."""
    judge = _sample(measure, where, lambda mean: is_near(mean, value, band))
    text, paper = f"± {band:.0%}" if value else "exactly", _number(value)
    return Fact(point=point, paper=paper, band=text, judge=judge, measure=measure, where=where, value=value, **more)


def at_least(point: str, bound: float, measure: str, where: Where, **more: str) -> Fact:
    """The paper states that it is more than this."""
    return shape(point, f"> {_number(bound)}", "at least", _sample(measure, where, lambda mean: mean >= bound), **more)


def at_most(point: str, bound: float, measure: str, where: Where, **more: str) -> Fact:
    """The paper states that it is less than this."""
    return shape(point, f"< {_number(bound)}", "at most", _sample(measure, where, lambda mean: mean <= bound), **more)


def shape(point: str, paper: str, band: str, judge: Judge, *, citation: str = "", reason: str = "") -> Fact:
    """The paper states how a curve runs; `judge` says whether ours does."""
    return Fact(point=point, paper=paper, band=band, judge=judge, citation=citation, reason=reason)


def is_near(ours: float, value: float, band: float = BAND) -> bool:
    return abs(ours - value) <= band * abs(value)


def at(**point: str | int | float) -> Where:
    """The parameters of one point."""
    return point


def _sample(measure: str, where: Where, is_within: Callable[[float], bool]) -> Judge:
    def judge(results: Results) -> Judgement:
        sample = results.sample(measure, where)
        return shown(sample), is_within(sample.mean)

    return judge


def means(measure: str, points: Sequence[Where], verdict: Verdict) -> Judge:
    """Judge the means at these points; `verdict` gets them as separate arguments."""
    return lambda results: verdict(*(results.mean(measure, point) for point in points))


def values(measure: str, where: Where, verdict: Verdict) -> Judge:
    """Judge the values of all runs at a point."""
    return lambda results: verdict(results.values(measure, where))


def curve(measure: str, x: str, where: Where, needs: Collection[float] | int, verdict: Verdict) -> Judge:
    """Judge a curve that has these values of x, or so many of any."""

    def judge(results: Results) -> Judgement:
        found = results.curve(measure, x, where)
        is_there = len(found) >= needs if isinstance(needs, int) else found.keys() >= set(needs)
        if not is_there:
            raise NotMeasuredError
        return verdict(found)

    return judge


def curves(measure: str, x: str, one: Where, other: Where, verdict: Verdict) -> Judge:
    """Judge two curves where both have a point and the second is above 0: `verdict` gets the values of both."""

    def judge(results: Results) -> Judgement:
        first, second = results.curve(measure, x, one), results.curve(measure, x, other)
        both = [at for at in first if second.get(at, 0.0) > 0.0]
        if not both:
            raise NotMeasuredError
        return verdict([first[at] for at in both], [second[at] for at in both])

    return judge


def ratio(measure: str, of: Where, to: Where, value: float, *, less_one: bool = False) -> Judge:
    """One point's mean as a multiple of another's; `less_one`: by how much it is more."""

    def verdict(above: float, below: float) -> Judgement:
        if not below:
            raise NotMeasuredError
        ours = above / below
        return f"{ours - 1.0:+.1%}" if less_one else f"{ours:.2f} times", is_near(ours, value)

    return means(measure, [of, to], verdict)
